"""The counted cells of a table and a label holder: charges of the party's ledger, and a file that says which they are.

A file has lines: all cells, in the first, and further ones, in each line behind. Each charge names the file and the
checksum of its last line, which covers the lines before. A job begins a file of its own with its first cells, and adds
a line to it for later ones: what a charge costs the disk is a line here and one in the ledger. A line, or a new file,
is on disk before its charge, and the file before goes after it: through any kill the one that the last charge names is
there, and lines behind the charged one count for nothing. So an older file, or an edited one, is found.
"""

from __future__ import annotations

import base64
import io
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from party.runtime.job_store import COLUMN_LEAKAGE
from party.runtime.ledger import Charge, Kind, ledger_of
from treetap.errors import DataError
from treetap.models.arrays import content_of, read_arrays
from treetap.models.keyed_ids import hashes
from treetap.models.line_file import LineFile
from treetap.tables.record_ids import Ids

Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
#: The ways by which cells become known.
SUMS, LEFT_SETS = "sums", "left_sets"
WAYS = (SUMS, LEFT_SETS)
_SEED = "cells"
_ONES = np.array([number.bit_count() for number in range(256)], dtype=np.int64)


@dataclass
class CountedCells:
    """The counted cells of a table: what a file of the account has.

    Attributes:
        key: of the hashes of ids.
        records: (R,) hash of each record that a job has trained on, in the order in which they came.
        columns: names of the C columns that a job has trained on.
        bits: way → (C, ⌈R / 8⌉), a bit for each cell.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    records: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    columns: list[str] = field(default_factory=list)
    bits: dict[str, Bits] = field(default_factory=lambda: {way: np.zeros((0, 0), dtype=np.uint8) for way in WAYS})

    @property
    def cells(self) -> int:
        """The number of all cells, R · C."""
        return len(self.records) * len(self.columns)

    def count(self, *ways: str) -> int:
        """The number of cells that one of these ways has counted; without an argument, any."""
        bits = [self.bits[way] for way in ways or WAYS]
        return int(_ONES[np.bitwise_or.reduce(bits)].sum())

    def places(self, ids: Ids, columns: Sequence[str]) -> tuple[Rows, list[int]]:
        """The places of records and columns, which are entered if they are new: (N,), and of each column."""
        asked = hashes(ids, self.key)
        fresh = np.setdiff1d(asked, self.records)
        self.records = np.concatenate([self.records, fresh])
        self.columns = [*self.columns, *(name for name in columns if name not in self.columns)]
        shape = len(self.columns), -(-len(self.records) // 8)
        for way, bits in self.bits.items():
            self.bits[way] = np.pad(bits, [(0, size - had) for size, had in zip(shape, bits.shape, strict=True)])
        order = np.argsort(self.records)
        places: Rows = order[np.searchsorted(self.records, asked, sorter=order)]
        return places, [self.columns.index(name) for name in columns]

    def flags(self, way: str, column: int) -> Bits:
        """(R,) 1 for each record whose cell in a column is counted."""
        return np.unpackbits(self.bits[way][column], count=len(self.records))

    def marked(self, way: str, cells: Iterable[tuple[int, Rows]]) -> tuple[CountedCells, list[tuple[int, Rows]], int]:
        """A copy with further cells (column, places (n,)); those that the way has not had; how many no way has had."""
        after = replace(self, bits={**self.bits, way: self.bits[way].copy()})
        new, of_any = list[tuple[int, Rows]](), 0
        (other,) = (name for name in WAYS if name != way)
        for column, places in cells:
            flags = after.flags(way, column)
            fresh = places[flags[places] == 0]
            if not len(fresh):
                continue
            flags[fresh] = 1
            after.bits[way][column] = np.packbits(flags)
            new.append((column, fresh))
            of_any += int((self.flags(other, column)[fresh] == 0).sum())
        return after, new, of_any

    def without(self, ids: Iterable[str]) -> tuple[CountedCells, int]:
        """The cells of all records but these, and how many of these it had."""
        kept = ~np.isin(self.records, hashes(ids, self.key))
        flags = {way: np.unpackbits(bits, axis=1, count=len(kept)) for way, bits in self.bits.items()}
        bits = {way: np.packbits(of[:, kept], axis=1) for way, of in flags.items()}
        return replace(self, records=self.records[kept], bits=bits), int((~kept).sum())

    def to_bytes(self) -> bytes:
        """The content of a file's first line, with random bytes: digests in the ledger then outlive a forgotten record.

        By the key of a later file, who guesses an id could else make an earlier file again, and compare.
        """
        texts = {"key": self.key, "columns": json.dumps(self.columns).encode(), "salt": secrets.token_bytes(32)}
        named = {name: np.frombuffer(text, dtype=np.uint8) for name, text in texts.items()}
        return content_of({**named, "records": self.records, **self.bits})

    @classmethod
    def of(cls, content: bytes) -> CountedCells:
        """The cells of such a content."""
        arrays = read_arrays(io.BytesIO(content))
        bits = {way: arrays[way] for way in WAYS}
        return cls(arrays["key"].tobytes(), arrays["records"], json.loads(arrays["columns"].tobytes()), bits)


@dataclass(frozen=True)
class CellsCharge:
    """The details of a charge.

    Attributes:
        label_holder: who is told of the cells.
        sums, left_sets: cells that the way has not had.
        records, columns: of the account after it.
        file: the file of cells, see `CellAccount.path_of`; empty before the first one.
        head: checksum of its last line.
        counted: False of an attempt whose cells cannot be counted.
    """

    label_holder: str
    sums: int = 0
    left_sets: int = 0
    records: int = 0
    columns: int = 0
    file: str = ""
    head: str = ""
    counted: bool = True

    @property
    def mark(self) -> Mark:
        """The place in the files that it names."""
        return Mark(self.file, self.head)


class Mark(NamedTuple):
    """A file of cells, and the checksum of a line in it; both empty before the first one."""

    file: str = ""
    head: str = ""


class CellAccount:
    """The account of a label holder and a table in a party's state folder: charges, and the file of cells."""

    def __init__(self, state: Path, label_holder: str, table: str) -> None:
        self.label_holder, self.table = label_holder, table
        self.ledger = ledger_of(state)
        self._folder, self._stem = state / COLUMN_LEAKAGE, f"{label_holder}.{table}"
        self._growing: tuple[Mark, LineFile] | None = None  # the file that this object has begun, to its last line

    @classmethod
    def all(cls, state: Path) -> list[CellAccount]:
        """Those of a ledger, in the order of their names. Raises `DataError` if it is damaged."""
        charges = ledger_of(state).charges(Kind.CELLS)
        names = sorted({(charge.details["label_holder"], charge.occasion.table) for charge in charges})
        return [cls(state, *name) for name in names]

    def charges(self, kind: Kind = Kind.CELLS) -> list[Charge]:
        """Those of the account, the first one first. Raises `DataError` if the ledger is damaged."""
        return [charge for charge in self.ledger.charges(kind) if self._own(charge)]

    def last(self) -> CellsCharge | None:
        """The last charge, which has the file as it is now; raises as `charges` does."""
        own = (charge for charge in reversed(self.ledger.charges(Kind.CELLS)) if self._own(charge))
        return next((CellsCharge(**charge.details) for charge in own), None)

    def size(self) -> tuple[int, int]:
        """The numbers of its records and columns."""
        last = self.last()
        return (0, 0) if last is None else (last.records, last.columns)

    def path_of(self, file: str) -> Path:
        """The path of a file that a charge names."""
        return self._folder / f"{self._stem}.{file}.jsonl"

    def jobs(self) -> dict[str, dict[str, int]]:
        """Job → the number of cells that it has added, by way; none of a job whose cells could not be counted."""
        jobs: dict[str, dict[str, int]] = {}
        for charge in self.charges():
            added = jobs.setdefault(charge.occasion.job, {})
            for way in WAYS if charge.details["counted"] else ():
                added[way] = added.get(way, 0) + charge.details[way]
        return jobs

    def stopped_at(self) -> float | None:
        """The greatest limit at which a job was stopped; None: none was."""
        return max((charge.details["limit"] for charge in self.charges(Kind.STOPPED)), default=None)

    def read(self) -> CountedCells:
        """The cells of the file that the last charge names; none before the first charge.

        Raises:
            DataError: it is not there, or not as it was written; or there is a file without a charge.
        """
        last = self.last()
        mend = f"bring back-ups of {COLUMN_LEAKAGE}/ and {self.ledger.path.name} of one time back, or"
        if last is None:
            stray = next(iter(sorted(self._folder.glob(f"{self._stem}.*jsonl"))), None)
            if stray is not None:
                raise DataError(
                    f"{stray}: {self.ledger.path} has no charge of it, being older, lost or of another version; {mend} "
                    "move it away, and cells count from none"
                )
        if last is None or not last.file:
            return CountedCells()
        path = self.path_of(last.file)
        if (cells := _cells_of(path, last.head)) is not None:
            return cells
        if self.last() != last:  # a job has written meanwhile
            return self.read()
        fault = "is damaged or was edited" if path.is_file() else "is missing"
        raise DataError(
            f"{path}: {fault}: by {self.ledger.path} it has the cells that {self.label_holder} was told; {mend} give "
            f"table {self.table!r} another name"
        )

    def write(self, before: Mark, cells: CountedCells, way: str, new: Sequence[tuple[int, Rows]]) -> Mark:
        """Write cells, durably; returns the place that has them.

        `cells`: all of them; `new`: those that the way has not had at `before`, (column, places (n,)), which are added
        where this object has written what is there. Raises `OSError` if the disk refuses it.
        """
        growing, self._growing = self._growing, None
        if growing is not None and growing[0] == before:
            lines, number = growing[1], growing[1].count() + 1
            lines.put({"way": way, "cells": [[column, places.tolist()] for column, places in new]}, number - 1)
            file = before.file
        else:
            content, number = cells.to_bytes(), 1
            file = sha256(content).hexdigest()[:32]
            lines = LineFile(self.path_of(file), lambda: _SEED)
            lines.fill([{"whole": base64.b64encode(content).decode()}])
        mark = Mark(file, lines.digest(number))
        self._growing = mark, lines
        return mark

    def sweep(self, file: str) -> None:
        """Delete all files but the one that a charge names."""
        for path in self._folder.glob(f"{self._stem}.*jsonl"):
            if path != self.path_of(file):
                path.unlink(missing_ok=True)

    def _own(self, charge: Charge) -> bool:
        return (charge.details["label_holder"], charge.occasion.table) == (self.label_holder, self.table)


def _cells_of(path: Path, head: str) -> CountedCells | None:
    """The cells of a file up to the line of a checksum; None if it has no such line, or is damaged."""
    lines = LineFile(path, lambda: _SEED)
    try:
        rows = lines.read()
    except DataError:
        return None
    number = next((number for number in range(len(rows), 0, -1) if lines.digest(number) == head), None)
    if number is None:
        return None
    cells = CountedCells.of(base64.b64decode(rows[0]["whole"]))
    for row in rows[1:number]:
        added = ((column, np.array(places, dtype=np.int64)) for column, places in row["cells"])
        cells, _, _ = cells.marked(row["way"], added)
    return cells
