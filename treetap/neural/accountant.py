"""The privacy loss ε of DP-SGD in a feature party's weights, exactly.

The seed of a job says which records are in which batch, and every party has it: nothing is gained by sampling. Each
epoch one batch has a record, so E epochs are E Gaussian mechanisms with noise σ, together one with σ/√E, whose δ(ε) is
known in closed form (Balle, Wang 2018, "Improving the Gaussian mechanism for differential privacy", Theorem 8).
Neighbours differ in one record, whose gradient counts as 0 in one of them. See docs/adr/0129-defences-of-columns.md.
"""

from __future__ import annotations

import math

from treetap.neural.feature_defences import DpSgd

#: δ of what is printed.
DELTA = 1e-5
#: The argument above which Mills' ratio is taken from its asymptotic series.
_FAR = 25.0
_HALVINGS = 200


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


def says(defence: DpSgd, epochs: int) -> str:
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
