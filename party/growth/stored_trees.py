"""A party's part of the stored trees of a job, and the handles of its own splits in them.

Handles number these: each tree continues after the stored ones, so a regrown tree gets the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from treetap.errors import DataError
from treetap.models.line_file import Line
from treetap.models.store import TREES
from treetap.party.runtime.context import StepContext

#: What every stored tree has: the tree and the party's own splits, at a feature party its branches to the leaves.
OF_TREES = ("tree", "own", "splits", "leaves")


class StoredTrees:
    """The shard of one job; each stored tree is a line, with the party's own splits under the key `own`."""

    def __init__(self, context: StepContext, own: str) -> None:
        self._context, self._own = context, own
        self._lines = context.store.lines(TREES)
        self._first = [0]  # handle of each tree, and of the one after the last

    @property
    def count(self) -> int:
        return self._lines.count()

    async def read(self) -> list[dict[str, Any]]:
        """All stored trees, read off the event loop; first when the job is prepared, since handles follow from them."""
        trees = await self._context.offload(self._lines.read)
        self._first = [0, *accumulate(len(tree[self._own]) for tree in trees)]
        return trees

    async def read_scored(self, scored: int) -> int:
        """Read the stored trees; returns the number of trees that the stored scores include.

        Raises:
            DataError: fewer trees are stored than the scores include, `scored`.
        """
        trees = len(await self.read())
        if trees < scored:
            raise DataError(
                f"{self._context.store.folder}: {TREES} holds {trees} trees, but the scores are those after {scored}; "
                f"bring a back-up of {TREES} back, or cancel the job"
            )
        return scored

    def first_handle(self, tree: int) -> int:
        """The handle of a tree's first own split; all trees before it are stored."""
        return self._first[tree]

    def add(self, index: int, content: dict[str, Any]) -> None:
        """Put a tree on disk, dropping what an interrupted attempt left at or after it."""
        self._lines.put(content, index)
        self._first[index + 1 :] = [self._first[index] + len(content[self._own])]


def entries_of(lines: Sequence[Line]) -> Line:
    """What rules have kept beside stored trees, of all trees together: the entries of the manifest."""
    entries: Line = {}
    for line in lines:
        for key, entry in line.items():
            if key not in OF_TREES:
                entries[key] = entries.get(key, {}) | entry
    return entries
