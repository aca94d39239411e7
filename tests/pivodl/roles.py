"""Who has which role in a tree, from the nonces and the centralised model, and the messages that follow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tests.worlds import Rows
from treetap.trees.centralised_pivodl import CentralPivodlModel, CentralPivodlTree
from treetap.trees.pivodl_rules import RoleDraws, barred

#: (kind, tree, stage, sender, receiver).
Sent = tuple[str, int, int, str, str]
#: Fewest labels with which a party adds a share to the metrics.
MEASURED = 10


@dataclass(frozen=True)
class Roles:
    """Who has which role in one tree of the centralised model."""

    draws: RoleDraws
    parties: list[str]
    model: CentralPivodlModel
    t: int

    def levels(self) -> Iterator[tuple[int, list[int]]]:
        """Level by level the nodes that may be split."""
        for level in range(self.model.params.max_depth):
            nodes = sorted(node for node in self._tree.divisible if node.bit_length() - 1 == level)
            if nodes:
                yield level, nodes

    @property
    def _tree(self) -> CentralPivodlTree:
        return self.model.trees[self.t]

    def split_party(self, node: int, source: str) -> str | None:
        """The party that opens a source's candidates at a node."""
        tree, out = self._tree, frozenset[str]()
        if not self.model.params.as_published:
            sources = {split: each.source for split, each in tree.splits.items()}
            known = {
                leaf
                for leaf in tree.leaves
                if leaf.bit_length() < node.bit_length()
                or (leaf.bit_length() == node.bit_length() and leaf not in tree.divisible)
            }
            out = barred(node, sources, known)
        return self.draws.split_party(self.t, node, source, out)

    def split_parties(self, node: int) -> set[str]:
        """All split parties of a node."""
        return {party for source in self.parties if (party := self.split_party(node, source)) is not None}

    def opener(self, node: int) -> str:
        """The party that opened a split's winner."""
        found = self.split_party(node, self._tree.splits[node].source)
        assert found is not None
        return found

    def keeper(self, leaf: int) -> str:
        """The party that keeps a leaf's weight."""
        return self.draws.encryption_party(self.t) if leaf == 1 else self.opener(leaf >> 1)

    def ended(self, level: int) -> list[int]:
        """Leaves of which the tree learns at the end of a level."""
        tree = self._tree
        return [
            leaf for leaf in tree.leaves if leaf.bit_length() - 1 == (level if leaf in tree.divisible else level + 1)
        ]

    def to_others(self, kind: str, stage: int, sender: str) -> set[Sent]:
        """A message of one party to each other."""
        return {(kind, self.t, stage, sender, party) for party in self.parties if party != sender}


def expected(roles: Roles, ownership: dict[str, Rows]) -> set[Sent]:
    """Every message of a tree, by the protocol's steps."""
    t, params, tree = roles.t, roles.model.params, roles.model.trees[roles.t]
    owners, parties = list(ownership), roles.parties
    adder, opener = roles.draws.aggregation_party(t), roles.draws.encryption_party(t)
    measured = [party for party in owners if len(ownership[party]) >= MEASURED]
    found = {("label_sums", t, 0, party, adder) for party in owners}
    found |= {("joint_sums", t, 0, adder, opener)} | roles.to_others("node_sums", 0, opener)
    if len(measured) > 1:
        found |= {("metric_share", t, 0, party, adder) for party in measured}
    for level, nodes in roles.levels():
        offering = {source for source in parties if any(roles.split_party(node, source) for node in nodes)}
        found |= {("candidate_shares", t, level, owner, source) for owner in owners for source in offering}
        if params.as_published:
            found |= {("candidate_records", t, level, source, owner) for owner in owners for source in offering}
        for node in nodes:
            for source in offering:
                to = roles.split_party(node, source)
                found |= {("forwarded_sums", t, level, source, to)} if to else set()
            for party in roles.split_parties(node):
                found |= roles.to_others("best_gains", level, party)
        for node in set(nodes) & set(tree.splits):
            source = tree.splits[node].source
            found |= {("winning_candidates", t, level, roles.opener(node), source)}
            found |= roles.to_others("divided_nodes", level, source) | roles.to_others("node_records", level, source)
            for child in {2 * node, 2 * node + 1} & tree.divisible:
                to_know = parties if params.as_published else roles.split_parties(child)
                found |= {("node_sums", t, level + 1, roles.opener(node), party) for party in to_know}
        for leaf in roles.ended(level):
            found |= {("leaf_weights", t, level, roles.keeper(leaf), owner) for owner in owners}
    return {each for each in found if each[3] != each[4]}
