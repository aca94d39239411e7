"""The files that an experiment writes for its parties, and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import PartyTable
from treetap.lab.experiment.held_out import own_cells
from treetap.lab.experiment.joined_encodings import encode_in
from treetap.lab.experiment.joined_table import ID, Split
from treetap.lab.local_federation import keep_table
from treetap.models.durable import make_folder
from treetap.party.policy import PERMISSIVE, merged
from treetap.tables.config import CONSTRAINTS, CUTS, TableConfig
from treetap.tables.reading import Table, read_table


def write_tables(experiment: ExperimentFile, table: pa.Table, drawn: Split, folder: Path) -> dict[str, dict[str, Any]]:
    """Each party's own files, and its settings."""
    label = experiment.data.label
    settings: dict[str, dict[str, Any]] = {}
    for party in experiment.party:
        tables: dict[str, dict[str, Any]] = {}
        for name, rows in (("train", drawn.train), ("predict", drawn.test)):
            path = folder / party.name / f"{name}.parquet"
            make_folder(path.parent)
            content = table.select([ID, *drawn.columns[party.name]]).take(pa.array(rows))
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
        return own_cells(labels, drawn.train, drawn.labels[party.name])
    return None


def labels_file(experiment: ExperimentFile, folder: Path) -> Path:
    """The file with the labels of all training rows, for the audit: where they are spread, no party has it."""
    return folder / "labels.parquet" if experiment.spread else folder / experiment.in_order[0] / "train.parquet"
