"""Instance spaces withheld from feature parties: the model stays the oracle's, and predictions that would show them end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.boosting.categories import categorical_world
from tests.simulator import Federation, run
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores, lattice_tolerance, spec, world
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import setup_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
SMALL = BoostingParams(
    n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.1, instance_spaces="withheld", subsample=0.9
)
PADDED = replace(SMALL, pad_trees=True)
#: Messages that show a set of records or its size.
SHOWN = {"sampled_records", "instance_spaces"}


def job_of(params: BoostingParams, parties: int = 3, **changes: Any) -> setup_pb2.JobSpec:
    """A job on a lattice."""
    return spec(params, parties, scheme=LATTICE, **changes)


@dataclass(frozen=True)
class Case:
    """A world, the parameters that are tried on it, and how its tables are read."""

    params: BoostingParams
    world: Callable[[], World] = partial(world, 90, (1, 2, 2), missing=0.1)
    options: dict[str, Any] = field(default_factory=dict)


CASES = {
    "padded, missing values, drawn records": Case(replace(PADDED, max_depth=4, gamma=0.5)),
    "classes in vector leaves": Case(
        replace(SMALL, objective="multi:softprob", multi_strategy="multi_output_tree"),
        partial(world, 80, (1, 2, 2), objective="multi:softprob", classes=3),
    ),
    "a tree for each class, best split first": Case(
        replace(SMALL, objective="multi:softprob", grow_policy="lossguide", max_leaves=5, n_estimators=1),
        partial(world, 80, (1, 2, 2), objective="multi:softprob", classes=3, missing=0.1),
    ),
    "ties of few values, padded, limited leaves": Case(
        replace(PADDED, max_leaves=5), partial(world, 80, (2, 2, 2), levels=1, missing=0.1)
    ),
    "parties that sit trees out, padded": Case(
        replace(PADDED, n_estimators=4, party_dropout={FEATURE: 0.4, OTHER: 0.6})
    ),
    "label holder without columns, early stopping": Case(
        replace(SMALL, n_estimators=4, early_stopping_rounds=1, validation_share=0.25),
        partial(world, 80, (0, 2, 2), missing=0.1),
    ),
    "categories, padded": Case(
        replace(PADDED, max_cat_to_onehot=4, subsample=1.0),
        lambda: categorical_world(120, {LABEL_HOLDER: (3,), FEATURE: (6, 0), OTHER: (3, 0)}, missing=0.1, seed=3),
        {
            "encode": "categorical",
            "policies": {name: {"category_partitions": True} for name in PARTIES},
        },
    ),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("case", CASES)
def test_the_federation_finds_and_uses_the_oracles_model(case: str, tmp_path: Path) -> None:
    """Node for node; no message holds a set of records of the label holder's; encrypted predictions give its scores."""
    params, here, options = CASES[case].params, CASES[case].world(), CASES[case].options
    oracle = here.oracle(params)

    async def main() -> None:
        federation = Federation(tmp_path, here.tables, **options)
        status = await federation.train(job_of(params, len(here.blocks)))
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_model(federation.states, oracle)
        words = {message.word for message in federation.log}
        assert words >= {"encrypted_words", "won_splits", "children", "leaf_paths"}
        assert not words & SHOWN
        for protocol, within in (("eini", 1e-6), ("eini-lattice", lattice_tolerance(oracle))):
            given = {"key_bits": 1024} if protocol == "eini" else {}
            asked = predict_request(protocol, model="job", block=40, **given)
            predicted = await federation.predict(asked)
            assert (predicted.state, predicted.error) == ("finished", "")
            assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y), within)
        await federation.close()

    run(main())
