"""Predictions of split networks, served too.

- Predictions of split networks: the scores of the oracle, with all parties and without some, in batches.
- Served networks: with and without a party, a party that comes back, and beside a model of trees.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle import oracle_predict
from tests.serving.served import CLIENT, config
from tests.simulator import Federation, Message, failed, finished
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import federation
from tests.splitnn.networks import oracle_scores as expected
from tests.worlds import PARTIES, World, world
from tests.worlds import spec as tree_spec
from treetap.errors import ConfigError, NotServed, Silent
from treetap.neural import sides
from treetap.neural.params import Bottom, SplitnnParams
from treetap.party.splitnn import scoring_label_holder
from treetap.protocols.prediction import predict_request
from treetap.trees.loss import outcome_of
from treetap.trees.params import BoostingParams
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2, jobs_pb2, serving_pb2

pytest.importorskip("torch", reason="needs treetap[neural]")


pytestmark = pytest.mark.second_tier

HOLDER, B, C = PARTIES
DROPPED = replace(PARAMS, party_dropout={B: 0.3, C: 0.3})
FRESH = 11
IDS = [f"r{49 + k:05d}" for k in range(FRESH)]
HERE = world(49, (2, 2, 1), seed=3, fresh=FRESH)
#: What a world and a job can be.
CASES: dict[str, tuple[World, SplitnnParams]] = {
    "binary": (HERE, PARAMS),
    "bfloat16, missing cells": (
        world(49, (2, 2, 1), seed=4, fresh=FRESH, missing=0.2),
        replace(PARAMS, wire_type="bfloat16"),
    ),
    "classes": (
        world(60, (2, 2, 1), objective="multi:softprob", classes=3, seed=5, fresh=FRESH),
        replace(PARAMS, objective="multi:softprob"),
    ),
    "regression": (
        world(49, (2, 2, 1), objective="reg:squarederror", seed=6, fresh=FRESH),
        replace(PARAMS, objective="reg:squarederror"),
    ),
    "label holder without columns": (world(49, (0, 2, 1), seed=7, fresh=FRESH), PARAMS),
    "feature party without columns": (world(49, (2, 0, 1), seed=8, fresh=FRESH), PARAMS),
    "adam, early stopping": (
        HERE,
        replace(PARAMS, optimizer="adam", learning_rate=0.05, early_stopping_rounds=1, validation_share=0.2),
    ),
}


def scores_of(status: jobs_pb2.JobStatus, classes: int) -> Any:
    """The scores (n, K) that a finished prediction has written."""
    assert (status.state, status.error) == ("finished", "")
    table = pq.read_table(status.predictions)
    assert table.column("id").to_pylist()[0].startswith("r000")
    names = [f"score_{name}" for name in range(classes)] if classes > 2 else ["score"]
    return np.column_stack([table.column(name).to_numpy() for name in names])


@pytest.mark.parametrize("case", CASES)
async def test_the_oracles_scores(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks, and pieces of blocks, of whatever size: the scores, and what follows from them, are the oracle's."""
    here, params = CASES[case]
    monkeypatch.setattr(sides, "PIECE", 2)

    running = federation(tmp_path, here)
    assert (await running.train(spec(params))).state == "finished"
    exact = expected(tmp_path, here, params)
    classes = 0 if params.regression else here.classes
    for block in (3, 0):
        status = await running.predict(predict_request(model="job", block=block))
        assert np.abs(scores_of(status, classes) - exact).max() < 1e-6
    assert (status.scored, status.records) == (FRESH, FRESH)
    table = pq.read_table(status.predictions)
    outcome = outcome_of(params.objective, classes, exact)
    found = table.column("prediction").to_numpy()
    if params.objective == "binary:logistic":
        assert table.column("probability_1").to_numpy() == pytest.approx(outcome, abs=1e-6)
        assert found.tolist() == (outcome > 0.5).astype(int).tolist()
    elif params.regression:
        assert found == pytest.approx(exact[:, 0], abs=1e-6)
    else:
        assert found.tolist() == outcome.argmax(axis=1).tolist()
    assert "guessed" not in table.column_names


async def test_without_a_party(tmp_path: Path) -> None:
    """Zeros stand for who is away; the share of feature parties that were is in every row."""
    running = federation(tmp_path, HERE)
    assert (await running.train(spec(PARAMS))).state == "finished"
    for away in ((), (B,), (C,), (B, C)):
        for party in away:
            running.kill(party)
        status = await running.predict(predict_request(model="job", away_policy="degrade", away_deadline_s=5))
        assert np.abs(scores_of(status, 2) - expected(tmp_path, HERE, PARAMS, *away)).max() < 1e-6
        assert sorted(status.away) == list(away)
        guessed = pq.read_table(status.predictions).column("guessed").to_pylist()
        assert guessed == [len(away) / 2] * FRESH
        for party in away:
            running.start(party)


async def test_a_party_that_dies_between_blocks(tmp_path: Path) -> None:
    """Records scored before have all parties' scores and 0, later ones those without it and its share."""
    running = federation(tmp_path, HERE)
    assert (await running.train(spec(PARAMS))).state == "finished"

    def hook(message: Any) -> None:
        if message.word == "embeddings" and message.sender == B and not message.served:
            _, _, asked = next(event for event in reversed(running.conducted) if event[1] == B)
            if asked.round == 1:
                running.kill(B)

    running.hook = hook
    asked = predict_request(model="job", away_policy="degrade", away_deadline_s=5, block=4)
    status = await running.predict(asked)
    whole, without = expected(tmp_path, HERE, PARAMS), expected(tmp_path, HERE, PARAMS, B)
    assert np.abs(scores_of(status, 2) - np.concatenate([whole[:4], without[4:]])).max() < 1e-6
    guessed = pq.read_table(status.predictions).column("guessed").to_pylist()
    assert guessed == [0.0] * 4 + [0.5] * (FRESH - 4)


async def test_killed_for_good_at_any_message_it_goes_on(tmp_path: Path) -> None:
    """By degrade every record has the score of all parties, or that without the killed one and its share."""
    kinds = set()

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
        status = finished(await running.predict(predict_request(job=f"p{offset}", **asked)))
        table = pq.read_table(status.predictions)
        guessed, scores = (table.column(name).to_numpy() for name in ("guessed", "score"))
        assert set(guessed) <= {0.0, 0.5}
        assert np.abs(scores - np.where(guessed == 0.0, whole, without)).max() < 1e-6
        kinds.update((float(share), list(status.away) == [B]) for share in guessed)
        running.hook = None
        running.start(B)
    await running.close()
    assert kinds == {(0.0, True), (0.0, False), (0.5, True)}


async def test_one_round_and_no_more(tmp_path: Path) -> None:
    """A block is one message of records to each feature party and one of embeddings back, of the width of each."""
    running = federation(tmp_path, HERE)
    assert (await running.train(spec(PARAMS))).state == "finished"
    seen: list[tuple[str, str, str, int]] = []

    def look(sender: str, to: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        content: Any = content_of(message, name_of(message))
        seen.append((sender, to, name_of(message), len(getattr(content, "values", b""))))
        return message

    running.tamper = look
    assert (await running.predict(predict_request(model="job", block=FRESH))).state == "finished"
    blocks = [each for each in seen if each[2] != "record_digest"]
    assert sorted(blocks) == sorted(
        [(HOLDER, party, "block_records", 0) for party in (B, C)]
        + [(party, HOLDER, "embeddings", FRESH * 4 * 4) for party in (B, C)]
    )


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"width": 3}, "with width 3"),
        ({"rows": FRESH + 1}, "more rows than"),
        ({"rows": FRESH - 1}, "bytes for"),
        ({"wire_type": "bfloat16"}, "bfloat16"),
        ({"values": b"\xff" * (4 * 4 * FRESH)}, "not finite"),
        ({"values": b"\0"}, "bytes for"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
async def test_embeddings_that_cannot_be(change: dict[str, Any], fault: str, tmp_path: Path) -> None:
    """The prediction ends; the error names the sender and the block."""
    running = federation(tmp_path, HERE)
    assert (await running.train(spec(PARAMS))).state == "finished"

    def tamper(sender: str, _to: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(message) == "embeddings" and sender == C:
            body = message.protocol.splitnn.embeddings
            for name, value in change.items():
                setattr(body, name, value)
        return message

    running.tamper = tamper
    failed(
        await running.predict(predict_request(model="job", block=FRESH)), "feature-c sent embeddings of block 0", fault
    )


async def test_blocks_that_fit_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block has at most as many records as the label holder may hold embeddings of."""
    monkeypatch.setattr(scoring_label_holder, "BLOCK_BYTES", 4 * (4 + 4) * 5)

    running = federation(tmp_path, HERE)
    assert (await running.train(spec(PARAMS))).state == "finished"
    exact = expected(tmp_path, HERE, PARAMS)
    before = len(running.conducted)
    assert np.abs(scores_of(await running.predict(predict_request(model="job")), 2) - exact).max() < 1e-6
    rounds = {asked.round for _, _, asked in running.conducted[before:] if name_of(asked) == "embed_block"}
    assert rounds == {0, 1, 2}


async def test_images(tmp_path: Path) -> None:
    """A party with images embeds them by its network."""
    # The world, in which the last party has images instead of columns.
    rng = np.random.default_rng(9)
    _, content = HERE.tables[C]
    cells = {}
    for name, table in content.items():
        pixels = rng.integers(0, 256, (len(table), 6, 6), dtype=np.uint8)
        images = pa.FixedShapeTensorArray.from_numpy_ndarray(pixels)
        cells[name] = pa.table({"id": table.column("id"), "image": images})
    here = replace(HERE, tables={**HERE.tables, C: (["image"], cells)})
    kind = Bottom("resnet", channels=(2,), blocks=(1,), width=3, norm="batch", pool="none")
    params = replace(PARAMS, bottom={**PARAMS.bottom, C: kind})
    running = federation(tmp_path, here)
    assert (await running.train(spec(params))).state == "finished"
    status = await running.predict(predict_request(model="job"))
    assert np.abs(scores_of(status, 2) - expected(tmp_path, here, params)).max() < 1e-6


@asynccontextmanager
async def serving(folder: Path, params: SplitnnParams, **asked: Any) -> AsyncIterator[Federation]:
    """A federation that serves a network as the job `s`."""
    running = federation(folder, HERE, serve={HOLDER: config()})
    assert (await running.train(spec(params))).state == "finished"
    await serve(running, "job", "s", **asked)
    yield running
    await running.close()


async def serve(running: Federation, model: str, job: str, **asked: Any) -> None:
    """Serve a model."""
    running.jobs.submit(predict_request(model=model, job=job, serve=True, **asked))
    async with asyncio.timeout(60):
        while running.jobs.status(job)[0].phase != "serve":
            assert running.jobs.status(job)[0].state == "running", running.jobs.status(job)[0].error
            await asyncio.sleep(0.05)
    await asyncio.sleep(0.5)


async def answer(running: Federation, away: tuple[str, ...] = (), model: str = "") -> serving_pb2.PredictedRecords:
    """Ask about all records until the answer lists these parties as away."""
    async with asyncio.timeout(120):
        while True:
            try:
                request = serving_pb2.PredictRecords(ids=IDS, model=model)
                found = await running.node(HOLDER).served_models.predict(CLIENT, request, None)
                if tuple(sorted(found.away)) == away:
                    return found
            except (NotServed, Silent):
                pass
            await asyncio.sleep(0.5)


def raw(found: serving_pb2.PredictedRecords) -> Any:
    """The scores (n, K) of an answer."""
    return np.array([list(each.scores) for each in found.predictions])


async def test_served_with_and_without_a_party(tmp_path: Path) -> None:
    """A killed party is left out and listed; back on its own disk it is asked again, and answers are whole again."""
    async with serving(tmp_path, DROPPED, away_policy="degrade", away_deadline_s=10) as running:
        for away in ((), (B,), (B, C), ()):
            for party in (B, C):
                if party in away and running.alive(party):
                    running.kill(party)
                elif party not in away and not running.alive(party):
                    running.start(party)
            found = await answer(running, away)
            assert np.abs(raw(found) - expected(tmp_path, HERE, DROPPED, *away)).max() < 1e-6
        (status,) = running.jobs.status("s")
        assert (status.state, status.phase, list(status.away)) == ("running", "serve", [])


async def test_a_killed_party_comes_back_within_the_deadline(tmp_path: Path) -> None:
    """Under retry no answer is without it: a new attempt opens its model from its own disk."""
    async with serving(tmp_path, PARAMS, away_policy="retry", away_deadline_s=20) as running:
        exact = expected(tmp_path, HERE, PARAMS)
        assert np.abs(raw(await answer(running)) - exact).max() < 1e-6
        running.kill(B)
        await asyncio.sleep(3)
        running.start(B)
        assert np.abs(raw(await answer(running)) - exact).max() < 1e-6
        assert running.jobs.status("s")[0].attempt == 2


async def test_degrade_only_with_dropout_of_every_party(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator refuses by the job, the label holder by its manifest; both name party and remedy."""
    running = federation(tmp_path, HERE, serve={HOLDER: config()})
    assert (await running.train(spec(replace(PARAMS, party_dropout={B: 0.3})))).state == "finished"
    asked = predict_request(model="job", job="s", serve=True, away_policy="degrade")
    fault = "without party_dropout of feature-c, .* train it with party_dropout = {feature-c = 0.1}, or use retry"
    with pytest.raises(ConfigError, match=fault):
        running.jobs.submit(asked)
    monkeypatch.setattr("treetap.coordinator.prediction.check_degraded_serving", lambda *_: None)
    running.jobs.submit(asked)
    failed(
        await running.jobs.wait("s"),
        "label-holder: away = 'degrade': model job was trained without party_dropout of feature-c",
        bad_input=True,
    )


async def test_a_network_and_trees_at_once(tmp_path: Path) -> None:
    """Two models of different kinds are served to the same client; each answer is the one of the model it names."""
    async with serving(tmp_path, DROPPED, away_policy="degrade", away_deadline_s=10) as running:
        trees = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
        job = tree_spec(trees, obfuscation="standard")
        assert (await running.train(job, "trees")).state == "finished"
        await serve(running, "trees", "t", away_policy="retry", away_deadline_s=10)
        found = await asyncio.gather(*(answer(running, model=name) for name in ("job", "trees", "job")))
        assert [each.model for each in found] == ["job", "trees", "job"]
        network = expected(tmp_path, HERE, DROPPED)
        assert np.abs(raw(found[0]) - network).max() < 1e-6
        assert np.abs(raw(found[2]) - network).max() < 1e-6
        assert raw(found[1]) == pytest.approx(np.array(oracle_predict(HERE.oracle(trees), HERE.newcomers)), abs=1e-9)
        running.kill(B)
        alone = await answer(running, (B,), "job")
        assert np.abs(raw(alone) - expected(tmp_path, HERE, DROPPED, B)).max() < 1e-6
        running.start(B)
        assert (await answer(running, (), "job")).job == "s"


async def test_a_record_of_which_no_query_is_left_goes_on_as_zeros(tmp_path: Path) -> None:
    """Its client hears the party's name; the other records of the block have their scores."""
    policies = {**EMITS, B: {**EMITS[B], "partners": {HOLDER: {"queries_per_record": 1}}}}

    running = federation(tmp_path, HERE, serve={HOLDER: config()}, policies=policies)
    assert (await running.train(spec(PARAMS))).state == "finished"
    await serve(running, "job", "s")
    for ids, said in ((IDS[:1], [""]), (IDS[:2], [B, ""]), (IDS[1:2], [B])):
        request = serving_pb2.PredictRecords(ids=ids)
        found = await running.node(HOLDER).served_models.predict(CLIENT, request, None)
        assert [each.party for each in found.predictions] == said
    assert running.jobs.status("s")[0].state == "running"
