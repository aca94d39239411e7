"""Shapley values as a `shap.Explanation`: of a model that is here whole, or of a file that a label holder wrote."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from textwrap import fill
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.arrays import Array
from treetap.errors import did_you_mean
from treetap.lab.api.fitted import on_disk, warn_unlike
from treetap.lab.api.frames import InvalidInput, Rows
from treetap.lab.api.loopback import OwnTable
from treetap.lab.experiment.joint_model import JointModel
from treetap.lab.experiment.results import Importance
from treetap.models.store import names_in
from treetap.protocols.registry import training
from treetap.tables.config import DAYS
from treetap.tables.dates import date_text
from treetap.version import install

#: Beginnings of a player's name in a label holder's file.
_OWN, _PARTY = "own:", "party:"
#: What to do with records that a party lacks.
_LEAVE_OUT = "leave them out"


def by_shards(model: JointModel, tables: Mapping[str, OwnTable], rows: Rows) -> Any:
    """The Shapley value of every feature of every party, in the order of the caller's rows; no message is sent.

    Raises:
        InvalidInput: a table cannot be read as in the training, or a party lacks records.
        ImportError: shap is not installed.
    """
    explanation = _imported("shap", "explain", "explain needs").Explanation
    with on_disk(tables) as configs:
        ids, features = model.records(configs)
    warn_unlike(model.unlike)
    places = rows.all_in(pa.table(ids), _LEAVE_OUT)
    attributed = model.attributions({party: columns[places] for party, columns in features.items()})
    values = np.hstack([features[party][places] for party in dict.fromkeys(party for party, _ in model.features)])
    return explanation(
        **_shaped(attributed.values, attributed.expected),
        data=values,
        display_data=_shown(model, values),
        feature_names=[f"{party}.{name}" for party, name in model.features],
        output_names=_names(model.classes, len(attributed.expected)),
    )


def of_sums(written: pa.Table, label_holder: str, rows: Rows | None = None) -> Any:
    """The values in a label holder's file of attributions, a feature party's as one player (docs/model.md).

    `rows`: the caller's, in whose order the records come; None: that of the file.

    Raises as `by_shards`.
    """
    explanation = _imported("shap", "explain", "explain needs").Explanation
    players = [name for name in written.column_names if name.startswith((_OWN, _PARTY))]
    classes: list[Any] = []
    if "class" in written.column_names:
        classes = written.column("class").to_pylist()
        classes = classes[: classes.index(classes[0], 1)] if classes.count(classes[0]) > 1 else classes
    outputs = max(len(classes), 1)
    count = written.num_rows // outputs
    values = np.stack([written.column(name).to_numpy() for name in players], axis=1)
    values = np.moveaxis(values.reshape(count, outputs, len(players)), 1, 2)
    if rows is not None:
        values = values[rows.all_in(written.take(pa.array(np.arange(count) * outputs)), _LEAVE_OUT)]
    called = [f"{label_holder}.{name.removeprefix(_OWN)}" if name.startswith(_OWN) else name for name in players]
    return explanation(
        **_shaped(values, written.column("expected").to_numpy()[:outputs]),
        feature_names=[name.removeprefix(_PARTY) for name in called],
        output_names=_names(classes, outputs),
    )


def check_explained(protocol: str) -> None:
    """InvalidInput of models by a training protocol whose parts give no feature a share of a score."""
    described = training(protocol)
    if not described.grows_trees:
        raise InvalidInput(
            f"explain: a model of protocol {protocol!r} is a network, whose scores are no sums over paths"
        )
    if described.one_role:
        raise InvalidInput(f"explain: the leaf weights of a model of protocol {protocol!r} lie at several parties")


def _imported(module: str, extra: str, needed: str) -> Any:
    """A module of an extra. Raises ImportError where its library is missing; `needed`: the message's first words."""
    library = module.partition(".")[0]
    try:
        with warnings.catch_warnings():
            # of shap's bars of progress, which nothing here draws
            warnings.filterwarnings("ignore", message="IProgress not found", category=Warning)
            return import_module(module)
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != library:
            raise
        raise ImportError(f"{needed} {library}: {install(extra)}", name=library) from None


def _shaped(values: Array, expected: Array) -> dict[str, Array]:
    """Values (n, players, outputs) and expected ones (outputs,) as shap has them: one output has no axis."""
    base = np.tile(expected, (len(values), 1))
    return (
        {"values": values[:, :, 0], "base_values": base[:, 0]}
        if len(expected) == 1
        else {"values": values, "base_values": base}
    )


def _names(classes: list[Any], outputs: int) -> list[str] | None:
    return [str(name) for name in classes] if outputs > 1 else None


def _shown(model: JointModel, values: Array) -> Array | None:
    """The values with the texts of categories and of dates; None where there are none."""
    shown = values.astype(object)
    changed = False
    for place, (party, name) in enumerate(model.features):
        encoding = model.manifests[party]["categories"].get(name)
        if encoding is None or encoding["features"] != [name]:  # a number, or one of several
            continue
        texts, own = encoding["values"], values[:, place]
        if encoding["encode"] == DAYS:
            text: Any = partial(date_text, utc=bool(encoding.get("utc")))
        else:
            text = lambda code, texts=texts: texts[int(code)] if code < len(texts) else "unknown"  # noqa: E731
        shown[:, place] = ["missing" if np.isnan(value) else text(value) for value in own.tolist()]
        changed = True
    return shown if changed else None


#: Type of importance → its axis; by XGBoost's names.
_TYPES = {
    "gain": "mean gain of the splits",
    "total_gain": "total gain of the splits",
    "weight": "number of splits",
    "cover": "mean cover of the splits",
    "total_cover": "total cover of the splits",
}
#: Letters of a feature's name in a line of a picture.
WIDTH = 32
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
    texts = [_text(fill(row.feature, WIDTH)) for row, _ in drawn]
    axes = _axes(ax, height=max(2.0, 0.15 * sum(2 + text.count("\n") for text in texts) + 1.0))
    parties = list(dict.fromkeys(row.party for row in rows))
    for party in parties:
        places = [place for place, (row, _) in enumerate(drawn) if row.party == party]
        axes.barh(places, [drawn[place][1] for place in places], color=f"C{parties.index(party)}", label=party)
    axes.set_yticks(range(len(drawn)), texts)
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
    pyplot = _imported("matplotlib.pyplot", "plot", "pictures need")
    return pyplot.subplots(figsize=(7.0, height), layout="constrained")[1]


def _text(name: str) -> str:
    """A name as matplotlib draws it letter by letter: $ would begin a formula."""
    return name.replace("$", r"\$")
