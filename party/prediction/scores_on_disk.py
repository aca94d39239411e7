"""The scores of a prediction: blocks on disk, and what becomes of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.arrays import Array
from treetap.errors import DataError
from treetap.models.arrays import Arrays
from treetap.models.store import JOB
from treetap.names import of_class
from treetap.party.runtime.context import Rows
from treetap.party.runtime.job_store import JobStore
from treetap.process.grouped_rows import Open, PlacedRows, Raw
from treetap.tables.label_columns import typed
from treetap.tables.reading import Floats
from treetap.tables.source import Origin
from treetap.trees.job_params import BINARY, REGRESSIONS
from treetap.trees.loss import outcome_of

#: The imputed share of the splits on the way of each of n records, those of parties that were away, (n,).
Imputed = np.ndarray[tuple[int], np.dtype[np.float64]]
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
        while (arrays := self._store.load_arrays(_name(len(self._blocks)))) is not None:
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
        self._store.save_arrays(_name(len(self._blocks)), {**keys, **arrays})
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
        row = np.dtype([(name, first[name].dtype, first[name].shape[1:]) for name in names])
        ordered = PlacedRows.of(self._placed(row, records), len(records), row.itemsize, self._files)
        try:
            for start in range(0, len(records), at_once):
                taken = np.ascontiguousarray(ordered.take(start, min(at_once, len(records) - start)))
                rows = taken.view(row).reshape(-1)
                yield {name: np.ascontiguousarray(rows[name]) for name in names}
        finally:
            ordered.close()

    def rows(self, name: str, records: Rows) -> Array:
        """The arrays kept under a name for records that have a score, in the order of their ids, a row each."""
        return np.concatenate([part[name] for part in self.in_order([name], records)])

    def discard(self) -> None:
        """Delete the scores, which the written predictions have replaced."""
        self._store.discard(self._submission)

    def _placed(self, row: np.dtype[np.void], records: Rows) -> Iterator[tuple[Rows, Raw]]:
        """Of each block the places among `records`, and the bytes of the arrays side by side, as `row` has them."""
        for number, block in enumerate(self._blocks):
            places = np.minimum(np.searchsorted(records, block), len(records) - 1)
            asked = records[places] == block
            if asked.any():
                arrays, rows = self._load(number), np.empty(np.count_nonzero(asked), dtype=row)
                for name in row.names or ():
                    rows[name] = arrays[name][asked]
                yield places[asked], rows.view(np.uint8).reshape(len(rows), row.itemsize)

    def _load(self, number: int) -> dict[str, Array]:
        arrays = self._store.load_arrays(_name(number))
        if arrays is None:
            raise DataError(f"block {number} of the scores is gone: cancel the prediction and begin another")
        return arrays


def _name(number: int) -> str:
    return f"block-{number}"


@dataclass(frozen=True)
class Outcome:
    """The outcome of n records: `classes`, or `predictions` of a regression; `scores` (n, outputs); `probabilities`.

    The last is (n, 1) for two classes (that of the second), (n, classes) for more, (n, 0) for a regression. Of
    `classes` and `predictions` the other one is empty.
    """

    classes: list[str]
    predictions: list[float]
    scores: Floats
    probabilities: Floats

    @classmethod
    def of(cls, objective: str, classes: Sequence[str], scores: Floats) -> Outcome:
        """The outcome by the scores (n, outputs) of a model that was trained for an objective."""
        outcome = outcome_of(objective, len(classes), scores)
        if objective in REGRESSIONS:
            return cls([], outcome.tolist(), scores[:, :1], np.zeros((len(scores), 0)))
        if objective in BINARY:
            second = outcome.tolist()
            return cls([classes[int(p > 0.5)] for p in second], [], scores[:, :1], outcome.reshape(-1, 1))
        return cls([classes[k] for k in outcome.argmax(axis=1)], [], scores, outcome)

    def columns(self, classes: Sequence[str], kind: pa.DataType) -> dict[str, Any]:
        """Name → n values, as a file of predictions has them; `kind`: the type of the classes in their table."""
        named = typed(self.classes, kind) if classes else pa.array(self.predictions, pa.float64())
        columns: dict[str, Any] = {"prediction": named}
        if 0 < self.probabilities.shape[1] == len(classes):
            columns |= {of_class("probability", name): self.probabilities[:, k] for k, name in enumerate(classes)}
            return columns | {of_class("score", name): self.scores[:, k] for k, name in enumerate(classes)}
        if self.probabilities.shape[1]:
            columns[of_class("probability", classes[1])] = self.probabilities[:, 0]
        return columns | {"score": self.scores[:, 0]}
