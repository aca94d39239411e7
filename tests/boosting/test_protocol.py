"""The strongest test: trained apart, the model is the one that a naive trainer finds on the joined table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.library.trees.tables import drawn_weights
from tests.oracle import oracle_predict
from tests.simulator import Federation, finished
from tests.worlds import assert_oracles_model, assert_oracles_scores, manifest, spec, weighted, world
from treetap.protocols.key_options import PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams

OBJECTIVES: dict[str, dict[str, Any]] = {
    "logistic": {"objective": "binary:logistic"},
    "softmax, a tree per class": {"objective": "multi:softprob", "multi_strategy": "one_output_per_tree"},
    "softmax, vector leaves": {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"},
    "squared error": {"objective": "reg:squarederror"},
}


@dataclass(frozen=True)
class Shape:
    """A world's shape and the parameters that are tried on it."""

    world: dict[str, Any]
    params: dict[str, Any] = field(default_factory=dict)
    weighted: bool = False


SHAPES = {
    "three parties": Shape({"dims": (2, 2, 1), "missing": 0.15}, {"max_bin": 8}),
    "label holder without columns": Shape({"dims": (0, 2, 2), "missing": 0.1}, {"max_bin": 6}),
    "two parties, early stopping": Shape(
        {"dims": (1, 3), "missing": 0.1, "n": 80},
        {"n_estimators": 8, "learning_rate": 0.9, "early_stopping_rounds": 1, "validation_share": 0.25, "seed": 2},
    ),
    "sampled rows and columns": Shape(
        {"dims": (3, 3, 2), "missing": 0.1}, {"subsample": 0.6, "colsample_bytree": 0.6, "n_estimators": 3}
    ),
    "few values, hence ties": Shape({"dims": (2, 2, 2), "levels": 1, "missing": 0.1}, {"max_bin": 32}),
    "a value that means missing": Shape(
        {"dims": (2, 2), "missing": 0.3, "sentinel": -999.0}, {"missing": -999.0, "max_bin": 7}
    ),
    "parties that sit trees out": Shape(
        {"dims": (1, 2, 2), "missing": 0.1},
        {"n_estimators": 4, "party_dropout": {"feature-b": 0.4, "feature-c": 0.6}},
    ),
    "trees in which nobody has columns": Shape(
        {"dims": (0, 2, 2), "n": 50}, {"n_estimators": 3, "party_dropout": {"feature-b": 0.8, "feature-c": 0.8}}
    ),
    "a party without columns": Shape({"dims": (2, 0, 2), "n": 40}, {"max_bin": 5}),
    "gamma and least weight": Shape(
        {"dims": (2, 2, 1), "missing": 0.2},
        {"gamma": 0.7, "min_child_weight": 2.5, "reg_lambda": 0.3, "base_score": 0.4, "max_depth": 5},
    ),
    "weighted records, penalties, bounded steps": Shape(
        {"dims": (1, 1, 2), "missing": 0.1, "n": 50},
        {
            **{"max_sample_weight": 7.5, "subsample": 0.9, "reg_alpha": 0.3, "max_delta_step": 0.7, "seed": 4},
            **{"n_estimators": 3, "max_bin": 6, "early_stopping_rounds": 1, "validation_share": 0.25},
        },
        weighted=True,
    ),
    "everything at once": Shape(
        {"dims": (2, 3, 1), "missing": 0.2, "levels": 2, "n": 90},
        {
            **{"subsample": 0.8, "colsample_bytree": 0.7, "max_bin": 4, "min_child_weight": 0.5, "seed": 1},
            **{"n_estimators": 4, "early_stopping_rounds": 2, "validation_share": 0.2},
        },
    ),
}


def _params(objective: str, shape: Shape) -> BoostingParams:
    base = BoostingParams(n_estimators=2, max_depth=3, max_bin=8)
    return replace(base, **OBJECTIVES[objective], **shape.params)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("objective", "shape", "scheme"),
    [(objective, shape, PAILLIER) for objective in OBJECTIVES for shape in SHAPES],
)
async def test_the_federation_finds_and_uses_the_oracles_model(
    objective: str, shape: str, scheme: str, tmp_path: Path
) -> None:
    """Trees, best round and scores are the oracle's, also of new records with NaN where training had none."""
    params = _params(objective, SHAPES[shape])
    classes = 3 if params.objective == "multi:softprob" else 2
    here = world(objective=params.objective, classes=classes, **SHAPES[shape].world)
    if SHAPES[shape].weighted:
        here = weighted(here, drawn_weights(len(here.y), params.max_sample_weight))
        if params.objective == "binary:logistic":
            params = replace(params, scale_pos_weight=2.0)
    oracle = here.oracle(params)
    assert oracle.ties or "hence ties" not in shape or params.objective != "multi:softprob"
    assert len(oracle) < params.n_estimators * oracle.trees_per_round or "early" not in shape

    federation = Federation(tmp_path, here.tables)
    trained = await federation.train(spec(params, len(here.blocks), scheme=scheme))
    assert (trained.state, trained.error, trained.scheme) == ("finished", "", scheme)
    states = {name: federation.state(name) for name in here.tables}
    assert_oracles_model(states, oracle)
    assert manifest(states["label-holder"])["best_round"] == oracle.best_round
    assert any(len(tree.nodes) > 1 for tree in oracle)
    for table, parties, first in (("train", here.parties, 0), ("", here.newcomers, len(here.y))):
        predicted = await federation.predict(predict_request(model="job", table=table, block=17))
        assert (predicted.state, predicted.error, predicted.scheme) == ("finished", "", "")
        assert_oracles_scores(predicted.predictions, oracle, parties, first)


async def test_a_file_of_ids_selects_the_records(tmp_path: Path) -> None:
    """Only the named records are predicted, in the order of their ids, whatever the file's order."""
    params = BoostingParams(n_estimators=2, max_depth=2, max_bin=4)
    here = world(n=30, missing=0.1)
    wanted = [25, 3, 17, 4]

    federation = Federation(tmp_path, here.tables)
    await federation.train(spec(params))
    (tmp_path / "label-holder" / "ids.txt").write_text("".join(f"r{i:05d}\n" for i in wanted))
    request = predict_request(model="job", table="train", records_file="ids.txt", block=3)
    predicted = finished(await federation.predict(request))
    table = pq.read_table(predicted.predictions)
    assert table.column("id").to_pylist() == [f"r{i:05d}" for i in sorted(wanted)]
    everybody = [score for (score,) in oracle_predict(here.oracle(params), here.parties)]
    expected = [everybody[i] for i in sorted(wanted)]
    assert table.column("score").to_pylist() == pytest.approx(expected, abs=1e-9)
