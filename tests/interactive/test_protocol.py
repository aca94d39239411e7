"""Interactive predictions, and blocks of them that are served.

- The two forms of an interactive prediction: what one round asks about.
- Blocks of a served model: one step for each party, with the messages of the stepwise course.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.replay import ask as send
from tests.serving.served import IDS, B, C, ask, serving
from tests.simulator import Federation
from tests.worlds import PARTIES, assert_oracles_scores, spec, world
from treetap.errors import Malformed
from treetap.models.store import read_model
from treetap.party.interactive.label_holder import stages_of
from treetap.protocols.prediction import predict_request
from treetap.trees.ensemble import Leaf, Split, Tree
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2

PARAMS = BoostingParams(n_estimators=4, max_depth=3, max_bin=6)
HERE = world(60, (1, 2, 2), seed=4)
Crossed = tuple[str, str, str, int, int]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("form", ["batched", "per-tree"])
async def test_what_a_round_asks_about(form: str, tmp_path: Path) -> None:
    """Batched: all trees at one depth, as many rounds as the trees are deep. Per tree: one tree, one depth a round."""
    asked: dict[int, set[tuple[str, int]]] = {}

    def keep(_: str, to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if name_of(parcel) == "route_queries":
            asked.setdefault(parcel.stage, set()).update(
                (to, query.handle) for query in parcel.protocol.interactive.route_queries.queries
            )

    federation = Federation(tmp_path, HERE.tables)
    await federation.train(spec(PARAMS, obfuscation="standard"))
    federation.tamper = keep
    status = await federation.predict(predict_request(model="job", table="train", form=form))
    assert_oracles_scores(status.predictions, HERE.oracle(PARAMS), HERE.parties, 0)
    tree_of: dict[tuple[str, int], int] = {}
    for party in PARTIES[1:]:
        for number, tree in enumerate(read_model(federation.state(party) / "models" / "job")[1]):
            for split in tree["splits"]:
                tree_of[party, split["handle"]] = number
    walked = [{tree_of[handle] for handle in handles} for _, handles in sorted(asked.items())]
    if form == "batched":
        assert len(walked) <= PARAMS.max_depth
        assert len(walked[0]) > 1
    else:
        assert PARAMS.max_depth < len(walked) <= PARAMS.max_depth * PARAMS.n_estimators
        assert all(len(trees) == 1 for trees in walked)
        order = [min(trees) for trees in walked]
        assert order == sorted(order)


def test_stages_follow_from_the_shape_of_the_trees() -> None:
    """A split is asked about after the present parties' splits above it; below an absent party's a record is twice."""
    owners = {1: "c", 2: "b", 3: "own", 6: "b", 7: "b", 14: "c"}
    splits = tuple(Split(node, owner, 10 + node, 1.0, 1.0) for node, owner in owners.items())
    leaves = tuple(Leaf(node, (0.0,), 1.0) for node in (4, 5, 12, 13, 15, 28, 29))
    tree = Tree(0, (0,), splits, leaves)

    def shown(*away: str) -> list[dict[str, list[tuple[list[int], int]]]]:
        stages = stages_of([tree], "own", away, per_tree=False)
        return [
            {
                owner: [([split.node for split in each.splits], each.at_once) for each in found]
                for owner, found in stage.items()
            }
            for stage in stages
        ]

    assert shown() == [{"c": [([1], 1)]}, {"b": [([2, 6, 7], 1)]}, {"c": [([14], 1)]}]
    assert shown("c") == [{"b": [([2, 6, 7], 2)]}]
    assert shown("b") == [{"c": [([1], 1)]}, {"c": [([14], 1)]}]
    assert len(stages_of([tree, tree], "own", (), per_tree=True)) == 6
    assert len(stages_of([tree, tree], "own", (), per_tree=False)) == 3


async def test_parties_exchange_the_same_messages_in_every_block(tmp_path: Path) -> None:
    """The same record asked about three times: senders, receivers, stages, order and sizes do not differ."""
    crossed: defaultdict[int, list[Crossed]] = defaultdict(list)

    def keep(by: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        if name_of(message) in ("route_queries", "route_answers"):
            size = message.protocol.interactive.ByteSize()
            crossed[message.round].append((by, to, name_of(message), message.stage, size))

    async with serving(tmp_path, {}) as federation:
        federation.tamper = keep
        for _ in range(3):
            await ask(federation, IDS[0])
        steps = [(to, name_of(asked)) for kind, to, asked in federation.conducted if kind == "begin"]
        assert steps.count((B, "answer_block")) == steps.count((C, "answer_block")) == 2
    by_owner = [{party: [each for each in block if party in each] for party in (B, C)} for block in crossed.values()]
    assert len(by_owner) == 3
    assert by_owner[0] == by_owner[1] == by_owner[2]
    assert all(by_owner[0].values())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("stages", "says"), [([1, 0], "do not ascend"), ([0, 0], "do not ascend"), ([1000], "1000")])
async def test_stages_that_cannot_be_are_refused(stages: list[int], says: str, tmp_path: Path) -> None:
    """By the owner, before it waits for queries that never come."""
    async with serving(tmp_path, {}) as federation:
        await ask(federation, IDS[0])
        request = control_pb2.StepRequest(job="s", attempt=1, round=7)
        request.protocol.interactive.answer_block.stages.extend(stages)
        with pytest.raises(Malformed, match=says):
            await send(federation, B, request)
