"""What features keep in published models: names of files, and of entries of manifests and of stored trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treetap.models.store import read_kind

#: What released sets of records say about the label, one JSON line a tree: the label holder's own figures.
LEAKAGE = "leakage.jsonl"

#: The kind that holds the trees of `TREES` with the values of repairs, one JSON line a tree: see
#: `treetap.models.valued_trees`.
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
