"""The strongest test: trained apart, without noise, the model is the centralised one, split for split, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pivodl.federations import assert_central_model, centralised, federation_of, job_of, transparent
from tests.pivodl.worlds import OBJECTIVES, some_params, some_world
from tests.simulator import Faults, finished, run
from tests.trainings import oracle
from tests.worlds import World, assert_oracles_model, manifest
from treetap.trees.pivodl_params import PivodlParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")


def _train(folder: Path, here: World, params: PivodlParams, faults: Faults | None = None, **changes: Any) -> int:
    """Train a federation and compare its shards with the centralised model; returns the number of splits."""
    model = centralised(here, params)

    async def main() -> None:
        job = job_of(here, params, **changes)
        federation = federation_of(folder, here, job, faults)
        finished(await federation.train(job))
        assert_central_model(federation.states, model)
        assert_oracles_model(federation.states, oracle(here, params))

    run(main())
    return sum(len(tree.splits) for tree in model.trees)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_federation_finds_the_centralised_model(objective: str, tmp_path: Path) -> None:
    """In random worlds of 2 to 6 parties, with random labels and thresholds, some parties without labels."""
    splits, unlabelled = [], 0
    with transparent():
        for seed in range(3 if objective != "logistic" else 5):
            params = some_params(seed, **OBJECTIVES[objective])
            here = some_world(seed, params.objective)
            splits.append(_train(tmp_path / str(seed), here, params))
            unlabelled += len(here.ownership) < len(here.tables)
    assert min(splits) > 0
    assert unlabelled > 0


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("objective", "seed"), [("logistic", 3), ("logistic", 6), ("softmax", 1)])
def test_the_papers_steps_find_the_centralised_model_too(objective: str, seed: int, tmp_path: Path) -> None:
    """Where thresholds, draws, sums of children and lists are those that were published."""
    params = some_params(seed, max_depth=4, gamma=0.0, as_published=True, **OBJECTIVES[objective])
    with transparent():
        assert _train(tmp_path, some_world(seed, params.objective, 2 + seed % 3), params) > 2


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", [1, 2])
def test_gains_compared_in_secret_give_the_same_model(seed: int, tmp_path: Path) -> None:
    """Under real keys: the model is that of announced gains."""
    params = some_params(seed, gain_comparison="secure", n_estimators=1, max_depth=2, instance_threshold=1)
    assert _train(tmp_path, some_world(seed, params.objective, 3 + seed), params) > 0


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_with_keys_that_hide(objective: str, tmp_path: Path) -> None:
    """Three parties under real keys of 512 bits, over a network that loses, doubles and reorders."""
    params = some_params(2, **OBJECTIVES[objective], n_estimators=1, max_depth=2)
    faults = Faults(drop=0.02, lose_reply=0.02, double=0.1, delay_s=0.5, late_s=2.0, seed=3)
    assert _train(tmp_path, some_world(2, params.objective, 3), params, faults) > 0


@pytest.mark.second_tier
async def test_private_set_intersection_aligns_the_records(tmp_path: Path) -> None:
    """The order of records follows from it and changes no split; shards name the job's parameters."""
    params = some_params(4)
    here = some_world(4, params.objective, 3)
    model = centralised(here, params)

    with transparent():
        job = job_of(here, params, alignment="psi")
        federation = federation_of(tmp_path, here, job)
        assert (await federation.train(job)).state == "finished"
        assert_central_model(federation.states, model)
        for state in federation.states.values():
            assert manifest(state)["params"]["instance_threshold"] == params.instance_threshold
