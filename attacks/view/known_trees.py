"""One tree as a party knows it: the records of its known nodes, and their sources.

Also the expected views of a feature party, computed from the same model trained centrally.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.id2graph.clustering import OwnCut
from treetap.attacks.view.kept_messages import MemoryBudget
from treetap.errors import BadInput, Malformed
from treetap.models.own_split import OwnSplit as MeaningOfSplit
from treetap.trees.centralised import CentralTrees
from treetap.trees.ensemble import ROOT, Tree

#: Source of a node's records: the root holds all; a message named them; the party's own split made them; they follow
#: from two other sets of the same split.
Source = Literal["root", "received", "own", "difference"]


@dataclass(frozen=True)
class OwnSplit:
    """A split that the party made. Left: value < threshold, or missing if `missing_left`.

    `categories`: of a split of categories the codes that go right; none of a split of numbers.
    """

    node: int
    handle: int
    feature: int
    feature_name: str
    bin: int
    threshold: float
    missing_left: bool
    categories: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class KnownNode:
    """A node whose records are known: positions (n,) int64 in the common order, ascending. `split`: an own one."""

    node: int
    records: Ints
    source: Source
    split: OwnSplit | None = None

    @property
    def depth(self) -> int:
        """0 for the root."""
        return self.node.bit_length() - 1


@dataclass(frozen=True, eq=False)
class WholeCut:
    """An own split of a node and the sides of all N records, in the node or not: instance spaces are withheld.

    `left`: (n,) all records on its left, ascending.
    """

    node: int
    left: Ints
    split: OwnSplit


@dataclass(frozen=True, eq=False)
class TreeView:
    """All nodes of one tree whose records a party knows, by heap number.

    `total`: N, the number of records. `attempt`: the attempt at the job in which the tree was grown.
    `complete`: False for a tree that was cut short; some of its nodes may be missing.
    `drawn`: (N,) multiplicity of each record in the tree's sample; None if no message named the sample.
    `cuts`: own splits with the sides of all records, by node; only where instance spaces are withheld.
    """

    index: int
    attempt: int
    complete: bool
    total: int
    nodes: Mapping[int, KnownNode]
    drawn: Ints | None = field(repr=False)
    cuts: tuple[WholeCut, ...] = field(default=(), repr=False)

    def leaves(self) -> list[KnownNode]:
        """The attacker's leaves, by heap number: known nodes without known children.

        They partition the root's records, except where a level is hidden, as in a view of received sets only: a node of
        which only grandchildren are known is a leaf beside them.
        """
        return [self.nodes[u] for u in sorted(self.nodes) if self.is_leaf(u)]

    def is_leaf(self, node: int) -> bool:
        """True for a known node without known children."""
        return node in self.nodes and not {2 * node, 2 * node + 1} & self.nodes.keys()

    @property
    def won(self) -> bool:
        """True if the party made a split."""
        return bool(self.cuts) or any(node.split is not None for node in self.nodes.values())

    def own_cuts(self) -> list[OwnCut]:
        """Own splits by heap number, with the records on either side that may lie in the node, as far as is known."""
        made = {
            u: OwnCut(u, self.nodes[2 * u].records, self.nodes[2 * u + 1].records)
            for u, node in self.nodes.items()
            if node.split is not None
        }
        own = {cut.node: np.isin(np.arange(self.total), cut.left) for cut in self.cuts}
        for u in own.keys() - made.keys():
            possible = np.ones(self.total, dtype=np.bool_)
            for up in range(1, u.bit_length()):
                if (above := own.get(u >> up)) is not None:
                    possible &= above == (u >> up - 1 & 1 == 0)
            made[u] = OwnCut(u, np.flatnonzero(possible & own[u]), np.flatnonzero(possible & ~own[u]))
        return [made[u] for u in sorted(made)]

    def drawn_of(self, records: Ints) -> Ints:
        """The records on which the tree was trained; all if no message named the sample."""
        return records if self.drawn is None else records[self.drawn[records] > 0]

    def received_only(self) -> TreeView:
        """The same tree by messages alone: the root and the received instance spaces, without derived sets and cuts."""
        kept = {
            u: KnownNode(u, it.records, it.source) for u, it in self.nodes.items() if it.source in ("root", "received")
        }
        return TreeView(self.index, self.attempt, self.complete, self.total, kept, self.drawn)

    def among(self, kept: Bools) -> TreeView:
        """The same tree of some of the records (N,), which keep their order."""
        place = np.cumsum(kept) - 1
        nodes = {u: replace(it, records=place[it.records[kept[it.records]]]) for u, it in self.nodes.items()}
        cuts = tuple(replace(cut, left=place[cut.left[kept[cut.left]]]) for cut in self.cuts)
        drawn = None if self.drawn is None else self.drawn[kept]
        return replace(self, total=int(kept.sum()), nodes=nodes, drawn=drawn, cuts=cuts)

    def cells(self) -> Ints:
        """The deepest known node of each of the N records (N,).

        If both children of every known inner node are known, these are the attacker's leaves; otherwise they also
        separate the records that a node holds beyond its known descendants. 0: in no known node.
        """
        deepest = np.zeros(self.total, dtype=np.int64)
        for u in sorted(self.nodes):  # a node has a larger number than its ancestors
            deepest[self.nodes[u].records] = u
        return deepest

    def hidden(self) -> list[int]:
        """Nodes that must exist, with unknown records: ancestors of known nodes and children of cuts, and siblings."""
        there = self.nodes.keys() | {2 * cut.node for cut in self.cuts}
        above = {u >> up for u in there for up in range(u.bit_length())}
        siblings = {u ^ 1 for u in above if u != ROOT}
        return sorted((above | siblings) - self.nodes.keys())


def known_nodes(
    root: Ints,
    received: Mapping[int, Ints],
    own: Iterable[tuple[OwnSplit, Ints, Ints]],
    budget: MemoryBudget | None = None,
    cuts: Iterable[WholeCut] = (),
) -> dict[int, KnownNode]:
    """Derive all known nodes of one tree from its root, the received spaces and (split, left, right) of own splits.

    Of a node and its two children, any two known sets give the third; this is repeated until no new set follows. A cut
    of all records tells the children of its node where the records of that node are known.
    Raises Malformed if sets contradict each other: they cannot be of one tree; and BadInput if what follows does not
    fit the memory budget.
    """
    known: dict[int, tuple[Ints, Source]] = {ROOT: (root, "root")}
    splits: dict[int, OwnSplit] = {}
    for node, rows in received.items():
        _learn(known, node, rows, "received")
    for split, left, right in own:
        if splits.setdefault(split.node, split) != split:
            raise Malformed(f"node {split.node} was split twice")
        _learn(known, 2 * split.node, left, "own")
        _learn(known, 2 * split.node + 1, right, "own")
    for cut in sorted(cuts, key=lambda it: it.node):  # a node comes after its ancestors
        if cut.node not in known:
            continue
        splits[cut.node] = cut.split
        space = known[cut.node][0]
        side = np.zeros(len(root), dtype=np.bool_)
        side[cut.left] = True
        if budget is not None:
            budget.take(space.nbytes)
        _learn(known, 2 * cut.node, space[side[space]], "own")
        _learn(known, 2 * cut.node + 1, space[~side[space]], "own")
    pending = {u >> 1 for u in known if u != ROOT} | set(splits)
    while pending:
        parent = pending.pop()
        for node, rows in _third(known, parent):
            if budget is not None:
                budget.take(rows.nbytes)
            known[node] = (rows, "difference")
            pending |= {node, node >> 1} - {0}
    return {u: KnownNode(u, *known[u], splits.get(u)) for u in sorted(known)}


def _learn(known: dict[int, tuple[Ints, Source]], node: int, rows: Ints, source: Source) -> None:
    if node < ROOT:
        raise Malformed(f"there is no node {node}")
    if node in known and not np.array_equal(known[node][0], rows):
        raise Malformed(f"node {node} is said to hold different records")
    known.setdefault(node, (rows, source))


def _third(known: Mapping[int, tuple[Ints, Source]], parent: int) -> Iterator[tuple[int, Ints]]:
    """The unknown set of a node and its children, if the two others are known; raises Malformed if they do not fit."""
    left, right = 2 * parent, 2 * parent + 1
    family = {node: known[node][0] for node in (parent, left, right) if node in known}
    if left in family and right in family:
        reached = _flags(family[left], family[right])
        reached[family[left]] = True
        if reached[family[right]].any():
            raise Malformed(f"nodes {left} and {right} share records")
        reached[family[right]] = True
        both = np.flatnonzero(reached)
        if parent not in family:
            yield parent, both
        elif not np.array_equal(both, family[parent]):
            raise Malformed(f"nodes {left} and {right} do not hold the records of node {parent}")
    elif parent in family and len(family) == 2:
        child = left if left in family else right
        within = _flags(family[parent], family[child])
        within[family[child]] = True
        # records of the child beyond the parent would make them sets of two different trees
        stays = within[family[parent]]
        if int(stays.sum()) != len(family[child]):
            raise Malformed(f"node {child} holds records that node {parent} does not")
        yield child ^ 1, family[parent][~stays]


def _flags(*sets: Ints) -> Bools:
    """A false flag for every record up to the last one of these ascending sets. Flags are faster than sorting."""
    return np.zeros(max((int(rows[-1]) for rows in sets if len(rows)), default=-1) + 1, dtype=np.bool_)


# The expected views of a feature party, computed from the same model trained centrally.
#
# Not an attack: it needs the whole model. A federation finds the centralised trainer's trees and sends a party the same
# instance spaces, so these views equal those from transcripts, also for tables too large for repeated encryption.


def expected_views(
    model: CentralTrees,
    blocks: Sequence[tuple[str, Floats]],
    party: str,
    columns: Sequence[str],
) -> tuple[TreeView, ...]:
    """The trees as `party` would see them, in training order.

    `blocks`: each party's columns of the training records (N, d), NaN where missing; `columns`: names of the party's
    own. The label holder relays the children that may be split further, unless the party made them itself; none where
    instance spaces are withheld.

    Raises:
        BadInput: a split is of a party that has no block, or `party` has none.
    """
    raw = dict(blocks)
    owners = {split.owner for tree in model.ensemble.trees for split in tree.splits} | {party}
    if absent := sorted(owners - raw.keys()):
        raise BadInput(f"the columns of {', '.join(absent)} are needed to follow the trees")
    return tuple(
        _tree(tree, model, raw, party, columns, nodes)
        for tree, nodes in zip(model.ensemble.trees, model.divisible, strict=True)
    )


def _tree(
    tree: Tree,
    model: CentralTrees,
    raw: dict[str, Floats],
    party: str,
    columns: Sequence[str],
    divisible: frozenset[int],
) -> TreeView:
    total = len(raw[party])
    if not model.params.takes_part(tree.index, party):  # it learns of the tree, but of no set of records
        nodes = known_nodes(np.arange(total, dtype=np.int64), {}, [])
        return TreeView(tree.index, 1, True, total, nodes, None)
    rows: dict[int, Ints] = {1: np.arange(total, dtype=np.int64)}
    received: dict[int, Ints] = {}
    own: list[tuple[OwnSplit, Ints, Ints]] = []
    whole: list[tuple[OwnSplit, Ints]] = []
    for split in sorted(tree.splits, key=lambda it: it.node):
        candidate, cut = model.entry(split)
        here = rows.pop(split.node)
        values = raw[split.owner][:, candidate.feature]
        everywhere = MeaningOfSplit.of(split.handle, split.node, candidate, cut).goes_left(values)
        left, right = here[everywhere[here]], here[~everywhere[here]]
        children = {2 * split.node: left, 2 * split.node + 1: right}
        rows |= children
        if split.owner == party:
            name = columns[candidate.feature]
            made = OwnSplit(
                split.node,
                split.handle,
                candidate.feature,
                name,
                max(candidate.bin, 0),  # as a transcript has it
                cut,
                candidate.missing_left,
                candidate.right or (),
            )
            if model.params.withheld:
                whole.append((made, np.flatnonzero(everywhere)))
            else:
                own.append((made, left, right))
        elif not model.params.withheld:
            received |= {node: part for node, part in children.items() if node in divisible}
    everybody = np.arange(total, dtype=np.int64)
    cuts = tuple(WholeCut(it.node, left, it) for it, left in whole)
    nodes = known_nodes(everybody, received, own, cuts=cuts)
    return TreeView(tree.index, 1, True, total, nodes, model.params.drawn(tree.index, total), cuts)
