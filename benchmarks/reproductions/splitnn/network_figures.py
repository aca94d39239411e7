"""Figures of cells from the file of results: over seeds, beside the label holder alone and the floors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from network_cells import ALONE, FEDERATED_SCALE, Cell
from resumable import Results
from seed_figures import Found

#: Seeds that a page looks for.
SEEDS = range(10)
BINARY = ("credit", "bank")


class Figures:
    """The figures of a file of results at full scale, over these seeds."""

    def __init__(self, results: Results, seeds: Sequence[int] = SEEDS) -> None:
        self._results, self._seeds = results, seeds

    def of(self, cell: Cell, name: str, asked: str = "") -> Found | None:
        """A figure of a cell over all seeds that have it; None if none has."""
        found = [each[name] for seed in self._seeds if name in (each := self._result(replace(cell, seed=seed), asked))]
        return Found(tuple(found)) if found else None

    def attack(self, cell: Cell, name: str) -> Found | None:
        """A figure of the attacks on what a cell's training left."""
        return self.of(cell, name, "attacks")

    def floor(self, name: str, figure: str) -> Found | None:
        """Completion of an untrained bottom on a set."""
        return self.of(Cell(name, 0), figure, "floors")

    def federation(self, cell: Cell) -> dict[str, Any]:
        """The differences between the federation of a cell and its centralised training."""
        return self._results.get(cell.key() | FEDERATED_SCALE.key() | {"asked": "federation"}) or {}

    def kept(self, cell: Cell) -> tuple[Found, Found] | None:
        """The gain over the label holder alone, of a cell and without a defence, over the seeds that have all three."""
        plain = Cell(cell.set, 0, turns=cell.turns, momentum=cell.momentum)
        alone = replace(plain, way=ALONE)
        rows = []
        for seed in self._seeds:
            three = [self._result(replace(each, seed=seed), "") for each in (cell, plain, alone)]
            if all(three):
                own, without, single = (each["accuracy"] for each in three)
                rows.append((own - single, without - single))
        if not rows:
            return None
        first, second = zip(*rows, strict=True)
        return Found(first), Found(second)

    def _result(self, cell: Cell, asked: str) -> dict[str, Any]:
        return self._results.get(cell.key() | ({"asked": asked} if asked else {})) or {}


def gain(kept: tuple[Found, Found] | None) -> str:
    """The points over the label holder alone, and which share of those without a defence that is."""
    if kept is None:
        return "–"
    own, without = kept[0].mean, kept[1].mean
    share = f" ({100 * max(0.0, own) / without:.0f} %)" if without > 0 else ""
    return f"{100 * own:+.1f}{share}".replace("-", "−")
