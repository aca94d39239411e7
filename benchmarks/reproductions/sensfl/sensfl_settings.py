"""The settings of each set: chosen once, on one seed, for all rows of its tables."""

from __future__ import annotations

from sensfl_cells import BATCH_SIZE, CLIP, TABLES, WIDTH, Cell

from treetap.attacks.networks.schema import FeatureSettings
from treetap.neural.defences import DpSgd, FeatureDefences
from treetap.neural.params import Bottom, SplitnnParams, Top

#: Units of a hidden layer of tables; channels of the convolutions of images.
_HIDDEN, _CHANNELS = 200, (16, 32, 64)
_EPOCHS = {"bank": 5, "credit": 8, "fashion": 5, "cifar10": 5}
_TOP = {True: Top((64,)), False: Top((512, 256, 128))}
#: Records whose columns the label holder knows, and victims after them, in the order of the training records.
AUXILIARY = {"bank": 4000, "credit": 4000, "fashion": 2000, "cifar10": 2000}
_PICTURES = 3
VICTIMS = {"bank": 2000, "credit": 2000, "fashion": 1000, "cifar10": 1000}


def params_of(cell: Cell, epochs: int | None = None) -> SplitnnParams:
    """The parameters of a cell's training; `epochs` in the place of those of its set."""
    width, table = cell.width or WIDTH[cell.set], cell.set in TABLES
    if table:
        bottom = Bottom("mlp", hidden=(_HIDDEN,) * cell.depth, width=width)
    else:
        norm = "group" if cell.noise or cell.group else "batch"
        if cell.residual:
            pool = "average" if cell.averaged else "none"
            bottom = Bottom("resnet", channels=_CHANNELS[:1], blocks=(cell.depth,), width=width, norm=norm, pool=pool)
        else:
            bottom = Bottom("cnn", channels=_CHANNELS[: cell.depth], width=width, norm=norm)
    found = SplitnnParams(
        objective="binary:logistic" if table else "multi:softprob",
        epochs=epochs or _EPOCHS[cell.set],
        batch_size=BATCH_SIZE,
        optimizer="adam",
        learning_rate=0.001,
        bottom={"default": bottom},
        top=_TOP[table],
        threads=1,
        reproducible=True,
        seed=cell.seed,
    )
    found.validate()
    return found


def defences_of(cell: Cell) -> FeatureDefences:
    """The defences of a cell's feature parties."""
    if cell.sensitivity:
        return FeatureDefences(sensitivity=cell.sensitivity, sensitivity_norm=cell.norm)
    return FeatureDefences(dp_sgd=DpSgd(CLIP, cell.multiplier) if cell.noise else None)


def attack_settings(cell: Cell) -> FeatureSettings:
    """The settings of the attacks on a cell."""
    pictured = cell.set == "fashion" and cell.seed == 0 and cell.depth == 1 and cell.parties == 2 and not cell.width
    return FeatureSettings(seed=cell.seed, matched=32, pictures=_PICTURES if pictured else 0)
