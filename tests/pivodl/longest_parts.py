"""The longest part of every kind of message of PIVODL: see `tests.runtime.test_longest_parts`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import Message

from treetap.party.growth.messages import space_items
from treetap.party.pivodl import label_owner
from treetap.party.pivodl.label_owner import SHARE_BYTES, SourceBins, candidate_sets
from treetap.party.runtime.context import Body, as_chunk, batches, counted_bodies, counted_items
from treetap.privacy.masks import KEY_BYTES
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.protocols.pivodl import RANK_BITS
from treetap.trees.candidates import CandidateList
from treetap.trees.pivodl_params import MOST_CLASSES
from treetap.trees.pivodl_rules import NONCE_BYTES
from treetap.wire.v2 import pivodl_pb2

#: Bytes of a ciphertext under the longest key.
CIPHERTEXT = 2 * 3072 // 8
#: Records of a large table, and open nodes of a level of a large tree.
TOTAL, NODES = 9_000_000, 2**14
FIRST = 2**19
NAME = "x" * 60


@cache
def _rows() -> Any:
    return np.flatnonzero(np.random.default_rng(1).random(TOTAL) < 0.5)


def _batched(body: Callable[..., Message], field: str, items: Iterable[Message]) -> Iterator[Message]:
    return (body(**{field: batch}) for batch in batches(items))


def _labelled() -> Iterable[Body]:
    items = counted_items(as_chunk, _rows(), TOTAL)
    return counted_bodies(lambda chunks: pivodl_pb2.LabelledRecords(chunks=chunks), items)


def _spaces() -> Iterable[Body]:
    items = space_items(((FIRST + node, _rows()) for node in range(2)), TOTAL)
    return counted_bodies(lambda spaces: pivodl_pb2.NodeRecords(spaces=spaces), items)


def _lists() -> Iterable[Body]:
    bins = SourceBins(np.zeros((1_000_000, 1), dtype=np.int32), CandidateList([(3, False)]))
    return candidate_sets(bins, [(FIRST, np.arange(1_000_000))])


def _bins() -> Iterable[Body]:
    return label_owner._parts(np.zeros((2_000_000, 2), dtype=np.int32), [(32, True), (300, False)])


def _sums() -> Iterable[Message]:
    sums = [-(2**62)] * 2 * MOST_CLASSES
    return (pivodl_pb2.SumsOfNode(node=FIRST + node, sums=sums) for node in range(200))


#: Kind → its parts, or the longest of them.
PARTS: dict[str, Callable[[], Iterable[Body]]] = {
    "party_keys": lambda: [
        pivodl_pb2.PartyKeys(
            modulus=bytes(384),
            mask_key=bytes(KEY_BYTES),
            nonce_commitment=bytes(32),
            proof=bytes(KeyKind(PAILLIER, 3072).proof_bytes),
        )
    ],
    "party_nonce": lambda: [pivodl_pb2.PartyNonce(nonce=bytes(NONCE_BYTES))],
    "labelled_records": _labelled,
    "moment_share": lambda: [pivodl_pb2.MomentShare(ciphertexts=bytes(3 * CIPHERTEXT))],
    "joint_moments": lambda: [pivodl_pb2.JointMoments(ciphertexts=bytes(3 * CIPHERTEXT))],
    "label_moments": lambda: [pivodl_pb2.LabelMoments(sum=bytes(128), sum_of_squares=bytes(128))],
    "record_bins": _bins,
    "candidate_records": _lists,
    "label_sums": lambda: [pivodl_pb2.LabelSums(ciphertexts=bytes(CIPHERTEXT))],
    "joint_sums": lambda: [pivodl_pb2.JointSums(ciphertexts=bytes(CIPHERTEXT))],
    "node_sums": lambda: _batched(pivodl_pb2.NodeSums, "nodes", _sums()),
    "candidate_shares": lambda: [pivodl_pb2.CandidateShares(node=FIRST, ciphertexts=bytes(SHARE_BYTES))],
    "forwarded_sums": lambda: [pivodl_pb2.ForwardedSums(node=FIRST, candidates=2**31, ciphertexts=bytes(SHARE_BYTES))],
    "best_gains": lambda: [
        pivodl_pb2.BestGains(
            gains=[pivodl_pb2.BestGain(node=FIRST + node, source=NAME, gain=2**62) for node in range(NODES)]
        )
    ],
    "winning_candidates": lambda: _batched(
        pivodl_pb2.WinningCandidates,
        "nodes",
        (pivodl_pb2.WinningCandidate(node=FIRST + node, places=range(2**17)) for node in range(4)),
    ),
    "divided_nodes": lambda: _batched(
        pivodl_pb2.DividedNodes,
        "nodes",
        (
            pivodl_pb2.DividedNode(node=FIRST + node, handle=2**40, left_open=True, right_open=True, place=2**31)
            for node in range(4 * NODES)
        ),
    ),
    "node_records": _spaces,
    "leaf_weights": lambda: _batched(
        pivodl_pb2.LeafWeights,
        "leaves",
        (pivodl_pb2.LeafWeight(node=FIRST + leaf, weight=[0.1] * MOST_CLASSES) for leaf in range(500)),
    ),
    "metric_share": lambda: [pivodl_pb2.MetricShare(values=[2**63] * 2)],
    "gain_bits": lambda: [pivodl_pb2.GainBits(node=FIRST, ciphertexts=bytes(RANK_BITS * CIPHERTEXT))],
    "blinded_gains": lambda: [pivodl_pb2.BlindedGains(node=FIRST, ciphertexts=bytes(RANK_BITS * CIPHERTEXT))],
    "gain_orders": lambda: [
        pivodl_pb2.GainOrders(
            nodes=[pivodl_pb2.GainOrder(node=FIRST + node, champion_stays=True) for node in range(NODES)]
        )
    ],
    "winning_sources": lambda: [
        pivodl_pb2.WinningSources(
            nodes=[pivodl_pb2.WinningSource(node=FIRST + node, source=NAME) for node in range(NODES)]
        )
    ],
}
#: Kinds of which a part is never long.
SHORT = (
    *("party_keys", "party_nonce", "moment_share", "joint_moments", "label_moments", "label_sums", "joint_sums"),
    *("metric_share", "gain_bits", "blinded_gains", "gain_orders"),
)
