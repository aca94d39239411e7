"""Shapley values as a `shap.Explanation`: of a model that is here whole, or of a file that a label holder wrote."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.lab.api.errors import InvalidInput
from treetap.lab.api.fitted import on_disk, warn_unlike
from treetap.lab.api.frames import Rows
from treetap.lab.api.party_tables import PartyTables
from treetap.lab.experiment.joint_model import JointModel
from treetap.protocols.registry import training
from treetap.tables.config import DAYS
from treetap.tables.dates import date_text
from treetap.version import install

Array = np.ndarray[Any, np.dtype[Any]]
#: Beginnings of a player's name in a label holder's file.
_OWN, _PARTY = "own:", "party:"
#: What to do with records that a party lacks.
_LEAVE_OUT = "leave them out"


def by_shards(model: JointModel, data: PartyTables, date_formats: Mapping[str, Any] | None = None) -> Any:
    """The Shapley value of every feature of every party, in the order of the caller's rows; no message is sent.

    `date_formats`: as of `predict_jointly`.

    Raises:
        InvalidInput: a table cannot be read as in the training, or a party lacks records.
        ImportError: shap is not installed.
    """
    explanation = _shap()
    with on_disk(data.tables, date_formats) as configs:
        ids, features = model.records(configs)
    warn_unlike(model.unlike)
    places = data.rows.all_in(pa.table(ids), _LEAVE_OUT)
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
    explanation = _shap()
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


def _shap() -> Any:
    try:
        with warnings.catch_warnings():
            # of its bars of progress, which nothing here draws
            warnings.filterwarnings("ignore", message="IProgress not found", category=Warning)
            from shap import Explanation
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "shap":
            raise
        raise ImportError(f"explain needs shap: {install('explain')}", name="shap") from None
    return Explanation


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
