"""The leaf that every record reached in each tree, kept by the label holder of a job whose trees are repaired.

Arrays `reached-T` of the job's files, which go when the model is published.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from party.runtime.job_store import JobStore
from treetap.errors import DataError

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


class ReachedLeaves:
    """Of each stored tree the leaves (N,), as heap numbers of the shape that all parties know.

    `kept`: False: there are none, because no defence of the job repairs trees.
    """

    def __init__(self, store: JobStore, *, kept: bool) -> None:
        self._store, self.kept = store, kept

    def keep(self, tree: int, rows: Mapping[int, Rows], records: int) -> None:
        """Store the records of each leaf of a tree, before the tree itself; N is `records`."""
        if not self.kept:
            return
        reached = np.zeros(records, dtype=np.int32)
        for leaf, here in rows.items():
            reached[here] = leaf
        self._store.save_arrays(_name(tree), {"leaves": reached})

    def check(self, trees: int) -> None:
        """Raise `DataError` if trees of this number are stored, and the leaves of one of them are not."""
        for tree in range(trees if self.kept else 0):
            if not self._store.has(f"{_name(tree)}.npz"):
                raise DataError(
                    f"{self._store.folder}: has no leaves of records of tree {tree}: grafting or refit under "
                    "[defences] was added after it was grown; take it out again, or cancel the job and train anew"
                )

    def of(self, tree: int) -> Rows:
        """The leaves (N,) of a stored tree, which `check` has found; `DataError` if they are damaged."""
        arrays = self._store.load_arrays(_name(tree))
        assert arrays is not None
        return arrays["leaves"].astype(np.int64)


def _name(tree: int) -> str:
    return f"reached-{tree}"
