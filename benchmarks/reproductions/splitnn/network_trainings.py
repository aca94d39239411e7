"""One training of a cell by the centralised code, which the federation equals bit for bit, and its figures."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from divided_sets import Split
from feature_log import FeatureLog
from multi_head import MultiHead
from network_cells import ALONE, MULTI_HEAD, TOGETHER, Cell, Scale
from network_sets import FEATURE, HOLDER, split_of
from network_settings import defences_of, params_of

from treetap.neural.centralised import CentralNetwork, OwnNetwork, Party, Seen
from treetap.neural.draws import Draws
from treetap.neural.params import SplitnnParams
from treetap.neural.sides import BOTTOM
from treetap.privacy.label_dp import staged

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def split_for(cell: Cell, scale: Scale) -> Split:
    """The records of a cell. Raises BadInput: see `split_of`."""
    return split_of(cell.set, cell.seed, scale.most, turns=cell.turns)


def run(cell: Cell, scale: Scale) -> tuple[dict[str, Any], FeatureLog | None]:
    """The result of a training, and what it leaves at the feature party, if one took part.

    The result: accuracy (and AUC) of the test records with all parties and after the feature party has quit, seconds.
    """
    params, split = params_of(cell, epochs=scale.epochs, resnet=scale.resnet), split_for(cell, scale)
    begun, busy = time.monotonic(), time.process_time()
    network, log = _trained(cell, params, split)
    spent = {"seconds": time.monotonic() - begun, "processor": time.process_time() - busy}
    return {"trial": cell.key() | scale.key(), **_figures(cell, network, split), **spent}, log


def _trained(cell: Cell, params: SplitnnParams, split: Split) -> tuple[CentralNetwork | MultiHead, FeatureLog | None]:
    labels = _labels(cell, params, split)
    if cell.way == MULTI_HEAD:
        return MultiHead(params, _parties(cell, split), labels, split.classes).train(), None
    log = FeatureLog()
    network = network_of(cell, params, split, labels, log.note).train()
    if cell.way != TOGETHER:
        return network, None
    log.bottom = network.models[FEATURE][BOTTOM]
    return network, log


def network_of(
    cell: Cell, params: SplitnnParams, split: Split, labels: Ints, returned: Seen | None = None
) -> CentralNetwork:
    """The network of a cell, not yet trained; `labels`: (N,) those that it is to learn."""
    return CentralNetwork(params, _parties(cell, split), labels, split.classes, defences_of(cell), returned=returned)


def _parties(cell: Cell, split: Split) -> list[Party]:
    names = (HOLDER,) if cell.way == ALONE else (HOLDER, FEATURE)
    return [
        Party(
            name,
            split.inputs["train"][name],
            Draws.reproducible(cell.seed, name),
            amplified=cell.amplified and name == FEATURE,
        )
        for name in names
    ]


def _figures(cell: Cell, network: CentralNetwork | MultiHead, split: Split) -> dict[str, float]:
    inputs, labels = split.inputs["test"], split.labels["test"]
    ways = {"": frozenset[str]()} | ({} if cell.way == ALONE else {"_after": frozenset({FEATURE})})
    found: dict[str, float] = {}
    for name, away in ways.items():
        measured = network.objective.metrics(network.scores(inputs, np.arange(len(labels)), away), labels)
        found |= {f"{each}{name}": measured[each] for each in ("accuracy", "auc") if each in measured}
    return found


def _labels(cell: Cell, params: SplitnnParams, split: Split) -> Ints:
    """The labels that are trained on: noisy ones, where the cell says so, from draws by the seed."""
    labels = split.labels["train"]
    if not cell.label_dp:
        return labels
    draw = random.Random(f"labels {cell.seed}")
    own = OwnNetwork(
        split.tables["train"][HOLDER],
        split.classes,
        HOLDER,
        params,
        Draws.reproducible(cell.seed, f"{HOLDER} stage"),
    )

    def priors(known: Ints, noisy: Ints, others: Ints) -> Floats:
        return own.of(others, known, noisy)

    return staged(labels, split.classes, cell.label_dp, cell.stages, priors, draw.randrange)
