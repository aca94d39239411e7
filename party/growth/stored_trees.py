"""A party's part of the trees of a job that are on its disk, and the handles of its own splits in them."""

from __future__ import annotations

from typing import Any

from party.growth.handles import Handles
from party.runtime.job_store import JobStore


class StoredTrees:
    """The shard of one job; each stored tree is a line, with the party's own splits under the name `own`.

    Attributes:
        count: how many trees are stored.
    """

    def __init__(self, store: JobStore, own: str) -> None:
        self._store, self._own = store, own
        self._handles = Handles()
        self.count = 0

    def read(self) -> list[dict[str, Any]]:
        """All stored trees. Read first when the job is prepared: `count` and handles follow from it."""
        trees = self._store.trees()
        self._handles = Handles(len(tree[self._own]) for tree in trees)
        self.count = len(trees)
        return trees

    def first_handle(self, tree: int) -> int:
        """The handle of a tree's first own split; all trees before it are stored."""
        return self._handles.first_of(tree)

    def add(self, index: int, content: dict[str, Any]) -> None:
        """Put a tree on disk, dropping what an interrupted attempt left at or after it."""
        self._store.add_tree(content, index)
        self._handles.stored(index, len(content[self._own]))
        self.count = index + 1
