"""Label differential privacy: RRWithPrior, and training labels drawn in stages (Ghazi et al. 2021, algorithms 1 to 3).

RRWithPrior randomises one label, given a prior over the C classes that does not depend on it. Of the k* likeliest
classes, k* = argmax_k e^ε/(e^ε+k−1) · Σ of the k largest priors, a label among them is kept with probability
e^ε/(e^ε+k*−1) and is otherwise one of the other k*−1, each as likely; a label that is none of them is drawn from the k*
likeliest, each as likely. No output is more than e^ε times as likely under one label as under another: a draw from all
classes in the last case breaks that.

Probabilities are whole numbers of 2^-128, so that sampling is exact; that of another class is rounded up, which makes
no ratio greater. k* and the order of the classes depend on the prior alone, so their rounding costs no privacy.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from decimal import ROUND_FLOOR, Decimal, localcontext

import numpy as np

from treetap.arrays import Array, Floats, Ints

#: Draws a whole number below a bound, each as likely.
RandBelow = Callable[[int], int]
#: (records drawn so far, their noisy labels, records to draw next) → priors (n, C) of the latter, which may depend on
#: nothing else that depends on labels.
Priors = Callable[[Ints, Ints, Ints], Floats]

#: The name of what is drawn here; raised with any change of the distribution of the noisy labels.
MECHANISM = "RRWithPrior/1"
_ONE = 1 << 128


def likeliest(priors: Floats, epsilon: float) -> tuple[Ints, Ints]:
    """The classes of each prior (n, C) from the likeliest to the least likely, (n, C), and k* (n,)."""
    order = np.argsort(-priors, axis=1, kind="stable")
    sums = np.cumsum(np.take_along_axis(priors, order, axis=1), axis=1)
    kept = 1.0 / (1.0 + np.arange(priors.shape[1]) * math.exp(-epsilon))  # e^ε/(e^ε+k−1)
    return order, np.argmax(sums * kept, axis=1) + 1


def other_weight(k: int, epsilon: float) -> int:
    """⌈2^128 / (e^ε+k−1)⌉: the probability, in units of 2^-128, of each class of k that is not the label."""
    with localcontext() as context:
        context.prec = 100
        shares = Decimal(_ONE) / (Decimal(epsilon).exp() + (k - 1))
        return int(shares.to_integral_value(ROUND_FLOOR)) + 1


def rr_with_prior(labels: Ints, priors: Floats, epsilon: float, randbelow: RandBelow = secrets.randbelow) -> Ints:
    """Noisy labels (n,) of class numbers (n,), by priors (n, C); each costs its record ε."""
    order, ks = likeliest(priors, epsilon)
    places = np.argmax(order == labels[:, None], axis=1)
    others = {k: other_weight(k, epsilon) for k in np.unique(ks).tolist()}
    drawn = [_place(place, k, others[k], randbelow) for place, k in zip(places.tolist(), ks.tolist(), strict=True)]
    return np.take_along_axis(order, np.array(drawn, dtype=np.int64)[:, None], axis=1)[:, 0]


def _place(place: int, k: int, other: int, randbelow: RandBelow) -> int:
    """The place of the output among the k likeliest classes, for the place of the label among all."""
    if place >= k:
        return randbelow(k)
    drawn = randbelow(_ONE) // other
    if drawn >= k - 1:
        return place
    return drawn + (drawn >= place)


def staged(
    labels: Ints, classes: int, epsilon: float, stages: int, priors: Priors, randbelow: RandBelow = secrets.randbelow
) -> Ints:
    """LP-MST: noisy labels (N,) of class numbers (N,), ε-label-differentially private as a whole.

    The records are divided at random into `stages` parts, of sizes that differ by one at most. The first has the
    uniform prior; `priors` gives those of each further part from the noisy labels of the parts before it. As the parts
    are disjoint, each label is drawn once.
    """
    noisy = np.zeros(len(labels), dtype=np.int64)
    parts = np.array_split(shuffled(len(labels), randbelow), stages)
    for stage, part in enumerate(parts):
        if stage:
            before = np.sort(np.concatenate(parts[:stage]))
            prior = priors(before, noisy[before], part)
        else:
            prior = np.full((len(part), classes), 1.0 / classes)
        noisy[part] = rr_with_prior(labels[part], prior, epsilon, randbelow)
    return noisy


def shuffled(n: int, randbelow: RandBelow) -> Array:
    """The numbers 0..n−1 in an order of which each is as likely (Fisher and Yates)."""
    order = list(range(n))
    for last in range(n - 1, 0, -1):
        other = randbelow(last + 1)
        order[last], order[other] = order[other], order[last]
    return np.array(order, dtype=np.int64)
