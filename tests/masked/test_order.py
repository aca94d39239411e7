"""Steps of a masked prediction: wrong orders, repeats, kills, a bad network, and parties that do not answer."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from party.runtime.step_order import id_of
from tests.blindness.observed import Observed
from tests.masked.predictions import implied_scores, predicted, scores_of, trained
from tests.pivodl.federations import transparent
from tests.pivodl.jobs import DEEP, fitting
from tests.replay import CLOSING, Conducted, Replay, ask
from tests.simulator import COORDINATOR, Faults, Message, run
from tests.step_tables import Asked, Line, TableReader, lines_of, table_at, taken
from tests.worlds import PARTIES, world
from treetap.errors import ConfigError, OutOfOrder
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")
FIRST, RECIPIENT, LAST = PARTIES
HERE = fitting(world(30, (1, 1, 1), seed=25, fresh=6), DEEP)
#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0


def _reader(name: str) -> TableReader:
    if name == RECIPIENT:
        return TableReader(table_at("masked.recipient"), "compare_digests")
    return TableReader(table_at("masked.member"), "send_digest")


async def _recorded(federation: Observed, job: str) -> Conducted:
    """The steps of a prediction in two blocks, under the name of another job."""
    before = len(federation.conducted)
    await predicted(federation, recipient=RECIPIENT, block=3)
    found: Conducted = []
    for kind, to, request in federation.conducted[before:]:
        if name_of(request) not in CLOSING:
            copy = control_pb2.StepRequest.FromString(request.SerializeToString())
            copy.job = job
            found.append((kind, to, copy))
    return found


class _Killing:
    """Kills a process at the first message from a number on."""

    def __init__(self, federation: Observed, victim: str, number: int, *, back_at_once: bool) -> None:
        self._federation, self._victim, self._number, self._back_at_once = federation, victim, number, back_at_once
        self.done = False

    def __call__(self, message: Message) -> None:
        if not self.done and message.number >= self._number:
            self.done = True
            self._federation.kill(self._victim)
            if self._back_at_once:
                self._federation.start(self._victim)


def test_every_wrong_order_is_refused_and_every_repeat_answered(tmp_path: Path) -> None:
    """After each wave every step of the prediction is asked for: done ones answer as before, early ones are refused."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        events = await _recorded(federation, "again")
        replay = Replay(federation, events)
        refused = repeated = 0
        lines: dict[str, set[Line]] = {name: set() for name in PARTIES}
        async for _ in replay.waves():
            for name in PARTIES:
                if not replay.answers[name]:
                    continue
                done = {id_of(request): (request, answer) for request, answer in replay.answers[name]}
                allowed = _reader(name).after(list(done)[-1])
                for request in replay.vocabulary(name):
                    if id_of(request) in done:
                        again, answer = done[id_of(request)]
                        assert await ask(federation, name, again) == answer
                        repeated += 1
                    elif id_of(request) not in allowed:
                        with pytest.raises(OutOfOrder, match=f"^{name_of(request)} .*cannot come now; expected"):
                            await ask(federation, name, request)
                        refused += 1
        for name in PARTIES:
            steps: list[Asked] = [id_of(request) for request, _ in replay.answers[name]]
            lines[name] |= taken(_reader(name), steps)
        assert lines[RECIPIENT] == lines_of(table_at("masked.recipient"))
        assert lines[FIRST] == lines_of(table_at("masked.member"))
        assert refused > 20
        assert repeated > 40
        path = replay.answers[RECIPIENT][-1][1].prediction.written_predictions.path
        assert (scores_of(path) == implied_scores(federation.states, HERE)).all()
        await federation.close()

    with transparent():
        run(main())


def test_killed_at_any_message_it_is_resumed(tmp_path: Path) -> None:
    """Victims take turns: the party is back at once or after a while; the scores are the same, no key is on a disk."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        expected = implied_scores(federation.states, HERE)
        before = len(federation.log)
        await predicted(federation, recipient=RECIPIENT, block=3)
        for offset in range(0, len(federation.log) - before, 5):
            victim, at = (*PARTIES, COORDINATOR)[offset % 4], len(federation.log) + offset
            killing = _Killing(federation, victim, at, back_at_once=offset % 2 == 0)
            federation.hook = killing
            job = f"p{offset}"
            request = predict_request(model="job", job=job, recipient=RECIPIENT, block=3)
            status = await federation.predict(request)
            if not federation.alive(victim):
                await asyncio.sleep(GIVEN_UP_S)
                federation.start(victim)
            assert killing.done
            assert list(tmp_path.rglob("*mask*")) == []
            if status.state != "finished":
                assert status.state == "interrupted", status.error
                status = await federation.resume(job)
            assert (status.state, status.error) == ("finished", "")
            assert (scores_of(status.predictions) == expected).all()
        await federation.close()

    with transparent():
        run(main())


def test_a_bad_network_changes_nothing(tmp_path: Path) -> None:
    """Lost, late and doubled messages: the same scores."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        faults = federation.faults = Faults(seed=3)
        faults.drop = faults.lose_reply = faults.double = 0.1
        faults.delay_s, faults.late_s = 0.5, 3.0
        status = await predicted(federation, block=3)
        assert (scores_of(status.predictions) == implied_scores(federation.states, HERE)).all()
        await federation.close()

    with transparent():
        run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("word", ["exchange_mask_keys", "pass_records", "send_shares"])
@pytest.mark.parametrize("policy", ["fail", "retry"])
def test_a_party_that_drops_out_is_named(policy: str, word: str, tmp_path: Path) -> None:
    """Without its share there is no sum: the error names it, no file is written; retry gives it up later."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        expected = implied_scores(federation.states, HERE)

        def kill(message: Message) -> None:
            if (message.word, message.to) == (word, LAST) and federation.alive(LAST):
                federation.kill(LAST)

        federation.hook = kill
        more = {"away_policy": policy, "away_deadline_s": 5.0 if policy == "retry" else 0.0}
        request = predict_request(model="job", job="p", block=3, **more)
        status = await federation.predict(request)
        assert status.state == "interrupted"
        assert LAST in status.error
        assert not list((federation.state(FIRST) / "predictions").iterdir())
        federation.hook = None
        await asyncio.sleep(GIVEN_UP_S)
        federation.start(LAST)
        status = await federation.resume("p")
        assert (status.state, status.error) == ("finished", "")
        assert (scores_of(status.predictions) == expected).all()
        await federation.close()

    with transparent():
        run(main())


def test_no_sum_without_a_party(tmp_path: Path) -> None:
    """Going on without a party is refused at once, with the reason."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        with pytest.raises(ConfigError, match=r"masks cancel only in the sum over all parties.*use retry"):
            await federation.predict(predict_request(model="job", away_policy="degrade", away_deadline_s=5.0))
        await federation.close()

    with transparent():
        run(main())


def test_an_attempt_has_masks_of_its_own(tmp_path: Path) -> None:
    """A block that is scored again after a kill has other masks; within an attempt a share is sent once."""

    async def main() -> None:
        federation = await trained(tmp_path, HERE, DEEP)
        killed = []

        def kill(message: Message) -> None:
            if (message.word, message.served) == ("add_shares", True) and not killed:
                killed.append(message)
                federation.kill(FIRST)
                federation.start(FIRST)

        federation.hook = kill
        status = await federation.predict(predict_request(model="job", job="p"))
        if status.state != "finished":
            status = await federation.resume("p")
        assert (status.state, status.error) == ("finished", "")
        shares = {
            (sender, message.attempt): message.protocol.masked.score_shares.values
            for sender, _, step, message in federation.crossed
            if step == "score_shares"
        }
        assert {attempt for _, attempt in shares} == {1, 2}
        for sender in (RECIPIENT, LAST):
            first, second = (np.frombuffer(shares[sender, attempt], dtype="<u8") for attempt in (1, 2))
            assert not np.isin(first, second).any()
        await federation.close()

    with transparent():
        run(main())
