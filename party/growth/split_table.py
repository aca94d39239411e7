"""The split table: a party's binned columns and its own splits, which must not leave the party.

A split table cannot be pickled, so it cannot reach a worker, a message or a file by accident. Its data leaves it only
in the typed messages of the protocols, and is stored through `JobStore` field by field.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

import numpy as np

from treetap.arrays import Floats, Rows
from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.trees.binning import BinnedTable, Codes
from treetap.trees.candidates import MIRRORED, Candidate, Kind, Partition
from treetap.trees.cell_merging import MergedBins, bins_of
from treetap.trees.ensemble import ROOT
from treetap.trees.growing_tree import with_zeros
from treetap.trees.params import TreeParams
from treetap.trees.tree_bins import GlobalBins, NodeBins, goes_left
from treetap.wire.records import chunks_of
from treetap.wire.v2 import growth_pb2, transcript_pb2

#: Most columns in one message.
COLUMNS_PER_MESSAGE = 384


class SplitTable:
    """A party's binned columns and the numbering of its splits by handles.

    Attributes:
        min_cell_records: bins of fewer drawn records are merged.
        min_side_records: fewest drawn records on a side of a split, where sums are shared.
        apart: the records of the job are the label holder's; `lacks`: the training has some that this party lacks.
    """

    def __init__(self, party: str, columns: list[str], binned: BinnedTable, training: int | None = None) -> None:
        """`training`: the number of records of the training, the first ones; None: all are."""
        self.training = len(binned.codes) if training is None else training
        self.party = party
        self.columns = columns
        self.binned = binned
        self.min_cell_records = self.min_side_records = 0
        self.apart = self.lacks = False
        self._splits = 0

    def __reduce__(self) -> NoReturn:
        raise TypeError("a split table does not leave its process")

    def __repr__(self) -> str:
        return f"<SplitTable of {self.party}>"

    def next_handle_is(self, handle: int) -> None:
        """Continue the numbering of handles, so that a regrown tree gets the same ones."""
        self._splits = handle

    def columns_of_tree(self, tree: int, params: TreeParams, *, permuted: bool) -> TreeColumns:
        """The columns that a tree may use; `permuted`: its candidates are in a random order."""
        bins = bins_of(self.binned, self._kept(tree, params), self.min_cell_records)
        return TreeColumns(self, bins, permuted=permuted)

    def fresh_columns_of_tree(
        self, tree: int, params: TreeParams, values: Floats, drawn: Rows, *, permuted: bool
    ) -> TreeColumns:
        """The same with new bins in every node, of its records that the tree draws."""
        bins = NodeBins(values, self._kept(tree, params), drawn, params.max_bin, self.training)
        return TreeColumns(self, bins, permuted=permuted)

    def own_columns_of_tree(self, tree: int, params: TreeParams, features: Callable[[], Floats]) -> TreeColumns:
        """The label holder's columns for a tree, with the bins that the job's parameters ask for.

        `features`: its features (N, d), which bins of each node alone need.
        """
        if params.bins_per_node:
            drawn = with_zeros(params.drawn(tree, self.training), len(self.binned.codes))
            return self.fresh_columns_of_tree(tree, params, features(), drawn, permuted=False)
        return self.columns_of_tree(tree, params, permuted=False)

    def keep(self, node: int, candidate: Candidate, threshold: float) -> OwnSplit:
        """Enter a split (its feature numbered among all the party's columns) into the table."""
        split = OwnSplit.of(self._splits, node, candidate, threshold)
        self._splits += 1
        return split

    def _kept(self, tree: int, params: TreeParams) -> Rows:
        return params.columns(tree, self.party, len(self.columns))


class TreeColumns:
    """One party's columns for one tree: sampled, with permuted candidates.

    An order is drawn from the operating system's randomness and no message contains it. With the bins of the job it is
    the same for all nodes of the tree, because the label holder subtracts the sums of siblings; with bins per node,
    every node has its own order.
    """

    def __init__(self, table: SplitTable, bins: GlobalBins | NodeBins, *, permuted: bool) -> None:
        self.table = table
        self.bins = bins
        self.candidates = bins.candidates
        self._permuted = permuted
        self._orders: dict[int, Rows] = {}
        self._groups_sent = list(self.candidates.groups)
        if permuted:
            secrets.SystemRandom().shuffle(self._groups_sent)

    @property
    def codes(self) -> Codes:
        """(N, columns) bins of the job, merged as in the root."""
        assert isinstance(self.bins, GlobalBins)
        return self.bins.all_codes if self.bins.additive else self.bins.codes(ROOT, np.arange(len(self.bins.all_codes)))

    def seen(self, nodes: Mapping[int, Rows]) -> list[Codes] | None:
        """Fix the merged bins of nodes, whose records are given; see `MergedBins.merged`. None: no bins are merged."""
        if not isinstance(self.bins, MergedBins):
            return None
        for node, rows in nodes.items():
            self.bins.see(node, rows)
        return [self.bins.merged(node) for node in nodes]

    def own_record(self, split: OwnSplit, left: Rows, right: Rows, total: int) -> transcript_pb2.OwnSplit:
        """A split of these columns for the party's own transcript, with the rows of both children, of `total`."""
        return transcript_pb2.OwnSplit(
            handle=split.handle,
            node=split.node,
            feature=split.feature,
            feature_name=self.table.columns[split.feature],
            bin=max(split.bin, 0),  # -1 where only missing values go left, as the threshold of -∞ says
            threshold=split.threshold,
            missing_left=split.missing_left,
            categories=split.categories or (),
            left=list(chunks_of(left, total)),
            right=list(chunks_of(right, total)),
        )

    def marks(self) -> Rows | None:
        """The mark of the candidate at each place, one of `MARKS`; None: no column has a constraint."""
        marks = self.bins.marks
        return None if marks is None else marks[self.order(0)]

    def order(self, node: int) -> Rows:
        """The canonical number of the candidate at each place in a node: (candidates,).

        Permuted, the sums over categories to be partitioned come last: the columns permuted, the categories of each in
        the order of their codes, by which ties go. Of a party that lacks records, candidates by which missing values go
        right come first.
        """
        key = node if isinstance(self.bins, NodeBins) else 0
        if key not in self._orders:
            order = list(range(len(self.candidates)))
            if self._permuted:
                order = np.flatnonzero(~self.candidates.grouped).tolist()
                secrets.SystemRandom().shuffle(order)
            if self.table.lacks:
                order.sort(key=lambda place: bool(self.candidates.missing_left[place]))
            for group in self._groups_sent if self._permuted else ():
                order += group
            self._orders[key] = np.array(order, dtype=np.int64)
        return self._orders[key]

    @property
    def missing_left(self) -> int:
        """The number of candidates by which missing values go left, of a party that lacks records."""
        return int(self.candidates.missing_left.sum()) if self.table.lacks else 0

    def screened(self, *, named: bool) -> list[growth_pb2.ScreenedColumns]:
        """The columns in the order of their sums; `named`: with their names."""
        own = [
            growth_pb2.ScreenedColumn(
                bins=shape.n_bins,
                has_missing=shape.has_missing,
                categories=shape.kind is Kind.ONE_HOT,
                name=self.table.columns[column] if named else "",
            )
            for column, shape in zip(self.bins.kept.tolist(), self.candidates.shapes, strict=True)
        ]
        first = range(0, len(own), COLUMNS_PER_MESSAGE)
        return [growth_pb2.ScreenedColumns(columns=own[at : at + COLUMNS_PER_MESSAGE]) for at in first]

    def follow(self, other: TreeColumns) -> None:
        """Have the order of candidates of another tree with the same columns."""
        self._orders, self._groups_sent = other._orders, other._groups_sent

    @property
    def group_sizes(self) -> list[int]:
        """The numbers of categories of the columns that are partitioned, in the order in which their sums are sent."""
        return list(map(len, self._groups_sent))

    def split(
        self, node: int, rows: Rows, places: Sequence[int], partitions: Sequence[Partition] = ()
    ) -> tuple[OwnSplit, Rows]:
        """Enter the lowest of the tied winners; returns the split with the rows (n,) of the node that go left.

        `places`: of candidates; `partitions`: of the categories of columns in the order of `group_sizes`.
        """
        tied = []
        if places:
            count, marks = len(self.candidates), self.marks()
            # a mirrored candidate is the same cut with its sides exchanged; only marked ones have it
            mirrored = [place - count for place in places if place >= count]
            if max(places) >= 2 * count or (mirrored and marks is None):
                raise self._not_offered(node)
            if marks is not None and (np.abs(marks[mirrored]) != MIRRORED).any():
                raise self._not_offered(node)
            order = self.order(node)
            if self.candidates.grouped[[order[place % count] for place in places]].any():
                raise self._not_offered(node)
            lowest = min(int(order[k % count]) + k // count * count for k in places)
            tied.append(self.bins.candidate(lowest))
        for partition in partitions:
            group = self.candidates.groups.index(self._groups_sent[partition.group])
            tied.append(self.candidates.of(replace(partition, group=group)))
        if not tied:
            raise self._not_offered(node)
        # a cut and a partition tie by the number of their column, as centrally
        candidate = self.bins.at_border(node, min(tied, key=lambda option: option.feature))
        left = goes_left(self.bins, node, rows, candidate)
        own = replace(candidate, feature=int(self.bins.kept[candidate.feature]))
        return self.table.keep(node, own, self.bins.cut(node, candidate)), rows[left]

    def _not_offered(self, node: int) -> Malformed:
        return Malformed(f"node {node}: the winning candidates are not among those that were offered")
