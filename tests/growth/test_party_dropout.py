"""Parties that sit a tree out: nothing of the tree reaches them but its number of leaves, and resuming repeats it."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.replay import HERE, Replay, ask, conducted
from tests.simulator import Federation, finished, run
from tests.trainings import DROPOUT, TWO_ROLES, jobs_of, oracle
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, lattice_tolerance, manifest, spec
from treetap.errors import OutOfOrder
from treetap.models.store import TREES
from treetap.protocols.job_spec import taking_part
from treetap.protocols.prediction import predict_request
from treetap.trees.params import TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2, growth_pb2

LABEL_HOLDER, B, C = PARTIES
TRAININGS = {name: jobs_of(name).PARAMS for name in TWO_ROLES}
#: Who takes part in the four trees.
THERE = [[], [B, C], [C], [B]]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("params", TRAININGS.values(), ids=TRAININGS)
async def test_a_party_that_sits_a_tree_out_learns_how_many_leaves_it_has(params: TreeParams, tmp_path: Path) -> None:
    """It is asked to store and gets paths without turns; no sample, ciphertext of the tree or instance space."""
    parcels: list[tuple[str, str, exchange_pb2.PeerMessage]] = []

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        parcels.append((sender, to, parcel))
        return parcel

    job, expected = spec(params, obfuscation="standard"), oracle(HERE, params)
    assert [taking_part(job, tree) for tree in range(4)] == THERE

    federation = Federation(tmp_path, HERE.tables)
    federation.tamper = keep
    assert (await federation.train(job)).state == "finished"
    assert_oracles_model(federation.states, expected)
    assert manifest(federation.state(LABEL_HOLDER))["params"]["party_dropout"] == DROPOUT
    for protocol in ("interactive", "eini", "eini-lattice"):
        request = predict_request(model="job", protocol=protocol)
        predicted = finished(await federation.predict(request))
        within = lattice_tolerance(expected) if protocol == "eini-lattice" else 1e-9
        assert_oracles_scores(predicted.predictions, expected, HERE.newcomers, 16, within)
    asked = defaultdict(set)
    for kind, to, request in federation.conducted:
        if kind == "begin" and request.job == "job":
            asked[to, request.round].add(name_of(request))
    per_tree = {"build_histograms", "apply_splits", "store_tree"}
    for party in PARTIES[1:]:
        for tree in range(4):
            there = party in THERE[tree]
            assert ("build_histograms" in asked[party, tree]) == there
            assert asked[party, tree] & per_tree == {"store_tree"} or there
            assert "store_tree" in asked[party, tree]
    once = {"public_key", "record_digest", "encrypted_labels"}
    for party in PARTIES[1:]:
        for tree in range(4):
            mine = [p for sender, to, p in parcels if party in (sender, to) and (p.job, p.round) == ("job", tree)]
            kinds = {name_of(parcel) for parcel in mine} - once
            if party in THERE[tree]:
                assert {"sampled_records", "candidate_sums", "leaf_paths"} <= kinds
            else:
                assert kinds == {"leaf_paths"}
                paths = [path for p in mine if name_of(p) == "leaf_paths" for path in p.growth.leaf_paths.leaves]
                assert len(paths) == sum(not hasattr(node, "owner") for node in expected[tree].nodes.values())
                assert not any(path.branches for path in paths)


@pytest.mark.second_tier
def test_nobody_else_than_those_who_take_part_may_be_asked(tmp_path: Path) -> None:
    """To sum in a tree that the party sits out, or to store one of which it has seen nothing, is refused."""
    job = spec(TRAININGS["boosting"], obfuscation="standard")
    training, _ = conducted(tmp_path / "once", job=job)

    async def main() -> None:
        federation = Federation(tmp_path / "again", HERE.tables)
        replay = Replay(federation, training)
        refused = 0
        build = growth_pb2.BuildHistograms(nodes=[1])
        store = growth_pb2.StoreTree()
        begun = -1
        async for _ in replay.waves():
            stored = {party: _stored(federation, party) for party in PARTIES}
            if stored[B] == stored[C] == stored[LABEL_HOLDER] == begun + 1 < 4 and (
                "make_keys" in [name_of(request) for request, _ in replay.answers[LABEL_HOLDER]]
            ):
                begun += 1
                for party in PARTIES[1:]:
                    wrong = control_pb2.StepRequest(job="job", attempt=1, round=begun)
                    if party in THERE[begun]:
                        wrong.growth.store_tree.CopyFrom(store)
                    else:
                        wrong.growth.build_histograms.CopyFrom(build)
                    with pytest.raises(OutOfOrder, match=f"of round {begun}, stage 0 cannot come now"):
                        await ask(federation, party, wrong)
                    refused += 1
        assert refused == 8

    run(main())


def _stored(federation: Federation, party: str) -> int:
    shard = federation.state(party) / "jobs" / "job" / TREES
    return len(shard.read_text().splitlines()) if shard.is_file() else 0
