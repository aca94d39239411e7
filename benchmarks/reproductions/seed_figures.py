"""Figures over seeds in the tables of pages, and the table of federations that pages of networks have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from marked_tables import Rows


@dataclass(frozen=True)
class Found:
    """A figure over seeds: its values."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.values)

    def text(self, factor: float = 100.0, digits: int = 1) -> str:
        """The mean, and the standard deviation of several values."""
        spread = f" ± {factor * pstdev(self.values):.{digits}f}" if len(self.values) > 1 else ""
        return f"{factor * self.mean:.{digits}f}{spread}"


def shown(found: Found | None, factor: float = 100.0, digits: int = 1) -> str:
    """A figure for a table: in percent, unless the factor is 1."""
    return "–" if found is None else found.text(factor, digits)


def federation_rows(cells: Iterable[tuple[str, Mapping[str, Any]]]) -> Rows:
    """Cells by name, each with what `federated_weights.compared` has found; those without a result are left out."""
    rows = [["cell", "same bits", "largest difference of a weight", "federation, s", "centralised, s"]]
    for name, found in cells:
        if found:
            same = "yes" if found["equal"] else "no"
            seconds = [f"{found[each]:.1f}" for each in ("seconds", "centralised_seconds")]
            rows.append([name, same, f"{found['difference']:.2g}", *seconds])
    return rows
