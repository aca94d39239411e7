"""The records of a prediction that have their score, on disk block by block until the predictions are written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from party.store import JobStore
from party.table import Floats
from treetap.errors import DataError

Guessed = np.ndarray[tuple[int], np.dtype[np.float64]]


class Scored:
    """Ids, scores (n, outputs) and guessed shares (n,) of the blocks that are done.

    Kept by id and not by place, because private set intersection aligns in another order every time.
    """

    def __init__(self, store: JobStore, submission: str) -> None:
        self._store, self._submission = store, submission
        self._table = ""
        self._blocks: list[tuple[list[str], Floats, Guessed]] = []

    def open(self, table: str, path: Path) -> None:
        """Find what earlier attempts have scored from a table of this digest; `DataError` where it was another one."""
        self._table, self._blocks = table, []
        while (arrays := self._store.load_arrays(self._name())) is not None:
            if not self._blocks:
                self._store.claim(self._submission)
            if str(arrays["table"]) != table:
                raise DataError(
                    f"{path}: is not the table of which records have been predicted in an earlier attempt; bring that "
                    "one back, or cancel the prediction and begin another"
                )
            self._blocks.append((arrays["ids"].tolist(), arrays["scores"], arrays["guessed"]))

    def add(self, ids: list[str], scores: Floats, guessed: Guessed) -> None:
        """A block is done: on disk before anything else is asked."""
        self._store.claim(self._submission)
        arrays = {"table": np.array(self._table), "ids": np.array(ids, dtype=np.str_)}
        self._store.save_arrays(self._name(), {**arrays, "scores": scores, "guessed": guessed})
        self._blocks.append((ids, scores, guessed))

    def ids(self) -> set[str]:
        """All records that have a score."""
        return {value for ids, _, _ in self._blocks for value in ids}

    def drop_last(self) -> None:
        """Have the last block scored again."""
        self._blocks.pop()

    def found(self, wanted: Sequence[str]) -> tuple[list[str], Floats, Guessed]:
        """Those of the wanted ids that have a score, in their order, with scores and guessed shares."""
        ids = [value for block, _, _ in self._blocks for value in block]
        place = {value: k for k, value in enumerate(ids)}
        known = [value for value in wanted if value in place]
        order = [place[value] for value in known]
        scores = np.concatenate([scores for _, scores, _ in self._blocks])[order]
        return known, scores, np.concatenate([guessed for _, _, guessed in self._blocks])[order]

    def discard(self) -> None:
        """The predictions are written: nothing of this is needed any more."""
        self._store.discard(self._submission)

    def _name(self) -> str:
        return f"block-{len(self._blocks)}"
