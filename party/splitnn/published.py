"""A published network's models, by the manifest and the weights of the party that a prediction opens."""

from __future__ import annotations

from treetap.errors import DataError
from treetap.neural.inputs import InputScaler
from treetap.neural.params import Bottom, Top
from treetap.neural.sides import Objective, TrainedBottom, TrainedTop
from treetap.party.prediction.opened_model import OpenedModel


def trained_bottom(opened: OpenedModel) -> TrainedBottom:
    """A feature party's own model; `DataError` where the weights do not fit the manifest."""
    try:
        return _own(opened)
    except DataError as fault:
        raise _damaged(opened, fault) from None


def trained_top(opened: OpenedModel) -> TrainedTop:
    """The label holder's models; `DataError` where the weights do not fit the manifest."""
    manifest = opened.manifest
    scaler, objective = InputScaler.from_dict(manifest["inputs"]), Objective(**manifest["target"])
    widths = {party: int(manifest["widths"][party]) for party in manifest["feature_parties"]}
    try:
        own = _own(opened) if scaler.columns or scaler.images else None
        top = Top(tuple(manifest["top"]["hidden"]))
        return TrainedTop(top, widths, own, objective, opened.weights, int(manifest["threads"]))
    except DataError as fault:
        raise _damaged(opened, fault) from None


def _own(opened: OpenedModel) -> TrainedBottom:
    manifest = opened.manifest
    scaler = InputScaler.from_dict(manifest["inputs"])
    entry = manifest["bottom"]
    lists = {name: tuple(entry[name]) for name in ("hidden", "channels", "blocks")}
    return TrainedBottom(
        Bottom(kind=entry["kind"], width=entry["width"], norm=entry["norm"], pool=entry["pool"], **lists),
        scaler,
        opened.weights,
        int(manifest["threads"]),
    )


def _damaged(opened: OpenedModel, fault: DataError) -> DataError:
    return DataError(f"model {opened.name}: {fault}; bring a back-up of it back").at(opened.party)
