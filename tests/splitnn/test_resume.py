"""Resumed trainings, and their epochs.

- Trainings of networks that go on after a stop: from which state, with which key, and what if one is lost.
- Epochs that a coordinator would choose, or publish, too soon.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.replay import HERE, Replay, ask, steps_of
from tests.simulator import LIFE, Federation, Message, finished, run
from tests.splitnn.networks import assert_same_bits, federation, oracle, published
from tests.splitnn.small_job import JOB, assert_network
from tests.splitnn.test_faults import TINY, TWO
from tests.worlds import PARTIES, manifest, spec, world
from treetap.errors import DataError, OutOfOrder
from treetap.models.arrays import read_arrays
from treetap.neural.params import SplitnnParams
from treetap.party.runtime.context import StepContext
from treetap.party.runtime.job_store import JobStore
from treetap.party.runtime.step_order import id_of
from treetap.party.splitnn import job as network_job
from treetap.party.splitnn.job import StoredStates
from treetap.wire.v2 import control_pb2, jobs_pb2

pytestmark = pytest.mark.second_tier

HOLDER, B, _ = PARTIES
LONGER = replace(TINY, epochs=4, optimizer="adam", learning_rate=0.05)
#: Where the job stops: the word, the receiver and the nth time that the request is served.
Stop = tuple[str, str, int]
#: Every party has stored three epochs but for the label holder, which has two.
AHEAD: Stop = ("store_epoch", B, 3)


def _stopping(running: Federation, stop: Stop) -> None:
    """End the coordinator, and both parties, at some message."""
    word, to, left = stop

    def hook(message: Message) -> None:
        nonlocal left
        if (message.word, message.to, message.served) == (word, to, True):
            left -= 1
            if left == 0:
                running.hook = None
                running.kill(HOLDER)
                running.kill(B)

    running.hook = hook


async def _stopped_at(folder: Path, stop: Stop, params: SplitnnParams, **options: Any) -> Federation:
    """A federation whose job has stopped, and whose parties are away."""
    running = federation(folder, TWO, **options)
    _stopping(running, stop)
    assert (await running.train(spec(params, parties=2))).state == "interrupted"
    return running


async def _resumed(running: Federation) -> jobs_pb2.JobStatus:
    for party in (HOLDER, B):
        running.start(party)
    return await running.resume()


def _state(running: Federation, party: str, name: str) -> Path:
    return running.state(party) / "jobs" / "job" / f"{name}.npz"


async def test_a_feature_party_that_is_an_epoch_ahead_goes_back(tmp_path: Path) -> None:
    """It has stored the third epoch, and the label holder the second: the third is trained again, from the second."""
    running = await _stopped_at(tmp_path, AHEAD, LONGER)
    stored = {
        (party, name): int(read_arrays(_state(running, party, name))["epochs"])
        for party in (HOLDER, B)
        for name in ("epochs-even", "epochs-odd")
    }
    assert stored == {
        (HOLDER, "epochs-odd"): 1,
        (HOLDER, "epochs-even"): 2,
        (B, "epochs-odd"): 3,
        (B, "epochs-even"): 2,
    }
    running.conducted.clear()
    assert (await _resumed(running)).state == "finished"
    asked = [request.round for kind, to, request in running.conducted if kind == "end" and to == B]
    assert sorted(set(asked)) == [0, 2, 3]  # 0: of the steps around the epochs
    network, _ = oracle(tmp_path, TWO, LONGER)
    assert_same_bits(published(tmp_path, TWO), network.weights())


def _lost(party: str, name: str) -> Callable[[Federation], None]:
    return lambda running: _state(running, party, name).unlink()


def _damaged(party: str, name: str) -> Callable[[Federation], None]:
    def damage(running: Federation) -> None:
        path = _state(running, party, name)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)

    return damage


#: What has become of a file, and the error that says so; none: the job goes on from the epoch before.
FATES: dict[str, tuple[Callable[[Federation], None], str]] = {
    "state that the feature party needs": (
        _lost(B, "epochs-even"),
        r"feature-b: .*state/jobs/job: has no state of job job after epoch 2; bring a back-up of it back, or cancel",
    ),
    "state that it does not need": (_lost(B, "epochs-odd"), ""),
    "last state of the label holder": (_lost(HOLDER, "epochs-even"), "has no state of job job after epoch 1"),
    "damaged state of the feature party": (_damaged(B, "epochs-even"), r"feature-b: .*epochs-even\.npz: is damaged"),
    "damaged state of the label holder": (_damaged(HOLDER, "epochs-odd"), r"label-holder: .*epochs-odd\.npz: is dama"),
    "the best weights are made again": (_lost(B, "best"), ""),
    "private key of the feature party": (
        _lost(B, "private"),
        r"feature-b: .*private\.npz: is not there, the key of the private draws of job job; bring a back-up",
    ),
    "damaged private key of the label holder": (_damaged(HOLDER, "private"), r"label-holder: .*private\.npz: is dama"),
}


def test_weights_of_an_attempt_that_broke_off_are_not_published(tmp_path: Path) -> None:
    """The third epoch was the best, and is not when it is trained again: another party has sent other embeddings."""
    store = JobStore(tmp_path / "jobs" / "job", tmp_path / "models" / "job")
    store.claim("1", "d")
    context = cast(StepContext, SimpleNamespace(store=store, job="job", party=B))
    state, second, third = ({"own/weight": np.full(3, value)} for value in (0.0, 2.0, 3.0))
    states = StoredStates(context)
    states.save(2, state, second)
    states.save(3, state, third)
    assert np.load(io.BytesIO(states.shard()))["own/weight"].tolist() == [3.0] * 3
    states = StoredStates(context)
    assert list(states.load(2)) == ["own/weight"]
    states.save(3, state, None)
    with pytest.raises(DataError, match="has no weights of the best epoch of job job; cancel the job and train again"):
        states.shard()


def test_weights_that_are_not_finite_are_not_stored(tmp_path: Path) -> None:
    """The last step of a training may spoil them: no later batch would show it."""
    store = JobStore(tmp_path / "jobs" / "job", tmp_path / "models" / "job")
    states = StoredStates(cast(StepContext, SimpleNamespace(store=store, job="job", party=B)))
    says = "the weights after epoch 1 are not finite; a smaller learning_rate keeps them so"
    with pytest.raises(DataError, match=says) as failure:
        states.save(2, {}, {"weight": np.zeros(2), "bias": np.array([0.0, np.inf])})
    assert failure.value.party == B
    assert not store.folder.exists()


def _keys(seed: int) -> Callable[[], bytes]:
    """Keys that follow from a seed and the party that draws one, in place of those of the operating system."""

    def key() -> bytes:
        life = LIFE.get()
        assert life is not None
        return hashlib.sha256(f"{seed} {life.name}".encode()).digest()

    return key


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parties' disks after a training that nothing disturbs, with private keys of the seed 1."""
    folder = tmp_path_factory.mktemp("undisturbed")

    async def main() -> None:
        running = federation(folder, TWO)
        finished(await running.train(spec(replace(LONGER, reproducible=False), parties=2)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network_job, "new_key", _keys(1))
        run(main())
    return folder


@pytest.mark.parametrize("what", FATES)
async def test_lost_and_damaged_files_are_named(
    what: str, tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or they are made again, and the job ends as if nothing had been lost; a key is never drawn anew."""
    change, says = FATES[what]

    monkeypatch.setattr(network_job, "new_key", _keys(1))
    running = await _stopped_at(tmp_path, AHEAD, replace(LONGER, reproducible=False))
    monkeypatch.setattr(network_job, "new_key", _keys(2))
    kept = {path: path.read_bytes() for path in tmp_path.glob("*/state/jobs/job/*.npz")}
    assert len(kept) == 10
    change(running)
    status = await _resumed(running)
    if says:
        assert status.state in ("interrupted", "failed")
        assert re.search(says, status.error), status.error
        for path, content in kept.items():
            path.write_bytes(content)
        status = await running.resume()
    assert (status.state, status.error) == ("finished", "")
    assert_same_bits(published(tmp_path, TWO), published(undisturbed, TWO))


async def test_with_other_keys_the_network_is_another(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All initial weights come from the private keys, and from nothing that the job says."""
    monkeypatch.setattr(network_job, "new_key", _keys(3))

    running = federation(tmp_path, TWO)
    finished(await running.train(spec(replace(LONGER, reproducible=False), parties=2)))
    await running.close()
    for party, weights in published(undisturbed, TWO).items():
        others = published(tmp_path, TWO)[party]
        assert all(others[name].tobytes() != values.tobytes() for name, values in weights.items())


async def test_early_stopping_goes_on(tmp_path: Path) -> None:
    """Stopped after each epoch but the last: the same best epoch, history and weights."""
    here = world(30, (1, 1), seed=2)
    params = replace(TINY, epochs=12, batch_size=8, learning_rate=0.2, early_stopping_rounds=2, validation_share=0.4)

    running = federation(tmp_path, here)
    _stopping(running, ("store_epoch", HOLDER, 1))
    status = await running.train(spec(params, parties=2))
    stops = 1
    while status.state == "interrupted":
        _stopping(running, ("store_epoch", HOLDER if stops % 2 else B, 1))
        stops += 1
        status = await _resumed(running)
        running.hook = None
    assert (status.state, status.error) == ("finished", "")
    network, _ = oracle(tmp_path, here, params)
    best = network.stopping.best_round
    assert (best, status.used_trees, status.stored_trees) == (2, 3, 5)
    assert stops > status.stored_trees
    assert_same_bits(published(tmp_path, here), network.weights())
    assert len(manifest(running.state(HOLDER))["history"]) == status.stored_trees


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
