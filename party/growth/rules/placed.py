"""The cells that a feature party's left sets show in an additive model: see `treetap.trees.placed_cells`."""

from __future__ import annotations

import logging

from treetap.models.own_split import OwnSplit
from treetap.models.store import PLACED
from treetap.party.growth.rule import Draft, Rule
from treetap.party.growth.split_table import SplitTable
from treetap.trees.placed_cells import placed_by_tree

log = logging.getLogger(__name__)


class PlacedCells(Rule):
    """Count the party's cells that its left sets place, in its manifest alone: no message has the figure."""

    _table: SplitTable

    def binned(self, table: SplitTable) -> None:
        self._table = table

    async def publish(self, draft: Draft) -> None:
        splits = [[OwnSplit.from_dict(own).candidate for own in line["splits"]] for line in draft.lines]
        context, table = self.part.context, self._table
        shares = await context.offload(lambda: placed_by_tree(table.binned, table.training, splits))
        draft.entries[PLACED] = shares.tolist()
        log.info(
            "job %s: the left sets that %s has of %s place %.1f %% of its cells (records × columns) in their bins; "
            "treetap leakage %s has them by tree",
            context.job,
            self.part.spec.aggregator,
            context.party,
            100 * shares[-1],
            context.job,
        )
