"""A feature party that does not answer during a prediction: who it is, waiting for it, and going on without it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle import oracle_predict, oracle_without
from tests.replay import HERE, JOB, ORACLE, PARAMS
from tests.simulator import Federation, Message
from tests.worlds import PARTIES, assert_oracles_scores, lattice_tolerance, spec
from treetap.protocols.prediction import predict_request
from treetap.wire.frame import name_of
from treetap.wire.v2 import jobs_pb2

LABEL_HOLDER, B, C = PARTIES
EXACT = [score for (score,) in oracle_predict(ORACLE, HERE.newcomers)]
N = len(EXACT)


def request(job: str, policy: str, **more: object) -> jobs_pb2.PredictRequest:
    """Six records in blocks of two."""
    given: dict[str, object] = {"away_policy": policy, "away_deadline_s": 0 if policy == "fail" else 12, "block": 2}
    return predict_request(**{"model": "job", "job": job, **given, **more})  # type: ignore[arg-type]


def killing(federation: Federation, victim: str, word: str, tree: int, *, back: bool) -> list[Message]:
    """Kill a party when the request `word` for a block reaches it, once; returns where that is noted."""
    done: list[Message] = []

    def hook(message: Message) -> None:
        if done or message.served or (message.word, message.to) != (word, victim):
            return
        asked = next(r for kind, to, r in reversed(federation.conducted) if (kind, to) == ("begin", victim))
        if asked.round == tree:
            done.append(message)
            federation.kill(victim)
            if back:
                federation.start(victim)

    federation.hook = hook
    return done


def written(status: jobs_pb2.JobStatus) -> pa.Table:
    """The file of a finished prediction."""
    assert (status.state, status.error) == ("finished", "")
    return pq.read_table(status.predictions)


def blocks_of(federation: Federation, job: str, attempt: int) -> list[int]:
    """The blocks that were begun in an attempt."""
    found = [
        asked.round
        for kind, _, asked in federation.conducted
        if kind == "begin" and asked.job == job and asked.attempt == attempt and asked.stage == 0
        if name_of(asked) == "ask_directions" or name_of(asked) == "score_block"
    ]
    return sorted(set(found))


async def test_degrade_in_the_middle(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Blocks scored before stay exact; later records go both ways at its nodes; everybody left is told who is away."""
    caplog.set_level(logging.WARNING)

    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    done = killing(federation, B, "answer_directions", 1, back=False)
    status = await federation.predict(request("p", "degrade"))
    assert done
    table = written(status)
    assert (list(status.away), status.attempt) == ([B], 2)
    scores, shares = oracle_without(ORACLE, HERE.newcomers, {B})
    assert table.column("score").to_pylist() == pytest.approx(EXACT[:2] + [s for (s,) in scores[2:]], abs=1e-9)
    assert table.column("guessed").to_pylist() == pytest.approx([0.0, 0.0, *shares[2:]], abs=1e-12)
    assert max(shares[2:]) > 0
    assert blocks_of(federation, "p", 2) == [0, 1]
    second = [(to, r) for _, to, r in federation.conducted if r.attempt == 2 and r.job == "p"]
    told = {to: list(r.prediction.open_model.away) for to, r in second if name_of(r) == "open_model"}
    assert told == {LABEL_HOLDER: [B], C: [B]}
    assert sum("goes on without feature-b, which does not answer" in text for text in caplog.messages) == 2
    assert list((federation.state(LABEL_HOLDER) / "jobs").iterdir()) == []
    assert list(federation.jobs.status("p")[0].away) == [B]


@pytest.mark.second_tier
@pytest.mark.parametrize("alignment", ["sorted-ids", "psi"])
@pytest.mark.parametrize("away", [[B], [B, C]], ids=["one", "all but the label holder"])
async def test_degrade_from_the_start(away: list[str], alignment: str, tmp_path: Path) -> None:
    """Records are aligned among those who are there, be it the label holder alone."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(spec(PARAMS, obfuscation="standard"))
    await federation.train(spec(PARAMS, obfuscation="standard", alignment=alignment), "other")
    for party in away:
        federation.kill(party)
    status = await federation.predict(request("p", "degrade", model="other" if alignment == "psi" else "job"))
    table = written(status)
    assert sorted(status.away) == away
    if alignment == "sorted-ids":  # psi orders the training records by chance, so that tied splits differ
        scores, shares = oracle_without(ORACLE, HERE.newcomers, set(away))
        assert table.column("score").to_pylist() == pytest.approx([s for (s,) in scores], abs=1e-9)
        assert table.column("guessed").to_pylist() == pytest.approx(shares, abs=1e-12)
    assert table.column("id").to_pylist() == [f"r{16 + i:05d}" for i in range(N)]


@pytest.mark.second_tier
async def test_degrade_whenever_it_happens(tmp_path: Path) -> None:
    """Killed for good at every message: every record has its exact score, or the one without the party, and says so."""
    scores, shares = oracle_without(ORACLE, HERE.newcomers, {B})
    kinds = set()

    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    before = len(federation.log)
    table = written(await federation.predict(request("whole", "degrade")))
    assert table.column("guessed").to_pylist() == [0.0] * N
    for offset in range(len(federation.log) - before):
        at = len(federation.log) + offset

        def hook(message: Message, at: int = at) -> None:
            if message.number == at and not message.served:
                federation.kill(B)

        federation.hook = hook
        status = await federation.predict(request(f"p{offset}", "degrade"))
        table = written(status)
        rows = zip(table.column("score").to_pylist(), table.column("guessed").to_pylist(), strict=True)
        for k, (score, guessed) in enumerate(rows):
            exact = guessed == 0.0
            kinds.add((exact, list(status.away) == [B]))
            assert score == pytest.approx(EXACT[k] if exact else scores[k][0], abs=1e-9)
            assert guessed == pytest.approx(0.0 if exact else shares[k], abs=1e-12)
        federation.hook = None
        federation.start(B)
    await federation.close()
    assert kinds == {(True, True), (True, False), (False, True)}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", ["interactive", "eini", "eini-lattice"])
async def test_retry_goes_on_with_the_records_without_a_score(protocol: str, tmp_path: Path) -> None:
    """A party that is back within its deadline, restarted without the job, is asked again; no block is done twice."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    word = "answer_directions" if protocol == "interactive" else "mask_block"
    within = lattice_tolerance(ORACLE) if protocol == "eini-lattice" else 1e-9
    for job, pause in (("at-once", 0.0), ("later", 15.0)):
        done = killing(federation, B, word, 1, back=not pause)
        asked = request(job, "retry", protocol=protocol, key_bits=1024 if protocol == "eini" else 0)
        predicting = asyncio.ensure_future(federation.predict(asked))
        while pause and not done:
            await asyncio.sleep(0.5)
        await asyncio.sleep(pause)
        if pause:
            federation.start(B)
        status = await predicting
        assert done
        table = written(status)
        assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16, within)
        assert "guessed" not in table.column_names
        assert (list(status.away), status.attempt) == ([], 2)
        assert blocks_of(federation, job, 1) == [0, 1]
        assert blocks_of(federation, job, 2) == [0, 1]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("policy", ["fail", "retry"])
async def test_who_is_away_is_said_and_resuming_goes_on(policy: str, tmp_path: Path) -> None:
    """Without the party for longer than its deadline the prediction is interrupted, by its name; scored blocks stay."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    killing(federation, B, "answer_directions", 2, back=False)
    status = await federation.predict(request("p", policy))
    assert status.state == "interrupted"
    assert B in status.error
    assert C not in status.error
    assert "treetap resume p" in status.error
    assert ("feature-b did not answer for 12 s" in status.error) == (policy == "retry")
    assert len(list((federation.state(LABEL_HOLDER) / "jobs" / "p").glob("block-*"))) == 2
    await asyncio.sleep(200)
    federation.start(B)
    status = await federation.resume("p")
    assert_oracles_scores(status.predictions, ORACLE, HERE.newcomers, 16)
    assert blocks_of(federation, "p", status.attempt) == [0]
    assert list((federation.state(LABEL_HOLDER) / "jobs").iterdir()) == []


async def test_a_table_that_changed_is_not_mixed_with_scores_of_the_old_one(tmp_path: Path) -> None:
    """Resuming asks for the table back; cancelling drops the scores."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    killing(federation, B, "answer_directions", 1, back=False)
    assert (await federation.predict(request("p", "fail"))).state == "interrupted"
    federation.start(B)
    path = tmp_path / LABEL_HOLDER / "predict.parquet"
    table = pq.read_table(path)
    place = table.column_names.index("r0")
    pq.write_table(table.set_column(place, "r0", pa.array(np.zeros(len(table)))), path)
    status = await federation.resume("p")
    assert status.state == "interrupted"
    assert "is not the table of which records have been predicted in an earlier attempt" in status.error
    await federation.jobs.cancel("p")
    assert list((federation.state(LABEL_HOLDER) / "jobs").iterdir()) == []


async def test_a_label_holder_that_is_away_ends_it(tmp_path: Path) -> None:
    """Nobody else has the weights."""
    federation = Federation(tmp_path, HERE.tables)
    await federation.train(JOB)
    killing(federation, LABEL_HOLDER, "ask_directions", 1, back=False)
    status = await federation.predict(request("p", "degrade"))
    assert status.state == "interrupted"
    assert "label-holder did not answer for 12 s" in status.error
    assert list(status.away) == []
