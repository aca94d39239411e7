"""`min_cell_records` at a feature party: see `treetap.trees.cell_merging`."""

from __future__ import annotations

from treetap.errors import ConfigError
from treetap.models.store import CELLS
from treetap.party.defences.checks import refuse_classes
from treetap.party.growth.rule import Draft, Part, Rule
from treetap.party.growth.split_table import SplitTable
from treetap.party.runtime.context import Rows
from treetap.party.setup.steps import ReceivedKey
from treetap.protocols.exclusions import Feature


class Merged(Rule):
    """Bins of few drawn records are merged, if the party's file says so."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._least = part.config.defences.min_cell_records or 0

    def drawn(self, first: Rows) -> None:
        """Refuse draws (N,) of which no column can have two cells, and another setting than an earlier attempt had.

        An interrupted tree is grown again: its sums by two settings together would show smaller groups.
        """
        context, least = self.part.context, self._least
        before, records = context.store.noted(CELLS), int((first > 0).sum())
        if 2 * least > records:
            raise ConfigError(
                f"min_cell_records = {least} under [defences]: a tree draws {records} of the common records, and a "
                f"split has {least} on either side; write at most {records // 2} in {context.party}'s file, or leave "
                "it out"
            )
        if before is None and least and context.store.bind(str(least), CELLS):
            return
        if before != (str(least) if least else None):
            raise ConfigError(
                f"min_cell_records of {context.party} is {least or 'not there'} and was {before or 'not there'} when "
                f"job {context.job} began; bring that back under [defences] of {context.party}'s file, or cancel the "
                "job and train again"
            )

    def binned(self, table: SplitTable) -> None:
        table.min_cell_records = self._least

    def keyed(self, key: ReceivedKey) -> None:
        """Refuse slots with the class of records."""
        if self._least and key.said.label_slots:
            refuse_classes(self.part.spec.aggregator, Feature.MIN_CELL_RECORDS)

    async def publish(self, draft: Draft) -> None:
        draft.entries |= {CELLS: self._least} if self._least else {}
