"""Objectives of counts and amounts in a federation, and scores that begin with an exposure or a base margin.

The model is the oracle's whatever hides the sums, and so are predictions, evaluations, attributions and answers to
clients, which all need what scores begin with.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import sklearn.metrics

from tests.growth.test_shared_sums import job_of
from tests.library.trees.tables import drawn_weights
from tests.oracle import COX, LOGARITHMIC, QUANTILE, oracle_predict
from tests.serving.served import LABEL_HOLDER, B, C, ask, config, serve, without
from tests.serving.test_new_records import PERMITTED, record
from tests.simulator import Federation, finished
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
@pytest.mark.parametrize("objective", [*LOGARITHMIC, QUANTILE, COX])
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
