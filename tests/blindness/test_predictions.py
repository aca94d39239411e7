"""Predictions with one model: a record's value moves across a threshold, and only its reader can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.blindness.comparison import between_parties, of_coordinator
from tests.blindness.observed import Act, Crossed, Observed, observed, with_cell
from tests.needs import needs_library_of
from tests.serving.served import ask, config, serve
from tests.simulator import Federation, finished, run
from tests.worlds import PARTIES, Tables, World, spec, world
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams

LABEL_HOLDER, B, C = PARTIES
PARAMS = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.1)
N = 24
JOB = spec(PARAMS, obfuscation="standard")
#: What explanations need.
POLICIES = {party: {"emits": {"EXPLANATION": [LABEL_HOLDER], "FEATURE_NAME": [LABEL_HOLDER]}} for party in PARTIES}


def _worded_world() -> World:
    """All parties split both trees, with leaves at different depths; the names of the two classes differ in length."""
    here = world(N, (2, 1, 1), seed=17, fresh=4)
    _, tables = here.tables[LABEL_HOLDER]
    names = ["no" if value == 0 else "malignant" for value in tables["train"].column("y").to_pylist()]
    at = tables["train"].column_names.index("y")
    tables["train"] = tables["train"].set_column(at, "y", pa.array(names))
    return here


HERE = _worded_world()
RECORD, OTHER = f"r{N + 1:05d}", f"r{N + 2:05d}"
#: Values of all columns of that record at a party with which the model sends it other ways.
MOVES = (-9.0, 9.0)


def predicting(**asked: Any) -> Act:
    """Predict the table in two blocks."""

    async def act(federation: Observed) -> Any:
        status = finished(await federation.predict(predict_request(model="job", job="p", block=3, **asked)))
        return pq.read_table(status.predictions).to_pylist()

    return act


def without(party: str, **asked: Any) -> Act:
    """Predict while a party is away for good."""

    async def act(federation: Observed) -> Any:
        federation.kill(party)
        return await predicting(away_policy="degrade", away_deadline_s=3, **asked)(federation)

    return act


def broken(word: str, **asked: Any) -> Act:
    """Predict, and lose a party at its second step of this name; it comes back."""

    async def act(federation: Observed) -> Any:
        federation.kill_at(
            B, lambda message: (message.word, message.served, message.to) == (word, False, B), nth=2, back=True
        )
        found = await predicting(away_policy="retry", away_deadline_s=5, **asked)(federation)
        assert federation.hook is None
        return found

    return act


def served(**asked: Any) -> Act:
    """Serve, and answer a client about one record at a time."""

    async def act(federation: Observed) -> Any:
        await serve(federation, **asked)
        answers = [await ask(federation, record) for record in (RECORD, OTHER, "nobody")]
        await asyncio.sleep(6)
        return [[(each.label, list(each.scores)) for each in answer.predictions] for answer in answers]

    return act


WAYS: dict[str, Callable[[], Act]] = {
    "interactive": lambda: predicting(protocol="interactive", explain=True),
    "interactive, per tree": lambda: predicting(protocol="interactive", form="per-tree"),
    "interactive, one away": lambda: without(C, protocol="interactive"),
    "interactive, one lost": lambda: broken("answer_directions", protocol="interactive"),
    "interactive, served": lambda: served(protocol="interactive"),
    "eini": lambda: predicting(protocol="eini", explain=True, attributions=True),
    "eini, one away": lambda: without(C, protocol="eini"),
    "eini, one lost": lambda: broken("mask_block", protocol="eini"),
    "eini, served": lambda: served(protocol="eini"),
    "eini-lattice": lambda: predicting(protocol="eini-lattice"),
    "eini-lattice, served": lambda: served(protocol="eini-lattice"),
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The disks of a federation after the training."""
    folder = tmp_path_factory.mktemp("trained") / "federation"

    async def main() -> None:
        federation = Federation(folder, HERE.tables)
        assert (await federation.train(JOB)).state == "finished"

    run(main())
    return folder


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of columns that is drawn for each lattice prediction, the same in all runs."""
    import random

    monkeypatch.setattr("treetap.lattice.columns.random.SystemRandom", lambda: random.Random(3))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("way", "mover"),
    [*((way, B) for way in WAYS), *((way, LABEL_HOLDER) for way in WAYS if "interactive" in way)],
)
@pytest.mark.usefixtures("drawn")
def test_a_value_that_crosses_a_threshold_shows_to_nobody(way: str, mover: str, trained: Path, tmp_path: Path) -> None:
    """The coordinator receives the same bytes; peers the same control, topology and sizes, in as many messages.

    The predictions differ, so the value did cross a threshold.
    """
    if "lattice" in way:
        needs_library_of("eini-lattice")
    runs: list[tuple[list[Crossed], Any]] = []
    for value in MOVES:
        tables: Tables = with_cell(HERE, mover, "predict", RECORD, value)
        more = {"policies": POLICIES, "serve": {LABEL_HOLDER: config()}}
        runs.append(observed(tmp_path / "f", tables, WAYS[way](), trained=trained, **more))
    (crossed, found), (others, other) = runs
    assert found != other
    assert of_coordinator(crossed) == of_coordinator(others)
    assert between_parties(crossed) == between_parties(others)
