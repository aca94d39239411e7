"""`id_lmid`, `reduced_leakage` and `on_max_leakage = "withdraw"`: sets and trees that other parties do not see."""

from __future__ import annotations

from dataclasses import replace

from treetap.models.store import HIDES_CONSTANTS
from treetap.party.defences.checks import check_own_trees
from treetap.party.growth.rule import Draft, Part, Rule, Summed
from treetap.party.setup.labelled_table import LabelledTable
from treetap.trees.withholding import NOTHING


class Withheld(Rule):
    """What the label holder's file and policy withhold."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._withholding = part.config.withholding
        self.alone = self._withholding.own_trees

    def check(self, data: LabelledTable, before: int) -> None:
        """Refuse more trees of the label holder alone than the model will have."""
        check_own_trees(
            self.part.context.party, self.part.config.defences, self.part.params, len(data.labels.classes), before
        )

    def selected(self, data: LabelledTable) -> None:
        self._labels = data.labels

    def values(self, summed: Summed) -> Summed:
        """Slots for the classes that Eq. 6 of ID-LMID counts, and the limit on their sums."""
        own, labels = self._withholding, self._labels
        values, limit = own.counted(
            summed.values, labels.values, len(labels.classes), summed.drawn, has_counts=summed.counts
        )
        every = limit is not None and own.shown
        return replace(summed, values=values, limit=limit, every=every, alone=own.grows_alone(summed.tree))

    async def publish(self, draft: Draft) -> None:
        """A withdrawn leaf must not show by an entry that differs from record to record.

        Trees may be of an earlier attempt, under defences that have been taken out since.
        """
        if self._withholding != NOTHING or any(tree.local for tree in draft.trees):
            draft.entries[HIDES_CONSTANTS] = True
