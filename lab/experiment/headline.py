"""Together against alone: the measure of a federation's predictions beside those of its label holder by itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from treetap.arrays import Array
from treetap.strict import Part
from treetap.trees import metrics, number_metrics, sampling
from treetap.trees.job_params import COX, REGRESSIONS

#: Draws of the held-out rows, with replacement, and the share of them that the interval of a gain covers.
DRAWS, COVERED = 300, 0.95
#: Losses, of which less is better, and their units: of numbers RMSE, but where a training has no mean of them in view.
_LOSSES = {"rmse": "RMSE", "quantile": "quantile loss", "cox_nloglik": "Cox loss"}
_LOSS_OF = {"reg:quantileerror": "quantile", COX: "cox_nloglik"}
#: Effective rows below which one row has nearly all of the weight.
_FEWEST = 1.5


class Gain(Part):
    """A measure of the same held-out rows by all parties' columns and by each label owner's alone.

    `low` and `high`: bounds of what `together` gains over the best of `alone`, in 95 % of `DRAWS` redrawings of the
    rows (the percentile bootstrap: Efron and Tibshirani 1993, chapter 13), wider where rows, or those of a class, are
    few (`_wider`); None where there is none to compare with.
    """

    measure: str
    together: float
    alone: dict[str, float]
    low: float | None = None
    high: float | None = None

    @property
    def best(self) -> str | None:
        """The party that does best alone."""
        worth = {name: _worth(self.measure, value) for name, value in self.alone.items()}
        return max(worth, key=worth.__getitem__, default=None)


class Compared(NamedTuple):
    """The means of several runs' gains. `low`, `high`: means of their bounds, which no number of runs narrows.

    `best`: of what does best alone in each run, with which `gain` and its bounds compare; None where a run has nothing
    to compare with. `whose`: the party or parties that do. `alone`: of the parties that have a model in every run.
    """

    measure: str
    together: float
    alone: dict[str, float]
    whose: list[str]
    best: float | None
    gain: float
    low: float
    high: float

    @property
    def certain(self) -> bool:
        """True if the interval of the gain leaves out 0."""
        return self.best is not None and not self.low <= 0 <= self.high

    @property
    def lost(self) -> bool:
        """True if it is certain that alone is better."""
        return self.certain and self.gain < 0


def gain_of(
    objective: str,
    together: Array,
    alone: Mapping[str, Array],
    truth: Array,
    weights: Array | None,
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> Gain | None:
    """The gain of outcomes of the same N rows, as `Ensemble.outcome` has them; None where the measure is undefined.

    `together` of the federation, `alone` by party; `truth`: class numbers or targets (N,); `options`: the training's
    parameters, by name. Cox's loss has no weights. None too where one row, or event, alone counts and errors have no
    bound.
    """
    classes = 2 if together.ndim == 1 else together.shape[1]
    name = _LOSS_OF.get(objective, "rmse") if objective in REGRESSIONS else "auc" if classes == 2 else "accuracy"
    weights = None if objective == COX else weights
    of_party = {party: _measured(name, outcome, truth, objective, options) for party, outcome in alone.items()}
    of_all = _measured(name, together, truth, objective, options)
    figures, own = {party: measure(weights) for party, measure in of_party.items()}, of_all(weights)
    if not np.isfinite([own, *figures.values()]).all():
        return None
    gain = Gain(measure=name, together=own, alone=figures)
    if (best := gain.best) is None:
        return gain
    if (wider := _wider(name, truth, weights)) is None:  # nothing but the measure's range bounds the gain
        return None if name in _LOSSES else Gain(measure=name, together=own, alone=figures, low=-1.0, high=1.0)
    draw, count, gains = sampling.generator(seed, "experiment gain"), len(truth), []
    for _ in range(DRAWS):
        drawn = np.bincount(draw.integers(count, size=count), minlength=count) * (1.0 if weights is None else weights)
        first, second = (_worth(name, measure(drawn)) for measure in (of_all, of_party[best]))
        gains.append(first - second)
    # a draw without one of the classes has no AUC, and one without events no loss of Cox
    seen = _worth(name, own) - _worth(name, figures[best])
    ends = np.nanquantile(gains, [(1 - COVERED) / 2, (1 + COVERED) / 2])
    low, high = (seen + wider * (ends - seen)).tolist()
    return Gain(measure=name, together=own, alone=figures, low=low, high=high)


def _wider(measure: str, truth: Array, weights: Array | None) -> float | None:
    """The factor by which a percentile interval of few rows is too narrow; None if one row alone counts.

    That of Student's t beside the normal, and of n beside n - 1 (Hesterberg 2015, "What teachers should know about the
    bootstrap", section 4.3), where n is the number of rows, of two classes those of the rarer one, of hazards the
    events; of weighted rows Kish's effective number. t is by Abramowitz and Stegun 26.7.5.
    """
    own = np.ones(len(truth)) if weights is None else weights
    groups = (
        [own[truth == number] for number in (0, 1)]
        if measure == "auc"
        else [own[truth > 0] if measure == _LOSS_OF[COX] else own]
    )
    rows = min(float(it.sum() ** 2 / (it**2).sum()) for it in groups)
    if rows < _FEWEST:
        return None
    z, free = NormalDist().inv_cdf((1 + COVERED) / 2), rows - 1
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    t = z + sum(term / free**power for power, term in enumerate(terms, start=1))
    return float(t / z * (rows / free) ** 0.5)


def compared(gains: Sequence[Gain | None]) -> Compared | None:
    """The means over the runs; None if there is no run, or one has nothing to compare."""
    every = [gain for gain in gains if gain is not None]
    if not every or len(every) < len(gains):
        return None
    # where labels are spread, a party may have a model of its own in some runs only
    names = [name for name in every[0].alone if all(name in gain.alone for gain in every)]
    alone = {name: statistics.fmean(gain.alone[name] for gain in every) for name in names}
    measure, together = every[0].measure, statistics.fmean(gain.together for gain in every)
    low, high = (statistics.fmean(getattr(gain, end) or 0.0 for gain in every) for end in ("low", "high"))
    bests = [(name, gain.alone[name]) for gain in every if (name := gain.best) is not None]
    if len(bests) < len(every):
        return Compared(measure, together, alone, [], None, 0.0, low, high)
    whose, best = list(dict.fromkeys(name for name, _ in bests)), statistics.fmean(value for _, value in bests)
    return Compared(measure, together, alone, whose, best, _worth(measure, together) - _worth(measure, best), low, high)


def headline(gains: Sequence[Gain | None]) -> str | None:
    """One line for a person; None without `compare`.

    As "Together 0.728 AUC, bank alone 0.661 (gain +0.067, +0.042 to +0.092)", with words where the interval does not
    lie above 0.
    """
    means = compared(gains)
    if means is None:
        return None
    joint = f"Together {stated(means.measure, means.together, unit=True)}"
    if means.best is None:
        return f"{joint}; the label holder has no columns to predict by alone"
    whose = f"{means.whose[0]} alone" if len(means.alone) == 1 else f"{means.whose[0]}, the best alone,"
    if len(means.whose) > 1:
        whose = f"the best alone of each run ({' or '.join(means.whose)})"
    words = ": worse than alone" if means.lost else "" if means.certain else ": no more than chance"
    return f"{joint}, {whose} {stated(means.measure, means.best)} (gain {gained(means)}{words})"


def each_alone(gains: Sequence[Gain | None]) -> list[str]:
    """The measure together and by each party alone, a line each; empty without `compare`."""
    if (means := compared(gains)) is None:
        return []
    figures = {"together": means.together, **{f"{name} alone": value for name, value in means.alone.items()}}
    wide = max(map(len, figures))
    said = [f"  {name:<{wide}} {stated(means.measure, value, unit=True)}" for name, value in figures.items()]
    return said if means.alone else [*said, "The label holder has no columns to predict by alone."]


def conclusion(
    gains: Sequence[Gain | None],
    label_holder: str,
    others: str = "the other parties",
    undefended: tuple[str, float] | None = None,
) -> list[str]:
    """The line's meaning, in sentences; empty without `compare`.

    Args:
        label_holder: who would be alone, in words.
        others: those whose columns are added.
        undefended: of trainings with a defence, or noise, its name and the figure without it.
    """
    means = compared(gains)
    if means is None or means.best is None:
        return []
    meant = "The interval is that of 95 of 100 gains when these rows are drawn anew."
    if not means.certain:
        return [f"These held-out rows do not tell the federation from {label_holder}.", meant]
    if means.gain > 0:
        return ["Federating pays here: chance does not explain the gain.", meant]
    cause = (
        f"the columns of {others} bring nothing here, and give the model more noise to fit: fewer or shallower trees, "
        "of a network fewer epochs, or train alone"
    )
    if undefended is not None and _worth(means.measure, undefended[1]) > _worth(means.measure, means.best):
        without = stated(means.measure, undefended[1], unit=True)
        cause = f"{undefended[0]} cost more than the columns bring, {without} without them"
    return [f"The federation predicts worse than {label_holder}: {cause}.", meant]


def gained(means: Compared) -> str:
    """The gain with the ends of its interval."""
    scale, form, unit = {"auc": (1, "+.3f", ""), "accuracy": (100, "+.1f", " points")}.get(
        means.measure, (1, "+.3g", "")
    )
    gain, low, high = (f"{scale * value:{form}}" for value in (means.gain, means.low, means.high))
    return f"{gain}{unit}, {low} to {high}"


def stated(measure: str, value: float, *, unit: bool = False) -> str:
    """A figure of a measure, on request with its unit."""
    if measure == "auc":
        return f"{value:.3f}" + (" AUC" if unit else "")
    if measure == "accuracy":
        return f"{100 * value:.1f} %" + (" right" if unit else "")
    return f"{value:.4g}" + (f" {_LOSSES[measure]}" if unit else "")


def _worth(measure: str, value: float) -> float:
    """The figure with a sign by which more is better."""
    return -value if measure in _LOSSES else value


def _measured(
    measure: str, outcome: Array, truth: Array, objective: str, options: Mapping[str, Any]
) -> Callable[[Array | None], float]:
    """The measure by weights (N,) of the rows, of Cox's loss how often each counts."""
    if measure in _LOSSES:
        predicted, places = outcome.reshape(-1), np.arange(len(truth))

        def loss(weights: Array | None) -> float:
            rows = np.repeat(places, 1 if weights is None or objective != COX else weights.astype(np.int64))
            return number_metrics.of_numbers(objective, predicted[rows], truth[rows], weights, options)[measure]

        return loss
    if measure == "accuracy":
        return partial(metrics.accuracy, outcome.argmax(axis=1), truth)
    return metrics.auc_of(outcome if outcome.ndim == 1 else outcome[:, 1], truth)
