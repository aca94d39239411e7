"""The records of a prediction that have their score, on disk block by block until the predictions are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from party.runtime.job_store import Arrays, JobStore
from party.runtime.messages import Rows
from treetap.errors import DataError
from treetap.models.store import JOB
from treetap.process.grouped_rows import Open, PlacedRows, Raw
from treetap.tables.reading import Floats
from treetap.tables.source import Origin

#: The imputed share of the splits on the way of each of n records, those of parties that were away, (n,).
Imputed = np.ndarray[tuple[int], np.dtype[np.float64]]
Array = np.ndarray[Any, np.dtype[Any]]
#: Records whose arrays are in memory at a time, by default.
AT_ONCE = 1 << 16


class ScoreStore:
    """Scores (n, outputs), imputed shares (n,) and explanations, of the blocks that are done.

    Kept by the record's place among the sorted ids of the own table, of which the digest is kept too: private set
    intersection aligns in another order every time. In memory there are the places alone.
    """

    def __init__(self, store: JobStore, submission: str, digest: str, files: Open) -> None:
        """`digest`: of the job, in hexadecimal; `files`: opens those in which arrays are put in order."""
        self._store, self._files = store, files
        self._submission, self._digest = submission, digest
        self._table = ""
        self._blocks: list[Rows] = []

    def open(self, table: str, path: Origin) -> None:
        """Find what earlier attempts have scored from a table of this digest.

        Raises:
            DataError: it was another one.
        """
        self._table, self._blocks = table, []
        if self._store.has(JOB):
            self._store.claim(self._submission, self._digest)
        while (arrays := self._store.load_arrays(self._name())) is not None:
            if str(arrays["table"]) != table:
                raise DataError(
                    f"{path}: is not the table of which records have been predicted in an earlier attempt; bring that "
                    "one back, or cancel the prediction and begin another"
                )
            self._blocks.append(arrays["records"])

    def add(self, records: Rows, scores: Floats, imputed: Imputed, further: Arrays) -> None:
        """Put a block on disk, before its step ends. `further`: arrays with a row per record, by name."""
        self._store.claim(self._submission, self._digest)
        arrays = {"scores": scores, "guessed": imputed, **further}
        keys = {"table": np.array(self._table), "records": records}
        self._store.save_arrays(self._name(), {**keys, **arrays})
        self._blocks.append(records)

    def records(self) -> Rows:
        """All records that have a score, in the order of their ids."""
        return np.sort(np.concatenate(self._blocks)) if self._blocks else np.zeros(0, dtype=np.int64)

    def in_order(self, names: Sequence[str], records: Rows, at_once: int = AT_ONCE) -> Iterator[dict[str, Array]]:
        """The arrays kept under these names for records that have a score, some rows at a time.

        `records`: in the order of their ids, which is that of the rows.
        """
        if not len(records):
            return
        first = self._load(0)
        parts = [_Part(first[name]) for name in names]
        width = sum(part.bytes for part in parts)
        ordered = PlacedRows.of(self._placed(parts, names, records), len(records), width, self._files)
        ends = np.cumsum([0, *(part.bytes for part in parts)]).tolist()
        try:
            for start in range(0, len(records), at_once):
                rows = ordered.take(start, min(at_once, len(records) - start))
                yield {
                    name: part.array(rows[:, begin:end])
                    for name, part, begin, end in zip(names, parts, ends[:-1], ends[1:], strict=True)
                }
        finally:
            ordered.close()

    def rows(self, name: str, records: Rows) -> Array:
        """The arrays kept under a name for records that have a score, in the order of their ids, a row each."""
        return np.concatenate([part[name] for part in self.in_order([name], records)])

    def discard(self) -> None:
        """Delete the scores, which the written predictions have replaced."""
        self._store.discard(self._submission)

    def _placed(self, parts: Iterable[_Part], names: Sequence[str], records: Rows) -> Iterator[tuple[Rows, Raw]]:
        """Of each block the places among `records`, and the bytes of the arrays side by side."""
        for number, block in enumerate(self._blocks):
            places = np.minimum(np.searchsorted(records, block), len(records) - 1)
            asked = records[places] == block
            if asked.any():
                arrays = self._load(number)
                rows = [part.raw(arrays[name][asked]) for name, part in zip(names, parts, strict=True)]
                yield places[asked], np.hstack(rows)

    def _load(self, number: int) -> dict[str, Array]:
        arrays = self._store.load_arrays(_name(number))
        if arrays is None:
            raise DataError(f"block {number} of the scores is gone: cancel the prediction and begin another")
        return arrays

    def _name(self) -> str:
        return _name(len(self._blocks))


class _Part:
    """The bytes of a row of an array (n, …)."""

    def __init__(self, array: Array) -> None:
        self._dtype, self._shape = array.dtype, array.shape[1:]
        self.bytes = int(array.dtype.itemsize * np.prod(self._shape, dtype=np.int64))

    def raw(self, array: Array) -> Raw:
        """The bytes (n, bytes) of an array of the same rows."""
        return np.ascontiguousarray(array).view(np.uint8).reshape(len(array), self.bytes)

    def array(self, raw: Raw) -> Array:
        """The inverse."""
        return np.ascontiguousarray(raw).view(self._dtype).reshape(len(raw), *self._shape)


def _name(number: int) -> str:
    return f"block-{number}"
