"""Attributions that cannot be: policies, options, contents that do not fit, and parties that lie."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from tests.attributions.test_protocol import ALLOWED, FIRST, LABEL_HOLDER
from tests.campaign.cipher import quickly_trained
from tests.replay import HERE, JOB, asked
from tests.simulator import Federation, finished, run
from tests.worlds import spec, world
from treetap.party.eini.entry_layout import ATTRIBUTIONS, ChainPlace, MemberEntries, take_layout
from treetap.protocols.prediction import predict_request
from treetap.trees.local_values import GoesLeft
from treetap.trees.params import BoostingParams
from treetap.trees.paths import Bools
from treetap.wire.frame import filled
from treetap.wire.v2 import attributions_pb2, exchange_pb2


@pytest.mark.parametrize(
    ("players", "spare"),
    [
        ([{0, 1}] * 100, 200 - 3 * 58),
        ([{0, 1}, *[{1}] * 99], 2 - 58),
        ([*[{0, 1}] * 60, *[{1}] * 40], 200 - 3 * 58),
        ([*[{0, 1}] * 35, *[{1}] * 65], 70 - 58),
    ],
)
def test_a_feature_partys_own_bound(players: list[set[int]], spare: float) -> None:
    """Two bits a tree, less 58 for the score and for each player; a player alone has only the trees that it splits."""
    leaves = [[[1, 1], [2, 1]], [[1, 1], [2, 0]], [[1, 0], [3, 1]], [[1, 0], [3, 0]]]
    shard = [{"leaves": leaves, "splits": [{"node": node} for node in (1, 2, 3)]}] * len(players)
    trees = [
        attributions_pb2.AttributedTree(
            tree=k, leaves=[1, 2, 3, 4], outgoing=[0] * 4, outputs=[0], players=sorted(playing)
        )
        for k, playing in enumerate(players)
    ]

    async def parcels() -> AsyncIterator[exchange_pb2.PeerMessage]:
        layout = attributions_pb2.AttributionLayout(trees=trees, players=2)
        yield filled(exchange_pb2.PeerMessage(), "attribution_layout", layout)

    layout = run(take_layout(ATTRIBUTIONS, parcels(), ChainPlace("b", "a", "a", "a"), shard, 1, 1))
    assert layout.spare == pytest.approx(spare)


@pytest.mark.second_tier
async def test_paths_that_attributions_would_show(tmp_path: Path) -> None:
    """Where trees hide the paths behind scores, min_candidate_bits lets those pass and refuses attributions."""
    here = world(40, (0, 4), fresh=3)
    params = BoostingParams(n_estimators=30, max_depth=3, max_bin=8, min_child_weight=0.0, reg_lambda=0.1)
    faults = {
        LABEL_HOLDER: "with attributions to 1 players the candidate leaves of some record have fewer bits to spare",
        FIRST: r"its own splits of this model leave -\d+\.\d bits beyond those of a sum and of the attributions to 1",
    }

    federation = Federation(tmp_path, here.tables, policies={FIRST: dict(ALLOWED[FIRST])})
    assert (await quickly_trained(federation, spec(params, 2, obfuscation="standard"))).state == "finished"
    for party, fault in faults.items():
        policy = federation.policy(party).with_lines({"columns": {"min_candidate_bits": 2.0}})
        before, federation.configs[party] = federation.configs[party], federation.configs[party].under(policy)
        federation.kill(party)
        federation.start(party)
        status = await federation.predict(asked(attributions=True))
        assert status.state == "failed"
        rule = rf"{party} takes no part: its policy says min_candidate_bits = 2, and {fault}"
        assert re.search(rule, status.error), status.error
        status = finished(await federation.predict(predict_request(model="job", protocol="eini")))
        federation.configs[party] = before
        federation.kill(party)
        federation.start(party)
    assert (await federation.predict(asked(attributions=True))).state == "finished"


async def test_a_party_that_keeps_other_entries_than_for_the_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that do not add up to the scores are no attributions: the chain is named, nothing is written."""
    honest = MemberEntries.masks

    def everything(self: MemberEntries, goes_left: GoesLeft, n: int) -> Bools:
        masks = honest(self, goes_left, n)
        return np.ones_like(masks) if self.players else masks

    federation = Federation(tmp_path, HERE.tables, policies=ALLOWED)
    await federation.train(JOB)
    with monkeypatch.context() as lying:
        lying.setattr(MemberEntries, "masks", everything)
        status = await federation.predict(asked("lie", attributions=True))
    assert status.state == "failed"
    assert re.search(r"Malformed: .*block 0: the attributions do not add up .*feature-b, feature-c", status.error)
    for state in federation.states.values():
        assert list((state / "predictions").iterdir()) == []
    assert (await federation.predict(asked("truth", attributions=True))).state == "finished"
