"""Defences of a split network as settings, and the privacy loss ε of DP-SGD; no torch here.

The loss of DP-SGD in a feature party's weights is exact. The seed of a job says which records are in which batch, and
every party has it: nothing is gained by sampling. Each epoch one batch has a record, so E epochs are E Gaussian
mechanisms with noise σ, together one with σ/√E, whose δ(ε) is known in closed form (Balle, Wang 2018, "Improving the
Gaussian mechanism for differential privacy", Theorem 8). Neighbours differ in one record, whose gradient counts as 0 in
one of them. See docs/adr/0129-defences-of-columns.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from treetap.errors import BadInput

#: The readings of the norm in Equation 9 of the paper on SensFL.
RECORD, BATCH = "record", "batch"
SENSITIVITY_NORMS = (RECORD, BATCH)
#: δ of what is printed.
DELTA = 1e-5
#: The argument above which Mills' ratio is taken from its asymptotic series.
_FAR = 25.0
_HALVINGS = 200


@dataclass(frozen=True)
class GradientDefence:
    """A change of the gradients: see `treetap.neural.gradient_defences`.

    Attributes:
        kind: `noise`: Laplace noise. `compression`: only the largest numbers stay. `ppdl`: noise, and some
            numbers alone are sent (Shokri, Shmatikov 2015). `levels`: numbers rounded to levels (DiscreteSGD).
        scale: of the Laplace noise; not of compression.
        share: of compression the numbers that become 0; of ppdl those that may be sent.
        threshold: of ppdl: numbers whose size with noise is less than this with noise are not sent.
        levels: intervals into which two deviations on each side of 0 are divided.
    """

    kind: str
    scale: float = 0.0
    share: float = 0.0
    threshold: float = 0.0
    levels: int = 0


@dataclass(frozen=True)
class LabelDefences:
    """The defences of a job.

    Attributes:
        dimip: λ of DIMIP by feature party.
        gradient: applied last, to every party's gradients.
        random_labels: see `treetap.neural.gradient_defences.Dimip`.
    """

    dimip: Mapping[str, float] = field(default_factory=dict)
    gradient: GradientDefence | None = None
    random_labels: bool = True


@dataclass(frozen=True)
class DpSgd:
    """DP-SGD (Abadi et al. 2016, Algorithm 1).

    Attributes:
        clip: C, the largest norm of one record's gradient in all weights of the party's own model.
        noise: σ, the deviation of the noise on the sum of a batch's clipped gradients, in units of C.
    """

    clip: float
    noise: float


@dataclass(frozen=True)
class FeatureDefences:
    """Defences of one feature party.

    Attributes:
        sensitivity: ε of SensFL (Equation 8): ε·J is added to the loss of the party's own step; 0: none.
        sensitivity_norm: J (Equation 9) as the mean over the records of a batch of ‖∂e/∂x‖_F ("record"), or the
            Frobenius norm of the batch's Jacobian ("batch"), which is about √B times larger.
        projections: random ones that estimate ‖∂e/∂x‖²; J is exact where width × inputs is small.
        dp_sgd: None without.

    Raises:
        BadInput: on construction; the norm is unknown, or both defences are on: the gradient of J has no noise.
    """

    sensitivity: float = 0.0
    sensitivity_norm: str = RECORD
    projections: int = 1
    dp_sgd: DpSgd | None = None

    def __post_init__(self) -> None:
        if self.sensitivity_norm not in SENSITIVITY_NORMS:
            raise BadInput(f"sensitivity_norm is {self.sensitivity_norm!r}: choose {' or '.join(SENSITIVITY_NORMS)}")
        if self.sensitivity and self.dp_sgd is not None:
            raise BadInput("sensitivity and dp_sgd do not go together: leave one of them out")


def epsilon(defence: DpSgd, epochs: int, delta: float = DELTA) -> float:
    """ε at δ of the weights after these epochs.

    The gradients that return are taken as given, although the label holder computes them from embeddings without noise.
    """
    mu = math.sqrt(epochs) / defence.noise
    if _delta(0.0, mu) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while _delta(high, mu) > delta:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(middle, mu) > delta else (low, middle)
    return high


def meaning_of(defence: DpSgd, epochs: int) -> str:
    """The meaning of a job's noise as a sentence."""
    return (
        f"DP-SGD with noise {defence.noise:g} and clip {defence.clip:g}: ε = {epsilon(defence, epochs):.4g} at δ = "
        f"{DELTA:g} after {epochs} epochs, of the party's own weights, with the gradients that return taken as given. "
        "It does not cover embeddings: these are computed from the records and sent without noise"
    )


def _delta(epsilon: float, mu: float) -> float:
    """δ of a Gaussian mechanism whose noise is 1/μ times its sensitivity.

    Φ(a) − e^ε Φ(b) with a = μ/2 − ε/μ and b = −μ/2 − ε/μ, of which the second is φ(a) Φ(b)/φ(b), as e^ε φ(b) = φ(a): no
    large number stands in an exponent.
    """
    first, second = mu / 2 - epsilon / mu, mu / 2 + epsilon / mu
    density = math.exp(-first * first / 2) / math.sqrt(2 * math.pi)
    return math.erfc(-first / math.sqrt(2)) / 2 - density * _mills(second)


def _mills(t: float) -> float:
    """Mills' ratio (1 − Φ(t))/φ(t) of the normal distribution, t ≥ 0."""
    if t < _FAR:
        return math.erfc(t / math.sqrt(2)) / 2 * math.sqrt(2 * math.pi) * math.exp(t * t / 2)
    inverse = 1 / (t * t)
    return (1 - inverse * (1 - 3 * inverse * (1 - 5 * inverse))) / t
