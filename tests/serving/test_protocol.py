"""A served model answers clients with the oracle's scores, many of them in one round."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.replay import HERE, JOB
from tests.serving.served import (
    EXACT,
    IDS,
    LABEL_HOLDER,
    WAYS,
    B,
    ask,
    config,
    expect,
    scores,
    serve,
    serving,
    tolerance,
    without,
)
from tests.simulator import Federation, failed
from tests.worlds import spec, world
from treetap.errors import BadInput, Overloaded, Refused, Silent, UnknownJob
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.transcript import summarise
from treetap.wire.v2 import serving_pb2


def rounds(federation: Federation, job: str = "s") -> int:
    """Blocks that were begun."""
    return len(
        {
            (asked.attempt, asked.round)
            for kind, _, asked in federation.conducted
            if kind == "begin"
            and asked.job == job
            and name_of(asked) in ("ask_directions", "route_block", "score_block")
        }
    )


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", WAYS)
async def test_concurrent_requests_are_one_round(way: str, tmp_path: Path) -> None:
    """Thirty requests that come at once, five about each record, get the oracle's scores from one round of six."""
    async with serving(tmp_path, WAYS[way]) as federation:
        answers = await asyncio.gather(*(ask(federation, IDS[k % 6]) for k in range(30)))
        within = tolerance(way)
        assert scores(answers) == pytest.approx([EXACT[k % 6] for k in range(30)], abs=within)
        assert rounds(federation) == 1
        again = await asyncio.gather(ask(federation, *IDS), ask(federation, IDS[3], model="job"))
        assert [each.scores[0] for each in again[0].predictions] == pytest.approx(EXACT, abs=within)
        assert [each.id for each in again[0].predictions] == IDS
        assert (again[1].model, again[1].job) == ("job", "s")
        assert rounds(federation) == 2
        await asyncio.sleep(6)
        (status,) = federation.jobs.status("s")
        assert (status.kind, status.state, status.phase) == ("serve", "running", "serve")
        told = status.serving
        assert (told.requests, told.refused, told.records, told.rounds) == (32, 0, 12, 2)
        assert 0 <= told.p50_s <= told.p99_s < 1
        assert told.records_per_s == pytest.approx(12 / 60)


async def test_an_answer_is_a_line_of_the_file_of_predictions(tmp_path: Path) -> None:
    """Prediction, probability and score of two classes are those that a prediction of the table writes."""
    async with serving(tmp_path, {}) as federation:
        answer = await ask(federation, *IDS)
        status = await federation.predict(predict_request(model="job"))
        table = pq.read_table(status.predictions)
        for row, found in zip(table.to_pylist(), answer.predictions, strict=True):
            assert (row["id"], str(row["prediction"])) == (found.id, found.label)
            assert ([row["probability_1"]], [row["score"]]) == (list(found.probabilities), list(found.scores))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", ["multi:softprob", "reg:squarederror"])
async def test_classes_and_values(objective: str, tmp_path: Path) -> None:
    """With more classes there is a probability and a score for each, of a regression a value and a score."""
    here = world(40, (1, 2), objective=objective, classes=3, fresh=4)
    params = BoostingParams(objective=objective, n_estimators=1, max_depth=2, max_bin=4)

    federation = Federation(tmp_path, here.tables, serve={LABEL_HOLDER: config()})
    assert (await federation.train(spec(params, 2))).state == "finished"
    await serve(federation)
    (found,) = (await ask(federation, "r00041")).predictions
    status = await federation.predict(predict_request(model="job"))
    row = pq.read_table(status.predictions).to_pylist()[1]
    if objective == "reg:squarederror":
        assert (found.WhichOneof("prediction"), found.value) == ("value", row["prediction"])
        assert (list(found.scores), list(found.probabilities)) == ([row["score"]], [])
    else:
        described = federation.node(LABEL_HOLDER).served_models.describe("app")
        assert found.label == str(row["prediction"])
        assert list(found.scores) == [row[f"score_{name}"] for name in described.classes]
        assert list(found.probabilities) == [row[f"probability_{name}"] for name in described.classes]


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["interactive", "eini", "eini-lattice"])
async def test_ids_that_cannot_be_predicted_do_not_fail_a_round(way: str, tmp_path: Path) -> None:
    """An id that the label holder lacks, and one that another party lacks, each say so; the rest is answered."""
    tables = without(HERE.tables, B, IDS[2:3])

    federation = Federation(tmp_path, tables, serve={LABEL_HOLDER: config()})
    job = spec(BoostingParams(n_estimators=1, max_depth=2, max_bin=3), alignment="psi")
    assert (await federation.train(job)).state == "finished"
    await serve(federation, **WAYS[way])
    answer = await ask(federation, IDS[0], "nobody", IDS[2], IDS[0])
    states = [each.status for each in answer.predictions]
    assert states == [
        serving_pb2.PREDICTED,
        serving_pb2.UNKNOWN_ID,
        serving_pb2.NOT_COMMON,
        serving_pb2.PREDICTED,
    ]
    assert answer.predictions[0] == answer.predictions[3]
    assert not answer.predictions[1].scores
    before = rounds(federation)
    (unknown,) = (await ask(federation, "nobody")).predictions
    assert unknown.status == serving_pb2.UNKNOWN_ID
    assert rounds(federation) == before == 1
    assert federation.node(LABEL_HOLDER).served_models.describe("app").records == 5


async def test_a_request_of_more_records_than_a_block_takes_several_rounds(tmp_path: Path) -> None:
    """With blocks of four, six records are two rounds and one answer; the window does not hold a full block back."""
    async with serving(tmp_path, {"block": 4}, window_ms=5000) as federation:
        began = asyncio.get_running_loop().time()
        whole, one = await asyncio.gather(ask(federation, *IDS), ask(federation, IDS[0]))
        assert [each.scores[0] for each in whole.predictions] == pytest.approx(EXACT, abs=1e-9)
        assert one.predictions[0] == whole.predictions[0]
        assert rounds(federation) == 2
        assert asyncio.get_running_loop().time() - began < 5.5


async def test_a_round_waits_for_those_who_may_ask_again(tmp_path: Path) -> None:
    """A client alone waits for nobody. Once two have asked at the same time a round waits for two, until none has come
    for a tenth of the window, and the one after that is for one again.
    """
    async with serving(tmp_path, {}, window_ms=5000) as federation:

        async def seconds(*ids: str) -> float:
            began = asyncio.get_running_loop().time()
            await asyncio.gather(*(ask(federation, value) for value in ids))
            return asyncio.get_running_loop().time() - began

        assert [await seconds(IDS[0]) for _ in range(3)] == pytest.approx([0.0] * 3, abs=0.1)
        assert rounds(federation) == 3
        assert await seconds(IDS[0], IDS[1]) == pytest.approx(0.0, abs=0.1)
        before = rounds(federation)
        assert await seconds(IDS[0], IDS[1]) == pytest.approx(0.0, abs=0.1)
        assert rounds(federation) == before + 1
        assert await seconds(IDS[0]) == pytest.approx(0.5, abs=0.2)
        assert await seconds(IDS[0]) == pytest.approx(0.0, abs=0.1)


async def test_the_queue_is_bounded(tmp_path: Path) -> None:
    """Beyond `queue` records a request is refused at once; a request that was let in is answered all the same."""
    async with serving(tmp_path, {}, queue=4, most_ids=3, window_ms=500) as federation:
        await expect(federation, 3)
        first, second = ask(federation, *IDS[:3]), ask(federation, IDS[3])
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="4 records wait for a prediction already, at most 4 may"):
            await ask(federation, IDS[4])
        assert len((await first).predictions) == 3
        assert scores([await second]) == pytest.approx([EXACT[3]], abs=1e-9)
        assert scores([await ask(federation, IDS[4])]) == pytest.approx([EXACT[4]], abs=1e-9)
        with pytest.raises(BadInput, match=r"4 ids: a request has 1 to 3 of them \(most_ids\)"):
            await ask(federation, *IDS[:4])
        with pytest.raises(BadInput, match="0 ids"):
            await ask(federation)


async def test_who_gives_up_is_not_scored(tmp_path: Path) -> None:
    """A request whose client went away before its round, or whose deadline passed, leaves the queue."""
    async with serving(tmp_path, {}, window_ms=10_000, deadline_s=30) as federation:
        await expect(federation, 4)
        gone, late, kept = ask(federation, IDS[0]), ask(federation, IDS[1], within_s=0.8), ask(federation, IDS[2])
        await asyncio.sleep(0.5)
        gone.cancel()
        with pytest.raises(Silent, match=r"no prediction within 0\.8 s"):
            await late
        assert scores([await kept]) == pytest.approx([EXACT[2]], abs=1e-9)
        await asyncio.sleep(6)
        (status,) = federation.jobs.status("s")
        assert (status.serving.records, status.serving.rounds, status.serving.refused) == (2, 2, 1)
        metrics = federation.node(LABEL_HOLDER).served_models.metrics.registry
        assert metrics.get_sample_value("treetap_served_waiting_records") == 0
        count = {
            outcome: metrics.get_sample_value("treetap_served_requests_total", {"client": "app", "outcome": outcome})
            for outcome in ("answered", "late", "client_gone")
        }
        assert count == {"answered": 5, "late": 1, "client_gone": 1}


async def test_who_may_ask_and_for_what(tmp_path: Path) -> None:
    """Clients that the configuration names, models that are served; a policy can take predictions from clients."""
    async with serving(tmp_path / "a", {}) as federation:
        for client in ("feature-b", "coordinator", "stranger"):
            with pytest.raises(Refused, match=rf"{client} is not a client of label-holder \(\[serve\] clients"):
                await ask(federation, IDS[0], client=client)
        with pytest.raises(UnknownJob, match=r"does not serve model 'other' \(it serves job\)"):
            await ask(federation, IDS[0], model="other")
        failed(
            await federation.predict(predict_request(model="job", serve=True, job="twice")),
            "serves model job already, by job s: treetap cancel s first",
            bad_input=True,
        )
        assert scores([await ask(federation, IDS[0])]) == pytest.approx([EXACT[0]], abs=1e-9)
    policy = {LABEL_HOLDER: {"emits": {"PREDICTION": ["parties", "other"]}}}
    async with serving(tmp_path / "b", {}, policies=policy, clients=["app", "other"]) as federation:
        with pytest.raises(Refused, match=r"not send PREDICTION to app.*emits.PREDICTION = \['parties', 'other'\]"):
            await ask(federation, IDS[0])
        assert rounds(federation) == 0


async def test_what_counts_as_refused(tmp_path: Path) -> None:
    """Whoever asks and has no answer, for whatever reason, but for requests about models that are not served."""
    async with serving(tmp_path, {}, most_ids=2, queue=3) as federation:
        await expect(federation, 3)
        answers = (
            (ask(federation, IDS[0]), None),
            (ask(federation, "nobody"), None),
            (ask(federation, IDS[0], client="stranger"), Refused),
            (ask(federation, *IDS[:3]), BadInput),
            (ask(federation), BadInput),
            (ask(federation, IDS[1], within_s=1e-6), Silent),
            (ask(federation, IDS[0], model="other"), UnknownJob),
        )
        ends = await asyncio.gather(*(answer for answer, _ in answers), return_exceptions=True)
        for end, (_, kind) in zip(ends, answers, strict=True):
            assert kind is None or isinstance(end, kind), end
        await asyncio.sleep(3)
        told = federation.jobs.status("s")[0].serving
        assert (told.requests, told.refused) == (5, 4)


async def test_a_policy_that_lets_nobody_be_answered(tmp_path: Path) -> None:
    """Serving for no client at all is refused, and what forbids it is named."""
    policy = {LABEL_HOLDER: {"emits": {"PREDICTION": ["parties"]}}}
    federation = Federation(tmp_path, HERE.tables, serve={LABEL_HOLDER: config()}, policies=policy)
    assert (await federation.train(JOB)).state == "finished"
    failed(
        await federation.predict(predict_request(model="job", serve=True)),
        "label-holder's policy sends PREDICTION to none of serve.clients (app)",
        bad_input=True,
    )


async def test_what_nobody_can_serve(tmp_path: Path) -> None:
    """Without a table [serve] the party refuses and names it; neither a file of ids nor degrade goes with serving."""
    federation = Federation(tmp_path, HERE.tables)
    assert (await federation.train(spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2)))).bad_input is False
    failed(
        await federation.predict(predict_request(model="job", serve=True)),
        "label-holder serves no client: its configuration has no table [serve]; it needs clients",
        bad_input=True,
    )
    for wrong, fault in (
        ({"records_file": "ids.txt"}, "a served model predicts the records that clients request"),
        ({"away_policy": "degrade"}, "clients would get guesses; use retry"),
    ):
        with pytest.raises(BadInput, match=fault):
            federation.jobs.predict(predict_request(model="job", serve=True, **wrong))  # type: ignore[arg-type]


async def test_what_is_told_to_whom(tmp_path: Path) -> None:
    """Clients get PREDICTION and CONTROL, counted by name; the coordinator sees no id and no score."""
    async with serving(tmp_path, WAYS["eini"], policies={LABEL_HOLDER: {"people": {"record": "both"}}}) as federation:
        await ask(federation, *IDS)
        await asyncio.sleep(11)
        (status,) = federation.jobs.status("s")
        rows = {
            (row.to, row.disclosure)
            for each in status.accounts
            for row in each.account.traffic
            if getattr(row, "from") == LABEL_HOLDER and row.step == "predict"
        }
        assert rows == {("app", "PREDICTION"), ("app", "CONTROL")}
        heard = b"".join(federation.seen_by_coordinator)
        assert not [value for value in IDS if value.encode() in heard]
        assert not [score for score in EXACT if np.float64(score).tobytes() in heard]
    found = summarise(federation.state(LABEL_HOLDER) / "transcripts" / "s")
    kinds = {(row["kind"], row["peer"], row["class"]) for row in found["rows"] if row["step"] == "predict"}
    assert kinds == {
        ("received", "app", "INSTANCE_SPACE"),
        ("sent", "app", "PREDICTION"),
        ("sent", "app", "CONTROL"),
    }
