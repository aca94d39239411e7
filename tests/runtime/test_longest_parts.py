"""The longest part of every kind of message between parties, as its sender makes it, fits what a server takes."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message

from tests.certificates import certified
from tests.masked import longest_parts as masked
from tests.pivodl import longest_parts as pivodl
from tests.sockets import dialling, listening
from tests.splitnn import longest_parts as splitnn
from treetap.additive.sums.key_holder import block_size
from treetap.additive.sums.masked_sums import CALL_BYTES
from treetap.lattice.histogram_key_holder import BLOCK_BYTES as WORDS_BYTES
from treetap.lattice.histogram_scheme import NONCE_BYTES, commitment, self_test
from treetap.lattice.parameters import MOST_KEY_BYTES, PRIME_BITS, TOTAL_BITS
from treetap.party.alignment.lists import POINTS_PER_MESSAGE
from treetap.party.eini import entry_layout, lattice
from treetap.party.eini.lattice import COLUMN_BYTES
from treetap.party.growth.messages import (
    LEAVES_PER_MESSAGE,
    SUMS_BYTES,
    leaf_paths,
    partition_messages,
    sampled_messages,
    share_messages,
    space_messages,
    won_messages,
)
from treetap.party.growth.messages import child_messages as children_messages
from treetap.party.growth.split_table import COLUMNS_PER_MESSAGE
from treetap.party.interactive.feature_party import ANSWERS_PER_MESSAGE
from treetap.party.runtime.context import MESSAGE_BYTES, Body, CountedBody, batches, ciphertext_body
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.protocols.messages import LONGEST_NAME
from treetap.psi.group import POINT_BYTES
from treetap.transfers.base import CHOICE_BYTES
from treetap.trees.candidates import Partition
from treetap.trees.growing_tree import Made
from treetap.trees.leaf_entries import TreeHop
from treetap.trees.shapley import AttributedHop
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.frame import PATHS, filled, name_of
from treetap.wire.ports import Address
from treetap.wire.records import chunks_of, pack_bits
from treetap.wire.v2 import (
    alignment_pb2,
    boosting_pb2,
    exchange_pb2,
    exchange_pb2_grpc,
    forest_pb2,
    growth_pb2,
    interactive_pb2,
    lattice_pb2,
    prediction_pb2,
    setup_pb2,
    types_pb2,
)

#: Bytes of a ciphertext under the longest key.
CIPHERTEXT = 2 * 3072 // 8
#: Records of the largest table: of its sets every second one, at random, is the longest to write down.
TOTAL = 9_000_000
#: Nodes and depth of a large tree.
LEAVES, DEPTH = 4096, 20
BLOCK = block_size(TOTAL, 2, CIPHERTEXT)
LONG = 2**40


@cache
def _rows() -> Any:
    return np.flatnonzero(np.random.default_rng(1).random(TOTAL) < 0.5)


def _lattice(polynomials: int) -> bytes:
    """Polynomials of the largest parameters."""
    return bytes(polynomials * max(degree * (bits // PRIME_BITS) * 4 for degree, bits in TOTAL_BITS.items()))


def _block(body: Callable[..., Message]) -> list[Message]:
    return [body(first=LONG, count=BLOCK, ciphertexts=bytes(BLOCK * CIPHERTEXT))]


def _paths() -> Iterable[Message]:
    leaves = [2 ** (DEPTH - 1) + leaf for leaf in range(LEAVES_PER_MESSAGE)]
    made = {leaf >> up: Made(0, 1, LONG, 0.0, 0.0) for leaf in leaves for up in range(1, DEPTH)}
    return leaf_paths(made, 1, leaves)


def _columns() -> Iterable[Message]:
    class Columns:
        trees = [type("Tree", (), {"index": tree, "outputs": [0], "shown_leaves": range(LEAVES)}) for tree in range(3)]

        @staticmethod
        def ways(_member: str) -> Any:
            return [[[(LONG, True)] * int(math.log2(LEAVES)) for _ in range(LEAVES)] for _ in range(3)]

    columns: Any = Columns
    return lattice.layout_messages(columns, "feature-b")


def _hops() -> list[TreeHop]:
    entries = np.arange(LEAVES) + LONG // 2**20
    return [TreeHop(tree, (0,), entries, entries) for tree in range(200)]


def _attributed() -> list[AttributedHop]:
    entries = tuple(range(LEAVES))
    return [AttributedHop(tree, (0,), entries, entries, tuple(range(100))) for tree in range(200)]


def _stream(kind: str, size: int) -> list[Message]:
    return [ciphertext_body(kind, bytes(size // CIPHERTEXT * CIPHERTEXT))]


#: Kind → its parts, or the longest of them.
PARTS: dict[str, Callable[[], Iterable[Body]]] = {
    "public_key": lambda: [
        setup_pb2.PublicKeyMessage(
            modulus=bytes(384), slot_widths=[64] * 100, proof=bytes(KeyKind(PAILLIER, 3072).proof_bytes)
        ),
        setup_pb2.PublicKeyMessage(
            slot_widths=[64] * 100,
            candidates=2**31,
            queries=2**31,
            merges_bins=True,
            keeps_second_halves=True,
            hiding=2**31,
        ),
    ],
    "record_digest": lambda: [alignment_pb2.RecordDigest(digest=bytes(32), records=LONG)],
    "least_count": lambda: [alignment_pb2.LeastCount(records=LONG)],
    "shared_count": lambda: [alignment_pb2.SharedCount(common=types_pb2.CommonCount(records=LONG, fewer_than=LONG))],
    "blinded_ids": lambda: [
        alignment_pb2.BlindedIds(
            points=bytes(min(MESSAGE_BYTES, 3_000_000 - at)), signs=bytes(min(MESSAGE_BYTES, 3_000_000 - at) // 256 + 1)
        )
        for at in range(0, 3_000_000, MESSAGE_BYTES)
    ],
    "alignment_key": lambda: [alignment_pb2.AlignmentKey(key=bytes(32), asks=True)],
    "sum_of_list": lambda: [
        alignment_pb2.SumOfList(
            points=[bytes(32)] * 20, proofs=[alignment_pb2.ListProof(challenge=bytes(32), response=bytes(32))] * 19
        )
    ],
    "candidate_count": lambda: [
        setup_pb2.CandidateCount(
            candidates=LONG % 2**32, merges_bins=True, keeps_second_halves=True, hiding=LONG % 2**32
        )
    ],
    "lacked_records": lambda: [setup_pb2.LackedRecords(some=True)],
    "noised_sums": lambda: [setup_pb2.NoisedSums(epsilon=1.0, delta=1e-6, trees=LONG % 2**32)],
    "seed_commitment": lambda: [
        setup_pb2.SeedCommitment(commitment=commitment("a", bytes(NONCE_BYTES)), self_test=self_test())
    ],
    "listed_ids": lambda: [prediction_pb2.ListedIds(points=bytes(POINT_BYTES * POINTS_PER_MESSAGE))],
    "look_ups": lambda: [prediction_pb2.LookUps(points=bytes(POINT_BYTES * POINTS_PER_MESSAGE))],
    "looked_up": lambda: [prediction_pb2.LookedUp(points=bytes(POINT_BYTES * POINTS_PER_MESSAGE), spent=True)],
    "spent_records": lambda: [prediction_pb2.SpentRecords(spent=bytes(2**16 // 8))],
    "seed_nonce": lambda: [setup_pb2.SeedNonce(nonce=bytes(NONCE_BYTES))],
    "encrypted_words": lambda: [
        growth_pb2.EncryptedWords(node=LONG, first=LONG, count=2**31, ciphertexts=bytes(WORDS_BYTES))
    ],
    "sampled_records": lambda: sampled_messages(_rows(), TOTAL),
    "candidate_sums": lambda: [
        growth_pb2.CandidateSums(nodes=range(2**14, 2**15), candidates=LONG % 2**32, ciphertexts=bytes(SUMS_BYTES)),
        growth_pb2.CandidateSums(candidates=LONG % 2**32, second_halves=bytes(SUMS_BYTES)),
    ],
    "base_points": lambda: [setup_pb2.BasePoints(points=bytes(POINT_BYTES))],
    "base_choices": lambda: [setup_pb2.BaseChoices(points=bytes(CHOICE_BYTES))],
    "left_choices": lambda: [growth_pb2.LeftChoices(node=LONG, choices=bytes(SUMS_BYTES))],
    "children": lambda: [
        *children_messages([(2**19 + node, LONG, _rows()) for node in range(2)], TOTAL),
        *children_messages([(LONG, LONG, bytes(3 * SUMS_BYTES))], TOTAL),
    ],
    "instance_spaces": lambda: space_messages([(2**19 + node, _rows()) for node in range(2)], TOTAL),
    "leaf_paths": _paths,
    "shares": lambda: [growth_pb2.Shares(round=LONG % 2**32, numbers=bytes(SUMS_BYTES))],
    "champion_share": lambda: share_messages(growth_pb2.ChampionShare, bytes(2 * SUMS_BYTES)),
    "winner_shares": lambda: share_messages(growth_pb2.WinnerShares, bytes(2 * SUMS_BYTES)),
    "dealt_sizes": lambda: [growth_pb2.DealtSizes(candidates=[2**31] * 100, widths=[2**31] * 64)],
    **{
        kind: lambda: [growth_pb2.Correlations(pair="x" * 63, seed=bytes(32), corrections=bytes(MESSAGE_BYTES))]
        for kind in ("correlations", "dealt_again")
    },
    "opened_pairs": lambda: [growth_pb2.OpenedPairs(pairs=["x" * 63] * 100)],
    "won_splits": lambda: won_messages("feature-b", {2**19 + node: range(60_000) for node in range(4)}),
    "chosen_partitions": lambda: partition_messages(
        {2**19 + node: [Partition(0, tuple(range(99_999)), missing_left=True)] for node in range(100)}, [100_000]
    ),
    "block_records": lambda: (
        prediction_pb2.BlockRecords(chunks=batch) for batch in batches(chunks_of(_rows(), TOTAL))
    ),
    "screened_columns": lambda: [
        growth_pb2.ScreenedColumns(
            columns=[growth_pb2.ScreenedColumn(bins=2**31, has_missing=True, categories=True, name="x" * LONGEST_NAME)]
            * COLUMNS_PER_MESSAGE
        )
    ],
    "reason_columns": lambda: [prediction_pb2.ReasonColumns(count=2**31, names=["x" * 1000] * 100)],
    "record_ways": lambda: [prediction_pb2.RecordWays(first=2**31, ways=2**31)],
    "split_names": lambda: (
        prediction_pb2.SplitNames(names=batch)
        for batch in batches(prediction_pb2.SplitName(handle=split, feature="x" * 500) for split in range(9000))
    ),
    "gradients": lambda: _block(boosting_pb2.Gradients),
    "encrypted_labels": lambda: _block(forest_pb2.EncryptedLabels),
    "route_queries": lambda: (
        interactive_pb2.RouteQueries(queries=batch, answers=LONG % 2**32)
        for batch in batches(
            interactive_pb2.RouteQuery(handle=LONG, records=chunk) for chunk in chunks_of(_rows(), TOTAL)
        )
    ),
    "route_answers": lambda: [
        interactive_pb2.RouteAnswers(
            count=ANSWERS_PER_MESSAGE,
            left=pack_bits(np.ones(ANSWERS_PER_MESSAGE, dtype=np.bool_)),
            spent=pack_bits(np.ones(ANSWERS_PER_MESSAGE, dtype=np.bool_)),
        )
    ],
    "entry_layout": lambda: entry_layout.score_layout(_hops(), list(range(LEAVES))),
    "constant_entries": lambda: _stream("constant_entries", CALL_BYTES),
    "leaf_entries": lambda: _stream("leaf_entries", max(CALL_BYTES, MESSAGE_BYTES)),
    "leaf_sums": lambda: _stream("leaf_sums", MESSAGE_BYTES),
    "lattice_key": lambda: [lattice_pb2.LatticeKey(public=bytes(MOST_KEY_BYTES))],
    "column_layout": _columns,
    "lattice_columns": lambda: [
        lattice_pb2.LatticeColumns(ciphertexts=[_lattice(2)]),
        lattice_pb2.LatticeColumns(ciphertexts=[bytes(COLUMN_BYTES // 60)] * 60),
    ],
    "lattice_sums": lambda: [lattice_pb2.LatticeSums(ciphertexts=[_lattice(2)])],
    "attribution_layout": lambda: entry_layout.attribution_layout(_attributed(), list(range(LEAVES)), 100),
    "constant_attributions": lambda: _stream("constant_attributions", CALL_BYTES),
    "attribution_entries": lambda: _stream("attribution_entries", max(CALL_BYTES, MESSAGE_BYTES)),
    "attribution_sums": lambda: _stream("attribution_sums", MESSAGE_BYTES),
    **pivodl.PARTS,
    **splitnn.PARTS,
    **masked.PARTS,
}
#: Kinds of which a part is never long.
SHORT = (
    *("alignment_key", "sum_of_list"),
    "public_key",
    "record_digest",
    "least_count",
    "shared_count",
    "candidate_count",
    "lacked_records",
    "spent_records",
    "noised_sums",
    "reason_columns",
    "record_ways",
    "seed_commitment",
    "seed_nonce",
    "base_points",
    "base_choices",
    "dealt_sizes",
    "opened_pairs",
    "constant_entries",
    "constant_attributions",
    *pivodl.SHORT,
    *masked.SHORT,
)


def test_every_kind_is_here() -> None:
    """A kind that is added brings its longest part along."""
    assert set(PARTS) == set(PATHS[exchange_pb2.PeerMessage])


class _Sink(exchange_pb2_grpc.ExchangeServicer):
    """Notes how long the messages of each kind are."""

    def __init__(self) -> None:
        self.longest: defaultdict[str, int] = defaultdict(int)

    async def Deliver(self, request: exchange_pb2.PeerMessage, context: object) -> exchange_pb2.Receipt:
        """See exchange.proto."""
        del context
        kind = name_of(request)
        self.longest[kind] = max(self.longest[kind], request.ByteSize())
        return exchange_pb2.Receipt()


@pytest.fixture(scope="module")
def longest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Every kind's parts, sent to a server: kind → bytes of the longest that came."""
    sink = _Sink()
    ends = certified(tmp_path_factory.mktemp("certs"), "here", "there", hosts=["127.0.0.1"], days=2)

    async def main() -> None:
        async with (
            listening(
                Callers("there", ends["there"]),
                lambda server, _: exchange_pb2_grpc.add_ExchangeServicer_to_server(sink, server),
            ) as there,
            dialling(ends["here"]) as dialer,
        ):
            for kind, bodies in PARTS.items():
                for body in bodies():
                    head = exchange_pb2.PeerMessage(job="j" * 64, attempt=2**31, round=2**31, stage=2**31, part=2**31)
                    whole = filled(head, kind, body.body if isinstance(body, CountedBody) else body)
                    await dialer.deliver(Address("there", there), whole.SerializeToString())

    asyncio.run(main())
    return sink.longest


@pytest.mark.second_tier
@pytest.mark.parametrize("kind", PARTS)
def test_the_longest_part_arrives(kind: str, longest: dict[str, int]) -> None:
    """It has been taken, and is as long as its sender's own limit says."""
    assert 0 < longest[kind] <= rpc.MESSAGE_LIMIT
    if kind not in SHORT:
        assert longest[kind] > MESSAGE_BYTES // 4  # else this is not the longest


def test_points_are_as_many_as_a_message_of_ciphertexts() -> None:
    """The number of points in a message is given, not their bytes."""
    assert POINTS_PER_MESSAGE * POINT_BYTES == MESSAGE_BYTES
