"""Objectives of counts and amounts in a federation, and scores that begin with an exposure or a base margin.

The model is the oracle's whatever hides the sums, and so are predictions, evaluations, attributions and answers to
clients, which all need what scores begin with.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.growth.test_shared_sums import job_of
from tests.library.trees.tables import drawn_weights
from tests.oracle import LOGARITHMIC, oracle_predict
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
        expected = np.exp(expected) if params.objective in LOGARITHMIC else 1 / (1 + np.exp(-expected))
        name = "prediction" if params.objective in LOGARITHMIC else "probability_1"
        assert scored.column(name).to_numpy() == pytest.approx(expected, rel=1e-12)
    return federation


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("scheme", [LATTICE, PAILLIER])
@pytest.mark.parametrize("objective", LOGARITHMIC)
async def test_counts_and_amounts_are_the_oracles(objective: str, scheme: str, tmp_path: Path) -> None:
    """By both schemes, with weights, exposures, and an early end."""
    params = replace(COUNTS, objective=objective, max_sample_weight=3.0, early_stopping_rounds=2, n_estimators=5)
    here = weighted(counted(objective), drawn_weights(60, 3.0))
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
