"""Screenings: sums, figures and report are those of the joined table; others learn no figure; none makes a model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.boosting.categories import categorical_world
from tests.campaign.cipher import KeysMade, ciphers
from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, World, lacking, spec, weighted, world
from treetap.errors import BadInput, ConfigError, UnknownJob
from treetap.models.store import REPORT, SCREEN, read_manifest, read_model
from treetap.party.alignment import pairs as alignment
from treetap.party.defences.settings import ColumnPrivacyTable, Defences
from treetap.protocols.job_spec import check_spec, screening_of
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees import screening
from treetap.trees.binning import bin_table
from treetap.trees.params import OWN_MODEL, BoostingParams, ForestParams
from treetap.trees.screening import own_scores
from treetap.wire.v2 import exchange_pb2, growth_pb2, setup_pb2

HOLDER, B, C = PARTIES
PARAMS = BoostingParams(max_bin=48)
#: A world of few values in each column, so that each is a bin.
HERE = world(100, dims=(2, 2, 1), missing=0.1, levels=3)


def _job(params: BoostingParams = PARAMS, **changes: Any) -> setup_pb2.JobSpec:
    return spec(params.screened(), **{"screen": True} | changes)


@pytest.fixture(autouse=True)
def _in_the_order_of_ids(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The label holder's order is that of ids; ciphertexts are transparent, and own models of few trees."""
    monkeypatch.setattr(screening, "OWN_MODEL", replace(OWN_MODEL, n_estimators=3))
    monkeypatch.setattr(alignment, "permutation", np.arange)
    with ciphers(KeysMade(), transparent=True):
        yield


@dataclass(frozen=True)
class Case:
    """A screening of a world."""

    here: World = HERE
    job: dict[str, Any] = field(default_factory=dict)
    encode: Any = None


CASES = {
    "three parties": Case(),
    "on a lattice": Case(job={"scheme": LATTICE}),
    "two parties, on a lattice, withheld": Case(
        world(120, dims=(1, 3), missing=0.1, levels=3),
        {"params": replace(PARAMS, instance_spaces="withheld"), "scheme": LATTICE, "parties": 2},
    ),
    "a label holder without columns": Case(world(120, dims=(0, 3), levels=3), {"parties": 2}),
    "categories": Case(categorical_world(160, missing=0.1), encode="categorical"),
    "from the left": Case(lacking(HERE, 0.3), {"alignment": "psi", "join": "left"}),
    "from the left, on a lattice": Case(
        lacking(categorical_world(160), 0.3), {"alignment": "psi", "join": "left", "scheme": LATTICE}, "categorical"
    ),
}


def _cells(federation: Federation) -> dict[str, list[Any]]:
    """What the label holder has stored: by party, of each column its name and the sums of its bins."""
    stored: dict[str, list[Any]] = read_model(federation.state(HOLDER) / "models" / "job")[1][0][SCREEN]["cells"]
    return stored


def _report(federation: Federation) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((federation.state(HOLDER) / "models" / "job" / REPORT).read_bytes())
    return report


def _own_score(here: World) -> np.ndarray[Any, Any]:
    names = [str(j) for j in range(here.blocks[0].shape[1])]
    return own_scores(bin_table(here.blocks[0], names, PARAMS.max_bin, may_be_constant=names), here.y)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("name", CASES)
async def test_sums_and_figures_are_those_of_the_joined_table(name: str, tmp_path: Path) -> None:
    """By value of each column, as a loop over the records has them; figures by the words of their definitions."""
    case = CASES[name]
    here, job = case.here, dict(case.job)
    federation = Federation(tmp_path, here.tables, encode=case.encode)
    finished(await federation.train(_job(job.pop("params", PARAMS), **job)))
    scores = _own_score(here) if case.encode is None else None  # of categories the counts are enough
    stored, report = _cells(federation), _report(federation)
    good, bad = int((here.y == 0).sum()), int((here.y == 1).sum())
    assert (report["own"]["good"], report["own"]["bad"]) == (good, bad)
    for (party, block), said in zip(list(here.parties)[1:], report["parties"], strict=True):
        assert said["party"] == party
        for j, (column, figures) in enumerate(zip(block.T, said["columns"], strict=True)):
            cells = np.array(stored[party][j][1])
            values = [*np.unique(column[~np.isnan(column)]), np.nan]
            rows = [np.isnan(column) if np.isnan(value) else column == value for value in values]
            counts = [(int(at.sum()), int((here.y[at] == 0).sum()), int((here.y[at] == 1).sum())) for at in rows]
            assert cells[:, 2:].tolist() == [list(count) for count in counts]
            if scores is not None:
                sums = [((scores - here.y)[at].sum(), (scores * (1 - scores))[at].sum()) for at in rows]
                assert cells[:, :2] / 2**32 == pytest.approx(np.array(sums), abs=1e-6)
            there = [count for count in counts if count[0]]
            _check_figures(figures, there, good, bad)
            assert figures["missing_share"] == pytest.approx(np.isnan(column).mean())
            assert figures["name"] == ""


def _check_figures(figures: dict[str, Any], counts: list[tuple[int, int, int]], good: int, bad: int) -> None:
    value = -(len(counts) - 1) * (1 / good + 1 / bad)
    for of_bin, (records, goods, bads) in zip(figures["bins"], counts, strict=True):
        more = 0.5 if 0 in (goods, bads) else 0
        woe = math.log(((goods + more) / good) / ((bads + more) / bad))
        value += ((goods + more) / good - (bads + more) / bad) * woe
        assert (of_bin["records"], of_bin["bad"]) == (records, bads)
        assert of_bin["woe"] == pytest.approx(woe)
    assert figures["iv"] == pytest.approx(value)


async def test_bins_of_few_records_stay_merged(tmp_path: Path) -> None:
    """`min_cell_records` holds in a screening: no bin of that party has fewer, and together they are all records."""
    federation = Federation(tmp_path, HERE.tables, defences={B: Defences(min_cell_records=12)})
    finished(await federation.train(_job()))
    for column in _report(federation)["parties"][0]["columns"]:
        assert min(of["records"] for of in column["bins"]) >= 12
        assert sum(of["records"] for of in column["bins"]) == len(HERE.y)


async def test_what_leaves(tmp_path: Path) -> None:
    """Names go where a policy lets them; the coordinator gets no figure, and no party a record but the draw of all."""
    names = {B: {"emits": {"FEATURE_NAME": ["parties"]}}}
    federation = Federation(tmp_path, HERE.tables, policies=names)
    status = finished(await federation.train(_job()))
    assert [[column["name"] for column in it["columns"]] for it in _report(federation)["parties"]] == [
        ["b0", "b1"],
        [""],
    ]
    assert not status.metrics
    assert not status.history
    assert not (federation.state(B) / "models" / "job" / REPORT).exists()


async def test_no_model_comes_of_it(tmp_path: Path) -> None:
    """Predictions and trainings from it are refused by its name; parties do not take a coordinator's word for it."""
    federation = Federation(tmp_path, HERE.tables)
    finished(await federation.train(_job()))
    with pytest.raises(UnknownJob, match="was a screening"):
        await federation.predict(predict_request(model="job", protocol="interactive"))
    with pytest.raises(UnknownJob, match="was a screening"):
        await federation.train(spec(PARAMS, base_model="job"), "next")
    assert read_manifest(federation.state(B) / "models" / "job")[SCREEN] is True


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("victim", "word"),
    [(B, "build_histograms"), *((HOLDER, word) for word in ("choose_splits", "store_tree", "publish"))],
)
async def test_a_killed_screening_goes_on(victim: str, word: str, tmp_path: Path) -> None:
    """Its report is that of one which was not."""
    here, reports = world(60, dims=(1, 1), levels=2), []
    for folder, killed in (("killed", True), ("whole", False)):
        federation = Federation(tmp_path / folder, here.tables)
        if killed:
            federation.kill_at(victim, lambda message: message.word == word, back=True)
        status = await federation.train(_job(parties=2))
        finished(status if status.state == "finished" else await federation.resume())
        reports.append(_report(federation))
    assert reports[0] == reports[1]


def _more_bins(columns: growth_pb2.ScreenedColumns) -> None:
    columns.columns[0].bins += 1


def _other_kind(columns: growth_pb2.ScreenedColumns) -> None:
    columns.columns[0].categories, columns.columns[0].bins = True, columns.columns[0].bins - 1
    columns.columns[0].has_missing = False


@pytest.mark.parametrize("lie", [_more_bins, _other_kind])
async def test_columns_that_do_not_fit_their_sums(lie: Any, tmp_path: Path) -> None:
    here = world(120, dims=(1, 1), levels=3)

    def tamper(_sender: str, _to: str, parcel: exchange_pb2.PeerMessage) -> None:
        if parcel.growth.HasField("screened_columns"):
            lie(parcel.growth.screened_columns)

    federation = Federation(tmp_path, here.tables)
    federation.tamper = tamper
    failed(await federation.train(_job(parties=2)), B)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "a policy that does not send it": (
        {"policies": {B: {"emits": {"COLUMN_BINS": []}}}},
        {},
        "does not send COLUMN_BINS to label-holder",
    ),
    "more attempts a day than a partner may": (
        {"policies": {B: {"partners": {HOLDER: {"jobs_per_day": 0}}}}},
        {},
        "jobs_per_day",
    ),
    "weights": ({"tables": weighted(HERE, np.ones(100)).tables}, {}, "weight and a screening do not go together"),
    "noisy labels": (
        {"defences": {HOLDER: Defences.model_validate({"label_dp": {"epsilon": 1.0}})}},
        {},
        "label_dp and a screening do not go together",
    ),
    "noise on sums": (
        {"defences": {B: Defences(column_privacy=ColumnPrivacyTable(epsilon=1.0, delta=1e-6, trees=1))}},
        {},
        "column_privacy and a screening do not go together",
    ),
    "few of a class": ({"tables": world(18, dims=(2, 2, 1)).tables}, {}, "of each for scores out of fold"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refusals_of_parties(case: str, tmp_path: Path) -> None:
    given, changes, said = REFUSED[case]
    federation = Federation(tmp_path, **{"tables": HERE.tables} | given)
    failed(await federation.train(_job(**changes)), said)


@pytest.mark.parametrize(
    ("params", "changes", "said"),
    [
        (replace(PARAMS, objective="multi:softprob"), {}, "a screening tells two classes apart"),
        (ForestParams(), {}, "a screening and protocol 'forest' do not go together"),
    ],
)
def test_jobs_that_can_have_none(params: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        screening_of(spec(params, **changes))


def test_a_training_becomes_a_screening_without_its_models_parameters() -> None:
    """Of the job's own what a screening has; a coordinator that adds others is refused."""
    job = spec(replace(PARAMS, n_estimators=50, subsample=0.5, seed=3), eval_table="more", scheme=PAILLIER)
    made = screening_of(job)
    assert (made.eval_table, made.table, made.scheme) == ("", job.table, job.scheme)
    assert screening_of(made) == made
    made.parameters.boosting.trees.max_depth = 3
    with pytest.raises(BadInput, match="nothing else of a model"):
        check_spec(made)


async def test_a_second_screening_of_a_pair_counts_with_the_first(tmp_path: Path) -> None:
    """And with trainings: one attempt a day is one of either."""
    partner = {B: {"partners": {HOLDER: {"jobs_per_day": 1}}}}
    here = world(60, dims=(1, 1), levels=2)
    federation = Federation(tmp_path, here.tables, policies=partner)
    finished(await federation.train(_job(parties=2)))
    failed(await federation.train(_job(parties=2), "again"), "jobs_per_day of its policy are used up")
    failed(await federation.train(spec(PARAMS, parties=2), "training"), "jobs_per_day of its policy are used up")
