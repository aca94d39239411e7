"""The counted cells of a table and a label holder: charges of the party's ledger, and a file that says which they are.

Each charge has the file's SHA-256. A new file is written before its charge, and the one before goes after it: through
any kill the file that the last charge names is there. So an older file, or an edited one, is found.
"""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import numpy.typing as npt

from party.runtime.job_store import COLUMN_LEAKAGE
from party.runtime.ledger import Charge, Kind, ledger_of
from treetap.errors import DataError
from treetap.models.arrays import content_of, read_arrays
from treetap.models.durable import make_folder, read_whole, write_whole
from treetap.models.keyed_ids import hashes
from treetap.models.sealed import Seal
from treetap.tables.record_ids import Ids

Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
#: The ways by which cells become known.
SUMS, LEFT_SETS = "sums", "left_sets"
WAYS = (SUMS, LEFT_SETS)
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

    def marked(self, way: str, cells: Iterable[tuple[int, Rows]]) -> tuple[CountedCells, int, int]:
        """A copy with further cells (column, places (n,)); how many the way has not had, and no way has had."""
        after = replace(self, bits={**self.bits, way: self.bits[way].copy()})
        new = of_any = 0
        (other,) = (name for name in WAYS if name != way)
        for column, places in cells:
            flags = after.flags(way, column)
            fresh = places[flags[places] == 0]
            if not len(fresh):
                continue
            flags[fresh] = 1
            after.bits[way][column] = np.packbits(flags)
            new += len(fresh)
            of_any += int((self.flags(other, column)[fresh] == 0).sum())
        return after, new, of_any

    def without(self, ids: Iterable[str]) -> tuple[CountedCells, int]:
        """The cells of all records but these, and how many of these it had."""
        kept = ~np.isin(self.records, hashes(ids, self.key))
        flags = {way: np.unpackbits(bits, axis=1, count=len(kept)) for way, bits in self.bits.items()}
        bits = {way: np.packbits(of[:, kept], axis=1) for way, of in flags.items()}
        return replace(self, records=self.records[kept], bits=bits), int((~kept).sum())

    def to_bytes(self) -> bytes:
        """The content of a file, with random bytes of its own: a digest in the ledger then outlives a forgotten record.

        By the key of a later file, who guesses an id could else make an earlier file again, and compare.
        """
        texts = {"key": self.key, "columns": json.dumps(self.columns).encode(), "salt": secrets.token_bytes(32)}
        named = {name: np.frombuffer(text, dtype=np.uint8) for name, text in texts.items()}
        return content_of({**named, "records": self.records, **self.bits})

    @classmethod
    def of(cls, content: bytes) -> CountedCells:
        """The cells of a file's content."""
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
        file: SHA-256 of the file of cells; empty before the first one.
        counted: False of an attempt whose cells cannot be counted.
    """

    label_holder: str
    sums: int = 0
    left_sets: int = 0
    records: int = 0
    columns: int = 0
    file: str = ""
    counted: bool = True


class CellAccount:
    """The account of a label holder and a table in a party's state folder: charges, and the file of cells."""

    def __init__(self, state: Path, label_holder: str, table: str, seal: Seal | None = None) -> None:
        self.label_holder, self.table = label_holder, table
        self.ledger = ledger_of(state, seal)
        self._folder, self._stem = state / COLUMN_LEAKAGE, f"{label_holder}.{table}"

    @classmethod
    def all(cls, state: Path, seal: Seal | None = None) -> list[CellAccount]:
        """Those of a ledger, in the order of their names. Raises `DataError` if it is damaged."""
        charges = ledger_of(state, seal).charges(Kind.CELLS)
        names = sorted({(charge.details["label_holder"], charge.occasion.table) for charge in charges})
        return [cls(state, *name, seal) for name in names]

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

    def path_of(self, digest: str) -> Path:
        """The file of a SHA-256."""
        return self._folder / f"{self._stem}.{digest[:32]}.npz"

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
            stray = next(iter(sorted(self._folder.glob(f"{self._stem}.*npz"))), None)
            if stray is not None:
                raise DataError(
                    f"{stray}: {self.ledger.path} has no charge of it, being older, lost or of another version; {mend} "
                    "move it away, and cells count from none"
                )
        if last is None or not last.file:
            return CountedCells()
        path = self.path_of(last.file)
        content = read_whole(path, self.ledger.seal) if path.is_file() else b""
        if sha256(content).hexdigest() == last.file:
            return CountedCells.of(content)
        if self.last() != last:  # a job has written meanwhile
            return self.read()
        fault = "is damaged or was edited" if content else "is missing"
        raise DataError(
            f"{path}: {fault}: by {self.ledger.path} it has the cells that {self.label_holder} was told; {mend} give "
            f"table {self.table!r} another name"
        )

    def write(self, cells: CountedCells) -> str:
        """Write the file of these cells, durably; returns its SHA-256. Raises `OSError` if the disk refuses it."""
        content = cells.to_bytes()
        digest = sha256(content).hexdigest()
        if not self.path_of(digest).is_file():
            make_folder(self._folder)
            write_whole(self.path_of(digest), content, seal=self.ledger.seal)
        return digest

    def sweep(self, digest: str) -> None:
        """Delete the files before the one of a SHA-256, which a charge has."""
        for path in self._folder.glob(f"{self._stem}.*npz"):
            if path != self.path_of(digest):
                path.unlink(missing_ok=True)

    def _own(self, charge: Charge) -> bool:
        return (charge.details["label_holder"], charge.occasion.table) == (self.label_holder, self.table)
