"""Cells of a party's columns that candidate sums show in groups of a few records: definition, and a count of them.

A *cell* is a record in a column. The sums of a node at all candidates of a column give, by subtraction, those of every
bin there: the first bin from the lowest candidate, inner ones as differences of neighbours, the last one as the node
less the last cut, and missing values as the difference of one cut's two candidates. Who opens sums and knows (g, h) of
each record solves a bin of up to `SMALL` records for which these are unique (`attacks.sums`).

A group is *derivable* if its sum is a difference of sums over nested sets of one tree and column:

1. a bin of a node whose sums are sent;
2. a bin of its sibling, as the parent's sum less the node's. With bins of their own, where the nodes' cuts differ, a
   bin between cuts of the parent that divide the node's records as some cut of the node does; of a sibling whose sums
   are sent too, a bin between the cuts of both kinds. A node whose records are all in one bin of its own shows nothing.

With the bins of the job these are all groups whose sum is any linear combination of the sums of a tree's columns, each
column by itself (the tests compare with every subset of a small table). With bins of their own more may follow from
cuts of nodes further up: in 9 of 40 forests of two trees on 26 records, 2 to 30 % of the cells. Nothing is derived over
trees or columns, and no cell that was solved is taken out of a larger group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from treetap.trees.candidates import Kind
from treetap.trees.tree_bins import Bins, GlobalBins

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
#: Most records of a group that is counted.
SMALL = 3
#: (place of a column among `bins.kept`, records (n,) whose cells in it lie in a small group).
Cells = tuple[int, Ints]


def cells_of_sums(bins: Bins, built: Collection[int], spaces: Mapping[int, Ints], summed: Bools) -> Iterator[Cells]:
    """The cells in small groups that a stage's sums show; a record comes once at most for a column and a node.

    Args:
        bins: the effective ones of the tree: the code of a record in a node is the group in which it is summed there.
            Those of `GlobalBins` itself are the same in all nodes; any others are asked for by node.
        built: the nodes whose sums are sent.
        spaces: node → its records, of these nodes and, as far as they are known, their siblings and parents.
        summed: (N,) the records that sums hold.
    """
    offered = [f for f, shape in enumerate(bins.candidates.shapes) if shape.sums]
    reached = {*built, *(node ^ 1 for node in built if node ^ 1 in spaces and node >> 1 in spaces)}
    drawn = {node: spaces[node][summed[spaces[node]]] for node in sorted(reached)}
    if type(bins) is GlobalBins:
        yield from _in_the_same_bins(bins, offered, list(drawn.values()))
        return
    for node, rows in drawn.items():
        kinds = []
        if node in built:
            kinds.append(_own_groups(bins, node, rows))
        if node ^ 1 in built and node >> 1 in spaces:
            kinds.append(_left_over(bins, node, rows, drawn[node ^ 1]))
        for f in offered:
            groups = [of_columns[:, f] for of_columns, shown in kinds if shown[f]]
            if groups:
                yield f, rows[_small(np.unique(np.column_stack(groups), axis=0, return_inverse=True)[1].ravel())]


def _in_the_same_bins(bins: GlobalBins, offered: Collection[int], spaces: list[Ints]) -> Iterator[Cells]:
    """All bins of nodes, whose drawn records are given."""
    rows = np.concatenate(spaces)
    ends = np.cumsum([0, *map(len, spaces)])
    width, first = 0, np.zeros(len(rows), dtype=np.int64)
    for f in offered:
        if (cells := bins.candidates.shapes[f].n_bins + 1) != width:
            width = cells
            for place, (start, end) in enumerate(pairwise(ends)):
                first[start:end] = place * width
        yield f, rows[_small(first + bins.column(0, rows, f))]


def _small(groups: Ints) -> Bools:
    """The mask (n,) of those in groups (n,), numbers from 0, of at most `SMALL`."""
    mask: Bools = (np.bincount(groups) <= SMALL)[groups]
    return mask


def _own_groups(bins: Bins, node: int, rows: Ints) -> tuple[Ints, Bools]:
    """Groups (n, columns) in a node's own bins; which columns it shows: (columns,), those that divide its records."""
    codes = bins.codes(node, rows).astype(np.int64)
    return codes, (codes != codes[:1]).any(axis=0)


def _left_over(bins: Bins, node: int, rows: Ints, others: Ints) -> tuple[Ints, Bools]:
    """The same by the parent's sums less the sibling's, whose records are `others`.

    It takes both of these: of an undivided sibling, a bin of the parent's without its records is shown already.
    """
    parent = node >> 1
    of_sibling, shown = _own_groups(bins, node ^ 1, others)
    of_all, divided = _own_groups(bins, parent, np.concatenate([rows, others]))
    groups, of_others = of_all[: len(rows)], of_all[len(rows) :]
    for f, (n_bins, _, kind) in enumerate(bins.candidates.shapes):
        if kind is not Kind.NUMBERS:
            continue
        lefts = [np.cumsum(np.bincount(part[:, f], minlength=n_bins + 1)) for part in (of_others, of_sibling)]
        # left sets of one column are nested: those of equal size are the same
        derivable = np.isin(lefts[0], [0, *lefts[1]])
        groups[:, f] = np.concatenate([[0], np.cumsum(derivable[:-1])])[groups[:, f]]
    return groups, shown & divided
