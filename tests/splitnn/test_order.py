"""Every step at every moment: what may not come is refused; every line of the tables of steps is taken in some job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from party.runtime.step_order import StepTable, id_of, table_of
from party.splitnn import feature_party, label_holder
from tests.growth.test_order import Answered, every_step_now
from tests.growth.test_step_tables import attempts
from tests.replay import HERE, Replay, ask, steps_of
from tests.simulator import Federation, Message, run
from tests.splitnn.networks import assert_same_bits, federation, oracle, published
from tests.splitnn.small_job import JOB, PARAMS, assert_network
from tests.step_tables import Asked, Line, TableReader, lines_of, taken
from tests.worlds import PARTIES, spec
from treetap.errors import OutOfOrder
from treetap.wire.v2 import control_pb2

pytestmark = pytest.mark.second_tier

HOLDER, B, C = PARTIES
OF_HOLDER, OF_FEATURE_PARTY = table_of(label_holder.LabelHolder), table_of(feature_party.FeatureParty)
TABLES: dict[str, StepTable] = {HOLDER: OF_HOLDER, B: OF_FEATURE_PARTY, C: OF_FEATURE_PARTY}


def _expects(last: Answered) -> list[Asked]:
    """The transition table of every party, written down once more; two epochs."""
    word, t, _ = id_of(last[0])
    return {
        "prepare": [("compare_digests", 0, 0), ("send_digest", 0, 0)],
        "compare_digests": [("fit_inputs", 0, 0)],
        "send_digest": [("fit_inputs", 0, 0)],
        "fit_inputs": [("train_epoch", 0, 0), ("publish", 0, 0)],
        "train_epoch": [("store_epoch", t, 0)],
        "store_epoch": [("train_epoch", t + 1, 0), ("publish", 0, 0)],
        "publish": [],
    }[word]


def test_every_wrong_order_is_refused(tmp_path: Path) -> None:
    """After each wave of steps every other step of the job is asked for; the network is that of one graph."""

    async def main() -> None:
        once = federation(tmp_path / "once", HERE)
        events = await steps_of(once, JOB)
        await once.close()
        running = federation(tmp_path / "again", HERE)
        replay = Replay(running, events)
        refused = 0
        async for _ in replay.waves():
            for party in PARTIES:
                if replay.answers[party]:
                    refused += await every_step_now(replay, party, _expects)
        assert refused > 50
        assert_network(running.states)
        await running.close()

    run(main())


def _break_off(running: Federation, step: str, to: str, round: int | None = None, *, served: bool = False) -> None:
    """Kill the party that a step, of a round, goes to, once, before or after the step."""

    def hook(message: Message) -> None:
        if (message.word, message.to, message.served) != (step, to, served):
            return
        if round in (None, running.jobs.status("job")[0].round):
            running.hook = None
            running.kill(to)

    running.hook = hook


def test_every_line_is_taken(tmp_path: Path) -> None:
    """Interrupted in an epoch, while models are published, when all epochs are stored, and after early stopping."""
    lines: dict[str, set[Line]] = {name: set() for name in PARTIES}
    stopping = replace(PARAMS, epochs=9, learning_rate=5.0, early_stopping_rounds=1, validation_share=0.4)

    def follow(running: Federation) -> None:
        for name in PARTIES:
            aligning = "compare_digests" if name == HOLDER else "send_digest"
            for steps in attempts(running, name):
                lines[name] |= taken(TableReader(TABLES[name], aligning, resumes=range(9)), steps)

    async def main() -> None:
        running = federation(tmp_path / "twice", HERE)
        for step, victim, round, served in (
            ("train_epoch", B, 2, False),
            ("store_epoch", HOLDER, 2, True),
            ("publish", C, None, False),
            ("publish", HOLDER, None, False),
        ):
            _break_off(running, step, victim, round, served=served)
            going = running.resume() if running.conducted else running.train(JOB)
            assert (await going).state == "interrupted"
            running.start(victim)
        assert (await running.resume()).state == "finished"
        assert_network(running.states)
        follow(running)
        await running.close()
        early = federation(tmp_path / "early", HERE)
        assert (await early.train(spec(stopping), "at-once")).state == "finished"
        _break_off(early, "publish", B)
        assert (await early.train(spec(stopping))).state == "interrupted"
        early.start(B)
        status = await early.resume()
        assert (status.state, status.used_trees + 1) == ("finished", status.stored_trees)
        assert status.stored_trees < 9
        network, _ = oracle(early.folder, HERE, stopping)
        assert_same_bits(published(early.folder, HERE), network.weights())
        follow(early)
        await early.close()

    run(main())
    assert lines[HOLDER] == lines_of(OF_HOLDER)
    assert lines[B] | lines[C] == lines_of(OF_FEATURE_PARTY)


@pytest.mark.parametrize(
    "table",
    [OF_HOLDER, OF_FEATURE_PARTY],
    ids=["label holder", "feature party"],
)
def test_every_step_has_a_row(table: StepTable) -> None:
    """Every step that may come has a row of its own, so no step is a dead end."""
    assert {line.step for line in lines_of(table)} <= set(table)


@pytest.mark.parametrize("party", [HOLDER, B])
def test_a_coordinator_cannot_choose_the_best_epoch(party: str, tmp_path: Path) -> None:
    """Without early stopping each epoch is the best so far: another word is refused, and no state is stored."""

    async def main() -> None:
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
        await running.close()

    run(main())


def test_an_epoch_that_is_not_stored_is_not_published(tmp_path: Path) -> None:
    """The label holder refuses to publish before the last epoch, and says how many are stored."""

    async def main() -> None:
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
        await running.close()

    run(main())
