"""Small jobs that campaigns play: trainings, predictions, a served model, previews; whether what they made is right."""

from __future__ import annotations

import asyncio
import atexit
import json
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from tests.boosting.categories import categorical_world
from tests.oracle import oracle_predict
from tests.pivodl.jobs import SMALL, SPREAD
from tests.replay import HERE, JOB, ORACLE, PARAMS, asked
from tests.serving.served import CLIENT, EXACT, IDS, tolerance, without
from tests.serving.test_new_records import record
from tests.simulator import DEALER, Federation, run
from tests.splitnn.jobs import PARAMS as NETWORK
from tests.splitnn.jobs import spec as network_spec
from tests.trainings import oracle
from tests.trainings import policies as policies_for
from tests.worlds import (
    PARTIES,
    World,
    assert_oracles_model,
    assert_oracles_scores,
    lacking,
    lattice_tolerance,
    spec,
    world,
)
from treetap.errors import TreetapError
from treetap.models.store import REPORT, read_model
from treetap.party.config import ServeConfig
from treetap.party.defences.settings import ColumnPrivacyTable, Defences
from treetap.party.runtime.ledger import ledger_of
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.status_parts import UNDER_WAY
from treetap.wire.v2 import jobs_pb2, serving_pb2, setup_pb2

LABEL_HOLDER, B, C = PARTIES
#: In which no two candidates tie, since private set intersection orders the records by chance.
UNTIED = world(16, (1, 1, 1), seed=31, fresh=6)
TWO = world(16, (1, 1), seed=31, fresh=6)
#: Of which the feature party lacks some records.
LACKED = lacking(TWO, 0.3)
FOREST = ForestParams(n_estimators=2, max_depth=2, max_bin=3)
#: Of which a screening has enough records of each class.
SCREENED = world(24, (1, 1, 1), seed=34, fresh=6)
#: Of which a feature party's partition of categories wins splits.
KINDS = categorical_world(24, {LABEL_HOLDER: (0,), B: (6,), C: (0,)}, fresh=6)
DIVIDED = BoostingParams(n_estimators=1, max_depth=2, max_bin=3)
#: Of a protocol of one role, with labels of three parties.
SECRET = replace(
    SMALL, objective="reg:squarederror", gain_comparison="secure", as_published=True, n_estimators=1, max_depth=1
)
HIDDEN = replace(PARAMS, instance_spaces="withheld")
TRAININGS: dict[str, tuple[World, setup_pb2.JobSpec, Any]] = {
    "boosting": (HERE, JOB, ORACLE),
    "boosting on a lattice": (HERE, spec(PARAMS, scheme=LATTICE), ORACLE),
    "withheld": (HERE, spec(HIDDEN, scheme=LATTICE), ORACLE),
    "private": (HERE, spec(HIDDEN, scheme=LATTICE, sums="shared", dealer=DEALER), ORACLE),
    "noise on sums": (HERE, JOB, None),
    "psi": (UNTIED, spec(PARAMS, obfuscation="standard", alignment="psi"), oracle(UNTIED, PARAMS)),
    "proofs of lists": (TWO, spec(PARAMS, parties=2, obfuscation="standard", alignment="psi"), oracle(TWO, PARAMS)),
    "proofs in a ring": (UNTIED, spec(PARAMS, obfuscation="standard", alignment="psi"), oracle(UNTIED, PARAMS)),
    "joined from the left": (
        LACKED,
        spec(PARAMS, parties=2, obfuscation="standard", alignment="psi", join="left"),
        oracle(LACKED, PARAMS),
    ),
    "categories": (KINDS, spec(DIVIDED, obfuscation="standard"), KINDS.oracle(DIVIDED)),
    "screening": (SCREENED, spec(PARAMS.screened(), obfuscation="standard", screen=True), None),
    "forest": (HERE, spec(FOREST, obfuscation="standard"), oracle(HERE, FOREST)),
    "forest on a lattice": (HERE, spec(FOREST, scheme=LATTICE), oracle(HERE, FOREST)),
    "pivodl": (SPREAD, spec(SMALL, obfuscation="standard", key_bits=512), oracle(SPREAD, SMALL)),
    "pivodl, gains compared": (
        SPREAD,
        spec(SECRET, obfuscation="standard", key_bits=512),
        oracle(SPREAD, SECRET),
    ),
}
PREDICTIONS: dict[str, dict[str, Any]] = {
    "interactive": {"explain": True},
    "per-tree": {"protocol": "interactive", "form": "per-tree"},
    "eini": {"explain": True, "attributions": True},
    "eini-lattice": {},
    "masked": {},
}
#: The training whose model a prediction uses.
TRAINED_BY = {"masked": "pivodl", "network": "splitnn", "serving who is new": "psi"}
#: Story of a served model → the protocol by which it is served.
SERVED = {"serving": "interactive", "serving by eini": "eini", "serving who is new": "interactive"}
#: That of a model with look-ups and reasons, whose label holder's table lacks who is asked about.
NEWCOMERS = "serving who is new"
UNTIED_SCORES = [scores[0] for scores in oracle_predict(oracle(UNTIED, PARAMS), UNTIED.newcomers)]
#: Story of a preview → its answer.
PREVIEWS = {"preview of a count": "count", "preview of records": "records"}
#: Of each party's table some records are taken out; ids of those that all have left.
PARTLY = {
    name: (columns, {"train": own["train"].filter([row % 6 != place for row in range(len(own["train"]))])})
    for place, (name, (columns, own)) in enumerate(HERE.tables.items())
}
COMMON = set.intersection(*(set(own["train"].column("id").to_pylist()) for _, own in PARTLY.values()))
if find_spec("torch") is not None:
    TRAININGS["splitnn"] = (HERE, network_spec(NETWORK), None)
    PREDICTIONS["network"] = {"protocol": "splitnn"}


def training_of(story: str) -> str:
    """The training that a story is, or that comes before it."""
    return story if story in TRAININGS else TRAINED_BY.get(story, "boosting")


def _small(folder: Path, story: str) -> Federation:
    if story in PREVIEWS:
        return Federation(
            folder, PARTLY, policies={name: {"columns": {"preview": "records"}} for name in PARTIES}, record="both"
        )
    here, job, _ = TRAININGS[training_of(story)]
    shown = {"EXPLANATION": ["parties"], "FEATURE_NAME": ["parties"]}
    policies: dict[str, dict[str, Any]] = {name: {"emits": shown} for name in (B, C)}
    more: dict[str, Any] = {}
    if story == "noise on sums":
        more = {"defences": {B: Defences(column_privacy=ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2))}}
        policies[B] |= {"columns": {"column_budget": 5000.0}}  # of an attempt, and of further ones where it breaks down
    if story.startswith("proofs "):
        policies = {name: policies.get(name, {}) | {"keys": {"alignment_proof": True}} for name in here.tables}
    if here.categories:
        more = {"encode": "categorical"}
    if story == "private":
        more = {"dealer": True}
    tables = here.tables
    if story == NEWCOMERS:
        tables = without(tables, LABEL_HOLDER, IDS[:2])
        policies = {
            name: own | {"partners": {LABEL_HOLDER: {"look_ups_per_day": 1000}}} for name, own in policies.items()
        }
    serving = ServeConfig(clients=[CLIENT], listen="127.0.0.1:0")
    return Federation(
        folder, tables, policies=policies | policies_for(job), serve={LABEL_HOLDER: serving}, record="both", **more
    )


@cache
def trained(story: str = "boosting") -> Path:
    """The disks of all processes after a training; made once in a process."""
    folder = Path(tempfile.mkdtemp(prefix="treetap-fuzz-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)

    async def main() -> None:
        federation = _small(folder, story)
        assert (await federation.train(TRAININGS[story][1])).state == "finished"
        await federation.close()

    with ThreadPoolExecutor(1) as apart:  # here a loop may run already
        apart.submit(run, main()).result()
    return folder


def begin(folder: Path, story: str) -> Federation:
    """The federation of a story, on empty disks or with a trained model."""
    federation = _small(folder, story)
    if story not in (*TRAININGS, *PREVIEWS):
        for name in (*federation.configs, *federation.coordinators):
            federation.kill(name)
        for path in ("state", "journal"):
            for kept in trained(training_of(story)).glob(f"*/{path}"):
                shutil.copytree(kept, folder / kept.parent.name / path, dirs_exist_ok=True)
        for name in (*federation.configs, *federation.coordinators):
            federation.start(name)
    return federation


async def play(federation: Federation, story: str, job: str = "new") -> jobs_pb2.JobStatus:
    """Carry out a story; returns the job's status after its end. `job`: what a prediction is called."""
    if story in PREVIEWS:
        return await federation.preview(answer=PREVIEWS[story])
    if story in TRAININGS:
        return await federation.train(TRAININGS[story][1])
    if story in SERVED:
        return await served_twice(federation, SERVED[story], new=story == NEWCOMERS)
    given = {"protocol": story, **PREDICTIONS[story]}
    return await federation.predict(asked(job, **given))


async def go_on(federation: Federation, story: str) -> jobs_pb2.JobStatus:
    """Resume the job of a story that broke down; a preview, which is not resumed, is asked for anew."""
    if story in PREVIEWS:
        return await federation.preview(answer=PREVIEWS[story], job="again")
    return await federation.resume("job" if story in TRAININGS else "new")


async def served_twice(federation: Federation, protocol: str, *, new: bool = False) -> jobs_pb2.JobStatus:
    """A model served by a protocol answers a client twice and is cancelled; a wrong answer fails."""
    given: dict[str, Any] = {"model": "job", "job": "new", "serve": True, "protocol": protocol}
    given |= {"look_up": True, "reasons": True} if new else {}
    federation.jobs.submit(predict_request(**given))
    for place in (0, 1):
        for _ in range(600):
            (status,) = federation.jobs.status("new")
            if status.phase == "serve" or status.state not in UNDER_WAY:
                break
            await asyncio.sleep(0.1)
        if status.state != "running":
            return status
        await asyncio.sleep(0.3)
        try:
            request = serving_pb2.PredictRecords(ids=[IDS[place]])
            if new:
                request = serving_pb2.PredictRecords(records=[record(IDS[place], UNTIED)], reasons=2)
            answer = await federation.node(LABEL_HOLDER).served_models.predict(CLIENT, request, None)
        except TreetapError:
            continue
        right_answer(answer, UNTIED_SCORES if new else EXACT)
    try:
        return await federation.jobs.cancel("new")
    except TreetapError:
        return federation.jobs.status("new")[0]


def right_answer(answer: serving_pb2.PredictedRecords, exact: Sequence[float] = EXACT) -> None:
    """Fail unless the predicted records of an answer have the oracle's scores."""
    for each in answer.predictions:
        if each.status == serving_pb2.PREDICTED:
            assert abs(each.scores[0] - exact[IDS.index(each.id)]) < tolerance("interactive"), "WRONG answer"


def wrong(federation: Federation, story: str, job: str = "new") -> str:
    """The fault of the model, scores or rows that a story has made; empty if they are the oracle's.

    `job`: what a prediction is called.

    Raises:
        TreetapError: a file cannot be read.
    """
    try:
        if training_of(story) == "splitnn":
            _check_network(federation, story, job)
        elif story == "noise on sums":  # drawn anew in each attempt: no oracle has it
            for state in federation.states.values():
                assert len(read_model(state / "models" / "job")[1]) == PARAMS.n_estimators
        elif story == "screening":
            _check_screening(federation)
        elif story in TRAININGS:
            assert_oracles_model(federation.states, TRAININGS[story][2])
        elif story in PREVIEWS:
            _check_preview(federation, PREVIEWS[story])
        elif story in PREDICTIONS:
            here, _, expected = TRAININGS[training_of(story)]
            within = {"eini-lattice": lattice_tolerance(ORACLE), "masked": 1e-8}.get(story, 1e-9)
            path = federation.state(LABEL_HOLDER) / "predictions" / f"{job}.parquet"  # a status has a party's word
            assert_oracles_scores(str(path), expected, here.newcomers, len(here.y), within)
    except (AssertionError, OSError, KeyError, ValueError) as failure:
        return f"{type(failure).__name__} {' '.join(str(failure).split())[:200]}"
    return ""


def _check_screening(federation: Federation) -> None:
    """Fail unless the report has all records and those of the second class in the bins of each column."""
    report = json.loads((federation.state(LABEL_HOLDER) / "models" / "job" / REPORT).read_bytes())
    assert [party["party"] for party in report["parties"]] == [B, C]
    for column in (column for party in report["parties"] for column in party["columns"]):
        assert sum(of["records"] for of in column["bins"]) == len(SCREENED.y)
        assert sum(of["bad"] for of in column["bins"]) == int(SCREENED.y.sum())


def _check_preview(federation: Federation, answer: str) -> None:
    """Fail unless every party's account has the number of common records, and its file, if it wrote one, its rows."""
    for name, state in federation.states.items():
        charge, told = ledger_of(state).previews()[-1]
        assert told == str(len(COMMON)), f"{name} was told {told}"
        if answer == "records":
            written = pacsv.read_csv(state / "previews" / f"{charge.occasion.job}.csv")
            ids = PARTLY[name][1]["train"].column("id").to_pylist()
            assert [ids[row] for row in written.column("row").to_pylist()] == written.column("id").to_pylist()
            assert sorted(written.column("id").to_pylist()) == sorted(COMMON)


def _check_network(federation: Federation, story: str, job: str) -> None:
    """Fail unless a network's weights, or its scores, are those of the same training in one graph."""
    from tests.splitnn.networks import assert_same_bits, oracle, oracle_scores, published

    if story in TRAININGS:
        assert_same_bits(published(federation.folder, HERE), oracle(federation.folder, HERE, NETWORK)[0].weights())
        return
    table = pq.read_table(federation.state(LABEL_HOLDER) / "predictions" / f"{job}.parquet")
    expected = oracle_scores(federation.folder, HERE, NETWORK)[:, 0]
    assert table.column("score").to_pylist() == pytest.approx(expected.tolist(), abs=1e-6)
