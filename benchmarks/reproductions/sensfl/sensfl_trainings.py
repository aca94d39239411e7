"""One training of a cell by the centralised code, which a federation equals bit for bit, and attacks on its log."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from divided_sets import Split
from keyed_cells import KeyedScale
from sensfl_cells import ATTRIBUTES, TABLES, Cell
from sensfl_figures import PREDICTION, TRAINING
from sensfl_sets import FEATURE, HOLDER, split_of
from sensfl_settings import AUXILIARY, VICTIMS, attack_settings, defences_of, params_of

from treetap.arrays import Singles
from treetap.attacks.features.evidence import FeatureEvidence, RealBottom
from treetap.attacks.features.findings import findings
from treetap.attacks.registry import row
from treetap.neural.centralised import CentralNetwork, Party
from treetap.neural.draws import Draws
from treetap.neural.inputs import Inputs
from treetap.neural.params import SplitnnParams
from treetap.neural.sides import BOTTOM, PIECE, embedded
from treetap.tables.reading import Table

Ints = npt.NDArray[np.int64]


class LastEpoch:
    """The embeddings of the attacked party that the label holder has read in the last epoch."""

    def __init__(self, records: int, params: SplitnnParams) -> None:
        self.values = np.full((records, params.bottom_of(FEATURE).width), np.nan, dtype=np.float32)

    def note(self, party: str, _epoch: int, rows: Ints, embeddings: torch.Tensor) -> None:
        """Keep a batch; each epoch overwrites the one before."""
        if party == FEATURE:
            self.values[rows] = embeddings.detach().numpy()


def split_for(cell: Cell, scale: KeyedScale) -> Split:
    """The records of a cell. Raises BadInput: see `split_of`."""
    return split_of(cell.set, cell.seed, cell.parties, scale.most)


def network_of(cell: Cell, params: SplitnnParams, split: Split, last: LastEpoch | None = None) -> CentralNetwork:
    """The network of a cell, not yet trained."""
    parties = [
        Party(name, inputs, Draws.reproducible(cell.seed, name))
        if name == HOLDER
        else Party(name, inputs, Draws.reproducible(cell.seed, name), defences=defences_of(cell))
        for name, inputs in split.inputs["train"].items()
    ]
    labels, classes = split.labels["train"], split.classes
    return CentralNetwork(params, parties, labels, classes, taken=None if last is None else last.note)


def run(cell: Cell, scale: KeyedScale) -> dict[str, Any]:
    """The figures of a cell: accuracy (and AUC) of the test records, seconds, and by source what the attacks find."""
    params, split = params_of(cell, scale.epochs), split_for(cell, scale)
    begun, busy = time.monotonic(), time.process_time()
    last = LastEpoch(len(split.labels["train"]), params)
    network = network_of(cell, params, split, last).train()
    trained = {"seconds": time.monotonic() - begun, "processor": time.process_time() - busy}
    inputs, labels = split.inputs["test"], split.labels["test"]
    measured = network.objective.metrics(network.scores(inputs, np.arange(len(labels))), labels)
    model = {name: value for name, value in measured.items() if name in ("accuracy", "auc")}
    begun, busy = time.monotonic(), time.process_time()
    embeddings = {PREDICTION: _predicted(network, inputs[FEATURE])}
    if cell.set in TABLES:
        embeddings[TRAINING] = last.values
    tables = {TRAINING: split.tables["train"][FEATURE], PREDICTION: split.tables["test"][FEATURE]}
    real = RealBottom(network.models[FEATURE][BOTTOM], split.scalers[FEATURE], tables[TRAINING].categories)
    found = {each: _attacked(cell, params, tables[each], embeddings[each], real) for each in embeddings}
    attacked = {"attack_seconds": time.monotonic() - begun, "attack_processor": time.process_time() - busy}
    return {**dict[str, Any](model), **trained, **attacked, **found}


def _predicted(network: CentralNetwork, inputs: Inputs) -> Singles:
    """(N, width) the embeddings of the trained model, as the label holder reads them in a prediction."""
    model, rows = network.models[FEATURE][BOTTOM], np.arange(len(inputs))
    pieces = np.split(rows, range(PIECE, len(rows), PIECE))
    return np.concatenate([embedded(model, inputs, piece, network.params.wire_type).numpy() for piece in pieces])


def _attacked(cell: Cell, params: SplitnnParams, table: Table, embeddings: Singles, real: RealBottom) -> dict[str, Any]:
    """The attacks on the first records of a table that are not auxiliary, by `findings`."""
    count = len(table.ids)
    known = np.arange(min(AUXILIARY[cell.set], count // 2))
    victims = np.arange(len(known), min(len(known) + VICTIMS[cell.set], count))
    truth = table.take(victims)
    evidence = FeatureEvidence(
        party=FEATURE,
        bottom=params.bottom_of(FEATURE),
        auxiliary=table.take(known),
        known=embeddings[known],
        victims=truth.ids,
        embeddings=embeddings[victims],
        settings=attack_settings(cell),
        attributes=ATTRIBUTES.get(cell.set),
    )
    names = ["attributes"] if cell.set in TABLES else ["decode", "match", "match-exact"]
    figures = findings(evidence, truth, real, {name: row(name).run for name in names})
    del figures["compared"]  # the verdict's, which is no figure of the paper
    parts = {name: [part.plain() for part in figures[name]] for name in ("reconstructions", "attributes", "pictures")}
    return figures | parts
