"""Sums on a lattice, by either way: every feature of boosting finds a naive trainer's model on the joined table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.boosting import test_base_model, test_categories, test_protocol
from tests.defences import test_label_dp, test_repair, test_withholding
from tests.growth import test_cell_merging, test_eval_table, test_expansion, test_monotone, test_small_spaces
from tests.lattice_ways import carry_out, instances, take_way
from tests.oracle import OracleSplit
from tests.prediction import test_grafted
from tests.simulator import Federation, finished
from tests.worlds import FOUR, World, assert_oracles_model, manifest, spec, world
from treetap.lattice.histogram_scheme import parameters_of
from treetap.lattice.histogram_ways import Way
from treetap.party.boosting.ciphers import layout
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

#: Every shape of a world, and every objective with some of them.
SHAPES = list(zip(reversed(test_protocol.SHAPES), cycle(test_protocol.OBJECTIVES), strict=False))
SMALL = BoostingParams(n_estimators=2, max_depth=3, max_bin=8, min_child_weight=0.1)


def _of_two_values(here: World) -> World:
    """The world in which a feature party's columns have two values, or one and missing ones."""
    columns, content = here.tables["feature-b"]
    blocks = [block.copy() for block in here.blocks]
    blocks[1][:, 0], blocks[1][:, 1] = here.y, np.where(np.arange(len(here.y)) % 3, 2.0, np.nan)
    table = content["train"]
    rows = [int(name[1:]) for name in table.column("id").to_pylist()]
    for place, name in enumerate(columns[:2]):
        table = table.set_column(table.column_names.index(name), name, [blocks[1][rows, place]])
    tables = {**here.tables, "feature-b": (columns, {**content, "train": table})}
    return replace(here, tables=tables, blocks=blocks)


@dataclass(frozen=True)
class Case:
    """A world, and the parameters that are tried on it."""

    params: BoostingParams
    world: Callable[[], World]


CASES = {
    "second halves that are drawn anew": Case(
        replace(SMALL, max_depth=6, max_bin=4, min_child_weight=0.0), partial(world, 90, (1, 2, 2), missing=0.1)
    ),
    "columns with one candidate": Case(replace(SMALL, max_bin=2), lambda: _of_two_values(world(60, (1, 2, 1), seed=3))),
    "no party has candidates": Case(SMALL, partial(world, 40, (2, 0, 0))),
    "two blocks of records": Case(
        replace(SMALL, max_bin=3, max_depth=2, n_estimators=1, subsample=0.99), partial(world, 4_200, (1, 1, 1))
    ),
    "four parties": Case(SMALL, partial(world, 80, (1, 2, 2, 2), missing=0.1)),
    "many classes in vector leaves": Case(
        replace(SMALL, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=1),
        partial(world, 120, (1, 2, 2), objective="multi:softprob", classes=5),
    ),
    "words by the dozen": Case(
        replace(
            SMALL,
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=1,
            max_depth=2,
            max_bin=4,
        ),
        partial(world, 400, (1, 2, 1), objective="multi:softprob", classes=22),
    ),
    "as many bins as there may be": Case(
        replace(SMALL, max_bin=255, max_depth=1, n_estimators=1), partial(world, 300, (0, 1), missing=0.1)
    ),
}


async def _trained(folder: Path, here: World, params: BoostingParams) -> set[int]:
    """The stages of trees at which words are sent in a training that finds the oracle's model."""
    federation, stages = Federation(folder, here.tables), set[int]()

    def seen(_: str, __: str, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(parcel) == "encrypted_words":
            stages.add(parcel.stage)
        return parcel

    federation.tamper = seen
    finished(await federation.train(spec(params, len(here.blocks), scheme=LATTICE)))
    oracle = here.oracle(params)
    assert_oracles_model(federation.states, oracle)
    assert manifest(federation.state("label-holder"))["best_round"] == oracle.best_round
    await federation.close()
    return stages


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("case", "way"), list(product(CASES, Way)))
async def test_the_federation_finds_the_oracles_model(
    case: str, way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deep trees, few bits, blocks of records, many classes, columns with one candidate or none."""
    params, here = CASES[case].params, CASES[case].world()
    chosen = take_way(monkeypatch, way)

    stages = await _trained(tmp_path, here, params)
    assert stages == {0} if way is Way.SETS else stages >= {0, min(1, params.max_depth - 1)}
    assert set(chosen) == {way}


def test_cases_are_what_they_say() -> None:
    """More nodes are summed than a second half serves; four parties own splits; columns have few values."""
    deep = CASES["second halves that are drawn anew"]
    inner = [
        sum(isinstance(node, OracleSplit) for node in tree.nodes.values()) for tree in deep.world().oracle(deep.params)
    ]
    assert max(inner) > 8
    four = CASES["four parties"]
    owners = {
        node.owner
        for tree in four.world().oracle(four.params)
        for node in tree.nodes.values()
        if isinstance(node, OracleSplit)
    }
    assert owners == set(FOUR)
    many = CASES["words by the dozen"].params
    sizes = parameters_of(400, layout(many, 400, many.outputs_per_tree(22)), many.max_bin, 8, 2, 1)
    assert sizes.words >= 40
    assert sizes.queries_per_second_half == 1  # a second query would show too much of a mask
    values = CASES["columns with one candidate"].world().blocks[1]
    assert [len(np.unique(column[~np.isnan(column)])) for column in values.T] == [2, 1]


# ---- each objective and shape of `test_protocol`, and tests of features, once more


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("shape", "objective"), SHAPES)
@pytest.mark.parametrize("way", Way)
def test_worlds_of_every_shape(
    way: Way, shape: str, objective: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests of the other schemes."""
    take_way(monkeypatch, way)
    test_protocol.test_the_federation_finds_and_uses_the_oracles_model(objective, shape, LATTICE, tmp_path)


#: Tests of features, in which jobs that name no scheme train on a lattice here.
FEATURES: tuple[Callable[..., None], ...] = (
    test_base_model.test_a_continued_model_is_the_oracles,
    test_base_model.test_splits_of_categories_are_continued,
    test_categories.test_the_model_is_the_oracles,
    test_categories.test_a_party_that_sits_out_and_records_withheld,
    test_eval_table.test_the_model_is_that_of_the_training_and_the_metrics_those_of_the_eval_table,
    test_expansion.test_the_federation_finds_the_oracles_trees_in_their_order,
    test_monotone.test_the_federation_finds_and_uses_the_oracles_model,
    test_monotone.test_bounds_hold_in_subtrees_that_the_label_holder_grows_alone,
    test_monotone.test_partitions_of_categories_beside_constraints,
    test_label_dp.test_the_model_is_that_of_the_noisy_labels,
    test_withholding.test_the_federation_finds_the_oracles_trees_and_shows_no_more,
    test_repair.test_a_federation_repairs_as_the_joined_table_does,
    test_grafted.test_every_way_gives_a_record_the_value_of_its_subtree,
    test_cell_merging.test_the_federation_finds_the_joined_tables_trees,
    test_small_spaces.test_no_party_knows_a_node_smaller_than_the_policy_says,
)


@pytest.mark.second_tier
@pytest.mark.parametrize(("feature", "given"), list(instances(FEATURES, of_forests=False)))
@pytest.mark.parametrize("way", Way)
def test_features(
    way: Way, feature: Callable[..., None], given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models, metrics and what is shown are those that the feature has under the other schemes."""
    chosen = carry_out(feature, given, way, tmp_path, monkeypatch)
    assert way in chosen or feature is test_cell_merging.test_the_federation_finds_the_joined_tables_trees
