"""Exactly what the parties tell each other: which records of which nodes, which candidates, which turns, to whom."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pytest

from tests.oracle import OracleSplit, OracleTree
from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.protocols.prediction import predict_request
from treetap.trees import sampling
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.xdist_group("what-crosses")

LABEL_HOLDER = PARTIES[0]
PARAMS = BoostingParams(n_estimators=3, max_depth=3, max_bin=8, subsample=0.8, reg_lambda=0.5)
HERE = world(120, (2, 2, 2), missing=0.1, seed=5)
N = len(HERE.y)
WIDTH = 256  # bytes of a ciphertext under a key of 1024 bits


@dataclass
class Crossed:
    """Every parcel between parties, as (sender, receiver, parcel), of a training and of a prediction."""

    parcels: list[tuple[str, str, exchange_pb2.PeerMessage]] = field(default_factory=list)

    def of(self, kind: str, to: str, tree: int | None = None) -> list[tuple[str, exchange_pb2.PeerMessage]]:
        """(sender, parcel) of one kind to one party."""
        return [
            (sender, parcel)
            for sender, receiver, parcel in self.parcels
            if name_of(parcel) == kind and receiver == to and tree in (None, parcel.round)
        ]


ORACLE = HERE.oracle(PARAMS)


@pytest.fixture(scope="module")
def crossed(tmp_path_factory: pytest.TempPathFactory) -> Crossed:
    """One training and one prediction, all parcels kept."""
    folder = tmp_path_factory.mktemp("crossed") / "federation"
    found = Crossed()

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        found.parcels.append((sender, to, parcel))
        return parcel

    async def main() -> None:
        federation = Federation(folder, HERE.tables)
        federation.tamper = keep
        assert (await federation.train(spec(PARAMS, obfuscation="standard"))).state == "finished"
        assert (await federation.predict(predict_request(model="job", table="train"))).state == "finished"
        assert_oracles_model(federation.states, ORACLE)

    run(main())
    return found


def _may_be_split(tree: OracleTree, node: int) -> bool:
    """Depth and weight allow a split; with h ≤ ¼ and a least weight of 1 that is many records."""
    depth = node.bit_length() - 1
    return depth < PARAMS.max_depth and tree.nodes[node].cover >= 2 * PARAMS.min_child_weight


def test_who_talks_to_whom_about_what(crossed: Crossed) -> None:
    """Feature parties tell each other nothing; each direction has its kinds of parcels and no others."""
    kinds = defaultdict(set)
    for sender, to, parcel in crossed.parcels:
        kinds[sender == LABEL_HOLDER, to == LABEL_HOLDER].add(name_of(parcel))
    to_features = {"public_key", "sampled_records", "gradients", "won_splits", "instance_spaces", "leaf_paths"}
    to_label_holder = {"candidate_sums", "children", "route_answers"}
    assert kinds == {
        (True, False): to_features | {"record_digest", "route_queries"},
        (False, True): to_label_holder | {"record_digest"},
    }


@pytest.mark.parametrize("party", PARTIES[1:])
def test_a_party_hears_of_the_nodes_that_may_be_split_and_that_it_did_not_make(party: str, crossed: Crossed) -> None:
    """Just those instance spaces, each with just its records; nothing of leaves at the last level."""
    released = 0
    for number, tree in enumerate(ORACLE):
        members = HERE.members(tree)
        expected = {
            child: members[child].tolist()
            for node, split in tree.nodes.items()
            if isinstance(split, OracleSplit) and split.owner != party
            for child in (2 * node, 2 * node + 1)
            if _may_be_split(tree, child)
        }
        told = {}
        for sender, parcel in crossed.of("instance_spaces", party, number):
            assert sender == LABEL_HOLDER
            for space in parcel.growth.instance_spaces.spaces:
                assert space.node.bit_length() - 1 == parcel.stage
                told[space.node] = rows_of([space.records], N).tolist()
        assert told == expected
        released += len(told)
    assert released > 0


def test_the_label_holder_hears_which_records_go_left_at_every_split_of_others(crossed: Crossed) -> None:
    """One set per split, from its owner, and none for its own splits."""
    for number, tree in enumerate(ORACLE):
        members = HERE.members(tree)
        told = {
            (sender, child.node): rows_of([child.left], N).tolist()
            for sender, parcel in crossed.of("children", LABEL_HOLDER, number)
            for child in parcel.growth.children.children
        }
        assert told == {
            (split.owner, node): members[2 * node].tolist()
            for node, split in tree.nodes.items()
            if isinstance(split, OracleSplit) and split.owner != LABEL_HOLDER
        }


@pytest.mark.parametrize("party", PARTIES[1:])
def test_the_sample_and_one_ciphertext_per_record_of_it(party: str, crossed: Crossed) -> None:
    """The records of the tree's sample, as many ciphertexts, and none of them the same in two trees."""
    seen: set[bytes] = set()
    for number in range(len(ORACLE)):
        sample = np.flatnonzero(sampling.rows(PARAMS.seed, number, N, PARAMS.subsample, np.ones(N, dtype=bool)))
        ((_, told),) = crossed.of("sampled_records", party, number)
        assert rows_of(told.growth.sampled_records.chunks, N).tolist() == sample.tolist()
        blocks = b"".join(
            parcel.protocol.boosting.gradients.ciphertexts for _, parcel in crossed.of("gradients", party, number)
        )
        ciphertexts = {blocks[at : at + WIDTH] for at in range(0, len(blocks), WIDTH)}
        assert len(blocks) == WIDTH * len(sample) == WIDTH * len(ciphertexts)
        assert not ciphertexts & seen
        seen |= ciphertexts


@pytest.mark.parametrize("party", PARTIES[1:])
def test_every_candidate_comes_always_and_no_ciphertext_twice(party: str, crossed: Crossed) -> None:
    """The number of candidates is the same for every node of every tree; of each pair of siblings one is built."""
    candidates = set()
    ciphertexts: list[bytes] = []
    for number, tree in enumerate(ORACLE):
        for _, parcel in (each for each in crossed.of("candidate_sums", LABEL_HOLDER, number) if each[0] == party):
            nodes = list(parcel.growth.candidate_sums.nodes)
            candidates.add(parcel.growth.candidate_sums.candidates)
            block = parcel.growth.candidate_sums.ciphertexts
            ciphertexts += [block[at : at + WIDTH] for at in range(0, len(block), WIDTH)]
            if parcel.stage:
                assert len({node >> 1 for node in nodes}) == len(nodes)
                open_nodes = {node for node in tree.nodes if node >> parcel.stage == 1 and _may_be_split(tree, node)}
                assert {node >> 1 for node in nodes} == {node >> 1 for node in open_nodes}
            else:
                assert nodes == [1]
    assert len(candidates) == 1
    assert len(set(ciphertexts)) == len(ciphertexts) > 0


@pytest.mark.parametrize("party", PARTIES[1:])
def test_leaf_paths_name_a_partys_own_splits_only(party: str, crossed: Crossed) -> None:
    """For each leaf from left to right the turns at this party's splits, by the handles that it gave itself."""
    handles = {
        (parcel.round, child.node): child.handle
        for sender, parcel in crossed.of("children", LABEL_HOLDER)
        if sender == party
        for child in parcel.growth.children.children
    }
    for number, tree in enumerate(ORACLE):
        leaves = sorted(
            (node for node, it in tree.nodes.items() if not isinstance(it, OracleSplit)),
            key=lambda node: f"{node:b}",
        )
        expected = []
        for leaf in leaves:
            ancestors = [(leaf >> up, leaf >> (up - 1)) for up in range(leaf.bit_length() - 1, 0, -1)]
            expected.append(
                [
                    (handles[number, parent], child % 2 == 0)
                    for parent, child in ancestors
                    if (number, parent) in handles
                ]
            )
        ((_, parcel),) = crossed.of("leaf_paths", party, number)
        assert [
            [(turn.handle, turn.left) for turn in leaf.branches] for leaf in parcel.growth.leaf_paths.leaves
        ] == expected


@pytest.mark.parametrize("party", PARTIES[1:])
def test_a_prediction_asks_an_owner_only_about_records_at_its_own_nodes(party: str, crossed: Crossed) -> None:
    """Each query names a split of this party and just the records that stand there; nobody else is asked about them."""
    by_handle: dict[int, list[int]] = {}
    for number, tree in enumerate(ORACLE):
        members = HERE.members(tree)
        for sender, parcel in crossed.of("children", LABEL_HOLDER, number):
            if sender == party:
                by_handle |= {child.handle: members[child.node].tolist() for child in parcel.growth.children.children}
    asked = {
        query.handle: rows_of([query.records], N).tolist()
        for _, parcel in crossed.of("route_queries", party)
        for query in parcel.protocol.interactive.route_queries.queries
    }
    assert asked == by_handle
