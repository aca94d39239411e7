"""g and h in few bits where several parties have labels: each rounds its own, by steps that all of them know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attacks.pivodl.solved_gains import SolvedGains
from tests.attacks.pivodl import PARAMS, shared_world, trained, views
from tests.pivodl.federations import assert_central_model, centralised, federation_of, job_of, transparent
from tests.pivodl.jobs import SMALL, SPREAD
from tests.pivodl.oracle import pivodl_train
from tests.pivodl.test_centralised import assert_oracles
from tests.pivodl.worlds import OBJECTIVES, RULES, some_params, some_world
from tests.simulator import run
from treetap.trees.gradient_bits import Steps
from treetap.trees.loss import UNIT
from treetap.trees.pivodl_params import PivodlParams
from treetap.trees.shared_label_loss import SharedLabelLoss

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")


def _few_bits(params: PivodlParams) -> PivodlParams:
    """Five bits, or the fewest of a regression."""
    return replace(params, gradient_bits=14 if params.regression else 5)


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_naive_trainer_finds_the_same_model(objective: str, rules: str, seed: int) -> None:
    """Of random worlds: leaves have the weights of rounded sums, since no party opens others."""
    params = _few_bits(some_params(seed, **OBJECTIVES[objective], **RULES[rules]))
    here = some_world(seed, params.objective)
    model = centralised(here, params)
    assert_oracles(model, pivodl_train(here.parties, list(here.y), params, here.classes, here.ownership))
    exact = centralised(here, replace(params, gradient_bits=None))
    leaves = [[tree.leaves for tree in each.trees] for each in (model, exact)]
    assert repr(leaves[0]) != repr(leaves[1])


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_federation_finds_the_centralised_model(objective: str, tmp_path: Path) -> None:
    """Split for split, bit for bit, whichever party labels which record."""
    params = _few_bits(some_params(2, **OBJECTIVES[objective]))
    here = some_world(2, params.objective, 4)
    model = centralised(here, params)

    async def main() -> None:
        federation = federation_of(tmp_path, here, job_of(here, params), max_gradient_bits=14)
        status = await federation.train(job_of(here, params))
        assert status.state == "finished", status.error
        assert_central_model(federation.states, model)
        await federation.close()

    with transparent():
        run(main())
    assert sum(len(tree.splits) for tree in model.trees) > 0


def test_every_party_has_a_say_in_the_bits(tmp_path: Path) -> None:
    """Whoever labels records or not: the job ends at its opening."""

    async def main() -> None:
        job = job_of(SPREAD, SMALL)
        federation = federation_of(tmp_path, SPREAD, job, max_gradient_bits=32)
        status = await federation.train(job)
        assert "does not sum its columns over exact numbers of the records" in status.error
        await federation.close()

    run(main())


def test_owners_that_round_apart_round_as_one() -> None:
    """The units of some records are those that all together have; their steps follow from the loss alone."""
    params = PivodlParams(gradient_bits=3, seed=4)
    loss, rng = SharedLabelLoss(params), np.random.default_rng(0)
    scores, labels = rng.normal(size=(50, 1)), rng.integers(0, 2, 50)
    whole = loss.summands(scores, labels, 2, np.arange(50))
    own = np.sort(rng.permutation(50)[:20])
    assert (loss.summands(scores[own], labels[own], 2, own) == whole[own]).all()
    assert loss.summands(scores[:0], labels[:0], 2, own[:0]).shape == (0, 2)
    assert isinstance(loss.summed, Steps)
    assert (loss.summed.g.tolist(), loss.summed.h.tolist()) == ([1 / 3], [1 / 28])
    assert loss.summed.exact is None
    assert np.abs(whole[:, 0]).max() <= 3
    assert whole[:, 1].min() >= 1
    exact = SharedLabelLoss(replace(params, gradient_bits=None))
    assert (exact.summands(scores, labels, 2, np.arange(50)) == exact.gradients(scores, labels)).all()
    assert exact.summed == 1.0
    assert exact.one == UNIT


def test_rounding_is_known_to_all_and_stops_no_inversion_of_gains(tmp_path: Path) -> None:
    """By the seed a party computes the units of each record for either label: sums that it solves are the true ones."""
    here, params = shared_world(), replace(PARAMS, gradient_bits=6, n_estimators=1)
    states = trained(tmp_path, here, params)
    loss = SharedLabelLoss(params)
    units = loss.summands(np.zeros((len(here.y), 1)), here.y, 0, np.arange(len(here.y)))
    solved = 0
    for view in views(states).values():
        assert view.pivodl is not None
        (tree,) = SolvedGains(view.pivodl, len(here.y), here.y.astype(np.int64)).trees
        for rows, positives in tree.solved:
            assert positives == int(here.y[rows].sum())
            assert any((units[rows].sum(axis=0) == sums).all() for sums in tree.sums.values())
            solved += 1
    assert solved > 0  # five to eleven, by the order in which parties happen to list their candidates
