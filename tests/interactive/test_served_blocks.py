"""Blocks of a served model: one step for each party, with the messages of the stepwise course."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tests.replay import ask as send
from tests.serving.served import IDS, B, C, ask, serving
from treetap.errors import Malformed
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2

Crossed = tuple[str, str, str, int, int]


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
