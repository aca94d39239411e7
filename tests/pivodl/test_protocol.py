"""PIVODL: models, metrics and noise are those of the centralised reference.

- The strongest test: trained apart, without noise, the model is the centralised one, split for split, bit for bit.
- Metrics of a training: sums under masks, in the label's own unit whatever that is.
- With noise the federation is the centralised trainer that is given the same noise: it adds nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pivodl.federations import assert_central_model, centralised, federation_of, job_of, released, transparent
from tests.pivodl.worlds import OBJECTIVES, binned, some_params, some_world
from tests.simulator import Faults, finished
from tests.trainings import oracle
from tests.worlds import World, assert_oracles_model, spread
from treetap.trees.centralised_pivodl import train
from treetap.trees.pivodl_params import PivodlParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")


async def _train(folder: Path, here: World, params: PivodlParams, faults: Faults | None = None, **changes: Any) -> int:
    """Train a federation and compare its shards with the centralised model; returns the number of splits."""
    model = centralised(here, params)

    job = job_of(here, params, **changes)
    federation = federation_of(folder, here, job, faults)
    finished(await federation.train(job))
    assert_central_model(federation.states, model)
    assert_oracles_model(federation.states, oracle(here, params))
    return sum(len(tree.splits) for tree in model.trees)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
async def test_the_federation_finds_the_centralised_model(objective: str, tmp_path: Path) -> None:
    """In random worlds of 2 to 6 parties, with random labels and thresholds, some parties without labels."""
    splits, unlabelled = [], 0
    with transparent():
        for seed in (0, 2, 4) if objective == "logistic" else range(3):
            params = some_params(seed, **OBJECTIVES[objective])
            here = some_world(seed, params.objective)
            splits.append(await _train(tmp_path / str(seed), here, params))
            unlabelled += len(here.ownership) < len(here.tables)
    assert min(splits) > 0
    assert unlabelled > 0


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("objective", "seed"), [("logistic", 3), ("logistic", 6), ("softmax", 1)])
async def test_the_papers_steps_find_the_centralised_model_too(objective: str, seed: int, tmp_path: Path) -> None:
    """Where thresholds, draws, sums of children and lists are those that were published."""
    params = some_params(seed, max_depth=4, gamma=0.0, as_published=True, **OBJECTIVES[objective])
    with transparent():
        assert await _train(tmp_path, some_world(seed, params.objective, 2 + seed % 3), params) > 2


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", [1, 2])
async def test_gains_compared_in_secret_give_the_same_model(seed: int, tmp_path: Path) -> None:
    """Under real keys: the model is that of announced gains."""
    params = some_params(seed, gain_comparison="secure", n_estimators=1, max_depth=2, instance_threshold=1)
    assert await _train(tmp_path, some_world(seed, params.objective, 3 + seed), params) > 0


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
async def test_with_keys_that_hide(objective: str, tmp_path: Path) -> None:
    """Three parties under real keys of 512 bits, over a network that loses, doubles and reorders."""
    params = some_params(2, **OBJECTIVES[objective], n_estimators=1, max_depth=2)
    faults = Faults(drop=0.02, lose_reply=0.02, double=0.1, delay_s=0.5, late_s=2.0, seed=3)
    assert await _train(tmp_path, some_world(2, params.objective, 3), params, faults) > 0


@pytest.mark.second_tier
async def test_private_set_intersection_aligns_the_records(tmp_path: Path) -> None:
    """The order of records follows from it and changes no split."""
    params = some_params(4)
    with transparent():
        assert await _train(tmp_path, some_world(4, params.objective, 3), params, alignment="psi") > 0


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("unit", [1.0, 1e7])
async def test_the_error_of_a_regression_is_in_the_unit_of_the_label(unit: float, tmp_path: Path) -> None:
    """Labels of tens of millions have squares that no masked sum of their own unit would hold."""
    params = some_params(2, **OBJECTIVES["squared error"])
    here = some_world(2, params.objective, 3)
    here = spread(replace(here, y=here.y * unit), [place % 3 for place in range(len(here.y))])
    model = centralised(here, params)
    scores = model.predict(binned(here, params))
    expected = float(np.sqrt(np.mean((model.outcome(scores) - here.y) ** 2)))
    job = job_of(here, params)
    with transparent():
        status = finished(await federation_of(tmp_path, here, job).train(job))
    found = {each.name: each.value for each in status.metrics}
    assert found["train_rmse"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
async def test_the_federation_is_the_centralised_model_of_the_same_noise(objective: str, tmp_path: Path) -> None:
    """Split for split, bit for bit; without the noise its splits are others."""
    params = some_params(7, **OBJECTIVES[objective], epsilon=8.0, n_estimators=3, max_depth=2, gamma=0.0)
    here = some_world(7, params.objective, 4)
    with transparent():
        federation = federation_of(tmp_path, here, job_of(here, params))
        finished(await federation.train(job_of(here, params)))
    found = released(federation.states)
    drawn: set[tuple[int, int]] = set()

    def release(tree: int, leaf: int, weight: Any) -> Any:
        del weight
        drawn.add((tree, leaf))
        return found[tree, leaf]

    model = train(binned(here, params), here.y, params, here.ownership, release)
    assert_central_model(federation.states, model)
    assert drawn == set(found)
    exact = train(binned(here, params), here.y, replace(params, epsilon=None), here.ownership)
    assert [tree.splits for tree in exact.trees] != [tree.splits for tree in model.trees]
