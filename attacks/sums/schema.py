"""Findings of a label holder's attack on the columns of a feature party, by the sums that it opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from treetap.attacks.networks.schema import PictureUrl
from treetap.attacks.schema import Count, Findings, RangedSettings
from treetap.attacks.verdict import Compared
from treetap.trees.job_params import Range

#: The reason for which no sums are read where the label holder did not keep them.
NOT_RECORDED = "no sums are in the transcript: record_sums = true in the label holder's policy keeps them"
#: The reason for which columns are not attacked of a party that sent nothing of them.
NOTHING_OFFERED = "no sums of the party were opened"


@dataclass(frozen=True)
class SumsSettings(RangedSettings):
    """Settings of the attack on columns by opened sums.

    Attributes:
        seconds: processor time of each of the two runs of least squares, after which the last estimate counts.
        steps: most steps of such a run; 0: cells are read by left sets and differences alone, without the bound.
        work: records times cells times trees that are gone through for differences, or in sweeps through noised sums,
            at most: passes are fewer, and then trees, of which the first ones are read.
        products: of numbers, that the sweeps through noised sums take at most; 10^10 take some 3 s.
        most_cells: records times cells of all linked candidates, of which each takes up some 20 bytes.
        most_candidates: candidates of a tree, at most; the time of linking grows with the cube of their number.
        pictured: records of a picture.
    """

    ATTACKS: ClassVar = "the attack on columns by sums"
    RANGES: ClassVar = {
        "seconds": Range(1, 1_000_000),
        "steps": Range(0, 100_000, integer=True),
        "work": Range(1_000, 10**18, integer=True),
        "products": Range(1_000, 10**18, integer=True),
        "most_cells": Range(1_000, 10_000_000_000, integer=True),
        "most_candidates": Range(1, 100_000, integer=True),
        "pictured": Range(16, 65_536, integer=True),
    }

    seconds: float = 150.0
    steps: int = 600
    work: int = 10**18
    products: int = 80_000_000_000
    most_cells: int = 50_000_000
    most_candidates: int = 4_000
    pictured: int = 1024


class CellsRead(Findings):
    """Cells (record, column) that were claimed to lie in one bin.

    `placed`: the share of all cells whose claim is right. `claims`: their number; `wrong`: of these the wrong ones, as
    the audit alone knows, by the party's table.
    """

    placed: float
    claims: Count
    wrong: Count


class ColumnCuts(Findings):
    """The cuts of one column that left sets alone tell.

    `cuts`: how many different ones. `between`: the share of the records that are known to lie between two neighbouring
    ones of them, or beyond the last; 0 without a cut. `placed`: the share whose bin is known.
    """

    column: str
    cuts: Count
    between: float
    placed: float


class PlacedAfter(Findings):
    """The share of the cells that left sets alone place in their bins after so many trees."""

    trees: Count
    placed: float


class ColumnPicture(Findings):
    """Ranks of a column's values, a pixel a record from dark to light, beside those that were read: data URLs."""

    truth: PictureUrl
    read: PictureUrl


class NoiseFigures(Findings):
    """The noise on a party's sums, and what was read in spite of it, with links given.

    `z`: its deviation on a cell, in units of a record's largest value. `sweeps`: of the sampler. `allowed`: the largest
    share of all cells that (ε, δ) of one record's bin in one column lets anybody name, given the left sets.
    """

    epsilon: float
    delta: float
    z: float
    sweeps: Count
    allowed: float


class ColumnFigures(Findings):
    """The attack on one feature party's columns.

    `left_sets`: by the left sets of its won splits alone, with links given: a floor that no noise on sums lowers; it
    needs no recorded sums, and neither do `cuts`, of each column.
    `differences`: by differences of few records too, with links that the attacker found. `together`: and by all
    equations together. `given`: the same as `together` with links given by the audit, which bounds what better links
    would read. `links`: the share of the candidates that the attacker put next to their true neighbour.
    `together` and `given` are null too where `steps` is 0.
    `contradictions`: sums that no set of records had, by which an attacker sees that links are wrong.
    `compared`: the share of cells right if those that are not claimed are named by their column's most frequent bin
    that left sets do not exclude, beside naming all of them by the most frequent one; null where nothing was read.
    `named`: how → that share, of each guess. `explained`: the variance of places that expected ones explain, beside
    none; null where `compared` is, and without a column of numbers.
    `noise`: of noised sums, of which `differences`, `together` and `links` are null, and `given` is what was read.
    `best`: the column whose order was read best, and its `rank_correlation` (Spearman); null where no column of numbers
    was read; `given_correlation`: the largest with links given, and `given_explained` the variance explained then.
    `equations`: of all trees. `placed_after`: of an additive model, whose left sets are of all records, null of others.
    """

    OMITTED: ClassVar = ("noise", "placed_after")

    party: str
    records: Count
    columns: Count
    trees: Count
    candidates: Count
    equations: Count
    left_sets: CellsRead
    cuts: list[ColumnCuts]
    differences: CellsRead | None
    together: CellsRead | None
    given: CellsRead | None
    links: float | None
    contradictions: Count
    compared: Compared | None = None
    explained: Compared | None = None
    named: dict[str, float] = {}
    noise: NoiseFigures | None = None
    placed_after: list[PlacedAfter] | None = None
    best: str | None
    rank_correlation: float | None
    given_correlation: float | None
    given_explained: float | None = None
    picture: ColumnPicture | None
    seconds: float
    reasons: dict[str, str]

    @property
    def read(self) -> CellsRead | None:
        """All that was read: by all equations together, or else by differences; None where no sum was.

        Of noised sums with links given.
        """
        if self.noise is not None:
            return self.given
        return self.differences if self.together is None else self.together


class MarkedCells(Findings):
    """The reverse sum attack on one feature party's columns, by records that g and h mark.

    `trees`: those whose summands mark records; `marks`: in all of them; `records`: different ones.
    `read`: cells of marked records among all cells, with links that the attacker found; `given`: with links given by
    the audit. Null where nothing was read.
    """

    trees: Count
    marks: Count
    records: Count
    read: CellsRead | None
    given: CellsRead | None
    seconds: float
    reasons: dict[str, str]


def placed_words(steps: Sequence[PlacedAfter]) -> str:
    """The cells that left sets alone place, tree by tree."""
    told = ", ".join(f"{100 * it.placed:.1f} % after {it.trees}" for it in steps)
    return f"left sets alone place of the cells {told} trees"
