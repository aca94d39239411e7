"""Steps of a prediction of a split network: wrong orders, repeats, kills."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from party.runtime.step_order import id_of, table_in
from party.splitnn import scoring_feature_party, scoring_label_holder
from tests.replay import CLOSING, Conducted, Replay, ask
from tests.serving.served import config
from tests.simulator import COORDINATOR, Federation, Message, run
from tests.splitnn.jobs import PARAMS, spec
from tests.splitnn.networks import federation
from tests.splitnn.networks import oracle_scores as expected
from tests.splitnn.test_prediction import FRESH, HERE, HOLDER, B, C
from tests.splitnn.test_serving import answer, serve
from tests.step_tables import Asked, Line, TableReader, lines_of, taken
from tests.worlds import PARTIES
from treetap.errors import OutOfOrder
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

pytestmark = pytest.mark.second_tier

OF_HOLDER, OF_FEATURE_PARTY = table_in(scoring_label_holder), table_in(scoring_feature_party)

#: Virtual seconds after which everybody who waited for a dead process has given up.
GIVEN_UP_S = 200.0


def _reader(name: str) -> TableReader:
    if name == HOLDER:
        return TableReader(OF_HOLDER, "compare_digests")
    return TableReader(OF_FEATURE_PARTY, "send_digest")


async def _recorded(running: Federation, job: str) -> Conducted:
    """The steps of a prediction in three blocks, under the name of another job."""
    before = len(running.conducted)
    assert (await running.predict(predict_request(model="job", block=4))).state == "finished"
    found: Conducted = []
    for kind, to, request in running.conducted[before:]:
        if name_of(request) not in CLOSING:
            copy = control_pb2.StepRequest.FromString(request.SerializeToString())
            copy.job = job
            found.append((kind, to, copy))
    return found


def test_every_wrong_order_is_refused_and_every_repeat_answered(tmp_path: Path) -> None:
    """After each wave every step of the prediction is asked for: done ones answer as before, early ones are refused."""

    async def main() -> None:
        running = federation(tmp_path, HERE)
        assert (await running.train(spec(PARAMS))).state == "finished"
        replay = Replay(running, await _recorded(running, "again"))
        refused = repeated = 0
        async for _ in replay.waves():
            for name in PARTIES:
                if not replay.answers[name]:
                    continue
                done = {id_of(request): (request, result) for request, result in replay.answers[name]}
                allowed = _reader(name).after(list(done)[-1])
                for request in replay.vocabulary(name):
                    if id_of(request) in done:
                        again, result = done[id_of(request)]
                        assert await ask(running, name, again) == result
                        repeated += 1
                    elif id_of(request) not in allowed:
                        with pytest.raises(OutOfOrder, match=f"^{name_of(request)} .*cannot come now; expected"):
                            await ask(running, name, request)
                        refused += 1
        assert refused > 10
        assert repeated > 30
        path = replay.answers[HOLDER][-1][1].prediction.written_predictions.path
        found = pq.read_table(path).column("score").to_numpy()
        assert np.abs(found - expected(tmp_path, HERE, PARAMS)[:, 0]).max() < 1e-6
        await running.close()

    run(main())


def test_every_line_is_taken(tmp_path: Path) -> None:
    """A prediction in blocks and a served model take every line of the tables, and no other step."""
    lines: dict[str, set[Line]] = defaultdict(set)

    async def main() -> None:
        running = federation(tmp_path, HERE, serve={HOLDER: config()})
        assert (await running.train(spec(PARAMS))).state == "finished"
        before = len(running.conducted)
        assert (await running.predict(predict_request(model="job", block=4))).state == "finished"
        await serve(running, "job", "s")
        for _ in range(2):
            await answer(running)
            await asyncio.sleep(6)
        steps: defaultdict[tuple[str, str], list[Asked]] = defaultdict(list)
        for kind, to, request in running.conducted[before:]:
            if kind == "end" and name_of(request) not in CLOSING:
                steps[to, request.job].append(id_of(request))
        for (name, _), done in steps.items():
            lines[name] |= taken(_reader(name), done)
        await running.close()

    run(main())
    assert lines[HOLDER] == lines_of(OF_HOLDER)
    assert lines[B] == lines[C] == lines_of(OF_FEATURE_PARTY)
    for table in (OF_HOLDER, OF_FEATURE_PARTY):
        assert {line.step for line in lines_of(table)} <= set(table)


def test_killed_at_any_message_it_is_resumed(tmp_path: Path) -> None:
    """Victims take turns, and are back at once or after a while: all scores are those of an undisturbed prediction."""

    async def main() -> None:
        running = federation(tmp_path, HERE)
        assert (await running.train(spec(PARAMS))).state == "finished"
        before = len(running.log)
        undisturbed = await running.predict(predict_request(model="job", block=4))
        whole = pq.read_table(undisturbed.predictions).column("score").to_numpy()
        for offset in range(0, len(running.log) - before, 3):
            victim, at = (*PARTIES, COORDINATOR)[offset % 4], len(running.log) + offset
            killed = []

            def hook(message: Message, victim: str = victim, at: int = at, killed: list[Any] = killed) -> None:
                if message.number >= at and not killed:
                    killed.append(message)
                    running.kill(victim)
                    if at % 2:
                        running.start(victim)

            running.hook = hook
            status = await running.predict(predict_request(model="job", job=f"p{offset}", block=4))
            if not running.alive(victim):
                await asyncio.sleep(GIVEN_UP_S)
                running.start(victim)
            assert killed
            if status.state != "finished":
                assert status.state == "interrupted", status.error
                status = await running.resume(f"p{offset}")
            assert (status.state, status.error) == ("finished", "")
            assert (pq.read_table(status.predictions).column("score").to_numpy() == whole).all()
        await running.close()

    run(main())


def test_killed_for_good_at_any_message_it_goes_on(tmp_path: Path) -> None:
    """By degrade every record has the score of all parties, or that without the killed one and its share."""
    kinds = set()

    async def main() -> None:
        running = federation(tmp_path, HERE)
        assert (await running.train(spec(PARAMS))).state == "finished"
        whole, without = (expected(tmp_path, HERE, PARAMS, *away)[:, 0] for away in ((), (B,)))
        before = len(running.log)
        asked = {"model": "job", "block": 4, "away_policy": "degrade", "away_deadline_s": 5.0}
        assert (await running.predict(predict_request(**asked))).state == "finished"
        for offset in range(0, len(running.log) - before, 2):
            at = len(running.log) + offset

            def hook(message: Message, at: int = at) -> None:
                if message.number == at and not message.served:
                    running.kill(B)

            running.hook = hook
            status = await running.predict(predict_request(job=f"p{offset}", **asked))
            assert (status.state, status.error) == ("finished", "")
            table = pq.read_table(status.predictions)
            guessed, scores = (table.column(name).to_numpy() for name in ("guessed", "score"))
            assert set(guessed) <= {0.0, 0.5}
            assert np.abs(scores - np.where(guessed == 0.0, whole, without)).max() < 1e-6
            kinds.update((float(share), list(status.away) == [B]) for share in guessed)
            running.hook = None
            running.start(B)
        await running.close()

    run(main())
    assert kinds == {(0.0, True), (0.0, False), (0.5, True)}
    assert FRESH > 8  # three blocks
