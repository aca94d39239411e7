"""Parts of a tree that the label holder grows alone, from its own columns, with no message."""

from __future__ import annotations

from dataclasses import dataclass, replace

from party.growth.label_state import Floats
from party.growth.split_table import TreeColumns
from party.runtime.messages import Rows
from treetap.models.own_split import OwnSplit
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import Subtree
from treetap.trees.expansion import ExpansionRules
from treetap.trees.grower import Entry, grow_alone
from treetap.trees.growing_tree import Ints
from treetap.trees.monotone import Monotone


@dataclass(frozen=True)
class LocalGrowth:
    """The own columns of one tree, with the summands (N, S) of its criterion."""

    columns: TreeColumns
    values: Ints
    criterion: Criterion
    rules: ExpansionRules

    def below(self, node: int, rows: Rows, monotone: Monotone | None) -> tuple[Subtree, Floats, list[OwnSplit]]:
        """The subtree of a node with these records (n,), their values (n, outputs), and the splits, in their table.

        `monotone`: the tree's constraints.
        """
        entries: dict[str, list[Entry]] = {self.columns.party: []}
        mine = (self.columns.party, self.columns.bins)
        subtree, values = grow_alone(mine, self.values, self.criterion, self.rules, entries, node, rows, monotone)
        numbered = sorted(subtree.splits, key=lambda split: split.handle)  # in the order of their growth
        made = [self.columns.enter(split.node, *entries[self.columns.party][split.handle]) for split in numbered]
        splits = tuple(replace(split, handle=made[split.handle].handle) for split in subtree.splits)
        return replace(subtree, splits=splits), values, made
