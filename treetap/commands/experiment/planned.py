"""The runs of an experiment: one for each seed, or for each fold of each seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlannedRun:
    """A run. `fold`: from 1, of a cross-validation; None where rows are held out once."""

    seed: int
    fold: int | None = None

    @property
    def title(self) -> str:
        """A name for people."""
        return f"seed {self.seed}" + ("" if self.fold is None else f", fold {self.fold}")

    @property
    def name(self) -> str:
        """The name of its folder and of its files."""
        return self.title.replace(", ", "-").replace(" ", "-")

    @property
    def keys(self) -> dict[str, int]:
        """Its entries in a report."""
        return {"seed": self.seed} | ({} if self.fold is None else {"fold": self.fold})


def planned(run: Mapping[str, Any]) -> PlannedRun:
    """The run that a report has these entries of, among others."""
    return PlannedRun(run["seed"], run.get("fold"))
