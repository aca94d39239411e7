"""The strongest test, of forests: trained apart, the model is what a naive trainer finds on the joined table."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleModel, OracleSplit, OracleTree, oracle_predict
from tests.simulator import Federation, Message, finished
from tests.worlds import World, assert_oracles_model, assert_oracles_scores, manifest, spec, world
from treetap.protocols.key_options import PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees.metrics import evaluate
from treetap.trees.params import ForestParams


@dataclass(frozen=True)
class Shape:
    """A world's shape and the parameters that are tried on it."""

    world: dict[str, Any]
    params: dict[str, Any] = field(default_factory=dict)


TARGETS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two classes": ({}, {"criterion": "gini"}),
    "seven classes": ({"objective": "multi:softprob", "classes": 7}, {"criterion": "gini"}),
    "numbers": ({"objective": "reg:squarederror"}, {"criterion": "squared_error"}),
}
SHAPES = {
    "three parties": Shape({"dims": (2, 2, 1), "missing": 0.15}, {"max_bin": 8}),
    "label holder without columns": Shape({"dims": (0, 2, 2), "missing": 0.1}, {"max_bin": 6, "min_samples_leaf": 3}),
    "few records and columns": Shape(
        {"dims": (3, 3, 2), "missing": 0.1}, {"subsample": 0.4, "colsample_bytree": 0.4, "seed": 7}
    ),
    "few values, hence ties": Shape({"dims": (2, 2, 2), "levels": 1, "missing": 0.1}, {"max_bin": 32}),
    "a value that means missing": Shape(
        {"dims": (2, 2), "missing": 0.3, "sentinel": -999.0}, {"missing": -999.0, "max_bin": 5}
    ),
    "parties that sit trees out": Shape(
        {"dims": (1, 2, 2), "missing": 0.1},
        {"n_estimators": 4, "party_dropout": {"feature-b": 0.5, "feature-c": 0.6}},
    ),
    "drawn with replacement": Shape({"dims": (2, 0, 2), "n": 50}, {"bootstrap": True, "subsample": 1.0}),
}


def case(target: str, shape: str, **changes: Any) -> tuple[World, ForestParams]:
    of_world, of_params = TARGETS[target]
    base = ForestParams(n_estimators=2, max_depth=3, max_bin=8)
    return world(**of_world, **SHAPES[shape].world), replace(base, **of_params, **SHAPES[shape].params, **changes)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("target", "shape", "binning", "scheme"),
    [
        (target, shape, binning, PAILLIER)
        for target in TARGETS
        for shape in SHAPES
        for binning in ("global", "per-node")
    ],
)
async def test_the_federation_finds_and_uses_the_oracles_forest(
    target: str, shape: str, binning: str, scheme: str, tmp_path: Path
) -> None:
    """Trees and scores are the oracle's, also of new records with NaN where training had none, and encrypted."""
    here, params = case(target, shape, binning=binning)
    oracle = here.oracle(params)

    federation = Federation(tmp_path, here.tables)
    finished(await federation.train(spec(params, len(here.blocks), scheme=scheme)))
    assert_oracles_model(federation.states, oracle)
    assert any(len(tree.nodes) > 1 for tree in oracle)
    for table, protocol, parties, first in (
        ("train", "interactive", here.parties, 0),
        ("", "interactive", here.newcomers, len(here.y)),
        ("", "eini", here.newcomers, len(here.y)),
    ):
        asked = predict_request(model="job", table=table, block=17, protocol=protocol)
        predicted = finished(await federation.predict(asked))
        assert_oracles_scores(predicted.predictions, oracle, parties, first)


def _alone(tree: OracleTree, whole: OracleModel) -> OracleModel:
    """A forest of one of its trees."""
    found = OracleModel(whole.base_margin, 1)
    found.averaged = True
    found.append(tree)
    return found


async def test_measures_are_those_of_the_mean_of_the_trees(tmp_path: Path) -> None:
    """After the last tree the label holder publishes the measures of what the forest predicts for its own records.

    Those out of bag are of the mean over the trees that have not drawn a record, in a resumed job too.
    """
    here, params = case("seven classes", "three parties")
    oracle = here.oracle(params)

    each = np.array([oracle_predict(_alone(tree, oracle), here.parties) for tree in oracle])
    left_out = np.array([params.drawn(t, len(here.y)) == 0 for t in range(len(oracle))])
    known = left_out.any(axis=0)
    assert 2 < known.sum() < len(here.y)
    means = np.nansum(np.where(left_out[:, :, None], each, 0), axis=0)[known] / left_out.sum(axis=0)[known, None]

    federation = Federation(tmp_path, here.tables)

    def kill(message: Message) -> None:
        if (message.word, message.served) == ("publish", False):
            federation.hook = None
            federation.kill("label-holder")
            federation.start("label-holder")

    federation.hook = kill
    await federation.train(spec(params, len(here.blocks)))
    trained = await federation.resume()
    found = {metric.name: metric.value for metric in trained.metrics}
    assert manifest(federation.state("label-holder"))["training_metrics"] == pytest.approx(found)
    expected = evaluate("gini", np.array(oracle_predict(oracle, here.parties)), here.y)
    out_of_bag = evaluate("gini", means, here.y[known])
    assert found == pytest.approx(
        {f"train_{name}": value for name, value in expected.items()}
        | {f"oob_{name}": value for name, value in out_of_bag.items()}
    )


def test_ties_and_missing_values_were_there() -> None:
    """The worlds above exercise what they claim: ties, both missing directions, records drawn more than once."""
    tied = 0
    directions, covers = set(), set()
    for shape in ("few values, hence ties", "three parties", "drawn with replacement"):
        for binning in ("global", "per-node"):
            here, params = case("seven classes", shape, binning=binning)
            oracle = here.oracle(params)
            tied += oracle.ties
            splits = [node for tree in oracle for node in tree.nodes.values() if isinstance(node, OracleSplit)]
            directions |= {split.missing_left for split in splits}
            covers |= {split.cover for split in splits}
    assert tied > 0
    assert directions == {True, False}
    assert 50.0 in covers
