"""Exactly what the parties of a forest tell each other, beside what the growth of a tree takes in boosting too."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.growth.test_crossings import WIDTH, Crossed
from tests.oracle import OracleModel, OracleSplit
from tests.simulator import Federation, run
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.trees import sampling
from treetap.trees.params import ForestParams
from treetap.wire.frame import name_of
from treetap.wire.records import rows_of
from treetap.wire.v2 import exchange_pb2

pytestmark = pytest.mark.xdist_group("forest-crosses")

LABEL_HOLDER = PARTIES[0]
GLOBAL = ForestParams(n_estimators=3, max_depth=3, max_bin=8, seed=3, min_samples_leaf=3)
PER_NODE = replace(GLOBAL, binning="per-node", bootstrap=True)
HERE = world(60, (2, 2, 2), missing=0.1, seed=5, objective="multi:softprob", classes=4)
N = len(HERE.y)
Kept = tuple[ForestParams, OracleModel, Crossed]


@pytest.fixture(scope="module", params=[GLOBAL, PER_NODE], ids=lambda params: params.binning)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """One training, all parcels kept."""
    params: ForestParams = request.param
    folder: Path = tmp_path_factory.mktemp("crossed") / "federation"
    found, oracle = Crossed(), HERE.oracle(params)

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        found.parcels.append((sender, to, parcel))
        return parcel

    async def main() -> None:
        federation = Federation(folder, HERE.tables)
        federation.tamper = keep
        assert (await federation.train(spec(params, obfuscation="standard"))).state == "finished"
        assert_oracles_model(federation.states, oracle)

    run(main())
    return params, oracle, found


def _drawn(params: ForestParams, tree: int) -> np.ndarray:
    return sampling.drawn(params.seed, tree, N, params.subsample, bootstrap=params.bootstrap)


def _open(params: ForestParams, oracle: OracleModel, number: int, node: int) -> bool:
    """May be split: above the greatest depth, enough records for two leaves, more than one class."""
    drawn = _drawn(params, number)
    rows = HERE.members(oracle[number])[node]
    classes = set(HERE.y[rows[drawn[rows] > 0]].tolist())
    enough = drawn[rows].sum() >= 2 * params.min_samples_leaf
    return node.bit_length() - 1 < params.max_depth and bool(enough) and len(classes) > 1


def test_who_talks_to_whom_about_what(kept: Kept) -> None:
    """Feature parties tell each other nothing; each direction has its kinds of parcels and no others."""
    kinds = defaultdict(set)
    for sender, to, parcel in kept[2].parcels:
        kinds[sender == LABEL_HOLDER, to == LABEL_HOLDER].add(name_of(parcel))
    to_features = {"public_key", "encrypted_labels", "sampled_records", "won_splits", "instance_spaces", "leaf_paths"}
    assert kinds == {
        (True, False): to_features | {"record_digest"},
        (False, True): {"record_digest", "candidate_sums", "children"},
    }


@pytest.mark.parametrize("party", PARTIES[1:])
def test_one_ciphertext_per_record_for_the_whole_job(party: str, kept: Kept) -> None:
    """All four classes of a record in one ciphertext, every record once, none like another; no slot but for classes."""
    _, _, crossed = kept
    blocks = b"".join(
        parcel.protocol.forest.encrypted_labels.ciphertexts for _, parcel in crossed.of("encrypted_labels", party)
    )
    ciphertexts = {blocks[at : at + WIDTH] for at in range(0, len(blocks), WIDTH)}
    assert len(blocks) == N * WIDTH == len(ciphertexts) * WIDTH
    ((_, key),) = crossed.of("public_key", party)
    assert list(key.setup.public_key.slot_widths) == [7] * 4
    first = crossed.parcels.index(next(each for each in crossed.parcels if name_of(each[2]) == "sampled_records"))
    assert not any(name_of(each[2]) == "encrypted_labels" for each in crossed.parcels[first:])


@pytest.mark.parametrize("party", PARTIES[1:])
def test_the_draw_of_each_tree(party: str, kept: Kept) -> None:
    """Which records, and with replacement how often each; without it no record says more than that it was drawn."""
    params, oracle, crossed = kept
    for number in range(len(oracle)):
        told = np.zeros(N, dtype=np.int64)
        for _, parcel in crossed.of("sampled_records", party, number):
            told[rows_of(parcel.growth.sampled_records.chunks, N)] += 1
        assert told.tolist() == _drawn(params, number).tolist()
        assert told.sum() == 48
        assert (told.max() == 1) != params.bootstrap


@pytest.mark.parametrize("party", PARTIES[1:])
def test_instance_spaces_of_nodes_that_may_be_split(party: str, kept: Kept) -> None:
    """Just those that the party did not make; a node of one class, or too small, is not told."""
    params, oracle, crossed = kept
    hidden = 0
    for number, tree in enumerate(oracle):
        members = HERE.members(tree)
        children = [
            child
            for node, split in tree.nodes.items()
            if isinstance(split, OracleSplit) and split.owner != party
            for child in (2 * node, 2 * node + 1)
        ]
        told = {
            space.node: rows_of([space.records], N).tolist()
            for _, parcel in crossed.of("instance_spaces", party, number)
            for space in parcel.growth.instance_spaces.spaces
        }
        assert told == {c: members[c].tolist() for c in children if _open(params, oracle, number, c)}
        hidden += sum(child.bit_length() - 1 < params.max_depth for child in children if child not in told)
    assert hidden > 0


@pytest.mark.parametrize("party", PARTIES[1:])
def test_every_candidate_of_every_node_built(party: str, kept: Kept) -> None:
    """As many for every node; one of two siblings with the job's bins, each open node with bins of its own."""
    params, oracle, crossed = kept
    counts, ciphertexts = set(), []
    for number, tree in enumerate(oracle):
        for sender, parcel in crossed.of("candidate_sums", LABEL_HOLDER, number):
            if sender != party:
                continue
            counts.add(parcel.growth.candidate_sums.candidates)
            block = parcel.growth.candidate_sums.ciphertexts
            ciphertexts += [block[at : at + WIDTH] for at in range(0, len(block), WIDTH)]
            level = [node for node in tree.nodes if node.bit_length() - 1 == parcel.stage]
            may = {node for node in level if _open(params, oracle, number, node)}
            nodes = list(parcel.growth.candidate_sums.nodes)
            if params.binning == "per-node":
                assert set(nodes) == may
            elif parcel.stage:
                assert {node >> 1 for node in nodes} == {node >> 1 for node in may}
                assert len({node >> 1 for node in nodes}) == len(nodes)
    assert len(counts) <= 2  # one of two columns is drawn, and only one of them has missing values
    assert len(set(ciphertexts)) == len(ciphertexts) > 0
