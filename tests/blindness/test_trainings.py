"""Trainings: a record's value moves within its bin, or to another one; what that changes, and for whom."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tests.blindness.comparison import PLAIN, RECORDS, Shown, between_parties, of_coordinator, shown
from tests.blindness.layout import Cost, Topology
from tests.blindness.observed import Act, Crossed, Observed, observed, with_cell
from tests.lattice_ways import take_way
from tests.simulator import COORDINATOR, finished
from tests.worlds import PARTIES, Tables, spec, weighted, world
from treetap.lattice.histogram_ways import Way
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.trees.loss import loss_for
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.slots import Slots, width_for
from treetap.wire.v2 import jobs_pb2, setup_pb2

N, BINS = 40, 4
#: Of every column: as many bins as there may be, and whether cells are missing.
HERE = world(N, (1, 2, 2), seed=4, missing=0.1)
LABEL_HOLDER, MOVER, _ = PARTIES
#: Contents that are drawn anew in every run.
DRAWN = ("encrypted_words", "candidate_sums")
JOBS: dict[str, TreeParams] = {
    "boosting": BoostingParams(n_estimators=2, max_depth=3, max_bin=BINS, min_child_weight=0.1),
    "boosting, sampled and stopped early": BoostingParams(
        **{"n_estimators": 3, "max_depth": 2, "max_bin": BINS, "min_child_weight": 0.1, "subsample": 0.8},
        **{"early_stopping_rounds": 1, "validation_share": 0.2},
    ),
    "boosting on a lattice": BoostingParams(n_estimators=2, max_depth=4, max_bin=BINS, min_child_weight=0.1),
    "boosting on a lattice by sets": BoostingParams(n_estimators=2, max_depth=3, max_bin=BINS, min_child_weight=0.1),
    "boosting by loss guide": BoostingParams(
        **{"n_estimators": 2, "max_depth": 3, "max_bin": BINS, "min_child_weight": 0.1},
        **{"grow_policy": "lossguide", "max_leaves": 5, "max_delta_step": 0.7, "reg_alpha": 0.1},
    ),
    "forest": ForestParams(n_estimators=2, max_depth=3, max_bin=BINS, colsample_bytree=1.0),
    "forest on a lattice": ForestParams(n_estimators=2, max_depth=3, max_bin=BINS, colsample_bytree=1.0),
    "forest on a lattice by sets, drawn with replacement, bins per node": ForestParams(
        **{"n_estimators": 2, "max_depth": 3, "max_bin": BINS, "colsample_bytree": 1.0},
        **{"binning": "per-node", "bootstrap": True, "subsample": 1.0},
    ),
    "forest on a lattice by sets, bins per node": ForestParams(
        n_estimators=2, max_depth=3, max_bin=BINS, binning="per-node", colsample_bytree=1.0, seed=2
    ),
    "forest, bins per node": ForestParams(
        n_estimators=2, max_depth=3, max_bin=BINS, binning="per-node", colsample_bytree=1.0, seed=2
    ),
}


def job_of(name: str) -> setup_pb2.JobSpec:
    """The job of that name."""
    if "lattice" in name:
        return spec(JOBS[name], scheme=LATTICE)
    return spec(JOBS[name], obfuscation="standard")


class Run(NamedTuple):
    """All that crossed in a training, and the accounts of the parties."""

    crossed: list[Crossed]
    accounts: list[jobs_pb2.PartyAccount]


def training(job: setup_pb2.JobSpec) -> Act:
    """Train."""

    async def act(federation: Observed) -> list[jobs_pb2.PartyAccount]:
        status = finished(await federation.train(job))
        return list(status.accounts)

    return act


class Runs(NamedTuple):
    """The same job on three tables: all that crosses, and the accounts of the parties."""

    job: str
    before: Run
    near: Run  # a value moved within its bin
    far: Run  # it moved to another bin


@pytest.fixture(scope="module", params=JOBS)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    """Runs with the same secret orders of candidates."""

    def generator() -> random.Random:
        return random.Random(5)

    folder = tmp_path_factory.mktemp("trainings") / "f"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", generator)
        patch.setattr("treetap.party.setup.steps.secrets", SimpleNamespace(token_bytes=bytes))
        take_way(patch, Way.SETS if "by sets" in request.param else Way.QUERIES)
        act = training(job_of(request.param))
        tables = (HERE.tables, _moved(far=False), _moved(far=True))
        yield Runs(request.param, *(Run(*observed(folder, each, act)) for each in tables))


def _moved(*, far: bool) -> Tables:
    """A record of the mover's first column goes half the way to the next greater value, or beyond the greatest.

    The record is in the middle of the lowest bin, so that half the way is within the bin and no cut depends on it.
    """
    values = HERE.blocks[1][:, 0]
    present = np.flatnonzero(~np.isnan(values))
    record, following = present[np.argsort(values[present])][4:6]
    value = np.nanmax(values) + 1 if far else values[[record, following]].mean()
    return with_cell(HERE, MOVER, "train", f"r{record:05d}", float(value), 0)


@pytest.mark.second_tier(but=1)
def test_a_value_that_stays_in_its_bin_changes_nothing(runs: Runs) -> None:
    """The coordinator receives the same bytes, and parties the same but for ciphertexts, record sets included."""
    before, near = runs.before.crossed, runs.near.crossed
    assert of_coordinator(before) == of_coordinator(near)
    assert between_parties(before, PLAIN | RECORDS) == between_parties(near, PLAIN | RECORDS)


@pytest.mark.second_tier(but=1)
def test_a_value_that_changes_the_trees_shows_in_topology_first(runs: Runs) -> None:
    """Up to the first message whose topology differs, control and sizes are the same in every message."""
    before, far = runs.before.crossed, runs.far.crossed
    pairs = list(zip(before, far, strict=False))
    same = next(k for k, (one, other) in enumerate(pairs) if _topology(one) != _topology(other))
    assert same > 10
    for one, other in pairs[:same]:
        assert one[:3] == other[:3]
        assert shown(one.message, {"CONTROL", "SIZE"}) == shown(other.message, {"CONTROL", "SIZE"})


@pytest.mark.second_tier
def test_weights_of_a_table_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A label holder whose records all have the weight 1 sends what one without weights does, to everybody."""
    monkeypatch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
    act = training(spec(replace(JOBS["boosting"], max_sample_weight=3.0), obfuscation="standard"))
    with_weights = weighted(HERE, np.ones(N)).tables
    (plain, _), (same, _) = (observed(tmp_path / "f", each, act) for each in (HERE.tables, with_weights))
    assert of_coordinator(plain) == of_coordinator(same)
    assert between_parties(plain, PLAIN | RECORDS) == between_parties(same, PLAIN | RECORDS)


def _topology(crossed: Crossed) -> Shown:
    return shown(crossed.message, {"TOPOLOGY"})


@pytest.mark.second_tier
def test_counts_follow_from_the_job_the_number_of_records_and_the_topology(runs: Runs) -> None:
    """The parties' accounts are what these three give, of the trees before and after."""
    for crossed, accounts in (runs.before, runs.far):
        _assert_counts_by_layout(runs.job, crossed, accounts)


def _assert_counts_by_layout(job: str, crossed: list[Crossed], accounts: list[jobs_pb2.PartyAccount]) -> None:
    """The accounts that the coordinator received are those that the job, N and the topology give."""
    params = JOBS[job]
    bounds = [*loss_for("binary:logistic", 2).bounds(), 1] if isinstance(params, BoostingParams) else [1, 1]
    slots = Slots(tuple(width_for(N, largest) for largest in bounds))
    blocks = HERE.parties[1:]
    shapes = {party: [(BINS, bool(np.isnan(column).any())) for column in block.T] for party, block in blocks}
    cost = Cost(job_of(job), N, shapes, slots, by_sets="by sets" in job).of(Topology.of(crossed))
    of_party = {each.party: each.account for each in accounts if each.party != COORDINATOR}
    for party, account in of_party.items():
        assert {each.name: each.count for each in account.operations} == cost.operations[party]
        assert {each.name: each.count for each in account.ciphertexts} == cost.ciphertexts[party]
    sent: Counter[tuple[str, str, str]] = Counter()
    messages: Counter[tuple[str, str, str]] = Counter()
    for account in of_party.values():
        for row in account.traffic:
            if row.to != COORDINATOR:
                place = getattr(row, "from"), row.to, row.step
                sent[place] += row.bytes
                messages[place] += row.messages if row.disclosure == "CONTROL" else 0
    assert sent == cost.sent
    assert messages == cost.messages


@pytest.mark.parametrize("scheme", [LATTICE, pytest.param(PAILLIER, marks=pytest.mark.second_tier)])
def test_other_labels_of_equal_trees_are_not_seen(scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every label turned to the other class: splits are the same, and so are all plain fields and all sizes."""
    monkeypatch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
    monkeypatch.setattr("treetap.party.setup.steps.secrets", SimpleNamespace(token_bytes=bytes))
    params = replace(JOBS["boosting on a lattice"], base_score=0.5)
    act = training(spec(params, scheme=scheme))
    columns, content = HERE.tables[LABEL_HOLDER]
    table = content["train"]
    labels = [1 - label for label in table.column("y").to_pylist()]
    turned = table.set_column(table.column_names.index("y"), "y", pa.array(labels))
    others = {**HERE.tables, LABEL_HOLDER: (columns, {**content, "train": turned})}
    (before, _), (after, _) = (observed(tmp_path / "f", each, act) for each in (HERE.tables, others))
    assert len(before) > 100
    assert between_parties(before, PLAIN | RECORDS) == between_parties(after, PLAIN | RECORDS)
    topologies = [[(each[:3], _topology(each)) for each in crossed] for crossed in (before, after)]
    assert topologies[0] == topologies[1]
    if scheme == LATTICE:  # words and halves differ, although their sizes do not
        words, again = (
            {each.message.SerializeToString() for each in crossed if each.step in DRAWN} for crossed in (before, after)
        )
        assert words
        assert not words & again
