"""A screening at the label holder: g and h at its own score and both classes are summed, and no node is split.

What it learns is kept beside the one stored tree, which is a leaf, and becomes a report when the job is published.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from treetap.arrays import Ints
from treetap.errors import DataError, Malformed
from treetap.models.line_file import Line
from treetap.models.store import REPORT, SCREEN
from treetap.party.growth.rule import Draft, Part, Rule, Summed
from treetap.party.growth.split_table import SplitTable
from treetap.party.setup.labelled_table import LabelledTable
from treetap.protocols.messages import LONGEST_NAME
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import CandidateList, Kind, Shape
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.screening import (
    FEWEST_OF_CLASS,
    BestCut,
    Own,
    Screened,
    best_cut,
    cells_of,
    column_of,
    own_of,
    own_scores,
    possible,
    screened,
    values_of,
)

log = logging.getLogger(__name__)
#: Slots of the criterion: g, h and the number of records.
_WIDTH = 3


class Screening(Rule):
    """The label holder's own score, the sums at it, and the report."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._own: Own | None = None
        self._cells: dict[str, Any] = {}
        self._cuts: Mapping[str, Sequence[int]] = {}

    def selected(self, data: LabelledTable) -> None:
        """Take the labels; `DataError` where a fold would not learn both classes."""
        self._labels = data.labels.values
        fewest = int(np.bincount(self._labels, minlength=2).min())
        if fewest < FEWEST_OF_CLASS:
            raise DataError(
                f"{data.table.path}: column {data.column!r} has {fewest} common records of one class, and a screening "
                f"needs {FEWEST_OF_CLASS} of each for scores out of fold; screen on a larger table"
            ).at(self.part.context.party)

    def binned(self, table: SplitTable) -> None:
        codes = table.binned.codes[: table.training]
        self._columns = BinnedTable(codes, table.binned.features)

    async def begin(self) -> None:
        """Compute the own score, out of fold."""
        seed, offload = self.part.params.seed, self.part.context.offload
        self._scores = await offload(lambda: own_scores(self._columns, self._labels, seed), whole=True)

    def values(self, summed: Summed) -> Summed:
        values = values_of(self._scores, self._labels)
        self._own = own_of(self._scores, values)
        if self.part.choice is not None:  # nobody counts classes
            return replace(summed, values=values[:, :_WIDTH])
        return replace(summed, values=values, width=_WIDTH)

    async def opened(self, growing: GrowingTree, taken: Mapping[str, Ints]) -> bool:
        """Make bins of the sums at the root, column by column; where sums are shared open a side of each best cut.

        Raises:
            Malformed: a party says of its columns what does not fit its sums, or no records have them.
        """
        if self.part.choice is not None:
            self._cuts = await self.part.choice.best_sides(growing, taken)
            return True
        for number, party in enumerate(self.part.spec.feature_parties, start=1):
            shapes, names = await self._columns_of(party, taken[party].shape[1])
            order = np.arange(taken[party].shape[1])
            if number in growing.lacking:  # see `TreeColumns.order`
                order = np.argsort(CandidateList(shapes).missing_left, kind="stable")
            sums = np.empty_like(taken[party][0])
            sums[order] = taken[party][0]
            cells = list(cells_of(shapes, sums, growing.sums[ROOT]))
            if not all(map(possible, cells)):
                raise Malformed(f"{party} has offered sums over bins that no records have")
            self._cells[party] = [[name, own.tolist()] for name, own in zip(names, cells, strict=True)]
        return True

    def kept(self) -> Line:
        return {SCREEN: {"own": asdict(self._own) if self._own else {}, "cells": self._cells, "cuts": self._cuts}}

    async def publish(self, draft: Draft) -> None:
        """Write the report of what is stored; the job has no metrics, and nothing to go on from."""
        stored = draft.entries[SCREEN]
        own = Own(**stored["own"])
        parties: list[Screened | BestCut] = [
            best_cut(party, cuts, g, h, own) for party, (cuts, g, h) in stored["cuts"].items()
        ]
        parties += [
            screened(
                party,
                [
                    column_of(number, name, np.array(cells, dtype=np.int64), own)
                    for number, (name, cells) in enumerate(columns, start=1)
                ],
                own,
            )
            for party, columns in stored["cells"].items()
        ]
        for party in parties:
            log.info("job %s: %s", self.part.context.job, party.said)
        report = {"job": self.part.context.job, "own": asdict(own), "parties": [asdict(party) for party in parties]}
        draft.files[REPORT] = json.dumps(report, indent=1).encode()
        draft.entries |= {SCREEN: True, "training_metrics": {}}

    async def _columns_of(self, party: str, candidates: int) -> tuple[list[Shape], list[str]]:
        """What a party says of its columns, whose sums are so many."""
        shapes, names = list[Shape](), list[str]()
        async for message in self.part.context.mailbox.series(party, "screened_columns", 0, 0):
            for column in message.growth.screened_columns.columns:
                kind = Kind.ONE_HOT if column.categories else Kind.NUMBERS
                shapes.append(Shape(column.bins, column.has_missing, kind))
                names.append(column.name)
        if (
            sum(shape.sums for shape in shapes) != candidates
            or min((shape.n_bins for shape in shapes), default=1) < 1
            or max(map(len, names), default=0) > LONGEST_NAME
        ):
            raise Malformed(f"{party} says of its columns what does not fit its {candidates} sums")
        return shapes, names
