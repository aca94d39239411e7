"""The hyperparameters of each set: chosen once, on one seed, for all rows of its tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from network_cells import Cell
from network_sets import FEATURE

from treetap.neural.defences import GradientDefence, LabelDefences
from treetap.neural.params import Bottom, SplitnnParams, Top

_IMAGES = Top((128,))
_TABLES = {"default": Bottom("mlp", hidden=(64,), width=32)}
_FASHION = {"default": Bottom("cnn", channels=(16, 32), width=64, norm="batch")}
_CIFAR = {"default": Bottom("cnn", channels=(16, 32, 64), width=64, norm="batch")}
#: ResNet-18, as in the paper: an option that takes hours.
_RESNET = {"default": Bottom("resnet", channels=(64,), blocks=(2, 2, 2, 2), width=64, norm="batch")}
#: Epochs of each table, more where records are few.
_EPOCHS = {"obesity": 40, "har": 5, "drive": 40, "fars": 5, "credit": 10, "bank": 10}
_BINARY = ("credit", "bank")
#: What ppdl sends at most, and the size below which it sends nothing.
_PPDL_SHARE, _PPDL_THRESHOLD = 0.5, 0.0001


def params_of(cell: Cell, *, epochs: int | None = None, resnet: bool = False) -> SplitnnParams:
    """The parameters of a cell's training; `epochs` in the place of those of its set."""
    usual: dict[str, Any] = {
        "threads": 1,
        "schedule": "cosine",
        "momentum": cell.momentum,
        "reproducible": True,
        "seed": cell.seed,
    }
    dropout = {FEATURE: cell.dropout} if cell.dropout else {}
    if cell.set == "fashion":
        sizes = SplitnnParams(objective="multi:softprob", epochs=5, bottom=_FASHION, top=_IMAGES)
    elif cell.set.startswith("cifar10"):
        bottom = _RESNET if resnet else _CIFAR
        sizes = SplitnnParams(objective="multi:softprob", epochs=12, bottom=bottom, top=_IMAGES)
    else:
        objective = "binary:logistic" if cell.set in _BINARY else "multi:softprob"
        sizes = SplitnnParams(
            objective=objective,
            epochs=_EPOCHS[cell.set],
            optimizer="adam",
            learning_rate=0.003,
            bottom=_TABLES,
            top=Top((64,)),
        )
    changes = usual | {"party_dropout": dropout} | ({"epochs": epochs} if epochs else {})
    found = replace(sizes, **changes)
    found.validate()
    return found


def defences_of(cell: Cell) -> LabelDefences:
    """The label holder's changes of the gradients."""
    dimip = {FEATURE: cell.dimip} if cell.dimip else {}
    return LabelDefences(dimip, gradient_defence(cell.gradient), cell.random_labels)


def gradient_defence(text: str) -> GradientDefence | None:
    """A defence from its kind and numbers: `noise SCALE`, `compression SHARE`, `ppdl SCALE`, `levels LEVELS SCALE`."""
    kind, *numbers = text.split() or [""]
    if kind == "noise":
        return GradientDefence(kind, scale=float(numbers[0]))
    if kind == "compression":
        return GradientDefence(kind, share=float(numbers[0]))
    if kind == "ppdl":
        return GradientDefence(kind, float(numbers[0]), _PPDL_SHARE, _PPDL_THRESHOLD)
    if kind == "levels":
        return GradientDefence(kind, scale=float(numbers[1]), levels=int(numbers[0]))
    return None
