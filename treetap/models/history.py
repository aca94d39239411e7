"""Metrics of a published model after each round of its training: a tree, the trees of all classes, or an epoch.

The label holder's models of trees have them in `HISTORY`, a line per round: `round` from 0, `trees` stored after it,
and `metrics`: name → value or null. A party of PIVODL has a line per tree, with metrics where it was the tree's
aggregation party. Networks have them in the manifest, under `history`: a list of metrics by epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from treetap.errors import DataError
from treetap.models.store import HISTORY, MANIFEST, read_kind, read_manifest

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
    if not isinstance(rounds, list) or not all(map(_is_metrics, rounds)):
        raise DataError(f"{folder / file}: has no metrics of every round; bring a back-up of it back")
    return rounds


def _is_metrics(row: object) -> bool:
    return isinstance(row, dict) and all(value is None or type(value) in (int, float) for value in row.values())


def names_in(rounds: Sequence[Metrics]) -> list[str]:
    """All metrics, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rounds for name in row))
