"""The centralised trainer predicts what xgboost predicts on the same bins, where no split ties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.library.trees.tables import Parties, drawn_weights, encoded, labels_for, signal, table
from tests.oracle import oracle_predict, oracle_train
from treetap.errors import ConfigError
from treetap.trees.binning import BinnedTable
from treetap.trees.centralised import train
from treetap.trees.ensemble import importance
from treetap.trees.params import BoostingParams

xgb = pytest.importorskip("xgboost")

# A float32 program ranks two splits as we do if their loss changes differ by more than its rounding.
SAFE_LEAD = 2e-5
#: A table on which no split of the weighted models ties.
WEIGHTED = 13
#: The same of continued ones.
CONTINUED = 1


def as_input(tables: list[tuple[str, BinnedTable]]) -> npt.NDArray[np.float64]:
    """All columns' bin numbers side by side, NaN for missing: what xgboost is trained on."""
    blocks = []
    for _, part in tables:
        codes = part.codes.astype(np.float64)
        codes[part.codes == np.array([feature.n_bins for feature in part.features])] = np.nan
        blocks.append(codes)
    return np.hstack(blocks)


def xgb_scores(
    X: npt.NDArray[Any],
    labels: npt.NDArray[Any],
    params: BoostingParams,
    classes: int,
    weights: npt.NDArray[Any] | None = None,
    base: Any = None,
) -> tuple[Any, Any]:
    """xgboost trained with the same parameters: booster and its margins on the training records (N, outputs)."""
    same = ("objective", "max_depth", "learning_rate", "reg_lambda", "gamma", "min_child_weight", "multi_strategy",
            "base_score", "reg_alpha", "max_delta_step", "max_leaves", "grow_policy")  # fmt: skip
    given = {name: getattr(params, name) for name in same if getattr(params, name) is not None}
    settings: dict[str, Any] = given | {"tree_method": "hist", "max_bin": 4096, "nthread": 1}
    if params.objective == "multi:softprob":
        settings["num_class"] = classes
    if params.scale_pos_weight != 1:
        settings["scale_pos_weight"] = params.scale_pos_weight
    data = xgb.DMatrix(X, label=labels, weight=weights)
    booster = xgb.train(settings, data, params.n_estimators, xgb_model=base)
    return booster, booster.predict(data, output_margin=True).reshape(len(X), -1)


KINDS = [
    ("binary:logistic", "one_output_per_tree", 2),
    ("reg:squarederror", "one_output_per_tree", 2),
    ("multi:softprob", "one_output_per_tree", 3),
    ("multi:softprob", "multi_output_tree", 3),
]
SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"seed": 9, "n": 100, "widths": [2, 3]}, {}),
    ({"seed": 2, "n": 150, "widths": [3, 2], "missing": 0.2}, {}),
    ({"seed": 2, "n": 120, "widths": [2, 2]}, {"gamma": 0.5, "reg_lambda": 3.0, "learning_rate": 0.7}),
    ({"seed": 2, "n": 160, "widths": [4, 2], "missing": 0.1}, {"min_child_weight": 4.1, "max_bin": 16}),
    ({"seed": 1, "n": 120, "widths": [2, 3]}, {"reg_alpha": 1.3}),
    ({"seed": 15, "n": 120, "widths": [2, 3]}, {"max_delta_step": 0.4, "learning_rate": 0.8}),
    ({"seed": 11, "n": 140, "widths": [3, 2], "missing": 0.1}, {"reg_alpha": 0.6, "max_delta_step": 0.5}),
    ({"seed": 4, "n": 200, "widths": [3, 2], "missing": 0.1}, {"max_leaves": 5, "max_depth": 4}),
    ({"seed": 1, "n": 200, "widths": [2, 3]}, {"grow_policy": "lossguide", "max_leaves": 5, "max_depth": 4}),
]


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_scores_equal_xgboost(kind: tuple[str, str, int], shape: int) -> None:
    """Margins agree to 1e-5 on random continuous columns; the oracle vouches that no split tied."""
    objective, strategy, classes = kind
    columns, options = SHAPES[shape]
    parties: Parties = table(**columns)
    labels = labels_for(objective, signal(parties, 20 + columns["seed"]), classes)
    params = replace(
        BoostingParams(objective=objective, multi_strategy=strategy, n_estimators=4, max_depth=3, max_bin=12),
        base_score=0.5,
        **options,
    )
    oracle = oracle_train(parties, labels, params, classes)
    assert oracle.ties == 0
    assert oracle.lead > SAFE_LEAD
    tables = encoded(parties, params.max_bin)
    model = train(tables, labels, params, classes)
    _, theirs = xgb_scores(as_input(tables), labels, params, classes)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)


def test_importance_equals_xgboost() -> None:
    """Weight, gain and cover per feature are xgboost's."""
    parties = table(seed=2, n=150, widths=[2, 3])
    labels = labels_for("binary:logistic", signal(parties, 22), 2)
    params = BoostingParams(n_estimators=4, max_depth=3, max_bin=12, base_score=0.5)
    oracle = oracle_train(parties, labels, params)
    assert oracle.ties == 0
    assert oracle.lead > SAFE_LEAD
    tables = encoded(parties, params.max_bin)
    model, first = train(tables, labels, params), {"p0": 0, "p1": 2}
    ours = importance(model.ensemble.used_trees, lambda s: f"f{first[s.owner] + model.entry(s)[0].feature}")
    booster, _ = xgb_scores(as_input(tables), labels, params, 2)
    for kind in ("weight", "gain", "cover", "total_gain", "total_cover"):
        theirs = booster.get_score(importance_type=kind)
        assert {name: getattr(value, kind) for name, value in ours.items()} == pytest.approx(theirs, rel=1e-4)


def test_raw_thresholds_route_new_records_as_xgboost_does() -> None:
    """Few-valued raw columns (each value its own bin): unseen records with missing values get xgboost's score."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 40, size=(300, 4)).astype(float)
    X[:, 0][rng.random(300) < 0.15] = np.nan
    labels = 2.0 * np.nan_to_num(X[:, 0], nan=60.0) + X[:, 1] + rng.normal(size=300)
    params = BoostingParams(objective="reg:squarederror", n_estimators=3, max_depth=3, max_bin=64, base_score=0.0)
    assert oracle_train([("p", X)], labels, params).lead > SAFE_LEAD
    tables = encoded([("p", X)], 64)
    model = train(tables, labels, params)
    booster, theirs = xgb_scores(X, labels, params, 2)
    np.testing.assert_allclose(model.predict(tables), theirs, rtol=1e-5)
    fresh = rng.permuted(X, axis=0)
    fresh[:, 1][rng.random(300) < 0.3] = np.nan  # a column that was complete in training
    expected = booster.predict(xgb.DMatrix(fresh), output_margin=True)
    ours = model.predict([("p", tables[0][1].encode(fresh))])[:, 0]
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("kind", "positive"),
    [*((kind, 1.0) for kind in KINDS), (KINDS[0], 3.0)],
    ids=lambda each: each if isinstance(each, float) else f"{each[0]}-{each[1]}",
)
def test_weighted_scores_equal_xgboost(kind: tuple[str, str, int], positive: float) -> None:
    """Sample weights, 0 among them, and the weight of the second class multiply g and h as in xgboost."""
    objective, strategy, classes = kind
    parties = table(seed=WEIGHTED, n=130, widths=[2, 3], missing=0.1)
    labels = labels_for(objective, signal(parties, 20 + WEIGHTED), classes)
    weights = drawn_weights(130, 5.0)
    params = BoostingParams(
        objective=objective, multi_strategy=strategy, n_estimators=4, max_depth=3, max_bin=12, min_child_weight=2.0,
        base_score=None if objective == "reg:squarederror" else 0.5, max_sample_weight=5.0, scale_pos_weight=positive,
    )  # fmt: skip
    oracle = oracle_train(parties, labels, params, classes, weights=weights)
    assert oracle.ties == 0
    assert oracle.lead > SAFE_LEAD
    tables = encoded(parties, params.max_bin)
    model = train(tables, labels, params, classes, weights=weights)
    _, theirs = xgb_scores(as_input(tables), labels, params, classes, weights)
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    plain = train(tables, labels, replace(params, scale_pos_weight=1.0), classes)
    assert np.abs(plain.predict(tables) - theirs).max() > 0.05


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind[0]}-{kind[1]}")
def test_continued_scores_equal_xgboost(kind: tuple[str, str, int]) -> None:
    """Further rounds after those of a base model, which keeps its base score; as by the naive oracle."""
    objective, strategy, classes = kind
    parties = table(seed=CONTINUED, n=120, widths=[2, 3])
    labels = labels_for(objective, signal(parties, 20 + CONTINUED), classes)
    before = BoostingParams(
        objective=objective, multi_strategy=strategy, n_estimators=2, max_depth=3, max_bin=12, base_score=0.4
    )
    after = replace(before, n_estimators=3, max_depth=2, learning_rate=0.2, base_score=None)
    first = oracle_train(parties, labels, before, classes)
    oracle = oracle_train(parties, labels, after, classes, base=first)
    assert first.ties == oracle.ties == 0
    assert min(first.lead, oracle.lead) > SAFE_LEAD
    tables = encoded(parties, before.max_bin)
    base = train(tables, labels, before, classes)
    model = train(tables, labels, after, classes, base=base)
    booster, _ = xgb_scores(as_input(tables), labels, before, classes)
    continued, theirs = xgb_scores(as_input(tables), labels, after, classes, base=booster)
    assert continued.num_boosted_rounds() == 5
    np.testing.assert_allclose(model.predict(tables), theirs, atol=1e-5)
    np.testing.assert_allclose(model.predict(tables), oracle_predict(oracle, parties), atol=1e-9)
    with pytest.raises(ConfigError, match="the model to continue from was trained on other bins"):
        train(encoded(parties, 5), labels, after, classes, base=base)
