"""Attributions by the protocol, and those that are refused.

- Attributions of a Fed-EINI prediction: what they are, what crosses, and that an interrupted one goes on.
- Attributions that cannot be: policies, options, contents that do not fit, and parties that lie.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.attributions.explained import Joined
from tests.boosting.test_protocol import OBJECTIVES
from tests.campaign.cipher import quickly_trained
from tests.replay import HERE, JOB, asked
from tests.simulator import Federation, finished, run
from tests.worlds import FOUR, assert_oracles_scores, spec, world
from treetap.party.eini.entries import EntryMasking
from treetap.party.eini.entry_layout import ATTRIBUTIONS, ChainPlace, take_layout
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.paths import GoesLeft, paths
from treetap.wire.frame import content_of, filled, name_of
from treetap.wire.v2 import attributions_pb2, exchange_pb2

LABEL_HOLDER, *CHAIN = FOUR
ALLOWED: dict[str, dict[str, Any]] = {party: {"emits": {"EXPLANATION": ["parties"]}} for party in CHAIN}
MODELS: dict[str, TreeParams] = {
    **{
        name: replace(BoostingParams(n_estimators=2, max_depth=3, max_bin=6), **changes)
        for name, changes in OBJECTIVES.items()
    },
    "forest of classes": ForestParams(criterion="gini", n_estimators=3, max_depth=3, max_bin=6),
    "forest of numbers": ForestParams(criterion="squared_error", n_estimators=3, max_depth=3, max_bin=6),
}
SHAPES: dict[str, tuple[int, ...]] = {
    "two parties": (2, 3),
    "a chain of two": (2, 2, 2),
    "no own columns": (0, 2, 2),
    "a party without columns": (2, 0, 2),
}


def _world(params: TreeParams, dims: tuple[int, ...], **changes: Any) -> Any:
    objective = params.objective if isinstance(params, BoostingParams) else "multi:softprob"
    if isinstance(params, ForestParams) and params.criterion == "squared_error":
        objective = "reg:squarederror"
    classes = 3 if objective == "multi:softprob" else 2
    return world(50, dims, objective=objective, classes=classes, missing=0.15, **changes)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (model, shape)
        for a, model in enumerate(MODELS)
        for b, shape in enumerate(SHAPES)
        if (a + b) % 3 == 0 or shape == "a chain of two"
    ],
)
async def test_they_are_the_values_in_the_clear(model: str, shape: str, tmp_path: Path) -> None:
    """Every objective, forests, one feature party and two: the joined model's Shapley values to 1e-9, and scores."""
    params, dims = MODELS[model], SHAPES[shape]
    here = _world(params, dims)

    federation = Federation(tmp_path, here.tables, policies=ALLOWED)
    assert (await quickly_trained(federation, spec(params, len(dims), obfuscation="standard"))).state == "finished"
    status = await federation.predict(asked(attributions=True))
    assert (status.state, status.error, status.scored) == ("finished", "", status.records)
    assert_oracles_scores(status.predictions, here.oracle(params), here.newcomers, len(here.y))
    joined = Joined(federation.states, here)
    exact = joined.attributions()
    table = pq.read_table(status.attributions)
    outputs = len(exact.expected)
    assert table.num_rows == joined.n * outputs
    assert ("class" in table.column_names) == (outputs > 1)
    named = [player if player.startswith("own:") else f"party:{player}" for player in exact.players]
    assert [name for name in table.column_names if ":" in name] == named
    for k, name in enumerate(named):
        found = table.column(name).to_numpy().reshape(joined.n, outputs)
        np.testing.assert_allclose(found, exact.values[:, k], rtol=0, atol=1e-9)
    whole = np.sum([table.column(name).to_numpy() for name in ("expected", *named)], axis=0)
    np.testing.assert_allclose(whole, table.column("score").to_numpy(), rtol=0, atol=1e-8)
    assert np.abs(exact.values).max() > 1e-3
    for party in federation.states:
        assert federation.remembered(party) == []


WIDTH = 256  # bytes of a ciphertext under a key of 1024 bits

FIRST, LAST = CHAIN[:2]


async def test_values_that_need_several_ciphertexts(tmp_path: Path) -> None:
    """Of five players and classes 25 values, 16 to a key of 1024 bits: two ciphertexts an entry, the same sums."""
    params = replace(MODELS["softmax, vector leaves"], n_estimators=1)
    here = world(60, (3, 2, 2), objective="multi:softprob", classes=5, seed=3, fresh=3)

    federation = Federation(tmp_path, here.tables, policies=ALLOWED)
    assert (await quickly_trained(federation, spec(params, 3, obfuscation="standard"))).state == "finished"
    status = finished(await federation.predict(asked(attributions=True)))
    exact = Joined(federation.states, here).attributions()
    assert exact.values[0].size > 16
    table = pq.read_table(status.attributions)
    found = np.stack([column.to_numpy().reshape(3, 5) for column in table.columns[4:]], axis=1)
    np.testing.assert_allclose(found, exact.values, rtol=0, atol=1e-9)


async def test_what_crosses(tmp_path: Path) -> None:
    """Along the chain ciphertexts, each one fresh; to the label holder one sum per record, and nothing by sets."""
    parcels: list[tuple[str, str, exchange_pb2.PeerMessage]] = []

    def keep(sender: str, to: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        parcels.append((sender, to, parcel))
        return parcel

    federation = Federation(tmp_path, HERE.tables, policies=ALLOWED)
    await federation.train(JOB)
    federation.tamper = keep
    assert (await federation.predict(asked(attributions=True))).state == "finished"
    await federation.close()
    joined = Joined(federation.states, HERE)
    seen = [
        body.ciphertexts[at : at + WIDTH]
        for _, _, parcel in parcels
        for body in [content_of(parcel, name_of(parcel))]
        if hasattr(body, "ciphertexts")
        for at in range(0, len(body.ciphertexts), WIDTH)
    ]
    assert len(set(seen)) == len(seen)
    sums = b"".join(
        p.protocol.attributions.attribution_sums.ciphertexts for _, _, p in parcels if name_of(p) == "attribution_sums"
    )
    values = len(joined.attributions().players)
    fitting = (1024 - 2) // (62 * values)
    assert len(sums) == WIDTH * (-(-4 // fitting) + -(-2 // fitting))  # blocks of 4 and 2 records
    (layout,) = [
        p.protocol.attributions.attribution_layout
        for _, to, p in parcels
        if to == LAST and name_of(p) == "attribution_layout"
    ]
    assert layout.players == values
    assert not layout.constant
    assert {to for tree in layout.trees for to in tree.outgoing} <= {0}
    for tree, known in zip(layout.trees, joined.ensemble.used_trees, strict=True):
        own = {tuple((s, side) for s, side in way if s.owner == LAST) for way in paths(known).values()} - {()}
        assert len(tree.leaves) == len(own)  # as many as its own turns part: nothing tells by which sets


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
        federation.restart(party)
        status = await federation.predict(asked(attributions=True))
        assert status.state == "failed"
        rule = rf"{party} takes no part: its policy says min_candidate_bits = 2, and {fault}"
        assert re.search(rule, status.error), status.error
        status = finished(await federation.predict(predict_request(model="job", protocol="eini")))
        federation.configs[party] = before
        federation.restart(party)
    assert (await federation.predict(asked(attributions=True))).state == "finished"


async def test_a_party_that_keeps_other_entries_than_for_the_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that do not add up to the scores are no attributions: the chain is named, nothing is written."""
    honest = EntryMasking.pass_on

    async def everything(self: EntryMasking, goes_left: GoesLeft, n: int, number: int) -> None:
        masking = replace(self, branches=[()] * len(self.branches)) if self.kind is ATTRIBUTIONS else self
        await honest(masking, goes_left, n, number)

    federation = Federation(tmp_path, HERE.tables, policies=ALLOWED)
    await federation.train(JOB)
    with monkeypatch.context() as lying:
        lying.setattr(EntryMasking, "pass_on", everything)
        status = await federation.predict(asked("lie", attributions=True))
    assert status.state == "failed"
    assert re.search(r"Malformed: .*block 0: the attributions do not add up .*feature-b, feature-c", status.error)
    for state in federation.states.values():
        assert list((state / "predictions").iterdir()) == []
    assert (await federation.predict(asked("truth", attributions=True))).state == "finished"
