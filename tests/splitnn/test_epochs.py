"""Epochs that a coordinator would choose, or publish, too soon."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.replay import HERE, Replay, ask, steps_of
from tests.splitnn.networks import federation
from tests.splitnn.small_job import JOB, assert_network
from tests.worlds import PARTIES
from treetap.errors import OutOfOrder
from treetap.party.runtime.step_order import id_of
from treetap.wire.v2 import control_pb2

pytestmark = pytest.mark.second_tier

HOLDER, B, _ = PARTIES


@pytest.mark.parametrize("party", [HOLDER, B])
async def test_a_coordinator_cannot_choose_the_best_epoch(party: str, tmp_path: Path) -> None:
    """Without early stopping each epoch is the best so far: another word is refused, and no state is stored."""
    running = federation(tmp_path, HERE)
    step = running.node(party).step

    def lying(caller: str, request: control_pb2.StepRequest) -> object:
        if request.protocol.splitnn.HasField("store_epoch") and request.round == 1:
            request.protocol.splitnn.store_epoch.best = False
        return step(caller, request)

    running.node(party).step = lying  # type: ignore[method-assign, assignment]
    status = await running.train(JOB)
    assert status.state == "failed"
    assert f"store_epoch of round 1 {'comes' if party == HOLDER else 'says'}" in status.error
    assert not (running.state(party) / "jobs" / "job" / "epochs-even.npz").exists()
    running.node(party).step = step  # type: ignore[method-assign]
    assert (await running.resume()).state == "finished"
    assert_network(running.states)


async def test_an_epoch_that_is_not_stored_is_not_published(tmp_path: Path) -> None:
    """The label holder refuses to publish before the last epoch, and says how many are stored."""
    once = federation(tmp_path / "once", HERE)
    events = await steps_of(once, JOB)
    await once.close()
    running = federation(tmp_path / "again", HERE)
    replay = Replay(running, events)
    waves = replay.waves()
    async for _ in waves:
        done = [id_of(request) for request, _ in replay.answers[HOLDER]]
        if ("store_epoch", 0, 0) in done:
            break
    publish = replay.vocabulary(HOLDER)[-1]
    assert publish.setup.HasField("publish")
    with pytest.raises(OutOfOrder, match="publish cannot come now: 1 of 2 epochs are stored"):
        await ask(running, HOLDER, publish)
