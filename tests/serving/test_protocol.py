"""Serving, and records that are spent.

- A served model answers clients with the oracle's scores, many of them in one round.
- A served model goes on where a feature party permits no further query of a record: its client hears it by name.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.oracle import OracleSplit, oracle_predict
from tests.replay import HERE, ORACLE, PARAMS
from tests.serving.served import (
    EXACT,
    IDS,
    LABEL_HOLDER,
    WAYS,
    B,
    C,
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
from tests.worlds import World, spec, world
from treetap.errors import BadInput, Overloaded, Refused, Silent, UnknownJob
from treetap.party.prediction.query_counts import QueryCounts
from treetap.party.prediction.records import ServedPrediction
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


async def test_what_nobody_can_serve(tmp_path: Path) -> None:
    """Without a table [serve], or with a policy that lets no client be answered, the party refuses and names it.

    Neither a file of ids nor degrade goes with serving.
    """
    for name, served, policy, says in (
        ("a", {}, {}, "label-holder serves no client: its configuration has no table [serve]; it needs clients"),
        (
            "b",
            {LABEL_HOLDER: config()},
            {LABEL_HOLDER: {"emits": {"PREDICTION": ["parties"]}}},
            "label-holder's policy sends PREDICTION to none of serve.clients (app)",
        ),
    ):
        federation = Federation(tmp_path / name, HERE.tables, serve=served, policies=policy)
        job = spec(BoostingParams(n_estimators=1, max_depth=1, max_bin=2))
        assert (await federation.train(job)).bad_input is False
        failed(await federation.predict(predict_request(model="job", serve=True)), says, bad_input=True)
    for wrong, fault in (
        ({"records_file": "ids.txt"}, "a served model predicts the records that clients request"),
        ({"away_policy": "degrade"}, "clients would get guesses; use retry"),
    ):
        with pytest.raises(BadInput, match=fault):
            federation.jobs.submit(predict_request(model="job", serve=True, **wrong))  # type: ignore[arg-type]


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


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", WAYS)
async def test_a_spent_record_is_refused_by_name_and_the_model_is_served_on(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the edge, beside another record in one request; the score in its place is that of columns that are not its."""
    kept = list[tuple[list[int], list[float]]]()
    keep = ServedPrediction.keep

    def noted(self: Any, rows: Any, scores: Any, *more: Any) -> None:
        kept.append((rows.tolist(), scores[:, 0].tolist()))
        keep(self, rows, scores, *more)

    monkeypatch.setattr(ServedPrediction, "keep", noted)
    elsewhere = [(party, np.full_like(columns, np.inf) if party == C else columns) for party, columns in HERE.newcomers]
    placeholder = np.array(oracle_predict(ORACLE, elsewhere))[:, 0]
    place = int(np.argmax(np.abs(placeholder - EXACT)))
    other_place = (place + 1) % len(IDS)
    assert abs(placeholder[place] - EXACT[place]) > 0.01
    limit = {"partners": {LABEL_HOLDER: {"queries_per_record": 2}}}

    async with serving(tmp_path, WAYS[way], policies={C: limit}) as federation:
        for _ in range(2):
            answer = await ask(federation, IDS[place])
            assert answer.predictions[0].status == serving_pb2.PREDICTED
        spent, other = (await ask(federation, IDS[place], IDS[other_place])).predictions
        assert (spent.status, spent.party) == (serving_pb2.QUERIES_SPENT, C)
        assert (list(spent.scores), spent.label) == ([], "")
        assert (other.status, other.party) == (serving_pb2.PREDICTED, "")
        assert other.scores[0] == pytest.approx(EXACT[other_place], abs=tolerance(way))
        rows, scores = kept[-1]
        assert len(rows) == 2
        assert sorted(scores) == pytest.approx(sorted([placeholder[place], EXACT[other_place]]), abs=tolerance(way))
        assert (await ask(federation, IDS[place])).predictions[0].party == C
        assert QueryCounts(federation.states[C], LABEL_HOLDER).most() == 2
        (status,) = federation.jobs.status("s")
        assert (status.state, status.error) == ("running", "")


async def test_two_parties_limits_hold_each_by_itself(tmp_path: Path) -> None:
    """The first to be reached ends the queries; the other party has counted those that it was asked for."""
    limits = {B: 3, C: 1}
    policies = {party: {"partners": {LABEL_HOLDER: {"queries_per_record": most}}} for party, most in limits.items()}

    async with serving(tmp_path, WAYS["eini"], policies=policies) as federation:
        said = [(await ask(federation, IDS[2])).predictions[0].party for _ in range(5)]
        assert said == ["", C, C, C, C]
        ((_, labels, records),) = federation.node(C)._metrics.samples("treetap_unanswered_records_total")
        assert (labels, records) == ({"peer": LABEL_HOLDER}, 4)
        assert QueryCounts(federation.states[B], LABEL_HOLDER).most() == 3
        assert QueryCounts(federation.states[C], LABEL_HOLDER).most() == 1


def _strays(here: World, params: BoostingParams) -> int:
    """The queries at a split of C's, to the right of one that sends the record left, of records that C calls spent."""
    columns, strays = dict(here.newcomers), 0
    for tree, record in itertools.product(here.oracle(params), range(len(here.newcomers[0][1]))):
        node, above = 1, False
        while isinstance(split := tree.nodes[node], OracleSplit):
            value = columns[split.owner][record, split.feature]
            left = split.missing_left if np.isnan(value) else bool(value < split.cut)
            if split.owner == C:
                strays, above, left = strays + above, left, False
            node = 2 * node + (not left)
    return strays


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["interactive", "per-tree"])
async def test_splits_of_one_party_below_each_other(way: str, tmp_path: Path) -> None:
    """A spent record is asked about further down, to the right of a split that sends it left: that is no lie."""
    params = replace(PARAMS, max_depth=3)
    here = world(40, (0, 1, 2), seed=1, fresh=6)
    ids = [f"r{40 + place:05d}" for place in range(6)]
    assert _strays(here, params) > 0

    policies = {C: {"partners": {LABEL_HOLDER: {"queries_per_record": 1}}}}
    federation = Federation(tmp_path, here.tables, serve={LABEL_HOLDER: config()}, policies=policies)
    assert (await federation.train(spec(params, obfuscation="standard"))).state == "finished"
    await serve(federation, **WAYS[way])
    first, second = [(await ask(federation, *ids)).predictions for _ in range(2)]
    assert {each.status for each in first} == {serving_pb2.PREDICTED}
    assert [each.party for each in second] == [C] * len(ids)
    (status,) = federation.jobs.status("s")
    assert (status.state, status.error) == ("running", "")
