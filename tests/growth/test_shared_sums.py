"""Sums of candidates that nobody opens (`sums = "shared"`): the model stays the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests import worlds
from tests.boosting import test_base_model
from tests.boosting.categories import categorical_world
from tests.defences import test_label_dp, test_repair
from tests.growth import test_eval_table
from tests.lattice_ways import in_own_loop, instances, predict_by_eini
from tests.simulator import DEALER, Federation, finished
from tests.worlds import FOUR, PARTIES, World, assert_oracles_model, spec, weighted, world
from treetap.protocols.job_spec import broken_by, features_of, params_of, put_params
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.v2 import setup_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
SMALL = BoostingParams(
    n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.1, instance_spaces="withheld", subsample=0.9
)


def job_of(params: TreeParams, parties: int = 3, **changes: Any) -> setup_pb2.JobSpec:
    """A job on a lattice whose sums are shared."""
    return spec(params, parties, scheme=LATTICE, sums="shared", dealer=DEALER, **changes)


THREE = partial(world, 90, (1, 2, 2), missing=0.1)
WEIGHTED = replace(SMALL, max_sample_weight=4.0)


@dataclass(frozen=True)
class Case:
    """A world, and the parameters that are tried on it."""

    params: TreeParams
    world: Callable[[], World] = THREE
    encode: Literal["one-hot", "categorical"] | None = None


def _tied() -> World:
    """Three feature parties with one column, the same one."""
    here = world(60, (1, 1, 1, 1))
    content = here.tables[FEATURE][1]["train"]
    tables = {name: (["b0"], {"train": content}) for name in FOUR[1:]}
    return replace(here, tables=here.tables | tables, blocks=[here.blocks[0], *[here.blocks[1]] * 3])


def weighted_world() -> World:
    """Records of weights from 0 on, fractions among them."""
    here = THREE()
    return weighted(here, np.random.default_rng(1).integers(0, 12, len(here.y)) / 4)


CLASSES = partial(world, 80, (1, 2, 2), objective="multi:softprob", classes=3, missing=0.1)
FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6, bootstrap=True, instance_spaces="withheld")
CASES = {
    "one feature party": Case(SMALL, partial(world, 90, (1, 2), missing=0.1)),
    "two feature parties": Case(SMALL),
    "three feature parties, no penalty, padded": Case(
        replace(SMALL, reg_lambda=0.0, min_child_weight=0.0, pad_trees=True, gamma=0.2),
        partial(world, 60, (1, 1, 1, 2), missing=0.2),
    ),
    "a tree for each class": Case(replace(SMALL, objective="multi:softprob", n_estimators=1), CLASSES),
    "ties of few values at all parties": Case(SMALL, partial(world, 80, (2, 2, 2), levels=1, missing=0.1)),
    "parties that sit trees out, padded": Case(
        replace(SMALL, n_estimators=4, max_depth=2, party_dropout={FEATURE: 0.4, OTHER: 0.6}, pad_trees=True)
    ),
    "label holder without columns, early stopping": Case(
        replace(SMALL, n_estimators=4, early_stopping_rounds=1, validation_share=0.25),
        partial(world, 80, (0, 2, 2), missing=0.1),
    ),
    "a feature party without columns": Case(SMALL, partial(world, 60, (1, 0, 2))),
    "columns of each tree": Case(replace(SMALL, colsample_bytree=0.5), partial(world, 80, (2, 4, 4), missing=0.1)),
    "more padded leaves than records": Case(
        replace(SMALL, max_depth=6, n_estimators=1, pad_trees=True), partial(world, 20, (1, 1, 1))
    ),
    "numbers": Case(
        replace(SMALL, objective="reg:squarederror"), partial(world, 70, (1, 2, 2), objective="reg:squarederror")
    ),
    "weights": Case(WEIGHTED, weighted_world),
    "categories, each against the rest": Case(
        replace(SMALL, max_cat_to_onehot=20), partial(categorical_world, missing=0.1), "categorical"
    ),
    "a tie across three parties": Case(SMALL, _tied),
    "one candidate": Case(replace(SMALL, max_bin=2), partial(world, 40, (0, 1))),
    "nodes of two records, no penalty": Case(
        replace(SMALL, reg_lambda=0.0, min_child_weight=0.0, max_depth=4, subsample=1.0), partial(world, 9, (0, 1, 1))
    ),
    "all candidates too light": Case(replace(SMALL, min_child_weight=1e3)),
    "no gain is large enough": Case(replace(SMALL, gamma=1e6)),
    "a forest of drawn records, padded": Case(replace(FOREST, pad_trees=True)),
    "a forest of three classes": Case(replace(FOREST, min_samples_leaf=3), CLASSES),
    "a forest of numbers": Case(
        replace(FOREST, criterion="squared_error"),
        partial(world, 70, (1, 2, 2), objective="reg:squarederror", missing=0.1),
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_the_oracles_model(case: str, tmp_path: Path) -> None:
    """Node for node."""
    params, here = CASES[case].params, CASES[case].world()
    federation = Federation(tmp_path, here.tables, dealer=True, encode=CASES[case].encode)
    finished(await federation.train(job_of(params, len(here.blocks))))
    assert_oracles_model(federation.states, here.oracle(params))


#: Tests of features, whose jobs share sums here.
FEATURES: tuple[Callable[..., Any], ...] = (
    test_base_model.test_a_continued_model_is_the_oracles,
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
)


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("feature", "given"), [*instances(FEATURES, of_forests=False), *instances(FEATURES[1:], of_forests=True)]
)
def test_features(
    feature: Callable[..., Any], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, metrics and scores are those that the feature has where sums are opened."""
    rounds = list[int]()
    train = Federation.train

    async def sharing(federation: Federation, job: setup_pb2.JobSpec, *args: Any, **more: Any) -> Any:
        params = params_of(job)
        assert isinstance(params, TreeParams)
        put_params(job, replace(params, instance_spaces="withheld"))
        job.sums, job.dealer = "shared", DEALER
        if broken := broken_by(job, features_of(job)):
            pytest.skip(str(broken[0]))
        status = await train(federation, job, *args, **more)
        rounds.append(sum(message.word == "shares" for message in federation.log))
        return status

    monkeypatch.setattr(worlds, "default_scheme", LATTICE)
    monkeypatch.setattr(Federation, "__init__", partialmethod(Federation.__init__, dealer=True))
    monkeypatch.setattr(Federation, "train", sharing)
    predict_by_eini(monkeypatch)
    in_own_loop(feature, given, tmp_path, monkeypatch)
    assert all(rounds)
    assert rounds
