"""`grafting` and `refit`: see `treetap.party.defences.repair`."""

from __future__ import annotations

from collections.abc import Sequence

from treetap.models.store import HIDES_CONSTANTS, REPAIRED, VALUES
from treetap.party.defences.checks import refuse_repair
from treetap.party.defences.repair import ReachedLeaves, Repair, published_values
from treetap.party.growth.rule import Draft, Part, Rule
from treetap.party.growth.split_table import SplitTable
from treetap.party.setup.labelled_table import LabelledTable
from treetap.trees.ensemble import Tree
from treetap.trees.growing_tree import GrowingTree


class Repaired(Rule):
    """The label holder computes values of leaves from its labels as they are, once all trees are stored."""

    def __init__(self, part: Part) -> None:
        super().__init__(part)
        self._reached = ReachedLeaves(part.context.store)

    def resumed(self, stored: int) -> None:
        """Look for the leaves that records reached in the stored trees."""
        self._reached.check(stored)

    def selected(self, data: LabelledTable) -> None:
        self._data = data

    def binned(self, table: SplitTable) -> None:
        self._columns = table

    def constrained(self, parties: Sequence[str]) -> None:
        """New weights do not fit the bounds of the old ones."""
        refuse_repair(parties)

    def finish(self, tree: int, growing: GrowingTree) -> None:
        """Store the records of each leaf, before the tree."""
        self._reached.keep(tree, {leaf: growing.rows[leaf] for leaf in growing.leaves()}, len(growing.values))

    async def publish(self, draft: Draft) -> None:
        """Store the stored trees' repairs; predictions use the values of one variant."""
        data, params, context = self._data, self.part.params, self.part.context
        features, used = data.table.features, published_values(self.part.config.defences)
        repair = Repair(
            party=context.party,
            params=params,
            bins=lambda tree: self._columns.own_columns_of_tree(tree, params, lambda: features).bins,
            features=features,
            reached=self._reached,
            noisy=data.labels.values,
            clean=data.known.values,
            classes=len(data.labels.classes),
        )
        lines = await context.offload(lambda: repair.lines(draft.lines))
        kept = context.store.lines(REPAIRED)
        for number, line in enumerate(lines):
            kept.put(line, number)
        draft.values = [Tree.from_dict(line[used]) for line in lines]
        draft.entries |= {HIDES_CONSTANTS: True, VALUES: used}
        draft.kinds.append(REPAIRED)
