"""The records of a prediction that have their score, on disk block by block until the predictions are written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from party.runtime.job_store import Arrays, JobStore
from treetap.errors import DataError
from treetap.models.store import JOB
from treetap.tables.reading import Floats
from treetap.tables.source import Origin

#: The imputed share of the splits on the way of each of n records, those of parties that were away, (n,).
Imputed = np.ndarray[tuple[int], np.dtype[np.float64]]
Array = np.ndarray[Any, np.dtype[Any]]


class ScoreStore:
    """Ids, scores (n, outputs), imputed shares (n,) and explanations, of the blocks that are done.

    Kept by id and not by place, because private set intersection aligns in another order every time.
    """

    def __init__(self, store: JobStore, submission: str) -> None:
        self._store, self._submission = store, submission
        self._table = ""
        self._blocks: list[tuple[list[str], Arrays]] = []

    def open(self, table: str, path: Origin) -> None:
        """Find what earlier attempts have scored from a table of this digest; `DataError` where it was another one."""
        self._table, self._blocks = table, []
        if self._store.has(JOB):
            self._store.claim(self._submission)
        while (arrays := self._store.load_arrays(self._name())) is not None:
            if str(arrays["table"]) != table:
                raise DataError(
                    f"{path}: is not the table of which records have been predicted in an earlier attempt; bring that "
                    "one back, or cancel the prediction and begin another"
                )
            self._blocks.append((arrays["ids"].tolist(), arrays))

    def add(self, ids: list[str], scores: Floats, imputed: Imputed, further: Arrays) -> None:
        """Put a block on disk, before its step ends. `further`: arrays with a row per record, by name."""
        self._store.claim(self._submission)
        arrays = {"scores": scores, "guessed": imputed, **further}
        keys = {"table": np.array(self._table), "ids": np.array(ids, dtype=np.str_)}
        self._store.save_arrays(self._name(), {**keys, **arrays})
        self._blocks.append((ids, arrays))

    def ids(self) -> set[str]:
        """All records that have a score."""
        return {value for ids, _ in self._blocks for value in ids}

    def known(self, wanted: Sequence[str]) -> list[str]:
        """Those of the wanted ids that have a score, in their order."""
        ids = self.ids()
        return [value for value in wanted if value in ids]

    def rows(self, name: str, known: Sequence[str]) -> Array:
        """The arrays kept under a name for ids that have a score, a row each, in their order."""
        place = {value: k for k, value in enumerate(value for ids, _ in self._blocks for value in ids)}
        whole = np.concatenate([arrays[name] for _, arrays in self._blocks])
        return whole[[place[value] for value in known]]

    def discard(self) -> None:
        """Delete the scores, which the written predictions have replaced."""
        self._store.discard(self._submission)

    def _name(self) -> str:
        return f"block-{len(self._blocks)}"
