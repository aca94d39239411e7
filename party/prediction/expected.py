"""Messages between the parties of a prediction, with size limits from the model and the block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from party.runtime.expected import BLOCKS, Expected, Receives, record_set, record_sets

#: Bytes of a branch, of an entry, and of a tree with up to a thousand outputs.
_BRANCH, _ENTRY, _TREE = 16, 24, 8192


class ShardSize:
    """Size of a party's shard of a model, which limits the messages about its trees."""

    def __init__(self, shard: Sequence[dict[str, Any]], splits: str) -> None:
        """`splits`: the name of the party's own splits in a line."""
        self.trees = len(shard)
        self.splits = sum(len(tree[splits]) for tree in shard)
        ways = [leaf for tree in shard for leaf in tree.get("leaves", ())]  # a label holder's line has none
        self.leaves, self.depth = len(ways), max(map(len, ways), default=0)

    def layout(self, leaves_each: int = 1) -> int:
        """Most bytes of a layout of entries. `leaves_each`: the most entries of one leaf."""
        return self.trees * _TREE + self.leaves * leaves_each * _ENTRY

    def columns(self) -> int:
        """Bytes of a layout of columns, each with its branches."""
        return self.trees * _TREE + self.leaves * (self.depth + 2) * _BRANCH

    def queries(self, records: int) -> int:
        """Bytes of the queries of a level: no record twice in a tree."""
        return min(self.trees * record_sets(records, 1), self.splits * record_set(records)) + self.splits * 2 * _BRANCH


def block_records(label_holder: str, records: Callable[[], int]) -> Receives:
    """The records of each block, from the label holder."""
    return {"block_records": Expected([label_holder], lambda: record_set(records()), BLOCKS)}
