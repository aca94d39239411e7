"""One tree as a party knows it: which records reached which node, and how it can tell.

Nodes have heap numbers: root 1, children of u are 2u (left) and 2u + 1 (right).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed
from treetap.trees.ensemble import ROOT

Ints: TypeAlias = npt.NDArray[np.int64]
#: How a party knows the records of a node: it holds them all; a message named them; its own split made them; they
#: follow from two other sets of the same split.
Source = Literal["root", "received", "own", "difference"]


@dataclass(frozen=True)
class OwnSplit:
    """A split that the party made. Left: value < threshold, or missing if `missing_left`."""

    node: int
    handle: int
    feature: int
    feature_name: str
    bin: int
    threshold: float
    missing_left: bool


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
class TreeView:
    """All nodes of one tree whose records a party knows, by heap number.

    `total`: N, how many records there are. `attempt`: in which attempt at the job this growth took place.
    `complete`: False for a tree that was cut short; some of its nodes may be missing.
    `drawn`: (N,) how many times the tree's sample has each record; None if no message said so.
    """

    index: int
    attempt: int
    complete: bool
    total: int
    nodes: Mapping[int, KnownNode]
    drawn: Ints | None = field(repr=False)

    def leaves(self) -> list[KnownNode]:
        """The attacker's leaves, by heap number: known nodes without known children.

        They divide the root's records, except where a generation is hidden, as in a view of received sets only: a node
        whose grandchildren alone are known is a leaf beside them.
        """
        return [self.nodes[u] for u in sorted(self.nodes) if not {2 * u, 2 * u + 1} & self.nodes.keys()]

    def drawn_of(self, records: Ints) -> Ints:
        """Those of the records on which the tree was trained; all, where no message said which."""
        return records if self.drawn is None else records[self.drawn[records] > 0]

    def received_only(self) -> TreeView:
        """The same tree by messages alone: the root and the instance spaces that others sent, nothing worked out."""
        kept = {
            u: KnownNode(u, it.records, it.source) for u, it in self.nodes.items() if it.source in ("root", "received")
        }
        return TreeView(self.index, self.attempt, self.complete, self.total, kept, self.drawn)

    def cells(self) -> Ints:
        """For each of the N records the deepest known node that holds it (N,).

        Where both children of every known inner node are known these are the attacker's leaves; otherwise they also
        tell the records that a node holds beside its known descendants. 0: in no known node.
        """
        deepest = np.zeros(self.total, dtype=np.int64)
        for u in sorted(self.nodes):  # a deeper node has a larger number than each one above it
            deepest[self.nodes[u].records] = u
        return deepest

    def hidden(self) -> list[int]:
        """Nodes that must exist, whose records are not known: ancestors of known nodes, and siblings on the way."""
        above = {u >> up for u in self.nodes for up in range(u.bit_length())}
        siblings = {u ^ 1 for u in above if u != ROOT}
        return sorted((above | siblings) - self.nodes.keys())


def known_nodes(
    root: Ints, received: Mapping[int, Ints], own: Iterable[tuple[OwnSplit, Ints, Ints]]
) -> dict[int, KnownNode]:
    """Everything that follows for one tree from its root, the spaces received and (split, left, right) of own splits.

    Of a node and its two children, any two known sets give the third; this is repeated until nothing new follows.
    Raises Malformed where sets contradict each other: they cannot be of one tree.
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
    pending = {u >> 1 for u in known if u != ROOT} | set(splits)
    while pending:
        parent = pending.pop()
        for node, rows in _third(known, parent):
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
    """The set that is not known of a node and its children, if the two others are; all three must fit."""
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
        stays = within[family[parent]]
        if int(stays.sum()) != len(family[child]):
            raise Malformed(f"node {child} holds records that node {parent} does not")
        yield child ^ 1, family[parent][~stays]


def _flags(*sets: Ints) -> npt.NDArray[np.bool_]:
    """A flag, not set, for every record up to the last one of these ascending sets. Sorting them would take longer."""
    return np.zeros(max((int(rows[-1]) for rows in sets if len(rows)), default=-1) + 1, dtype=np.bool_)
