"""Split networks under faults: processes killed at every message, a bad network, parties that are suspended or slow.

`python -m tests.campaign kills` kills every process at every message.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

import tests.simulator
from tests.simulator import COORDINATOR, Faults, Federation, Message, finished, run
from tests.splitnn.jobs import PARAMS
from tests.splitnn.networks import assert_same_bits, federation, oracle, published, trained
from tests.worlds import PARTIES, World, spec, world
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams, Top
from treetap.neural.schedule import Schedule
from treetap.party.runtime.mailbox import OVERHEAD, expected_of
from treetap.party.splitnn.bodies import EMBEDDINGS, bodies
from treetap.protocols.messages import Members
from treetap.protocols.splitnn_prediction import PROTOCOL, NetworkSizes
from treetap.wire.frame import filled
from treetap.wire.v2 import exchange_pb2

pytest.importorskip("torch", reason="needs treetap[neural]")


pytestmark = pytest.mark.second_tier

T = TypeVar("T")
HOLDER, B, _ = PARTIES
#: Two epochs of two batches, the last of which has five records.
TINY = replace(PARAMS, batch_size=4, bottom={DEFAULT: Bottom(width=2)}, top=Top((2,)))
TWO, THREE = world(9, (1, 1), seed=3), world(9, (1, 1, 1), seed=3)
#: Eight blocks of validation records in each of three epochs.
MANY_BLOCKS = replace(
    TINY, epochs=3, batch_size=2, early_stopping_rounds=2, validation_share=0.6, party_dropout={B: 0.3}
)
#: Virtual seconds within which the operator learns who is away.
SOON_S = 15.0
#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0


def _assert_whole(running: Federation, here: World, params: SplitnnParams) -> None:
    """The models are those of one graph, and nothing else is left."""
    network, _ = oracle(running.folder, here, params)
    assert_same_bits(published(running.folder, here), network.weights())
    for state in running.states.values():
        assert list((state / "jobs").iterdir()) == []


async def _killed_at(folder: Path, victim: str, number: int, *, served: bool, back_at_once: bool) -> str:
    """Returns the state in which the kill left the job."""

    running = federation(folder, TWO)
    killed = []

    def hook(message: Message) -> None:
        models = {name for name, state in running.states.items() if os.listdir(state / "models")}
        assert HOLDER not in models or models == {HOLDER, B}
        if (message.number, message.served) == (number, served) and not killed:
            killed.append(victim)
            running.kill(victim)
            if back_at_once:
                running.start(victim)

    running.hook = hook
    status = await running.train(spec(TINY, parties=2))
    assert killed
    if victim != COORDINATOR and status.state != "finished":
        assert victim in status.error
        assert status.seconds < SOON_S
    if not back_at_once:
        await asyncio.sleep(GIVEN_UP_S)
        running.start(victim)
    if status.state != "finished":
        assert status.state == "interrupted"
        finished(await running.resume())
    _assert_whole(running, TWO, TINY)
    return status.state


@pytest.mark.parametrize("victim", [HOLDER, B, COORDINATOR])
async def test_killed_at_every_message(victim: str, tmp_path: Path) -> None:
    """At each message one process by turns: the resumed job finds the network of one graph, nothing is left behind."""
    turn, states = [HOLDER, B, COORDINATOR].index(victim), set()
    # Every message of the smallest job when nothing disturbs it.
    faultless = federation(tmp_path / "faultless", TWO)
    assert (await faultless.train(spec(TINY, parties=2))).state == "finished"
    for message in faultless.log[turn::3]:
        served = message.number % 2 == 1 and victim in (message.sender, message.to)
        back_at_once = message.number % 4 < 2
        where = f"{'served' if served else 'on its way'} {message}, back at once: {back_at_once}"
        try:
            folder = tmp_path / str(message.number)
            states.add(await _killed_at(folder, victim, message.number, served=served, back_at_once=back_at_once))
        except BaseException as failure:
            failure.add_note(f"{victim} killed, {where}")
            raise
    assert "interrupted" in states


@pytest.mark.parametrize(
    "network",
    [{"drop": 0.08, "lose_reply": 0.08}, {"delay_s": 3.0}, {"double": 0.4, "late_s": 2.0, "delay_s": 0.5}],
    ids=["lossy", "slow", "doubling"],
)
async def test_a_bad_network_changes_no_bit(network: dict[str, float], tmp_path: Path) -> None:
    """Messages lost, late, doubled or overtaken: the network of one graph, also of a job with many validation records.

    The label holder may be behind with them: a feature party awaits no answer to them, unlike to those of a batch.
    """
    here = world(27, (1, 1, 1), seed=5)
    assert len(Schedule.of(MANY_BLOCKS, 27).validation_batches()) == 8

    running = federation(tmp_path, here, faults=Faults(**network, seed=1))
    status = await running.train(spec(MANY_BLOCKS))
    for _ in range(20):
        if status.state != "interrupted":
            break
        status = await running.resume()
    assert (status.state, status.error) == ("finished", "")
    _assert_whole(running, here, MANY_BLOCKS)


@pytest.mark.parametrize(("rows", "width", "batch"), [(40_000, 1, 2), (5000, 4, 12), (700, 3000, 64)])
def test_a_series_has_room_for_blocks_that_go_one_by_one(rows: int, width: int, batch: int) -> None:
    """Many small messages make up the embeddings of the validation records, where each block takes long."""
    blocks = -(-rows // batch)
    members = Members("coordinator", HOLDER, (B,))
    sizes = NetworkSizes(members=members, widths={B: width}, wire_type="bfloat16", rows=1, held=rows, blocks=blocks)
    expected = expected_of(PROTOCOL.sends, HOLDER, sizes)[EMBEDDINGS]
    (body,) = bodies(EMBEDDINGS, bytes(batch * width * 2), width, "bfloat16")
    message = exchange_pb2.PeerMessage(job="j" * 63, attempt=999, round=99_999, stage=99_999, part=99_999)
    filled(message, EMBEDDINGS, body)
    assert blocks * (len(message.SerializeToString()) + OVERHEAD) <= expected.most(B, 0, 0)


@pytest.mark.parametrize("frozen", [HOLDER, B])
@pytest.mark.parametrize("word", ["embeddings", "embedding_gradients", "store_epoch"])
async def test_a_suspended_party_is_named_in_time(frozen: str, word: str, tmp_path: Path) -> None:
    """The job stops with its name; after it has been thawed a resumed job finds the network of one graph."""
    running = federation(tmp_path, TWO, silence_s=5.0)

    def hook(message: Message) -> None:
        if message.word == word and frozen in (message.to, message.sender):
            running.hook = None
            running.freeze(frozen)

    running.hook = hook
    status = await running.train(spec(TINY, parties=2))
    assert status.state == "interrupted"
    assert frozen in status.error
    assert status.seconds < 3 * 5.0
    running.freeze(frozen, thaw=True)
    await asyncio.sleep(60.0)
    assert (await running.resume()).state == "finished"
    _assert_whole(running, TWO, TINY)


def test_who_sits_out_waits_as_long_as_the_others_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A party sends the next embedding at once, and gets its gradient after the batches that it sits out.

    Each of these takes less than the time without a sign of life that ends a job, and all together take more.
    """
    params = replace(TINY, epochs=1, batch_size=2, party_dropout={B: 0.8}, seed=17)
    schedule = Schedule.of(params, 9)
    assert [schedule.takes_part(0, batch, B) for batch in range(4)] == [False, False, False, True]

    async def slow(work: Callable[[], T], *, whole: bool = False, us: float = 0.0) -> T:
        await asyncio.sleep(2.0)
        return work()

    monkeypatch.setattr(tests.simulator, "in_place", slow)
    status = run(trained(tmp_path, THREE, params, silence_s=5.0))
    assert (status.state, status.error) == ("finished", "")
    network, _ = oracle(tmp_path, THREE, params)
    assert_same_bits(published(tmp_path, THREE), network.weights())


def _like_threads(seconds: float) -> Callable[..., Any]:
    """An `Offload` whose work goes on when its caller is gone, as in a thread, and takes virtual seconds."""

    async def offload(work: Callable[[], T], *, whole: bool = False, us: float = 0.0) -> T:
        async def later() -> T:
            await asyncio.sleep(seconds)
            return work()

        going = asyncio.ensure_future(later())
        try:
            return await asyncio.shield(going)
        except asyncio.CancelledError:
            if whole:
                await asyncio.wait({going})
            raise

    return offload


@pytest.mark.parametrize("word", ["train_epoch", "store_epoch"])
async def test_work_that_goes_on_in_a_thread_leaves_nothing(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job is cancelled while threads compute, or write: no file comes after that, and another job is trained."""
    monkeypatch.setattr(tests.simulator, "in_place", _like_threads(0.7))

    running = federation(tmp_path, TWO)
    reached = asyncio.Event()

    def hook(message: Message) -> None:
        if (message.word, message.to, message.served) == (word, B, False):
            reached.set()

    running.hook = hook
    training = asyncio.ensure_future(running.train(spec(TINY, parties=2)))
    await reached.wait()
    await asyncio.sleep(0.3)
    assert (await running.jobs.cancel("job")).state == "cancelled"
    assert (await training).state == "cancelled"
    await asyncio.sleep(30.0)
    for state in running.states.values():
        assert list((state / "jobs").iterdir()) == []
    running.hook = None
    status = finished(await running.train(spec(TINY, parties=2), "another"))
    network, _ = oracle(tmp_path, TWO, TINY)
    assert_same_bits(published(tmp_path, TWO, status.job), network.weights())


async def test_an_attempt_begins_while_work_of_the_one_before_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that computes when the coordinator dies ends later, and changes nothing of the next attempt."""
    monkeypatch.setattr(tests.simulator, "in_place", _like_threads(0.7))

    running = federation(tmp_path, TWO)
    running.kill_at(
        COORDINATOR, lambda each: (each.word, each.served) == ("embedding_gradients", True), nth=3, back=True
    )
    assert (await running.train(spec(TINY, parties=2))).state == "interrupted"
    finished(await running.resume())
    _assert_whole(running, TWO, TINY)
