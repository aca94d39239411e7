"""Objectives of counts and amounts in a federation, and scores that begin with an exposure or a base margin.

The model is the oracle's whatever hides the sums, and so are predictions, evaluations, attributions and answers to
clients, which all need what scores begin with.
"""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.metrics

from tests.blindness.comparison import PLAIN, RECORDS, between_parties, of_coordinator
from tests.blindness.observed import observed
from tests.blindness.test_trainings import training
from tests.growth.test_shared_sums import job_of
from tests.library.trees.tables import drawn_weights
from tests.oracle import AFT, COX, LOGARITHMIC, QUANTILE, oracle_predict
from tests.serving.served import LABEL_HOLDER, B, C, ask, config, serve, without
from tests.serving.test_new_records import PERMITTED, record
from tests.simulator import Federation, failed, finished
from tests.worlds import (
    World,
    assert_oracles_model,
    assert_oracles_scores,
    begun,
    lattice_tolerance,
    manifest,
    spec,
    weighted,
    world,
)
from treetap.errors import BadInput
from treetap.lab.experiment.joint_model import open_shards
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams

COUNTS = BoostingParams(objective="count:poisson", n_estimators=3, max_depth=3, max_bin=6, min_child_weight=0.1)
HERE = partial(world, 60, (1, 2, 1), missing=0.1)


def counted(objective: str = "count:poisson", **begins: Any) -> World:
    """A world of counts or amounts, whose scores begin with columns."""
    return begun(HERE(objective=objective), **begins)


async def _is_the_oracles(
    here: World, params: BoostingParams, job: Any, folder: Path, *, within: Any = 1e-9, **asked: Any
) -> Federation:
    """Train and predict, also new records."""
    federation, oracle = Federation(folder, here.tables, dealer=bool(job.dealer)), here.oracle(params)
    finished(await federation.train(job))
    assert_oracles_model(federation.states, oracle)
    assert manifest(federation.state(LABEL_HOLDER))["base_margin"] == pytest.approx(oracle.base_margin, abs=1e-12)
    n = len(here.y)
    for table, parties, first in (("train", here.parties, 0), ("predict", here.newcomers, n)):
        request = predict_request(model="job", table=table, block=17, **asked)
        written = finished(await federation.predict(request))
        begins = here.begins[first : first + len(parties[0][1])]
        tolerance = within(oracle) if callable(within) else within
        assert_oracles_scores(written.predictions, oracle, parties, first, tolerance, begins)
        scored = pq.read_table(written.predictions)
        expected = scored.column("score").to_numpy()
        if params.objective == "binary:logistic":
            name, expected = "probability_1", 1 / (1 + np.exp(-expected))
        else:
            name, expected = "prediction", expected if params.objective == QUANTILE else np.exp(expected)
        assert scored.column(name).to_numpy() == pytest.approx(expected, rel=1e-12)
    return federation


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("scheme", [LATTICE, PAILLIER])
@pytest.mark.parametrize("objective", [*LOGARITHMIC, QUANTILE, COX, AFT])
async def test_counts_and_amounts_are_the_oracles(objective: str, scheme: str, tmp_path: Path) -> None:
    """By both schemes, with weights, exposures, drawn records, and an early end."""
    params = replace(COUNTS, objective=objective, max_sample_weight=3.0, early_stopping_rounds=2, n_estimators=5)
    params = replace(params, subsample=0.8, quantile_alpha=0.7)
    here = weighted(counted(objective, exposure=objective in LOGARITHMIC), drawn_weights(60, 3.0))
    await _is_the_oracles(here, params, spec(params, scheme=scheme), tmp_path)


@pytest.mark.parametrize("penalty", [0.0, 40.0])
async def test_shared_sums_of_counts_are_the_oracles(penalty: float, tmp_path: Path) -> None:
    """Without a largest step; also where the penalty is more than all h together."""
    params = replace(COUNTS, max_delta_step=0.0, instance_spaces="withheld", reg_lambda=penalty, n_estimators=2)
    here = counted()
    asked = {"protocol": "eini", "key_bits": 1024}
    await _is_the_oracles(here, params, job_of(params), tmp_path, **asked)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("way", ["interactive", "eini", "eini-lattice"])
@pytest.mark.parametrize("objective", ["count:poisson", "binary:logistic"])
async def test_a_base_margin_is_in_the_place_of_the_base_score(objective: str, way: str, tmp_path: Path) -> None:
    """In every way of predicting; an exposure is added to it."""
    here, params = counted(objective, margins=True, exposure=objective in LOGARITHMIC), COUNTS
    params = replace(params, objective=objective)
    more = {"within": partial(lattice_tolerance, share=1e-3)} if way == "eini-lattice" else {}
    asked = {"protocol": way, **({"key_bits": 1024} if way == "eini" else {})}
    await _is_the_oracles(here, params, spec(params), tmp_path, **more, **asked)


async def test_an_eval_table_and_an_evaluation_begin_so(tmp_path: Path) -> None:
    """Metrics of each round are XGBoost's of scores with exposures; the report has deviance and D²."""
    here = counted()
    holder = here.tables[LABEL_HOLDER]
    labelled = holder[1]["predict"].append_column("y", [np.arange(12) % 3])
    tables = here.tables | {LABEL_HOLDER: (holder[0], holder[1] | {"predict": labelled})}
    federation, oracle = Federation(tmp_path, tables), here.oracle(COUNTS)
    status = finished(await federation.train(spec(COUNTS, eval_table="predict")))
    assert_oracles_model(federation.states, oracle)
    ids = labelled.column("id").to_pylist()
    y = np.array([labelled.column("y").to_pylist()[ids.index(f"r{60 + i:05d}")] for i in range(12)])
    rate = np.exp(np.array(oracle_predict(oracle, here.newcomers))[:, 0] + here.begins[60:])
    losses = rate - y * np.log(rate) + np.array([math.lgamma(count + 1.0) for count in y.tolist()])
    measured = {metric.name: metric.value for metric in status.metrics}
    assert measured["eval_poisson_nloglik"] == pytest.approx(losses.mean(), rel=1e-9)
    written = finished(await federation.predict(predict_request(model="job", table="predict", evaluate=True)))
    measures = json.loads(Path(written.evaluation).read_text())["measures"]
    assert measures["poisson_nloglik"] == pytest.approx(losses.mean(), rel=1e-9)
    assert measures["d2"] == pytest.approx(sklearn.metrics.d2_tweedie_score(y, rate, power=1), rel=1e-9)
    assert measures["deviance"] == pytest.approx(sklearn.metrics.mean_poisson_deviance(y, rate), rel=1e-9)


@pytest.mark.second_tier
async def test_attributions_add_up_to_scores_that_begin_with_an_exposure(tmp_path: Path) -> None:
    """The expected score of each record has its own beginning."""
    here = counted()
    told = {party: {"emits": {"EXPLANATION": ["parties"]}} for party in (B, C)}
    federation = Federation(tmp_path, here.tables, policies=told)
    finished(await federation.train(spec(COUNTS)))
    request = predict_request("eini", model="job", table="predict", attributions=True, key_bits=1024)
    written = finished(await federation.predict(request))
    table = pq.read_table(written.attributions)
    expected, *values = (table.column(name).to_numpy() for name in table.column_names[2:])
    assert np.ptp(expected - here.begins[60:]) < 1e-6
    assert expected + np.sum(values, axis=0) == pytest.approx(table.column("score").to_numpy(), abs=1e-12)


async def test_a_served_model_needs_the_exposure_of_who_is_new(tmp_path: Path) -> None:
    """One of the table has the table's; of a new record it is a field, refused if missing or not above 0."""
    here = counted()
    ids = [f"r{60 + i:05d}" for i in range(3)]
    federation = Federation(
        tmp_path, without(here.tables, LABEL_HOLDER, ids[1:]), serve={LABEL_HOLDER: config()}, policies=PERMITTED
    )
    finished(await federation.train(spec(COUNTS, alignment="psi", obfuscation="standard")))
    await serve(federation, protocol="interactive", look_up=True)
    exact = np.array(oracle_predict(here.oracle(COUNTS), here.newcomers))[:, 0] + here.begins[60:]
    new = [record(name, here, exposure=float(here.exposure[60 + k])) for k, name in enumerate(ids)]
    answer = await ask(federation, ids[0], records=new[1:])
    assert [each.scores[0] for each in answer.predictions] == pytest.approx(exact[:3], abs=1e-9)
    assert [each.value for each in answer.predictions] == pytest.approx(np.exp(exact[:3]), rel=1e-9)
    faults = {0.0: "is not above 0", -1.0: "is not above 0", None: "is missing", "much": "holds a text"}
    wrong = [record(ids[1], here, exposure=given) for given in faults]
    refused = (await ask(federation, records=[record(ids[1], here)])).predictions
    assert "column 'exposure' is missing" in refused[0].fault
    for given, fault in zip(wrong, faults.values(), strict=True):
        (entry,) = (await ask(federation, records=[given])).predictions
        assert fault in entry.fault
        assert "exposure" in entry.fault
    await federation.close()


@pytest.mark.filterwarnings("ignore:a 512-bit")
def test_no_message_depends_on_the_scale_of_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between parties a training of 64 times as many events crosses as that of the events themselves."""
    monkeypatch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
    few, free = counted(), {"max_delta_step": 0.0, "reg_lambda": 0.0, "min_child_weight": 0.0}
    columns, content = few.tables[LABEL_HOLDER]
    place = content["train"].column_names.index("y")
    more = content["train"].set_column(
        place, "y", pa.array([64 * count for count in content["train"]["y"].to_pylist()])
    )
    tables = (few.tables, few.tables | {LABEL_HOLDER: (columns, content | {"train": more})})
    act = training(spec(replace(COUNTS, **free), key_bits=512, obfuscation="standard"))
    one, other = (observed(tmp_path / "f", each, act)[0] for each in tables)
    assert between_parties(one, PLAIN | RECORDS) == between_parties(other, PLAIN | RECORDS)
    assert of_coordinator(one) != of_coordinator(other)  # metrics


def _changed(here: World, table: str, column: str, cells: Any) -> Any:
    """The tables, with another column at the label holder, or without it."""
    columns, content = here.tables[LABEL_HOLDER]
    rows = content[table].drop_columns(column)
    rows = rows if cells is None else rows.append_column(column, pa.array(cells))
    return here.tables | {LABEL_HOLDER: (columns, content | {table: rows})}


@pytest.mark.parametrize(
    ("objective", "column", "cells", "fault"),
    [
        (
            "count:poisson",
            "exposure",
            [0.0] + [1.0] * 59,
            "row 1, exposure column 'exposure': the number is not above 0",
        ),
        ("count:poisson", "exposure", [None] + [1.0] * 59, "exposure column 'exposure': the number is missing"),
        ("count:poisson", "margins", [None] + [1.0] * 59, "base_margin column 'margins': the number is missing"),
        ("count:poisson", "y", [1.5] * 59 + [-2.0], "row 60 does not fit count:poisson: it is negative"),
        ("reg:gamma", "y", [1.0] * 59 + [0.0], "row 60 does not fit reg:gamma: it is 0 or negative"),
        ("count:poisson", "y", [0.0] * 60, "every record has the same target"),
        ("survival:cox", "y", [-1.0, -2.0] * 30, "label column 'y': is negative in every record: all are censored"),
        (AFT, "y", [1e-9] * 59 + [0.0], "row 60 does not fit survival:aft: it is 0 or negative"),
        (AFT, "y", [1e-9] * 59 + [np.inf], "label column 'y': the label at row 60 is missing or infinite"),
        (AFT, "y", [None] + [1e-9] * 59, "label column 'y': the label at row 1 is missing or infinite"),
        (AFT, "y", [9e9] * 60, " is above its upper bound in label_upper: write the same where the time is known"),
        (AFT, "upper", [None, np.inf] * 30, "no record has an upper bound in label_upper: all are censored"),
        (AFT, "upper", None, "survival:aft needs label_upper, the column of upper bounds, in the settings of a party"),
    ],
)
async def test_columns_that_do_not_fit_are_refused(
    objective: str, column: str, cells: Any, fault: str, tmp_path: Path
) -> None:
    """By table, row and column, before any other party hears of a record; no number is said."""
    here = counted(objective, margins=True, exposure=objective in LOGARITHMIC)
    federation = Federation(tmp_path, _changed(here, "train", column, cells))
    assert fault in failed(await federation.train(spec(replace(COUNTS, objective=objective)))).error


async def test_upper_bounds_are_of_times_alone(tmp_path: Path) -> None:
    """A job of another objective says so, and does not take lower bounds for its labels."""
    error = failed(await Federation(tmp_path, HERE(objective=AFT).tables).train(spec(COUNTS))).error
    assert "label column 'y': has upper bounds in label_upper, which count:poisson does not take" in error


@pytest.mark.parametrize("objective", [COX, AFT])
async def test_an_evaluation_of_times_has_their_concordance(objective: str, tmp_path: Path) -> None:
    """By records whose event is known: hazards are highest, and expected times lowest, where it comes first."""
    here, params = HERE(objective=objective), replace(COUNTS, objective=objective)
    holder, known = (
        here.tables[LABEL_HOLDER],
        {"y": np.arange(1.0, 13.0)} | ({"upper": [*range(1, 12), None]} if objective == AFT else {}),
    )
    table = holder[1]["predict"]
    for name, cells in known.items():
        table = table.append_column(name, pa.array(cells))
    federation = Federation(tmp_path, here.tables | {LABEL_HOLDER: (holder[0], holder[1] | {"predict": table})})
    finished(await federation.train(spec(params, eval_table="predict")))
    assert_oracles_model(federation.states, here.oracle(params))
    written = finished(await federation.predict(predict_request(model="job", table="predict", evaluate=True)))
    measures = json.loads(Path(written.evaluation).read_text())["measures"]
    scored, ids = pq.read_table(written.predictions), table.column("id").to_pylist()
    expected = dict(zip(scored["id"].to_pylist(), scored["prediction"].to_pylist(), strict=True))
    sign = -1.0 if objective == COX else 1.0
    pairs = [np.sign(expected[ids[j]] - expected[ids[i]]) * sign for i in range(12) for j in range(i + 1, 12)]
    assert measures["concordance"] == pytest.approx((1 + np.mean(pairs)) / 2)


async def test_tables_without_an_offset_are_refused(tmp_path: Path) -> None:
    """An eval table, and a table to predict; by the setting that is wanted."""
    here = counted()
    tables = _changed(here, "predict", "exposure", None)
    columns, content = tables[LABEL_HOLDER]
    labelled = content["predict"].append_column("y", pa.array([*range(12)]))
    federation = Federation(tmp_path, tables | {LABEL_HOLDER: (columns, content | {"predict": labelled})})
    error = failed(await federation.train(spec(COUNTS, eval_table="predict"))).error
    assert "has exposure, and table 'predict' none: an eval table has the same" in error
    finished(await federation.train(spec(COUNTS), "next"))
    error = failed(await federation.predict(predict_request(model="next", table="predict"))).error
    assert (
        "was trained with exposure = 'exposure', with which scores begin: name that column in table 'predict'" in error
    )
    with pytest.raises(BadInput, match="scores begin with exposure = 'exposure', which its parts alone do not have"):
        open_shards({name: state / "models" / "next" for name, state in federation.states.items()})
