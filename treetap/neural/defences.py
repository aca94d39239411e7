"""Defences of a split network as settings, and the privacy loss ε of DP-SGD; no torch here.

The loss of DP-SGD in a feature party's weights is exact. The seed of a job says which records are in which batch, and
every party has it: nothing is gained by sampling. Each epoch one batch has a record, so E epochs are E Gaussian
mechanisms with noise σ, together one with σ/√E, whose δ(ε) is known in closed form (Balle, Wang 2018, "Improving the
Gaussian mechanism for differential privacy", Theorem 8). Neighbours differ in one record, whose gradient counts as 0 in
one of them. See docs/adr/0129-defences-of-columns.md.

Noise in floating point would not have that ε: its low bits tell what is under it (Mironov 2012, "On significance of the
least significant bits for differential privacy"). So sums are whole multiples of a grid γ, and so is the noise, a
discrete Gaussian of parameter σC (Canonne, Kamath, Steinke 2020). In units of γ, with τ = σC/γ:

1. A record's share of a sum is a multiple of γ and no longer than C: it is clipped first and then rounded towards 0,
   which makes no number larger (`treetap.neural.own_step.clipped_sum`). Sums are exact, so C is their sensitivity.
2. A Gaussian y of deviation s around a whole number, rounded at random to a whole number x with the probability
   exp(−(x − y)²/2r²) / Σ over all whole numbers, is x with a probability proportional to exp(−x²/2τ²), τ² = s² + r²,
   up to a factor 1 ± η (Peikert 2010, "An efficient and parallel Gaussian sampler for lattices", Theorem 3.1). By
   Poisson summation the sum over all is the same for every y up to 1 ± 2.1·exp(−2π²r²): with r = 3, η < 2⁻²⁵³.
3. So discrete noise of parameter τ tells no more than Gaussian noise of deviation √(τ² − r²), of which ε is computed
   here, but for (1 ± η) to the power of all numbers that are drawn: less than 2⁻¹⁹⁰ in ε and ln δ for 2⁶⁰ of them.
   That is as far as the bits of AES-256 under the party's key pass for uniform ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from treetap.errors import BadInput

#: The readings of the norm in Equation 9 of the paper on SensFL.
RECORD, BATCH = "record", "batch"
SENSITIVITY_NORMS = (RECORD, BATCH)
#: δ of what is printed.
DELTA = 1e-5
#: The least and the most clip and noise.
LEAST, MOST = 1e-6, 1e6
#: log2 of a clip in units of the finest grid; of the noise at which grids begin to be coarser, so that τ stays ≤ 2⁴⁵.
GRID_BITS, _NOISE_BITS = 36, 9
#: r, in units of the grid: the rounding by which discrete noise is one that follows from Gaussian noise.
_ROUNDING = 3
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

    Raises:
        BadInput: on construction; a number is outside of `LEAST` to `MOST`, where a grid fits both.
    """

    clip: float
    noise: float

    def __post_init__(self) -> None:
        for name, value in (("clip", self.clip), ("noise", self.noise)):
            if not LEAST <= value <= MOST:
                raise BadInput(f"{name} of dp_sgd is {value!r}: choose {LEAST:g} to {MOST:g}")

    @property
    def grid(self) -> float:
        """γ, a power of two: 2⁻³⁶ to 2⁻³⁵ of C, or coarser in proportion to a noise of 512 and more."""
        return finest_grid(self.clip) * 2.0 ** max(0, math.frexp(self.noise)[1] - _NOISE_BITS)

    @property
    def variance(self) -> Fraction:
        """τ², exactly."""
        return (Fraction(self.noise) * Fraction(self.clip) / Fraction(self.grid)) ** 2


def finest_grid(clip: float) -> float:
    """2⁻³⁶ of the least power of two above a clip."""
    return math.ldexp(1.0, math.frexp(clip)[1] - GRID_BITS)


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
    mu = math.sqrt(epochs / (defence.noise**2 - (_ROUNDING * defence.grid / defence.clip) ** 2))
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
