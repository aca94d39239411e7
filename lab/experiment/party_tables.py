"""The rows and the tables that a run gives its parties: who labels which rows, the parties' files and their settings.

Labels may be spread over the parties: by files of ids, the other rows by shares drawn for each seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.arrays import Array, Ints
from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import PartyTable
from treetap.lab.experiment.joined_encodings import encode_in, ordered_in
from treetap.lab.local_federation import keep_table
from treetap.models.durable import make_folder
from treetap.party.policy import PERMISSIVE, merged
from treetap.tables.config import CONSTRAINTS, CUTS, TableConfig
from treetap.tables.labels import Labels, class_name
from treetap.tables.reading import Table, read_ids, read_table
from treetap.tables.source import Source
from treetap.trees import sampling
from treetap.trees.evaluation import looked_for
from treetap.trees.job_params import REGRESSIONS

#: The id column of the joined table, and of the parties' tables.
ID = "treetap_id"
#: Column of the joined table: the party whose `label_rows` names the row; null elsewhere.
OWNER = "treetap_label_owner"


@dataclass(frozen=True)
class Split:
    """Rows and columns of one run: record positions of training and test, columns by party.

    `labels`: where labels are spread, the training rows that each party labels; parties without labels are left out.
    `lacked`: rows of the joined table that a party does not have; `left`: the records are all of the label holder's.
    """

    train: Ints
    test: Ints
    columns: dict[str, list[str]]
    labels: dict[str, Ints] = field(default_factory=dict)
    lacked: dict[str, Ints] = field(default_factory=dict)
    left: bool = False

    def of(self, party: str, rows: Ints) -> Ints:
        """Those of some rows, ascending, that a party has."""
        return np.setdiff1d(rows, self.lacked.get(party, []))

    def of_job(self, rows: Ints) -> Ints:
        """Those of some rows, ascending, that are records of the job: all, or those that every party has."""
        return rows if self.left else reduce(np.setdiff1d, self.lacked.values(), rows)


def named_owners(experiment: ExperimentFile, base: Path, ids: Sequence[str]) -> pa.Array:
    """The owner of each row that a file `label_rows` names, (N,).

    Raises:
        ConfigError: an environment variable in a path is not set.
        DataError: a file cannot be read or names an id that the table lacks, two name the same, or a row is named by
            none and no party has a label_share.
    """
    place = {record: row for row, record in enumerate(ids)}
    owner: list[str | None] = [None] * len(ids)
    for party in experiment.party:
        if party.label_rows is None:
            continue
        expanded = os.path.expandvars(party.label_rows)
        if "$" in expanded:
            raise ConfigError(f"label_rows = {party.label_rows!r}: the environment variable is not set")
        path = base / expanded
        for place_in_file, record in enumerate(read_ids(path, experiment.data.rules), start=1):
            if record not in place:
                raise DataError(f"{path}: id number {place_in_file} is none of the table's")
            if (other := owner[place[record]]) is not None:
                raise DataError(
                    f"{path}: id number {place_in_file} is in label_rows of {other} too; one party labels a row"
                )
            owner[place[record]] = party.name
    # rows that no file names are drawn by share, if any party has one
    without = owner.count(None)
    if without and all(party.label_share is None for party in experiment.party):
        raise DataError(
            f"{experiment.data.title}: {without} of {len(ids)} rows are in no file of label_rows; name each in one, or "
            "give parties a label_share of the others"
        )
    return pa.array(owner, pa.string())


def dealt(shares: Mapping[str, float], items: Array) -> dict[str, Array]:
    """Each name's share of the items, one after the other: together they get what the shares add up to, to an item."""
    ends = [round(wanted) for wanted in accumulate(share * len(items) for share in shares.values())]
    return {name: items[begin:end] for name, begin, end in zip(shares, [0, *ends], ends, strict=False)}


def draw_owners(experiment: ExperimentFile, table: pa.Table, train: Ints, seed: int) -> dict[str, Ints]:
    """Party with labels → the training rows that it labels, as places in the table, ascending."""
    owner = np.asarray(table.column(OWNER).to_pylist(), dtype=object)[train]
    named = {party.name: train[owner == party.name] for party in experiment.party if party.label_rows is not None}
    free = train[owner == None]  # noqa: E711 - elementwise
    shuffled = sampling.generator(seed, "experiment labels").permutation(free)
    shares = {party.name: party.label_share or 0.0 for party in experiment.party if party.label_rows is None}
    owned = named | {name: np.sort(rows) for name, rows in dealt(shares, shuffled).items()}
    return {party.name: owned[party.name] for party in experiment.party if len(owned[party.name])}


def with_classes(experiment: ExperimentFile, labels: Labels) -> ExperimentFile:
    """The experiment, its job completed by the classes of the table where it has no `classes`.

    Raises:
        DataError: a label is none of the job's classes.
    """
    params = experiment.job.params()
    if not experiment.spread or params.objective in REGRESSIONS:
        return experiment
    if (given := getattr(experiment.job, "classes", None)) is None:
        return experiment.model_copy(update={"job": experiment.job.model_copy(update={"classes": labels.classes})})
    if strange := [name for name in labels.classes if name not in given]:
        raise DataError(
            f"{experiment.data.title}: label column {experiment.data.label!r} has a class {strange[0]!r} that is none "
            f"of job.classes ({', '.join(given)})"
        )
    return experiment


def places(records: pa.Table, ids: Iterable[Any]) -> list[int]:
    """The places of the records with these ids."""
    place = {str(record): row for row, record in enumerate(records.column(ID).to_pylist())}
    return [place[str(record)] for record in ids]


def truth(rows: pa.Table, label: str, ids: Sequence[str], labels: Labels) -> np.ndarray[Any, Any]:
    """Labels of the records with these ids: targets, or classes by the numbers that they have in `labels`."""
    cells = rows.column(label).take(pa.array(places(rows, ids), pa.int64())).to_pylist()
    if not labels.classes:
        return np.asarray(cells, dtype=np.float64)
    number = {name: k for k, name in enumerate(labels.classes)}
    return np.array([number[class_name(cell)] for cell in cells], dtype=np.int64)


#: Names of classes that an error lists before it says how many there are.
_LISTED = 8


def check_positive(experiment: ExperimentFile, source: Source, classes: Sequence[str]) -> None:
    """Check that the class that the file looks for, if it names one, is one of the table's.

    Raises:
        DataError: it is none of them.
        ConfigError: there are no classes.
    """
    data = experiment.data
    if data.positive is None:
        return
    if not classes:
        raise ConfigError(f"positive of [data] names a class, and a regression has none ({data.label!r}); leave it out")
    if class_name(data.positive) not in classes:
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        raise DataError(
            f"{source}: label column {data.label!r} has no class {class_name(data.positive)!r}, which positive of "
            f"[data] names; its classes are {', '.join(map(repr, classes[:_LISTED]))}{more}"
        )


def with_positive(experiment: ExperimentFile, labels: Labels) -> ExperimentFile:
    """The experiment with the class that all of its runs look for; of more than two classes none, unless it names one.

    `labels`: of the whole table, so that runs whose held-out rows differ do not look for different classes.
    """
    given, names = experiment.data.positive, getattr(experiment.job, "classes", None) or labels.classes
    if given is None and len(names) == 2:
        first = np.count_nonzero(np.asarray(labels.classes)[labels.values.astype(np.int64)] == names[0])
        given = names[looked_for(int(first), len(labels.values))]
    if given is None:
        return experiment
    data = experiment.data.model_copy(update={"positive": class_name(given)})
    return experiment.model_copy(update={"data": data})


def write_tables(experiment: ExperimentFile, table: pa.Table, drawn: Split, folder: Path) -> dict[str, dict[str, Any]]:
    """Each party's own files, and its settings."""
    label = experiment.data.label
    settings: dict[str, dict[str, Any]] = {}
    for party in experiment.party:
        tables: dict[str, dict[str, Any]] = {}
        for name, rows in (("train", drawn.train), ("predict", drawn.test)):
            path = folder / party.name / f"{name}.parquet"
            make_folder(path.parent)
            own = pa.array(drawn.of(party.name, rows))
            content = ordered_in(table, [ID, *drawn.columns[party.name]]).take(own)
            tables[name] = {"path": str(path), "id": ID, "columns": drawn.columns[party.name]}
            cells = _labels(party, name, table.column(label), drawn)
            if cells is not None:
                content = content.append_column(label, cells)
                tables[name] |= {"label": label}
                if (weight := experiment.data.weight) is not None:
                    content = content.append_column(weight, table.column(weight).take(pa.array(rows)))
                    tables[name] |= {"weight": weight}
            keep_table(content, path)
            encode = encode_in(experiment, table, party, drawn.columns[party.name])
            tables[name] |= {} if encode is None else {"encode": encode}
            constraints = experiment.constraints(party, drawn.columns[party.name]) if name == "train" else {}
            tables[name] |= {CONSTRAINTS: constraints} if constraints else {}
            tables[name] |= {CUTS: party.cuts} if party.cuts and name == "train" else {}
            tables[name] |= {"drop_constant": True} if experiment.data.drop_constant else {}
        # The operator of an experiment acts for all parties: their policies allow what the job needs.
        people: dict[str, Any] = {"record": experiment.record(party), "record_sums": experiment.record_sums(party)}
        if experiment.spread:  # any party may be the recipient of scores, which opens their sums
            people["label_holders"] = [name for name in experiment.in_order if name != party.name]
        policy = merged(PERMISSIVE, {"people": people, "labels": {"evaluate_clean_labels": True}})
        settings[party.name] = {
            "policy": policy,
            **party.model_dump(include={"engine", "workers", "cluster"}, exclude_unset=True),
            "arithmetic": party.arithmetic,
            "tables": tables,
        }
        settings[party.name] |= party.model_dump(include={"optimizer"}, exclude_none=True)
        if party.labels and experiment.defences.named():
            settings[party.name]["defences"] = experiment.defences.model_dump(exclude_defaults=True)
        elif party.name in experiment.of_columns:
            settings[party.name]["defences"] = party.defences.model_dump(exclude_unset=True)
    if experiment.spread:
        joined = table.select([ID, label]).take(pa.array(drawn.train))
        keep_table(joined, labels_file(experiment, folder))
    return settings


def read_as_party(config: Mapping[str, Any], missing: float, like: Table | None = None) -> Table:
    """A table of a party's settings as the party reads it; `like`: the table it trained on, with the same encoding."""
    table = TableConfig.model_validate(config)
    with_label = table.label is not None
    if like is None:
        return read_table(table, with_label=with_label, missing=missing)
    return read_table(
        table.model_copy(update={"columns": like.sources}),
        with_label=with_label,
        missing=missing,
        categories=like.categories,
        shapes=like.shapes,
        empty=like.empty_columns,
    )


def _labels(party: PartyTable, name: str, labels: pa.ChunkedArray, drawn: Split) -> pa.ChunkedArray | None:
    """The label column of a party's table; None if it has none. Spread labels are those of the training rows alone."""
    if party.labels:
        return labels.take(pa.array(drawn.train if name == "train" else drawn.test))
    if name == "train" and party.name in drawn.labels:
        return labels.take(pa.array(drawn.train, mask=~np.isin(drawn.train, drawn.labels[party.name])))
    return None


def labels_file(experiment: ExperimentFile, folder: Path) -> Path:
    """The file with the labels of all training rows, for the audit: where they are spread, no party has it."""
    return folder / "labels.parquet" if experiment.spread else folder / experiment.in_order[0] / "train.parquet"
