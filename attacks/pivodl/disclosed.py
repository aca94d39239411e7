"""What PIVODL discloses to a party by its messages: bins, records of nodes, and sums that give exact weights away."""

from __future__ import annotations

from treetap.attacks.pivodl.evidence import SharedLabelEvidence
from treetap.attacks.pivodl.schema import DisclosedFigures
from treetap.attacks.pivodl.solved_gains import closed
from treetap.attacks.view.pivodl_view import PivodlTree, PivodlView
from treetap.trees.ensemble import ROOT
from treetap.trees.pivodl_rules import barred


def disclosed(evidence: SharedLabelEvidence) -> DisclosedFigures:
    """Count it."""
    view = evidence.view
    continuing = [tree.view.nodes[node].records for tree in view.trees for node in _received(view, tree)]
    leaves = [(tree, leaf) for tree in view.trees for leaf in tree.leaves]
    sums = {tree.view.index: closed(tree.sums, tree.splits) for tree in view.trees}
    own = [(tree, leaf) for tree, leaf in leaves if tree.source_above(leaf) == view.party]
    barred_at = [_barred(view, tree, node) for tree in view.trees for node in tree.open]
    return DisclosedFigures(
        bins=sum(view.bins.values()),
        bins_from=dict(view.bins),
        listed=view.listed,
        continuing_nodes=len(continuing),
        continuing_ids=sum(map(len, continuing)),
        leaves=len(leaves),
        leaves_as_source=len(own),
        exact_weight_known=sum(leaf in sums[tree.view.index] for tree, leaf in own),
        exact_beside_open=sum(_exact_beside_open(view, tree, leaf) for tree, leaf in leaves),
        barred=sum(view.party in names for names in barred_at),
        without_split_party=sum(set(view.parties) - {view.party} <= names for names in barred_at),
    )


def _exact_beside_open(view: PivodlView, tree: PivodlTree, leaf: int) -> bool:
    """True for a leaf below another party's split whose records and exact weight the party knows."""
    weight = tree.weights.get(leaf)
    known = weight is not None and weight.exact and tree.records(leaf) is not None
    return known and tree.source_above(leaf) not in (None, view.party)


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
