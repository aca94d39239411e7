"""Draws of PIVODL's parties: who adds up and opens the root's sums of a tree, and who opens whose candidates at a node.

A draw is SHAKE-256 of the job's seed, one nonce of every party, and the draw's name, never of an attempt: the author of
a job cannot fix the draws, and a tree that is grown again has the same ones (a second split party would otherwise get
the same sums).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from treetap.trees.ensemble import ROOT

#: Bytes of a party's nonce, and of a draw: modulo a few parties the bias is below 2^-250.
NONCE_BYTES = 32


def commitment(party: str, nonce: bytes) -> bytes:
    """SHA-256 that binds a party to its nonce before any nonce is opened."""
    return hashlib.sha256(b"treetap pivodl nonce\x1f" + party.encode() + b"\x1f" + nonce).digest()


class RoleDraws:
    """The parties' roles in one job.

    Args:
        parties: all parties, in the order of the job.
        nonces: the nonce of each.
    """

    def __init__(self, seed: int, parties: Sequence[str], nonces: Mapping[str, bytes]) -> None:
        self._parties = list(parties)
        parts = [f"i:{seed}".encode()]
        for party in parties:
            parts += [party.encode(), nonces[party].hex().encode()]
        self._seed = b"\x1f".join(parts)

    def aggregation_party(self, tree: int) -> str:
        """The party that adds up the encrypted sums of the root, and the metrics, of a tree."""
        return self._drawn(self._parties, "aggregation", tree)

    def encryption_party(self, tree: int) -> str:
        """The party under whose key the root's sums are encrypted; another than the aggregation party."""
        aggregator = self.aggregation_party(tree)
        return self._drawn([party for party in self._parties if party != aggregator], "encryption", tree)

    def split_party(self, tree: int, node: int, source: str, barred: Collection[str]) -> str | None:
        """The party that opens a source's candidates at a node (Algorithm 2, line 7); None if no party may."""
        able = [party for party in self._parties if party != source and party not in barred]
        return self._drawn(able, "split", tree, node, source) if able else None

    def _drawn(self, parties: Sequence[str], *name: str | int) -> str:
        named = "\x1f".join(f"s:{part}" if isinstance(part, str) else f"i:{part}" for part in name).encode()
        digest = hashlib.shake_256(self._seed + b"\x1e" + named).digest(NONCE_BYTES)
        return parties[int.from_bytes(digest, "big") % len(parties)]


def barred(node: int, sources: Mapping[int, str], leaves: Collection[int]) -> frozenset[str]:
    """Parties that must not learn the sums of a node, since with them they could tell a leaf's exact weight.

    A source that split an ancestor, one child of which is a leaf, gets that leaf's weight with noise; from the sums
    of the other child, or of what lies below, and those of the ancestor it could compute it.

    Args:
        sources: the source of each node that was split.
        leaves: the nodes that are known to be leaves.
    """
    found = set()
    while node > ROOT:
        if node ^ 1 in leaves:
            found.add(sources[node >> 1])
        node >>= 1
    return frozenset(found)


def able_sources(
    parties: Sequence[str], node: int, sources: Mapping[int, str], leaves: Collection[int], *, guarded: bool
) -> list[str]:
    """The sources for which some party may open candidates at a node; the others offer none there."""
    out = barred(node, sources, leaves) if guarded else frozenset()
    return [source for source in parties if any(party != source and party not in out for party in parties)]
