"""What PIVODL discloses to a party by its messages: bins, records of nodes, and sums that give exact weights away."""

from __future__ import annotations

from dataclasses import dataclass

from attacks.pivodl.known_sums import closed
from attacks.view.pivodl_view import PivodlTree, PivodlView
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_rules import barred


@dataclass(frozen=True)
class Disclosed:
    """Counts over a job's complete trees, at one party.

    Attributes:
        bins: bins of its labelled records that it received, records × columns of all sources; `bins_from` by source.
        listed: ids in the lists of records that it received of a job as published, candidate by candidate.
        continuing_nodes, continuing_ids: children that may be split, of other parties' splits, and their records.
        leaves: of all trees; `leaves_as_source` below its own splits.
        exact_weight_known: of `leaves_as_source`, those whose exact weight follows from sums that it received.
        exact_beside_open: leaves below other parties' splits with an exact weight and known records, since their
            sibling may be split.
        barred: open nodes whose sums it must not learn.
        without_split_party: open nodes at which it offers no candidates, since no party may open them.
    """

    bins: int
    bins_from: dict[str, int]
    listed: int
    continuing_nodes: int
    continuing_ids: int
    leaves: int
    leaves_as_source: int
    exact_weight_known: int
    exact_beside_open: int
    barred: int
    without_split_party: int


def disclosed(view: PivodlView) -> Disclosed:
    """Count it."""
    continuing = [tree.view.nodes[node].records for tree in view.trees for node in _received(view, tree)]
    leaves = [(tree, leaf) for tree in view.trees for leaf in tree.leaves]
    sums = {tree.view.index: closed(tree.sums, tree.splits) for tree in view.trees}
    own = [(tree, leaf) for tree, leaf in leaves if tree.source_above(leaf) == view.party]
    barred_at = [_barred(view, tree, node) for tree in view.trees for node in tree.open]
    return Disclosed(
        bins=sum(view.bins.values()),
        bins_from=dict(view.bins),
        listed=view.listed,
        continuing_nodes=len(continuing),
        continuing_ids=sum(map(len, continuing)),
        leaves=len(leaves),
        leaves_as_source=len(own),
        exact_weight_known=sum(leaf in sums[tree.view.index] for tree, leaf in own),
        exact_beside_open=sum(
            tree.source_above(leaf) not in (None, view.party)
            and tree.records(leaf) is not None
            and leaf in tree.weights
            and tree.weights[leaf].exact
            for tree, leaf in leaves
        ),
        barred=sum(view.party in names for names in barred_at),
        without_split_party=sum(set(view.parties) - {view.party} <= names for names in barred_at),
    )


def _received(view: PivodlView, tree: PivodlTree) -> list[int]:
    """Open nodes that another party's split made."""
    return [node for node in tree.open if node != ROOT and tree.source_above(node) != view.party]


def _barred(view: PivodlView, tree: PivodlTree, node: int) -> frozenset[str]:
    """The parties that no draw names at a node, by the leaves that were known when its level began."""
    if view.params.as_published:
        return frozenset()
    sources = {split: it.source for split, it in tree.splits.items()}
    may_be_split = set(tree.open)
    level = node.bit_length()
    known = [
        leaf
        for leaf in tree.leaves
        if leaf.bit_length() < level or (leaf.bit_length() == level and leaf not in may_be_split)
    ]
    return barred(node, sources, known)
