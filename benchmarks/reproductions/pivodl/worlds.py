"""The sets of the PIVODL paper as experiments: who has which columns and labels, and the tables that parties read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from cells import ONE, Cell

from treetap.errors import BadInput
from treetap.lab.experiment.baselines import joined_labels
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import labels_of, read_table, split
from treetap.lab.experiment.party_tables import Split, truth, with_classes, write_tables
from treetap.lab.local_federation import working_folder
from treetap.tables.binned import bin_columns
from treetap.tables.config import TableConfig
from treetap.tables.labels import Labels
from treetap.tables.reading import Table
from treetap.tables.reading import read_table as read_party
from treetap.trees.binning import BinnedTable
from treetap.trees.pivodl_params import PivodlParams

#: Buckets of a column, the rate, the threshold of samples and the clip bound of the paper's Table II.
PARAMS = {"max_bin": 32, "learning_rate": 0.3, "reg_lambda": 1.0}
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DataSet:
    """A set: title, file below TREETAP_DATA, label, and columns that no party gets."""

    title: str
    file: str
    label: str
    regression: bool = False
    drop: tuple[str, ...] = ()
    encode: str | None = None


WORLDS = {
    "credit": DataSet("Credit card", "credit_default.parquet", "default.payment.next.month"),
    "bank": DataSet("Bank marketing", "bank_marketing.parquet", "y", encode="ordinal"),
    "energy": DataSet("Appliances energy", "appliances_energy.parquet", "Appliances", regression=True, drop=("date",)),
}


def experiment_of(cell: Cell) -> ExperimentFile:
    """The experiment of a cell: equal shares of the columns, and of the labels where they are spread."""
    if "TREETAP_DATA" not in os.environ:
        raise BadInput("TREETAP_DATA is not set; name the folder of the public tables")
    here = WORLDS[cell.set]
    share = 1 / cell.parties
    parties: list[dict[str, Any]] = [
        {"name": f"party-{m}", "share": share, "workers": 1} for m in range(1, cell.parties + 1)
    ]
    for m, party in enumerate(parties):
        if cell.system == "boosting":
            party["labels"] = m == 0
        elif cell.labels == ONE:
            if m == 0:
                party["label_share"] = 1.0
        else:
            party["label_share"] = share
    job: dict[str, Any] = {
        **PARAMS,
        "objective": "reg:squarederror" if here.regression else "binary:logistic",
        "n_estimators": cell.trees,
        "max_depth": cell.depth,
        "key_bits": cell.key_bits,
    }
    if cell.system != "boosting":
        job |= {"protocol": "pivodl", "gain_comparison": cell.gain_comparison}
        job |= {} if cell.epsilon is None else {"epsilon": cell.epsilon}
    data = {"path": str(Path("$TREETAP_DATA") / here.file), "label": here.label, "drop": list(here.drop)}
    data |= {"encode": here.encode} if here.encode else {}
    return ExperimentFile.model_validate({"data": data | {"seed": cell.seed}, "party": parties, "job": job})


@dataclass(frozen=True)
class Drawn:
    """An experiment with its table and the split of one seed."""

    experiment: ExperimentFile
    table: pa.Table
    split: Split

    def write(self, folder: Path) -> dict[str, dict[str, Any]]:
        """Write the parties' tables; their settings."""
        return write_tables(self.experiment, self.table, self.split, folder)


@cache
def _table(name: str) -> pa.Table:
    return read_table(experiment_of(Cell("centralised", name, 0)), Path())


def drawn(cell: Cell) -> Drawn:
    """The experiment of a cell, its rows, columns and labels drawn by the cell's seed."""
    experiment = experiment_of(cell)
    table = _table(cell.set)
    if cell.system != "boosting":
        experiment = with_classes(experiment, labels_of(experiment, table))
    return Drawn(experiment, table, split(experiment, table, cell.seed))


@dataclass(frozen=True)
class Joined:
    """What all parties have together: tables of the training and the test rows in bins, labels, and who labels what."""

    before: list[tuple[str, BinnedTable]]
    after: list[tuple[str, BinnedTable]]
    raw: tuple[list[tuple[str, Table]], list[tuple[str, Table]]]
    labels: Labels
    ownership: dict[str, Ints]
    truth: npt.NDArray[Any]


@lru_cache(maxsize=6)
def joined(name: str, seed: int, parties: int, labels: str) -> Joined:
    """The tables as the parties of a cell would read them."""
    here = drawn(Cell("centralised", name, seed, parties=parties, labels=labels))
    params = here.experiment.job.params()
    assert isinstance(params, PivodlParams)
    with working_folder(None, "treetap-") as folder:
        settings = here.write(folder)
        trained = {each: _read(found["tables"]["train"], None) for each, found in settings.items()}
        asked = {each: _read(found["tables"]["predict"], trained[each]) for each, found in settings.items()}
    learned, ownership = joined_labels(trained, here.experiment.data.label, params)
    ids = next(iter(asked.values())).ids
    rows = here.table.take(pa.array(here.split.test))
    bins = {each: bin_columns(table, params.max_bin, None) for each, table in trained.items()}
    return Joined(
        list(bins.items()),
        [(each, bins[each].encode(asked[each].features)) for each in bins],
        (list(trained.items()), list(asked.items())),
        learned,
        ownership,
        truth(rows, here.experiment.data.label, ids, learned),
    )


def _read(config: dict[str, Any], like: Table | None) -> Table:
    table = TableConfig.model_validate(config)
    categories = None if like is None else like.categories
    return read_party(table, with_label=table.label is not None, missing=None, categories=categories)
