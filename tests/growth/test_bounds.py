"""Messages of a tree are no longer than its nodes and candidates make them; those that are right are never refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from party.runtime import expected
from tests.campaign.small_jobs import FOREST
from tests.replay import HERE, PARAMS
from tests.simulator import Federation, run
from tests.worlds import PARTIES, spec
from treetap.protocols.growth import GROWTH, TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import Members
from treetap.protocols.prediction import predict_request
from treetap.trees.params import ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2, growth_pb2


@pytest.mark.parametrize("params", [PARAMS, FOREST], ids=["boosting", "forest"])
def test_what_a_job_needs_is_within_its_bounds(
    params: TreeParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they leave next to nothing beside the contents, in a training and an encrypted prediction."""
    monkeypatch.setattr(expected, "ALLOWANCE", 3 * expected.OVERHEAD)

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        trained = await federation.train(spec(params, obfuscation="standard"))
        assert (trained.state, trained.error) == ("finished", "")
        asked = predict_request(model="job", protocol="eini")
        asked.parameters.eini.key_bits = 1024
        predicted = await federation.predict(asked)
        assert (predicted.state, predicted.error) == ("finished", "")
        await federation.close()

    run(main())


def test_a_party_without_candidates_may_name_all_nodes_of_a_level() -> None:
    """Its columns are constant: a level's message has the numbers of its nodes, three bytes each from 16,384 on."""
    params = ForestParams(1, max_depth=17, max_bin=4)
    members, key = Members("coordinator", PARTIES[0], PARTIES[1:]), KeyKind.of(spec(params))
    sizes = TreeSizes(members=members, key=key, params=params, records=1 << 20, offered={PARTIES[1]: (0, 0)})
    sums = growth_pb2.CandidateSums(nodes=range(1 << 16, 1 << 17))
    bound = expected.expected_of(GROWTH, PARTIES[0], sizes)["candidate_sums"]
    assert bound.most(PARTIES[1], 0, 16) > len(sums.SerializeToString())


def test_sums_below_the_root_are_bounded_by_those_of_the_root(tmp_path: Path) -> None:
    """A party's number of candidates, which the label holder cannot know, is known from the tree's first level on."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)

        def tamper(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
            if name_of(parcel) == "candidate_sums" and parcel.stage == 1:
                parcel.growth.candidate_sums.ciphertexts += bytes(1 << 20)
            return parcel

        federation.tamper = tamper
        status = await federation.train(spec(PARAMS, obfuscation="standard"))
        assert status.state != "finished"
        assert "round 0, stage 1 has more than the" in status.error
        await federation.close()

    run(main())
