"""Columns that are constant among a run's training rows, of all parties at once, before any process starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.experiment.joined_table import Split
from treetap.commands.experiment.results import PlannedRun
from treetap.errors import DataError
from treetap.protocols.registry import training
from treetap.tables.categories import encoded
from treetap.tables.constant import constant_columns, in_words
from treetap.tables.features import Held
from treetap.tables.tensors import is_tensor


def refuse_constant(experiment: ExperimentFile, table: pa.Table, drawn: Split, run: PlannedRun) -> None:
    """Check that the parties of a job of trees can train on the columns that they get in a run.

    Raises:
        DataError: columns are constant, and nothing says to drop them, or a party that needs columns keeps none.
    """
    if not training(experiment.job.protocol).grows_trees:
        return
    faults = {}
    for party in experiment.party:
        names = drawn.columns[party.name]
        if constant := _constant(experiment, table, drawn, party.name):
            if not experiment.data.drop_constant:
                faults[party.name] = in_words(constant)
            elif experiment.spread and len(constant) == len(names):
                faults[party.name] = f"all of its columns, {', '.join(map(repr, names))}, and it needs one"
    if faults:
        cure = (
            "give it another" if experiment.data.drop_constant else "set drop_constant = true in [data], or drop them"
        )
        raise DataError(
            f"{experiment.data.title}: constant among the {len(drawn.train)} training rows of {run.title} are "
            f"{'; '.join(f'of {name}: {said}' for name, said in faults.items())}: {cure}"
        )


def _constant(experiment: ExperimentFile, table: pa.Table, drawn: Split, name: str) -> dict[str, str]:
    """Those of a party, as it would find them in its own table."""
    party = next(each for each in experiment.party if each.name == name)
    names = [each for each in drawn.columns[name] if not is_tensor(table.column(each).type)]
    rows, path = pa.array(drawn.train), Path(experiment.data.title)
    columns = {each: table.column(each).take(rows) for each in names}
    missing = experiment.job.params().missing
    made = encoded(path, columns, len(rows), experiment.encode(party, names), None, missing)
    extents = dict(zip(made.names, Held(made.values).extents(np.arange(len(rows))), strict=True))
    return constant_columns(names, extents, made.categories, one_hot=experiment.data.drop_constant)
