"""Objectives of numbers are XGBoost's: base scores, scores that begin with offsets, quantile leaves and measures.

Found by experiment, on tables on which no split ties; what labels they take.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import sklearn.metrics

from tests.library.trees.boosters import OPTIONS, as_input, boosted, matrix, told_apart
from tests.library.trees.tables import drawn_weights, encoded, labels_for, signal, table
from tests.oracle import AFT, COX, LOGARITHMIC, QUANTILE, _of_hazards
from treetap.errors import DataError, Refused
from treetap.protocols.limits import Limits
from treetap.trees import survival
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.centralised import CentralModel, train
from treetap.trees.evaluation import evaluate
from treetap.trees.loss import loss_for
from treetap.trees.offsets import Offsets
from treetap.trees.params import BoostingParams
from treetap.trees.survival import concordance

xgb = pytest.importorskip("xgboost")
N = 130
PARTIES = table(seed=3, n=N, widths=[2, 2], missing=0.1)
TABLES = encoded(PARTIES, 8)
WEIGHTS = drawn_weights(N, 5.0)


def params_of(objective: str, **changes: Any) -> BoostingParams:
    own = {"tweedie_variance_power": 1.3, "quantile_alpha": 0.8, "max_sample_weight": 5.0}
    return BoostingParams(objective=objective, n_estimators=4, max_depth=2, max_bin=8, **own | changes)


def begun(params: BoostingParams, y: Any, offsets: Offsets, weights: Any = None) -> CentralModel:
    """The model whose scores begin so."""
    rounds = BoostingRounds(params, 2, y, weights, offsets=offsets)
    return train(TABLES, y, params, 2, weights=weights, rounds=rounds)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("objective", [*LOGARITHMIC, QUANTILE, AFT])
def test_the_base_score_is_xgboosts(objective: str, weights: Any) -> None:
    """The mean of labels, of quantiles theirs, of times 0.5: xgboost has the same, and no base score need be given."""
    params, y = params_of(objective), labels_for(objective, signal(PARTIES, 3), 2)
    told_apart(PARTIES, y, params, weights=weights)
    model = train(TABLES, y, params, 2, weights=weights)
    _, theirs = boosted(matrix(as_input(TABLES), y, weight=weights), params)
    np.testing.assert_allclose(model.predict(TABLES), theirs, atol=2e-5)


@pytest.mark.parametrize("objective", [*LOGARITHMIC, AFT, "binary:logistic", "reg:squarederror"])
def test_a_base_margin_is_xgboosts(objective: str) -> None:
    """Xgboost leaves the base score out; predictions add the margins."""
    y = labels_for(objective, signal(PARTIES, 3), 2)
    margins = np.random.default_rng(0).normal(size=N)
    params = params_of(objective)
    told_apart(PARTIES, y, params, margins=margins.tolist())
    model = begun(params, y, Offsets(margins, {"base_margin": "m"}))
    assert model.ensemble.base_margin == (0.0,)
    data = matrix(as_input(TABLES), y, base_margin=margins)
    np.testing.assert_allclose(model.predict(TABLES) + margins[:, None], boosted(data, params)[1], atol=2e-5)


@pytest.mark.parametrize("objective", LOGARITHMIC)
def test_an_exposure_is_a_base_margin_of_logarithms(objective: str) -> None:
    """Scores begin with the mean for a unit of exposure, by what xgboost's users compute by hand."""
    y, exposure = labels_for(objective, signal(PARTIES, 3), 2), np.random.default_rng(1).uniform(0.1, 2.0, N)
    params = params_of(objective)
    told_apart(PARTIES, y, params, exposure=exposure.tolist(), weights=WEIGHTS)
    logs = np.log(exposure)
    model = begun(params, y, Offsets(logs, {"exposure": "e"}), WEIGHTS)
    rate = (WEIGHTS * y).sum() / (WEIGHTS * exposure).sum()
    assert model.ensemble.base_margin == pytest.approx([np.log(rate)])
    data = xgb.DMatrix(as_input(TABLES), label=y, base_margin=logs + np.log(rate), weight=WEIGHTS)
    np.testing.assert_allclose(model.predict(TABLES) + logs[:, None], boosted(data, params)[1], atol=2e-5)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighted"])
@pytest.mark.parametrize("objective", [*LOGARITHMIC, QUANTILE, COX, AFT])
def test_measures_are_xgboosts_and_the_first_is_its_default(objective: str, weights: Any) -> None:
    """Early stopping watches it; deviance and D² of reports are scikit-learn's."""
    params, y = params_of(objective), labels_for(objective, signal(PARTIES, 3), 2)
    data = matrix(as_input(TABLES), y, weight=weights)
    own = {name: getattr(params, name) for name in OPTIONS.get(objective, ())}
    scores = train(TABLES, y, params, 2, weights=weights).predict(TABLES)
    loss = loss_for(objective, 2, params.to_dict())
    measured = loss.metric(scores, y, weights)
    names = {"reg:gamma": ["gamma-nloglik"], AFT: ["interval-regression-accuracy"]}.get(objective, [])
    for name in [None, *names]:
        theirs: dict[str, Any] = {}
        settings = {
            "objective": objective,
            "eta": 0.0,
            "verbosity": 0,
            **own,
            **({"eval_metric": name} if name else {}),
        }
        data.set_base_margin(scores[:, 0])
        xgb.train(settings, data, 1, evals=[(data, "it")], evals_result=theirs, verbose_eval=False)
        ((key, (value,)),) = theirs["it"].items()
        assert measured[key.split("@")[0].replace("-", "_")] == pytest.approx(value, rel=2e-5)
        if name is None:
            assert loss.watched(scores, y, weights) == pytest.approx(value, rel=2e-5)
    report = evaluate(objective, loss.transform(scores), y, [], options=params.to_dict())["measures"]
    if objective in (QUANTILE, COX, AFT):
        assert "d2" not in report
        assert objective == QUANTILE or [*report] == [*measured, "concordance"]
        return
    power = {"count:poisson": 1.0, "reg:gamma": 2.0}.get(objective, 1.3)
    predicted = np.exp(scores[:, 0])
    assert report["d2"] == pytest.approx(sklearn.metrics.d2_tweedie_score(y, predicted, power=power))
    assert report["deviance"] == pytest.approx(sklearn.metrics.mean_tweedie_deviance(y, predicted, power=power))


@pytest.mark.parametrize(
    ("objective", "labels", "fault"),
    [
        ("count:poisson", [1.0, -1.0, 2.0], "1 labels of count:poisson are negative"),
        ("reg:tweedie", [1.0, -1.0, -2.0], "2 labels of reg:tweedie are negative"),
        ("reg:gamma", [1.0, 0.0, 2.0], "0 or negative, and it takes numbers above 0: use reg:tweedie"),
        ("count:poisson", [0.0, 0.0, 0.0], "are 0 in all records to train on"),
        ("reg:gamma", [1.0, np.inf, 2.0], "must be finite"),
        ("survival:cox", [-1.0, 0.0, 2.0], "1 labels of survival:cox are 0: a time of an event is above 0"),
        *(
            (AFT, [[1.0, 2.0], wrong, [1.0, np.inf]], "finite lower ones above 0, and upper ones not below them")
            for wrong in ([0.0, 1.0], [np.inf, np.inf], [2.0, 1.0], [np.nan, 1.0], [1.0, np.nan])
        ),
        (AFT, [1.0, 2.0, 3.0], r"are bounds \(N, 2\)"),
    ],
)
def test_labels_that_an_objective_does_not_take(objective: str, labels: list[Any], fault: str) -> None:
    """Are refused, before anything is grown."""
    tables = encoded(table(seed=0, n=3, widths=[1, 1]), 4)
    with pytest.raises(DataError, match=fault):
        train(tables, np.array(labels), params_of(objective), 2)


def test_ties_of_times_count_alike_in_any_order() -> None:
    """By Breslow's rule, which xgboost has where no events tie; risks of later times need no order of rows."""
    draw = np.random.default_rng(0)
    times, scores = draw.integers(1, 6, 40).astype(float), draw.normal(size=40)
    y = np.where(draw.random(40) < 0.3, -times, times)
    g, h = survival.hazard_derivatives(scores, y)
    expected = np.array([_of_hazards(scores.tolist(), y.tolist(), [True] * 40, i) for i in range(40)])
    np.testing.assert_allclose(np.stack([g, h], axis=1), expected, atol=1e-12)
    order = draw.permutation(40)
    for own, other in zip((g, h), survival.hazard_derivatives(scores[order], y[order]), strict=True):
        assert (own[order] == other).all()
    assert g.sum() == pytest.approx(0.0, abs=1e-12)


def test_records_set_aside_are_at_no_risk() -> None:
    """Their labels change no tree, only the round at which training ends."""
    y = labels_for(COX, signal(PARTIES, 3), 2)
    params = params_of(COX, early_stopping_rounds=100, validation_share=0.3)
    aside = ~params.training_rows(N)
    other = np.where(aside, y + 7.0 * np.sign(y), y)
    trees = [train(TABLES, labels, params, 2).ensemble.trees for labels in (y, other)]
    assert trees[0] == trees[1]


def test_derivatives_beyond_all_numbers_are_refused() -> None:
    """Where scores run away, by name of what holds them."""
    loss = loss_for("count:poisson", 2, BoostingParams(objective="count:poisson").to_dict())
    with pytest.raises(DataError, match="lower learning_rate, or set max_delta_step"):
        loss.quantise(*loss.gradients(np.array([[0.0], [800.0]]), np.ones(2)))


@pytest.mark.parametrize("distribution", survival.DISTRIBUTIONS)
@pytest.mark.parametrize("scale", [0.25, 2.0])
def test_derivatives_of_times_are_xgboosts_far_from_the_bounds_too(distribution: str, scale: float) -> None:
    """By the leaves of single records under two penalties: where likelihoods vanish, limits and clips are its own."""
    scores = np.float32([-200.0, -3.0, -0.5, 0.4, 2.0, 200.0]).astype(float)
    own = {"aft_loss_distribution": distribution, "aft_loss_distribution_scale": scale}
    for bounds in ([1.0, 1.0], [0.5, 2.0], [1.0, np.inf], [0.25, 0.25], [3.0, 1e30]):
        rows = np.tile(bounds, (len(scores), 1))
        g, h = survival.time_derivatives(scores, rows, own)
        for place, score in enumerate(scores):
            data = matrix(np.zeros((1, 1)), rows[:1], base_margin=[score])
            for penalty in (1.0, 10.0):
                settings = {"objective": AFT, "reg_lambda": penalty, "eta": 1.0, "nthread": 1, **own} | {
                    "min_child_weight": 0
                }
                (theirs,) = xgb.train(settings, data, 1).predict(data, output_margin=True) - score
                assert -g[place] / (h[place] + penalty) == pytest.approx(theirs, abs=5e-5, rel=1e-4)


def test_concordance_is_the_share_of_pairs_in_order() -> None:
    """By all pairs, with ties of times and of predictions, intervals, and records that were censored."""
    for count in (1, 2, 7, 64, 90):
        draw, right, pairs = np.random.default_rng(count), 0.0, 0
        lower, expected = draw.integers(1, 9, count).astype(float), draw.integers(0, 7, count).astype(float)
        later, kind = lower + draw.integers(1, 3, count), draw.integers(0, 3, count)
        upper = np.choose(kind, [lower, later, np.full(count, np.inf)])
        for i, j in product(range(count), repeat=2):
            if upper[i] < lower[j] or (upper[i] == lower[j] and lower[j] < upper[j]):
                pairs, right = pairs + 1, right + (1 + np.sign(expected[j] - expected[i])) / 2
        own = concordance(expected, np.stack([lower, upper], axis=1))
        assert own == pytest.approx(right / pairs if pairs else np.nan, nan_ok=True)
    times = np.where(kind == 2, -lower, lower)
    bounds = np.stack([lower, np.where(kind == 2, np.inf, lower)], axis=1)
    assert concordance(expected, times) == concordance(expected, bounds)


@pytest.mark.parametrize("objective", [*LOGARITHMIC, COX, AFT])
def test_a_limit_of_the_weight_of_sides_refuses_what_has_no_bound(objective: str) -> None:
    """A record's h may be any number: the rule implies no number of records, neither by a policy nor on arrival."""
    params = params_of(objective, min_child_weight=1e9)
    with pytest.raises(Refused, match=f"bounds no number of records where objective = '{objective}'"):
        Limits(min_child_weight=1.0).check("party", params)
    assert params.fewest_drawn == (1, 2)
    Limits(min_child_weight=1.0).check("party", params_of(QUANTILE, min_child_weight=5.0))
