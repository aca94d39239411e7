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
The account goes on over jobs: a tree that is sent again counts the same cells. Records of an eval table are not
counted.

The figures are charges of the party's ledger (`party.defences.counted_cells`), each on disk before what it counts is
sent: one when an attempt begins, and one whenever cells are new.

The account supposes a label holder that follows the protocol. It bounds neither one that crafts gradients or instance
spaces, nor what is concluded from several trees, from solved cells or from large sets. A protocol in which this party
does not have the records of nodes cannot count: `treetap.protocols.exclusions` refuses `max_column_leakage` there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from party.defences.counted_cells import LEFT_SETS, SUMS, WAYS, CellAccount, CellsCharge, CountedCells, Mark, Rows
from party.runtime.ledger import Kind
from treetap.errors import Refused
from treetap.tables.record_ids import Ids
from treetap.trees.small_groups import SMALL, Cells, cells_of_sums

if TYPE_CHECKING:
    from party.runtime.context import StepContext
    from treetap.models.own_split import OwnSplit
    from treetap.trees.params import TreeParams
    from treetap.trees.tree_bins import Bins

log = logging.getLogger(__name__)
Bools = npt.NDArray[np.bool_]
#: Held while accounts are read and written: two jobs may train on one table at once.
_one_at_a_time = threading.Lock()


class Grown(Protocol):
    """A tree while it grows: number `index`, the known instance spaces by node, and the mask (N,) of what sums hold."""

    index: int
    rows: dict[int, Rows]
    summed: Bools

    def rows_of(self, node: int) -> Rows:
        """The instance space of a node, known or derived from the parent's and the sibling's."""
        ...


class ColumnAccount:
    """The account while one job trains.

    Args:
        table: its name in the party's configuration.
        params: of the job, which say what each tree draws.
    """

    def __init__(self, context: StepContext, state: Path, label_holder: str, table: str, params: TreeParams) -> None:
        self._context, self._params = context, params
        self._account = CellAccount(state, label_holder, table)
        self._ids, self._columns = Ids.of([]), list[str]()
        self._cells, self._mark = CountedCells(), Mark()  # as they are on disk at this place
        self._places: Rows = np.zeros(0, dtype=np.int64)
        self._of_columns: list[int] = []
        self._of_job = 0  # counted cells among the job's
        self._sets: tuple[int, list[Bools]] = (-1, [])  # a tree, and what its sums can be about

    def open(self, ids: Ids, columns: Sequence[str]) -> None:
        """Begin with the records of the training and this party's columns, by a charge of no cells.

        Raises:
            DataError: the account is damaged.
            OSError: the charge cannot be written.
            Refused: more cells are counted than the policy's `max_column_leakage` lets be, or a job was stopped by it.
        """
        self._ids, self._columns = ids, list(columns)
        with _one_at_a_time:
            self._load()
            self._check(self._cells.count(), self._of_job, "before its first tree")
            self._enter(self._cells, self._mark, {})
            self._account.sweep(self._mark.file)  # a kill has left one
        self._measure()

    def open_uncounted(self, ids: Ids, columns: Sequence[str]) -> None:
        """Begin an attempt whose cells cannot be counted, by a charge that says so.

        Raises:
            DataError: the account is damaged.
            OSError: it cannot be written.
        """
        self._ids, self._columns = ids, list(columns)
        with _one_at_a_time:
            self._load()
            self._enter(self._cells, self._mark, {}, counted=False)
        log.warning(
            "job %s: instance spaces are withheld, so the cells of table %s that %s can read are not counted",
            self._context.job, self._account.table, self._account.label_holder,
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
                self._context.job, tree.index, self._cells.count(), self._cells.cells, self._account.table,
                self._account.label_holder,
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
        if not self._columns:
            return  # a party without columns has no cells
        with _one_at_a_time:
            last = self._account.last()
            if last is None or last.mark != self._mark:  # another job on the table has written
                self._load()
            placed = ((self._of_columns[column], self._places[rows]) for column, rows in cells)
            before = self._cells.count()
            after, new, of_any = self._cells.marked(way, placed)
            if not new:
                return
            total, of_job = after.count(), self._of_job + of_any
            self._check(total, of_job, f"at tree {tree}")
            mark = self._account.write(self._mark, after, way, new)
            self._enter(after, mark, {way: sum(len(places) for _, places in new)}, total - before)
            if mark.file != self._mark.file:
                self._account.sweep(mark.file)
            self._cells, self._of_job, self._mark = after, of_job, mark
        self._measure()

    def _enter(
        self, cells: CountedCells, mark: Mark, new: Mapping[str, int], amount: int = 0, *, counted: bool = True
    ) -> None:
        """Charge the ledger for these cells, durably. `new`: way → how many it has not had; `amount`: of any way."""
        if self._columns:
            shape = {"records": len(cells.records), "columns": len(cells.columns)}
            charge = CellsCharge(
                self._account.label_holder, **new, **shape, file=mark.file, head=mark.head, counted=counted
            )
            self._context.ledger.enter(Kind.CELLS, amount, **asdict(charge))

    def _measure(self) -> None:
        """Show the shares of counted cells among the party's metrics."""
        account, cells, metrics = self._account, self._cells, self._context.metrics
        for by, ways in {"any": WAYS, **{name: (name,) for name in WAYS}}.items():
            if cells.cells:
                metrics.column_leakage(account.label_holder, account.table, by, cells.count(*ways) / cells.cells)

    def _load(self) -> None:
        """Take the account as it is on disk, with the job's records and columns."""
        last = self._account.last()
        self._mark, self._cells = last.mark if last is not None else Mark(), self._account.read()
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
        stopped = self._account.stopped_at()
        before = stopped is not None and most <= stopped
        if not before and max(total / kept.cells, of_job / cells) <= most:
            return
        party, job, label_holder = self._context.party, self._context.job, self._account.label_holder
        log.error(
            "job %s: stopped %s: %d of the %d cells of table %s would have lain in small groups that %s is shown, "
            "%d of them among the job's %d; the policy says max_column_leakage = %g%s",
            job, when, total, kept.cells, self._account.table, label_holder, of_job, cells, most,
            ", by which a job was stopped before" if before else "",
        )  # fmt: skip
        if not before:
            self._context.ledger.enter(Kind.STOPPED, 1, label_holder=label_holder, limit=most)
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
