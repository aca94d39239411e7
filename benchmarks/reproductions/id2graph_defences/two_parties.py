"""The two parties of a cell: their tables, the labels, and the parameters of the model."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from id2graph_trial import ATTACKER, HOLDER, Trial, experiment

from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table, split
from treetap.lab.experiment.party_tables import read_as_party, truth, write_tables
from treetap.lab.local_federation import working_folder
from treetap.privacy.label_dp import staged
from treetap.protocols.own_priors import by_own_trees
from treetap.tables.labels import Labels, read_labels
from treetap.tables.reading import Table
from treetap.trees.params import TreeParams

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """Tables by party, the label holder first: of the training records and of the test ones; labels of both."""

    before: dict[str, Table]
    after: dict[str, Table]
    labels: Labels
    wanted: npt.NDArray[Any]

    @property
    def holder(self) -> Table:
        """The label holder's training records."""
        return self.before[HOLDER]

    @property
    def classes(self) -> int:
        """Their number."""
        return len(self.labels.classes)


@lru_cache(maxsize=2)
def world_of(name: str, seed: int, *, own: bool) -> World:
    """The records and columns that a seed draws, as for Table 2 of the paper; the parties' tables as they read them."""
    asked = parties(experiment(Trial(name, "forest", seed, "centralised")), own=own)
    table = _joined(name)
    drawn = split(asked, table, seed)
    with working_folder(None, "treetap-defences-") as folder:
        settings = write_tables(asked, table, drawn, folder)
        given = {party: settings[party]["tables"] for party in asked.in_order}
        missing = asked.job.params().missing
        before = {party: read_as_party(tables["train"], missing) for party, tables in given.items()}
        after = {party: read_as_party(tables["predict"], missing, before[party]) for party, tables in given.items()}
    label = asked.data.label
    labels = read_labels(before[HOLDER], label, asked.job.params().objective)
    wanted = truth(table.take(pa.array(drawn.test)), label, after[HOLDER].ids, labels)
    return World(before, after, labels, wanted)


def parties(asked: ExperimentFile, *, own: bool) -> ExperimentFile:
    """The experiment with a label holder that has half of the columns, or none."""
    if own:
        return asked
    content = asked.model_dump(exclude_defaults=True, exclude={"party"})
    given = [{"name": HOLDER, "labels": True, "columns": []}, {"name": ATTACKER, "share": 1.0}]
    return ExperimentFile.model_validate(content | {"party": given})


def params_of(name: str, model: str, seed: int) -> TreeParams:
    """The paper's parameters."""
    job = experiment(Trial(name, model, seed, "centralised")).job
    params: TreeParams = job.model_copy(update={"seed": job.seed + seed}).params()
    return params


@lru_cache(maxsize=4)
def noisy_labels(name: str, seed: int, epsilon: float, *, own: bool) -> Ints:
    """LP-2ST's labels, LP-1ST's without own columns; the same for forest and boosting, and whenever it is repeated."""
    world = world_of(name, seed, own=own)
    rng = random.Random(f"{name} {seed} {epsilon} {own}")
    stages = 2 if own else 1
    priors = by_own_trees(world.holder, world.classes).of
    return staged(world.labels.values.astype(np.int64), world.classes, epsilon, stages, priors, rng.randrange)


@cache
def _joined(name: str) -> pa.Table:
    """The set with ids, checked as parties check it."""
    return read_table(experiment(Trial(name, "forest", 0, "centralised")), Path())
