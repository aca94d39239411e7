"""Sample weights in a federation: sums that just fit, what other parties see of weights, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tests.blindness.comparison import PLAIN, RECORDS, Shown, between_parties, of_coordinator, shown
from tests.blindness.observed import Crossed, observed
from tests.blindness.test_trainings import training
from tests.library.trees.tables import drawn_weights
from tests.worlds import spec, weighted, world
from treetap.errors import ConfigError, Malformed
from treetap.party.boosting.ciphers import layout
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.expansion import ExpansionRules
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT, check_sums, loss_for
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
#: Numbers whose product is rounded.
MOST, POSITIVE = 3.7, 1.9
OBJECTIVES = {"binary:logistic": 2, "multi:softprob": 3, "reg:squarederror": 1}
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=4, min_child_weight=0.1, max_sample_weight=MOST)
HERE = world(30, (1, 2, 1), seed=4)


def _params(objective: str) -> BoostingParams:
    positive = POSITIVE if objective == "binary:logistic" else 1.0
    return BoostingParams(objective=objective, max_sample_weight=MOST, scale_pos_weight=positive)


def _heaviest(objective: str, records: int) -> tuple[np.ndarray, np.ndarray]:
    """g and h of records of the largest weight: certain and wrong for the largest |g|, undecided for the largest h."""
    params, loss = _params(objective), loss_for(objective, max(OBJECTIVES[objective], 2))
    labels = np.ones(records, dtype=np.int64)
    found = []
    for score in (-1e3, 0.0):
        scores = np.zeros((records, loss.outputs))
        scores[:, -1 if loss.outputs == 1 else 1] = score
        factors = params.factors(labels, np.full(records, MOST))
        found.append(loss.quantise(*loss.gradients(scores, labels), factors))
    return found[0].g[:, -1 if loss.outputs == 1 else 1], found[1].h[:, -1 if loss.outputs == 1 else 1]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_heaviest_sums_fit_their_slots(objective: str) -> None:
    """All records have the largest weight and derivatives: sums of any number of them decode to what they are."""
    for records in (1, 2, 3, 1000, 4095, 4096):
        g, h = _heaviest(objective, records)
        slots = layout(_params(objective), records, 1)
        sums = [int(g.astype(object).sum()), int(h.astype(object).sum()), records]
        for signed in (sums, [-sums[0], *sums[1:]]):
            plain = slots.encode([np.array([each], dtype=np.int64) for each in signed])[0]
            assert slots.decode(plain, 1)[0].tolist() == signed
        most, share = loss_for(objective, 2).bounds(_params(objective).largest_factor)
        assert abs(sums[0]) <= records * most
        assert sums[1] <= records * share
        if objective != "multi:softprob":  # three undecided classes have less than ½
            assert sums[1] >= records * (share - 1)
        if objective != "reg:squarederror":  # its g is scaled
            assert abs(sums[0]) >= records * (most - 1)


def test_sums_beyond_63_bits_are_refused() -> None:
    """As soon as records times the largest factor could leave an int64, at the centralised trainer as at parties."""
    check_sums("binary:logistic", 2**20 - 1, 2.0**10)
    for params in (BoostingParams(max_sample_weight=2.0**10), BoostingParams(scale_pos_weight=2.0**10)):
        layout(params, 2**20 - 1, 1)
        with pytest.raises(ConfigError, match="give a smaller max_sample_weight or scale_pos_weight"):
            layout(params, 2**20, 1)
    assert (2**20 - 1) * 2**10 * UNIT < 2**62


def test_offered_sums_have_the_bounds_of_weighted_records() -> None:
    """Sums that only weighted records have are accepted, those that none have are not."""
    params = _params("binary:logistic")
    values = np.tile(np.array([0, 1, 1], dtype=np.int64), (4, 1))
    growing = GrowingTree(values, BoostingCriterion(1.0, params), ExpansionRules(2), subtract=True)
    most, share = loss_for("binary:logistic", 2).bounds(params.largest_factor)
    assert most > UNIT
    growing.check_offered(np.array([[[2 * most, 2 * share, 2], [-most, 0, 1]]]))
    for wrong in ([2 * most + 1, 0, 2], [0, share + 1, 1], [0, -1, 1]):
        with pytest.raises(Malformed, match="no records of it can have them"):
            growing.check_offered(np.array([[wrong]]))


def test_messages_depend_on_weights_by_the_topology_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 1 show nowhere; of other weights up to the first message with another topology nothing differs."""
    monkeypatch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", lambda: random.Random(5))
    heavy, other = (weighted(HERE, drawn_weights(30, MOST, seed)) for seed in (0, 1))
    act = training(spec(PARAMS, key_bits=512, obfuscation="standard"))
    tables = (HERE.tables, weighted(HERE, np.ones(30)).tables, heavy.tables, other.tables)
    without, ones, one, two = (observed(tmp_path / "f", each, act)[0] for each in tables)
    assert of_coordinator(without) == of_coordinator(ones)
    assert between_parties(without, PLAIN | RECORDS) == between_parties(ones, PLAIN | RECORDS)
    pairs = list(zip(one, two, strict=False))
    same = next(k for k, (a, b) in enumerate(pairs) if _of(a, {"TOPOLOGY"}) != _of(b, {"TOPOLOGY"}))
    assert same > 10
    assert all(_of(a, {"CONTROL", "SIZE"}) == _of(b, {"CONTROL", "SIZE"}) for a, b in pairs[:same])


def _of(crossed: Crossed, classes: set[str]) -> tuple[str, str, str, Shown]:
    return crossed.sender, crossed.to, crossed.step, shown(crossed.message, classes)
