"""Parts of a tree that the label holder grows alone, from its own columns, with no message."""

from __future__ import annotations

from dataclasses import dataclass, replace

from party.growth.label_state import Floats
from party.growth.split_table import TreeColumns
from party.runtime.messages import Rows
from treetap.models.own_split import OwnSplit
from treetap.trees.criterion import Criterion
from treetap.trees.ensemble import Subtree
from treetap.trees.grower import Entry, grow_alone
from treetap.trees.growing_tree import Ints


@dataclass(frozen=True)
class LocalGrowth:
    """The own columns of one tree, with the summands (N, S) of its criterion."""

    columns: TreeColumns
    values: Ints
    criterion: Criterion
    max_depth: int

    def below(self, node: int, rows: Rows) -> tuple[Subtree, Floats, list[OwnSplit]]:
        """The subtree of a node with these records (n,), their values (n, outputs), and the splits, in their table."""
        entries: dict[str, list[Entry]] = {self.columns.party: []}
        mine = (self.columns.party, self.columns.bins)
        subtree, values = grow_alone(mine, self.values, self.criterion, self.max_depth, entries, node, rows)
        made = [
            self.columns.enter(split.node, *entry)
            for split, entry in zip(subtree.splits, entries[self.columns.party], strict=True)
        ]
        splits = tuple(replace(split, handle=own.handle) for split, own in zip(subtree.splits, made, strict=True))
        return replace(subtree, splits=splits), values, made
