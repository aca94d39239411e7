"""The work on cells that have no result yet: trainings, attacks on what they left, floors."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from feature_log import FeatureLog
from network_attacks import attacked, floors, untrained
from network_cells import ALONE, Cell, Scale
from network_trainings import run, split_for
from resumable import Results


class Work:
    """Work at one scale, into one file of results; `keep`: a folder for what trainings leave at the feature party."""

    def __init__(self, scale: Scale, results: Results, keep: Path | None) -> None:
        self._scale, self._results, self._keep = scale, results, keep

    def train(self, cell: Cell) -> None:
        """Train a cell without a result."""
        if self._results.get(self._key(cell)) is None:
            self._trained(cell)

    def attack(self, cell: Cell) -> None:
        """Attack what the training of a cell left, if a feature party took part; train it where nothing was kept."""
        if cell.way == ALONE:
            self.train(cell)
            return
        if self._results.get(self._key(cell, "attacks")) is not None:
            return
        split = split_for(cell, self._scale)
        kept = self._kept(cell)
        if kept is not None and kept.exists():
            log = FeatureLog.read(kept, untrained(cell, split, resnet=self._scale.resnet))
        else:
            log = self._trained(cell)
        found = attacked(cell, log, split)
        self._results.add({"trial": self._key(cell, "attacks"), **found})

    def floors(self, cell: Cell) -> None:
        """Complete an untrained bottom on a set."""
        if self._results.get(self._key(cell, "floors")) is None:
            found = floors(cell, split_for(cell, self._scale))
            self._results.add({"trial": self._key(cell, "floors"), **found})

    def federate(self, cell: Cell) -> None:
        """Train a cell by a federation of processes too, and compare the weights."""
        from real_federation import compared

        if self._results.get(self._key(cell, "federation")) is None:
            self._results.add({"trial": self._key(cell, "federation"), **compared(cell, self._scale)})

    def _trained(self, cell: Cell) -> FeatureLog:
        result, log = run(cell, self._scale)
        kept = self._kept(cell)
        if log is not None and kept is not None:
            log.write(kept)
        self._results.add(result)
        return log or FeatureLog()

    def _key(self, cell: Cell, asked: str = "") -> dict[str, Any]:
        return cell.key() | self._scale.key() | ({"asked": asked} if asked else {})

    def _kept(self, cell: Cell) -> Path | None:
        if self._keep is None:
            return None
        return (
            self._keep / f"{hashlib.sha256(json.dumps(self._key(cell), sort_keys=True).encode()).hexdigest()[:16]}.npz"
        )
