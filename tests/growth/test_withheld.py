"""Instance spaces withheld from feature parties: the model stays the oracle's, and predictions that would show them end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import worlds
from tests.boosting import test_base_model, test_categories, test_gradient_bits, test_lattice
from tests.boosting.categories import categorical_world
from tests.defences import test_label_dp, test_repair
from tests.growth import test_eval_table, test_expansion, test_monotone
from tests.simulator import Federation, run
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores, lattice_tolerance, spec, world
from treetap.protocols.job_spec import params_of, put_params
from treetap.protocols.key_options import LATTICE
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

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


#: Tests of features, whose jobs withhold instance spaces here, and pad trees where they can.
FEATURES: tuple[Callable[..., None], ...] = (
    test_base_model.test_a_continued_model_is_the_oracles,
    test_base_model.test_splits_of_categories_are_continued,
    test_categories.test_the_model_is_the_oracles,
    test_gradient_bits.test_the_model_is_the_oracles_with_classes_in_slots,
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_expansion.test_the_federation_finds_the_oracles_trees_in_their_order,
    test_monotone.test_the_federation_finds_and_uses_the_oracles_model,
    test_monotone.test_bounds_hold_in_subtrees_that_the_label_holder_grows_alone,
    test_monotone.test_partitions_of_categories_beside_constraints,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
)


def _suits(parts: Sequence[Any]) -> bool:
    return not test_lattice.names_forest(parts)


@pytest.mark.second_tier
@pytest.mark.parametrize(("feature", "given"), list(test_lattice.instances(FEATURES, _suits)))
def test_features(
    feature: Callable[..., None], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, metrics and scores are those that the feature has where instance spaces are sent."""
    trained, words = list[BoostingParams](), set[str]()
    train, predict = Federation.train, Federation.predict

    async def withholding(federation: Federation, job: setup_pb2.JobSpec, *args: Any, **more: Any) -> Any:
        params = params_of(job)
        assert isinstance(params, BoostingParams)
        pads = params.early_stopping_rounds is None and not params.expansion.one_by_one
        trained.append(replace(params, instance_spaces="withheld", pad_trees=pads))
        put_params(job, trained[-1])
        status = await train(federation, job, *args, **more)
        words.update(message.word for message in federation.log)
        return status

    async def encrypted(federation: Federation, request: jobs_pb2.PredictRequest) -> Any:
        if request.parameters.WhichOneof("protocol") in (None, "interactive"):
            request.parameters.CopyFrom(predict_request("eini", key_bits=1024).parameters)
        return await predict(federation, request)

    monkeypatch.setattr(worlds, "default_scheme", LATTICE)
    monkeypatch.setattr(Federation, "train", withholding)
    monkeypatch.setattr(Federation, "predict", encrypted)
    fixtures = {"tmp_path": tmp_path, "monkeypatch": monkeypatch}
    wanted = inspect.signature(feature).parameters
    feature(**given, **{name: fixture for name, fixture in fixtures.items() if name in wanted})
    assert trained
    assert "encrypted_words" in words
    assert not words & SHOWN
