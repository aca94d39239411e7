"""What features keep in published models: names of files, and of entries of manifests and of stored trees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treetap.errors import DataError
from treetap.models.store import HISTORY, MANIFEST, read_kind, read_manifest

#: What released sets of records say about the label, one JSON line a tree: the label holder's own figures.
LEAKAGE = "leakage.jsonl"

#: The kind that holds the trees of `TREES` with the values of repairs, one JSON line a tree: see
#: `treetap.models.own_split`.
REPAIRED = "repaired.jsonl"

#: Entry of a label holder's manifest: the repair in `REPAIRED` whose values predictions use.
VALUES = "values"
#: Entry of a manifest, of stored trees and of a job's notes: the fewest drawn records of a cell that is summed.
CELLS = "min_cell_records"
#: Entry of a manifest, and of stored trees: the noise on sums, by party in a label holder's.
COLUMN_PRIVACY = "column_privacy"
#: Entry of a manifest: "withheld" if no instance spaces were shown while trees grew, of the base model's trees too.
SPACES = "instance_spaces"
#: Entry of a label holder's manifest: true where no entry of an encrypted prediction may count as constant.
HIDES_CONSTANTS = "hides_constants"

#: Of a label holder's boosted model: the raw scores of the records that it was trained on, arrays by name, from which a
#: later training continues.
CONTINUATION = "continuation.npz"

#: The metrics of a model by the labels as they are, where the training had noisy ones; for the label holder alone.
CLEAN_METRICS = "clean_metrics.json"


def read_repaired(folder: Path) -> list[dict[str, Any]]:
    """The lines of a published model's `REPAIRED`; none where it has no such file. Raises as `read_model` does."""
    return read_kind(folder, REPAIRED)


def read_leakage(folder: Path) -> list[dict[str, Any]]:
    """The lines of a published model's `LEAKAGE`; none where it has no such file. Raises as `read_model` does."""
    return read_kind(folder, LEAKAGE)


#: Name of a metric → its value; None where it is no finite number.
Metrics = Mapping[str, float | None]


def read_history(folder: Path) -> list[dict[str, float | None]]:
    """The metrics after each round of a published model; none of a feature party's model.

    Raises:
        DataError: there is no model, or it is damaged.
    """
    manifest = read_manifest(folder)
    if HISTORY in manifest["files"]:
        file, rounds = HISTORY, [line.get("metrics") for line in read_kind(folder, HISTORY)]
    else:
        file, rounds = MANIFEST, manifest.get("history", [])
    if not isinstance(rounds, list) or not all(
        isinstance(row, dict) and all(value is None or type(value) in (int, float) for value in row.values())
        for row in rounds
    ):
        raise DataError(f"{folder / file}: has no metrics of every round; bring a back-up of it back")
    return rounds


def names_in(rounds: Sequence[Mapping[str, object]]) -> list[str]:
    """All names of metrics or of other keys, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rounds for name in row))
