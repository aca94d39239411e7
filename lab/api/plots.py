"""Pictures of a model and its training, by matplotlib, which is imported when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from treetap.lab.api.errors import InvalidInput
from treetap.lab.experiment.results import Importance
from treetap.models.kept import names_in
from treetap.names import did_you_mean
from treetap.version import install

#: Type of importance → its axis; by XGBoost's names.
_TYPES = {
    "gain": "mean gain of the splits",
    "total_gain": "total gain of the splits",
    "weight": "number of splits",
    "cover": "mean cover of the splits",
    "total_cover": "total cover of the splits",
}
#: Beginnings of a metric's name → whose records it measures.
_SETS = {"train": "training", "validation": "validation", "eval": "evaluation"}


def plot_importance(rows: Sequence[Importance], importance_type: str, most: int | None, ax: Any) -> Any:
    """A bar for each of the `most` important features, coloured by party. Raises as `Insights.plot_importance`."""
    if importance_type not in _TYPES:
        meant = did_you_mean(importance_type, _TYPES)
        raise InvalidInput(f"importance_type = {importance_type!r}: must be one of {', '.join(_TYPES)}{meant}")
    if not rows:
        raise InvalidInput("the model has no splits but those that its label holder grew alone: nothing to draw")
    sizes = [(row, size) for row in rows if (size := _size(row, importance_type)) is not None]
    if not sizes:
        raise InvalidInput(f"importance_type = {importance_type!r}: no party of this model keeps it; try 'weight'")
    drawn = sorted(sizes, key=lambda pair: -pair[1])[:most][::-1]
    axes = _axes(ax, height=max(2.0, 0.3 * len(drawn) + 1.0))
    parties = list(dict.fromkeys(row.party for row in rows))
    for party in parties:
        places = [place for place, (row, _) in enumerate(drawn) if row.party == party]
        axes.barh(places, [drawn[place][1] for place in places], color=f"C{parties.index(party)}", label=party)
    axes.set_yticks(range(len(drawn)), [_text(row.feature) for row, _ in drawn])
    axes.set_xlabel(_TYPES[importance_type])
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def plot_history(history: Sequence[Mapping[str, float | None]], best: int | None, metric: str | None, ax: Any) -> Any:
    """A line for each set of records. `best`: the round that predictions end with, marked. Raises as `Insights`."""
    names = names_in(history)
    known = list(dict.fromkeys(_split(name)[1] for name in names))
    if not known:
        raise InvalidInput("the training has kept no metrics of its rounds")
    wanted = known[0] if metric is None else metric
    if wanted not in known:
        raise InvalidInput(f"metric = {metric!r}: must be one of {', '.join(known)}{did_you_mean(wanted, known)}")
    axes = _axes(ax, height=3.5)
    for name in names:
        of, measured = _split(name)
        points = [(number, row[name]) for number, row in enumerate(history) if row.get(name) is not None]
        if measured == wanted and points:
            marker = "o" if len(points) == 1 else None
            axes.plot(*zip(*points, strict=True), label=of, marker=marker)
    if best is not None:
        axes.axvline(best, color="0.6", linestyle=":", label="best round")
    axes.set_xlabel("round")
    axes.set_ylabel(_text(wanted))
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _size(row: Importance, kind: str) -> float | None:
    if kind == "weight":
        return float(row.weight)
    mean = row.gain if kind.endswith("gain") else row.cover
    return None if mean is None else mean * (row.weight if kind.startswith("total_") else 1)


def _split(name: str) -> tuple[str, str]:
    """Whose records a metric measures, and which one it is: of several eval sets `eval_0_auc` and so on."""
    start, _, measure = name.partition("_")
    if start not in _SETS or not measure:
        return _SETS["train"], name
    number, _, further = measure.partition("_")
    return (f"{_SETS[start]} {number}", further) if number.isdigit() and further else (_SETS[start], measure)


def _axes(ax: Any, height: float) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "matplotlib":
            raise
        raise ImportError(f"pictures need matplotlib: {install('plot')}", name="matplotlib") from None
    return pyplot.subplots(figsize=(7.0, height), layout="constrained")[1]


def _text(name: str) -> str:
    """A name as matplotlib draws it letter by letter: $ would begin a formula."""
    return name.replace("$", r"\$")
