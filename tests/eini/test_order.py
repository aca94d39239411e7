"""Steps of a Fed-EINI prediction under either scheme: wrong orders, repeats, kills and bad lines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.campaign.cipher import KeysMade, ciphers
from tests.replay import CLOSING, HERE, JOB, ORACLE, Conducted, Replay, ask, asked
from tests.runtime.test_kill_and_resume import GIVEN_UP_S, REAL, Assassin
from tests.simulator import COORDINATOR, Faults, Federation, run
from tests.worlds import PARTIES, assert_oracles_scores, lattice_tolerance
from treetap.errors import OutOfOrder
from treetap.wire.frame import name_of

pytestmark = pytest.mark.xdist_group("eini-steps")

LABEL_HOLDER, FIRST, LAST = PARTIES
#: Protocol → how far scores may be from the oracle's.
WITHIN = {"eini": 1e-9, "eini-lattice": lattice_tolerance(ORACLE)}


@pytest.fixture(scope="module", params=WITHIN)
def protocol(request: pytest.FixtureRequest) -> str:
    """Which scheme encrypts."""
    return str(request.param)


@pytest.fixture(scope="module")
def prediction(protocol: str, tmp_path_factory: pytest.TempPathFactory) -> Conducted:
    """The steps that a coordinator asks for in such a prediction."""

    async def main() -> Conducted:
        federation = Federation(tmp_path_factory.mktemp("eini") / "federation", HERE.tables)
        await federation.train(JOB)
        before = len(federation.conducted)
        assert (await federation.predict(asked("predict", protocol=protocol))).state == "finished"
        await federation.close()
        return [event for event in federation.conducted[before:] if name_of(event[2]) not in CLOSING]

    return run(main())


#: What may come after a step, for the blocks 0 and 1 that there are.
EXPECTED = {
    "open_model": [("compare_digests", 0), ("send_digest", 0)],
    "compare_digests": [("make_keys", 0)],
    "send_digest": [("take_key", 0)],
    "make_keys": [("score_block", 0)],
    "take_key": [("mask_block", 0)],
}


def test_every_wrong_order_is_refused_and_every_repeat_answered(
    protocol: str, prediction: Conducted, tmp_path: Path
) -> None:
    """After each wave every step of the prediction is asked for: done ones answer as before, early ones are refused."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        replay = Replay(federation, prediction)
        refused = repeated = 0
        async for _ in replay.waves():
            for party in PARTIES:
                if not replay.answers[party]:
                    continue
                done = {
                    (name_of(request), request.round): (request, answer) for request, answer in replay.answers[party]
                }
                last, block = list(done)[-1]
                following = {"score_block": "write_predictions" if block else "score_block", "mask_block": "mask_block"}
                allowed = EXPECTED.get(last, [(following.get(last, ""), 0 if block and party == LABEL_HOLDER else 1)])
                for request in replay.vocabulary(party):
                    step = (name_of(request), request.round)
                    if step in done:
                        again, answer = done[step]
                        assert await ask(federation, party, again) == answer
                        repeated += 1
                    elif step not in allowed:
                        with pytest.raises(OutOfOrder, match=f"^{step[0]} .*cannot come now; expected"):
                            await ask(federation, party, request)
                        refused += 1
        assert refused > 20
        assert repeated > 40
        path = replay.answers[LABEL_HOLDER][-1][1].prediction.written_predictions.path
        assert_oracles_scores(path, ORACLE, HERE.newcomers, 16, WITHIN[protocol])
        await federation.close()

    run(main())


@pytest.mark.second_tier
def test_killed_at_every_message_it_is_resumed(protocol: str, tmp_path: Path) -> None:
    """Its file comes whole or not at all, right after resuming; no key is ever on a disk. Victims take turns."""

    async def main() -> None:
        federation = Federation(tmp_path, HERE.tables)
        await federation.train(JOB)
        before = len(federation.log)
        assert (await federation.predict(asked("faultless", protocol=protocol))).state == "finished"
        for offset in range(len(federation.log) - before):
            job = f"p{offset}"
            victim = (*PARTIES, COORDINATOR)[offset % 4]
            hook = Assassin(federation, victim, len(federation.log) + offset, offset % 3 == 0, offset % 2 == 0)
            hook._asked.update(PARTIES)
            federation.hook = hook
            with ciphers(KeysMade(), transparent=offset % REAL != 0):
                status = await federation.predict(asked(job, protocol=protocol))
                for state in federation.states.values():
                    assert list(state.rglob("secret*")) == []
                if not federation.alive(victim):
                    await asyncio.sleep(GIVEN_UP_S)
                    federation.start(victim)
                assert hook.done
                if status.state != "finished":
                    assert status.state == "interrupted", status.error
                    status = await federation.resume(job)
            assert (status.state, status.error) == ("finished", "")
            assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16, WITHIN[protocol])
        await federation.close()

    run(main())


def test_a_bad_network_changes_nothing(protocol: str, tmp_path: Path) -> None:
    """Lost, late and doubled messages: the oracle's scores."""

    async def main() -> None:
        faults = Faults(seed=3)
        federation = Federation(tmp_path, HERE.tables, faults=faults)
        await federation.train(JOB)
        faults.drop = faults.lose_reply = faults.double = 0.1
        faults.delay_s, faults.late_s = 0.5, 3.0
        for number in range(3):
            status = await federation.predict(asked(f"p{number}", protocol=protocol))
            assert (status.state, status.error) == ("finished", "")
            assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16, WITHIN[protocol])
        await federation.close()

    run(main())
