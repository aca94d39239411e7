"""A feature party's account of the cells of its columns that a label holder can read from small groups of records.

A *cell* is a record of the training in a column. It is counted once it has lain in a group of at most `SMALL` records
that the tree draws, and that the label holder

- has a sum over, or derives one (by *sums*: `treetap.trees.small_groups` says which), or
- is shown as a set: one side of a node that a column of this party splits (by *left sets*). In that side the column
  lies between two cuts, the node's own and one further up the tree, or at an end. A side of so few records in all
  counts whole, with those that the tree does not draw.

A group by sums is counted for each set of records that the sums can be about: those that the label holder has said to
be summed, and those of them that the job's seed draws, as the others may be summed as zeros (ID-LMID).

Cells are counted for each label holder and each table, by the table's name in this party's configuration: an edit of
its file does not begin anew. A record is known by a hash of its id, under a key of the account; a column by its name.
The account goes on over jobs, and is on disk before what it counts is sent: a tree that is sent again counts the same
cells. Records of an eval table are not counted.

The account supposes a label holder that follows the protocol. It bounds neither one that crafts gradients or instance
spaces, nor what is concluded from several trees, from solved cells or from large sets. A protocol in which this party
does not have the records of nodes cannot count: `treetap.protocols.exclusions` refuses `max_column_leakage` there.
"""

from __future__ import annotations

import io
import json
import logging
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from party.runtime.job_store import COLUMN_LEAKAGE
from treetap.errors import DataError, Refused
from treetap.models.arrays import read_arrays
from treetap.models.checksums import bytes_with_checksum, bytes_without_checksum
from treetap.models.durable import make_folder, stamp_of, write_whole
from treetap.tables.record_ids import Ids
from treetap.trees.small_groups import SMALL, Cells, cells_of_sums

if TYPE_CHECKING:
    from party.runtime.context import StepContext
    from treetap.models.own_split import OwnSplit
    from treetap.trees.params import TreeParams
    from treetap.trees.tree_bins import Bins

log = logging.getLogger(__name__)
Rows = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint8]
Bools = npt.NDArray[np.bool_]
#: The ways by which cells become known.
SUMS, LEFT_SETS = "sums", "left_sets"
WAYS = (SUMS, LEFT_SETS)
_HASH_BYTES = 8
#: Held while accounts are read and written: two jobs may train on one table at once.
_one_at_a_time = threading.Lock()
_ONES = np.array([number.bit_count() for number in range(256)], dtype=np.int64)


class Grown(Protocol):
    """A tree while it grows: number `index`, the known instance spaces by node, and the mask (N,) of what sums hold."""

    index: int
    rows: dict[int, Rows]
    summed: Bools

    def rows_of(self, node: int) -> Rows:
        """The instance space of a node, known or derived from the parent's and the sibling's."""
        ...


@dataclass
class CountedCells:
    """The counted cells of a table: what a file of the account has.

    Attributes:
        key: of the hashes of ids.
        records: (R,) hash of each record that a job has trained on, in the order in which they came.
        columns: names of the C columns that a job has trained on.
        bits: way → (C, ⌈R / 8⌉), a bit for each cell.
        jobs: job → the number of cells that it has added, by way; none of a job whose cells could not be counted.
        stopped: the limit at which a job was stopped; None: none was.
    """

    key: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    records: npt.NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    columns: list[str] = field(default_factory=list)
    bits: dict[str, Bits] = field(default_factory=lambda: {way: np.zeros((0, 0), dtype=np.uint8) for way in WAYS})
    jobs: dict[str, dict[str, int]] = field(default_factory=dict)
    stopped: float | None = None

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
        hashes = np.frombuffer(b"".join(self._hashes(ids)), dtype=np.uint64)
        fresh = np.setdiff1d(hashes, self.records)
        self.records = np.concatenate([self.records, fresh])
        self.columns = [*self.columns, *(name for name in columns if name not in self.columns)]
        shape = len(self.columns), -(-len(self.records) // 8)
        for way, bits in self.bits.items():
            self.bits[way] = np.pad(bits, [(0, size - had) for size, had in zip(shape, bits.shape, strict=True)])
        order = np.argsort(self.records)
        places: Rows = order[np.searchsorted(self.records, hashes, sorter=order)]
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

    def to_bytes(self) -> bytes:
        """The content of a file."""
        described = json.dumps({"columns": self.columns, "jobs": self.jobs, "stopped": self.stopped}).encode()
        content = io.BytesIO()
        key, texts = (np.frombuffer(text, dtype=np.uint8) for text in (self.key, described))
        np.savez(content, allow_pickle=False, key=key, described=texts, records=self.records, **self.bits)
        return content.getvalue()

    @classmethod
    def of(cls, content: bytes) -> CountedCells:
        """The cells of a file's content. Raises ValueError if it is none."""
        arrays = read_arrays(io.BytesIO(content))
        try:
            described = json.loads(arrays["described"].tobytes())
            bits = {way: arrays[way] for way in WAYS}
            columns, *more = (described[name] for name in ("columns", "jobs", "stopped"))
            read = cls(arrays["key"].tobytes(), arrays["records"], columns, bits, *more)
        except (KeyError, TypeError, RecursionError):
            raise ValueError("not an account") from None
        shape = len(read.columns), -(-len(read.records) // 8)
        kinds = {(part.shape, part.dtype) for part in bits.values()}
        if read.records.dtype != np.uint64 or kinds != {(shape, np.dtype(np.uint8))}:
            raise ValueError("not an account")
        return read

    def _hashes(self, ids: Ids) -> Iterator[bytes]:
        return (blake2b(text.encode(), digest_size=_HASH_BYTES, key=self.key).digest() for text in ids)


class AccountFile:
    """The account of a label holder and a table in a party's state folder, whole or not at all on disk."""

    def __init__(self, state: Path, label_holder: str, table: str) -> None:
        self.label_holder, self.table = label_holder, table
        self.path = state / COLUMN_LEAKAGE / f"{label_holder}.{table}.npz"

    @classmethod
    def all(cls, state: Path) -> list[AccountFile]:
        """Those of a state folder, in the order of their names."""
        names = sorted(path.stem for path in (state / COLUMN_LEAKAGE).glob("*.*.npz"))
        return [cls(state, *name.split(".", 1)) for name in names]

    def read(self) -> CountedCells:
        """The counted cells; none if there is no file. Raises `DataError` if it is damaged."""
        if not self.path.is_file():
            return CountedCells()
        content = bytes_without_checksum(self.path, self.path.read_bytes(), self._seed)
        try:
            return CountedCells.of(content)
        except ValueError:
            raise DataError(f"{self.path}: is damaged; bring a back-up of it back") from None

    def write(self, cells: CountedCells) -> None:
        """Make these the counted cells, durably. Raises `OSError` if they cannot be written."""
        make_folder(self.path.parent)
        write_whole(self.path, bytes_with_checksum(cells.to_bytes(), self._seed))

    @property
    def _seed(self) -> str:
        return f"column leakage of {self.table} to {self.label_holder}"


class ColumnAccount:
    """The account while one job trains.

    Args:
        table: its name in the party's configuration.
        params: of the job, which say what each tree draws.
    """

    def __init__(self, context: StepContext, state: Path, label_holder: str, table: str, params: TreeParams) -> None:
        self._context, self._params = context, params
        self._file = AccountFile(state, label_holder, table)
        self._ids, self._columns = Ids.of([]), list[str]()
        self._cells, self._stamp = CountedCells(), tuple[int, ...]()
        self._places: Rows = np.zeros(0, dtype=np.int64)
        self._of_columns: list[int] = []
        self._of_job = 0  # counted cells among the job's
        self._sets: tuple[int, list[Bools]] = (-1, [])  # a tree, and what its sums can be about

    def open(self, ids: Ids, columns: Sequence[str]) -> None:
        """Begin with the records of the training and this party's columns.

        Raises:
            DataError: the account is damaged.
            Refused: more cells are counted than the policy's `max_column_leakage` lets be, or a job was stopped by it.
        """
        self._ids, self._columns = ids, list(columns)
        with _one_at_a_time:
            self._load()
            self._check(self._cells.count(), self._of_job, "before its first tree")

    def open_uncounted(self, ids: Ids, columns: Sequence[str]) -> None:
        """Begin a job whose cells cannot be counted, and note that, durably, beside what other jobs have added.

        Raises:
            DataError: the account is damaged.
            OSError: it cannot be written.
        """
        self._ids, self._columns = ids, list(columns)
        job = self._context.job
        with _one_at_a_time:
            self._load()
            if self._columns and job not in self._cells.jobs:
                self._cells.jobs = {**self._cells.jobs, job: {}}
                self._file.write(self._cells)
        log.warning(
            "job %s: instance spaces are withheld, so the cells of table %s that %s can read are not counted",
            job, self._file.table, self._file.label_holder,
        )  # fmt: skip

    def charge_sums(self, tree: Grown, bins: Bins, built: Sequence[int]) -> None:
        """Count, durably, the cells that the sums of these nodes show, before they are sent.

        `bins`: in which the nodes' records are summed, see `cells_of_sums`.

        Raises:
            Refused: they would be more than the policy's `max_column_leakage` lets be; none of them is counted.
            OSError: the account cannot be written.
        """
        family = sorted({other for node in built for other in (node, node ^ 1, node >> 1) if other})
        spaces = {node: tree.rows_of(node) for node in family if _known(tree, node)}
        cells = (cells for summed in self._summed(tree) for cells in cells_of_sums(bins, built, spaces, summed))
        self._charge(SUMS, ((int(bins.kept[column]), rows) for column, rows in cells), tree.index)

    def charge_left_sets(self, tree: Grown, splits: Sequence[OwnSplit]) -> None:
        """The same of the sets of records that these splits, whose children the tree has, show."""
        self._charge(LEFT_SETS, self._sides(tree, splits), tree.index)

    def _summed(self, tree: Grown) -> list[Bools]:
        """The masks (N,) of records that a tree's sums can be about, that of the job's draw last."""
        if self._sets[0] != tree.index:
            drawn = np.zeros(len(tree.summed), dtype=bool)
            drawn[: len(self._ids)] = self._params.drawn(tree.index, len(self._ids)) > 0
            drawn &= tree.summed
            same = bool((drawn == tree.summed).all())
            self._sets = tree.index, [drawn] if same else [tree.summed, drawn]
            log.info(
                "job %s, tree %d: up to now %d of the %d cells of table %s lay in small groups that %s was shown",
                self._context.job, tree.index, self._cells.count(), self._cells.cells, self._file.table,
                self._file.label_holder,
            )  # fmt: skip
        return self._sets[1]

    def _sides(self, tree: Grown, splits: Sequence[OwnSplit]) -> Iterator[Cells]:
        """The cells in small sides of splits, in the column that divides."""
        drawn = self._summed(tree)[-1]
        for split in splits:
            for child in (2 * split.node, 2 * split.node + 1):
                rows = tree.rows[child]
                rows = rows[rows < len(self._ids)]
                small = rows if len(rows) <= SMALL else rows[drawn[rows]]
                if len(small) <= SMALL:
                    yield split.feature, small

    def _charge(self, way: str, cells: Iterable[Cells], tree: int) -> None:
        """Count cells (column of the party, records of the job)."""
        job = self._context.job
        if not self._columns:
            return  # a party without columns has no cells
        with _one_at_a_time:
            if stamp_of(self._file.path) != self._stamp:  # another job on the table has written
                self._load()
            placed = ((self._of_columns[column], self._places[rows]) for column, rows in cells)
            after, new, of_any = self._cells.marked(way, placed)
            if not new and job in after.jobs:
                return
            total, of_job = after.count(), self._of_job + of_any
            self._check(total, of_job, f"at tree {tree}")
            had = after.jobs.get(job, dict.fromkeys(WAYS, 0))
            after.jobs = {**after.jobs, job: {**had, way: had[way] + new}}
            self._file.write(after)
            self._cells, self._of_job, self._stamp = after, of_job, stamp_of(self._file.path)
        for by, count in {"any": total, **{name: after.count(name) for name in WAYS}}.items():
            self._context.metrics.column_leakage(self._file.label_holder, self._file.table, by, count / after.cells)

    def _load(self) -> None:
        """Take the account as it is on disk, with the job's records and columns."""
        self._stamp, self._cells = stamp_of(self._file.path), self._file.read()
        self._places, self._of_columns = self._cells.places(self._ids, self._columns)
        flags = (np.bitwise_or(*(self._cells.flags(way, column) for way in WAYS)) for column in self._of_columns)
        self._of_job = sum(int(known[self._places].sum()) for known in flags)

    def _check(self, total: int, of_job: int, when: str) -> None:
        """Raise `Refused` if these counts exceed the limit: of all cells of the table, and among those of the job.

        Otherwise a label holder could have many records counted of which it wants few. A limit that has stopped a job
        lets no other begin: the moment of each stop would tell of the columns anew. No figure is in the error, which
        others get.
        """
        most, kept, cells = self._context.policy.max_column_leakage, self._cells, len(self._ids) * len(self._columns)
        if most is None or not cells:
            return
        before = kept.stopped is not None and most <= kept.stopped
        if not before and max(total / kept.cells, of_job / cells) <= most:
            return
        party, job, label_holder = self._context.party, self._context.job, self._file.label_holder
        log.error(
            "job %s: stopped %s: %d of the %d cells of table %s would have lain in small groups that %s is shown, "
            "%d of them among the job's %d; the policy says max_column_leakage = %g%s",
            job, when, total, kept.cells, self._file.table, label_holder, of_job, cells, most,
            ", by which a job was stopped before" if before else "",
        )  # fmt: skip
        if not before:
            self._file.write(replace(kept, stopped=most))
        raise Refused(
            f"{party} has stopped job {job}: its policy has a limit on what sums and left sets may tell of its "
            f"columns; {party}'s own log has more"
        )


class LeftSetsAlone(ColumnAccount):
    """The account of a party whose sums have noise (`column_privacy`), with a ledger of their own."""

    def charge_sums(self, tree: Grown, bins: Bins, built: Sequence[int]) -> None:
        """Count nothing."""


def _known(tree: Grown, node: int) -> bool:
    """True if a tree has a node's records, or derives them."""
    return node in tree.rows or (node >> 1 in tree.rows and node ^ 1 in tree.rows)
