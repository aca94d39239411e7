"""`min_cell_records` at a feature party, see `treetap.trees.cell_merging`; where sums are shared `min_side_records`."""

from __future__ import annotations

from treetap.errors import ConfigError
from treetap.models.store import CELLS, SIDES
from treetap.party.defences.checks import refuse_classes
from treetap.party.growth.rule import Draft, Part, Rule
from treetap.party.growth.split_table import SplitTable
from treetap.party.runtime.context import Rows
from treetap.party.setup.steps import ReceivedKey
from treetap.protocols.exclusions import Feature
from treetap.protocols.growth import sums_shared


class Merged(Rule):
    """Bins of few drawn records are merged, or candidates of few on a side win no node, if the party's file says so."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._key = SIDES if sums_shared(part.spec) else CELLS  # a job has one of them
        self._least: int = getattr(part.config.defences, self._key) or 0

    def drawn(self, first: Rows) -> None:
        """Refuse draws (N,) of which no column can have two cells, and another setting than an earlier attempt had.

        An interrupted tree is grown again: its sums by two settings together would show smaller groups.
        """
        context, least = self.part.context, self._least
        before, records = context.store.noted(self._key), int((first > 0).sum())
        if 2 * least > records:
            raise ConfigError(
                f"{self._key} = {least} under [defences]: a tree draws {records} of the common records, and a "
                f"split has {least} on either side; write at most {records // 2} in {context.party}'s file, or leave "
                "it out"
            )
        if before is None and least and context.store.bind(str(least), self._key):
            return
        if before != (str(least) if least else None):
            raise ConfigError(
                f"{self._key} of {context.party} is {least or 'not there'} and was {before or 'not there'} when "
                f"job {context.job} began; bring that back under [defences] of {context.party}'s file, or cancel the "
                "job and train again"
            )

    def binned(self, table: SplitTable) -> None:
        merged = self._key == CELLS
        table.min_cell_records, table.min_side_records = (self._least, 0) if merged else (0, self._least)

    def keyed(self, key: ReceivedKey) -> None:
        """Refuse slots with the class of records."""
        if self._least and key.said.label_slots and not self.part.spec.screen:
            refuse_classes(self.part.spec.aggregator, Feature.MIN_CELL_RECORDS)

    async def publish(self, draft: Draft) -> None:
        draft.entries |= {self._key: self._least} if self._least else {}
