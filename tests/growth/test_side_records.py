"""`min_side_records` where sums are shared: no split of a party leaves fewer records on a side."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.growth.test_shared_sums import CLASSES, FOREST, SMALL, THREE, WEIGHTED, job_of, weighted_world
from tests.library.trees.same import differences
from tests.library.trees.tables import encoded
from tests.simulator import Federation, failed, finished
from tests.worlds import PARTIES, World, assert_oracles_model, manifest, world
from treetap.party.defences.settings import Defences
from treetap.trees.centralised import CentralTrees, train, train_forest
from treetap.trees.params import ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
DRAWN = replace(FOREST, bootstrap=False, subsample=0.8)


@dataclass(frozen=True)
class Case:
    """A world, the parameters, and the fewest records by party."""

    params: TreeParams
    fewest: Mapping[str, int]
    world: Callable[[], World] = THREE


CASES = {
    "two parties that count": Case(SMALL, {FEATURE: 12, OTHER: 5}),
    "one of two counts": Case(SMALL, {OTHER: 20}),
    "one party, padded, no penalty": Case(
        replace(SMALL, reg_lambda=0.0, pad_trees=True), {FEATURE: 10}, partial(world, 90, (1, 2), missing=0.1)
    ),
    "2m - 1 records below the root": Case(
        replace(SMALL, subsample=1.0, min_child_weight=0.0), {FEATURE: 10}, partial(world, 29, (0, 2))
    ),
    "a tree for each class": Case(replace(SMALL, objective="multi:softprob", n_estimators=1), {FEATURE: 8}, CLASSES),
    "records of no weight": Case(WEIGHTED, {FEATURE: 15, OTHER: 9}, weighted_world),
    "a forest of three classes": Case(DRAWN, {FEATURE: 9, OTHER: 4}, CLASSES),
    "a forest of numbers": Case(
        replace(DRAWN, criterion="squared_error"),
        {OTHER: 9},
        partial(world, 70, (1, 2, 2), objective="reg:squarederror", missing=0.1),
    ),
}


def _defended(fewest: Mapping[str, int]) -> dict[str, Defences]:
    return {party: Defences(min_side_records=least) for party, least in fewest.items()}


@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_the_oracles_model(case: str, tmp_path: Path) -> None:
    """And the trainer on the joined table finds it; without the bound it is another."""
    params, fewest, here = CASES[case].params, CASES[case].fewest, CASES[case].world()
    federation = Federation(tmp_path, here.tables, dealer=True, defences=_defended(fewest))
    finished(await federation.train(job_of(params, len(here.blocks))))
    oracle, free = here.oracle(params, fewest), here.oracle(params)
    assert_oracles_model(federation.states, oracle)
    assert [tree.nodes for tree in oracle] != [tree.nodes for tree in free]
    given: dict[str, Any] = {"params": params, "classes": here.classes, "min_cell_records": fewest}
    tables = encoded(here.parties, params.max_bin)
    if isinstance(params, ForestParams):
        found: CentralTrees = train_forest(here.parties, here.y, tables=tables, **given)
    else:
        found = train(tables, here.y, weights=here.weights, **given)
    assert differences(found, oracle) == ""
    for party, least in fewest.items():
        assert manifest(federation.states[party])["min_side_records"] == least


#: A job, what makes it one that is refused, the party's defences, and the error.
REFUSED: dict[str, tuple[TreeParams, dict[str, Any], Defences, str]] = {
    "sums are opened": (
        *(SMALL, {"sums": "opened", "dealer": ""}, Defences(min_side_records=5)),
        "min_side_records and sums that are opened do not go together: .*; set privacy = 'private'",
    ),
    "records drawn twice": (
        *(FOREST, {}, Defences(min_side_records=5)),
        "min_side_records and bootstrap = true do not go together: .*; set bootstrap = false",
    ),
    "merged bins": (
        *(SMALL, {}, Defences(min_cell_records=5)),
        "min_cell_records and instance_spaces = 'withheld' .*; take min_side_records in its place",
    ),
    "more than half": (
        *(SMALL, {}, Defences(min_side_records=41)),
        "min_side_records = 41 under .* a tree draws 79 of the common records, .*write at most 39",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refused_with_a_remedy(case: str, tmp_path: Path) -> None:
    params, changes, defences, error = REFUSED[case]
    federation = Federation(tmp_path, THREE().tables, dealer=True, defences={FEATURE: defences})
    job = job_of(params)
    for key, value in changes.items():
        setattr(job, key, value)
    assert re.search(error, (await federation.train(job)).error)


async def test_a_label_holder_that_does_not_count_is_refused(tmp_path: Path) -> None:
    """The party takes no key that leaves its bound out."""
    federation = Federation(tmp_path, THREE().tables, dealer=True, defences=_defended({FEATURE: 5}))

    def tamper(_sender: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        if (to, name_of(message)) == (FEATURE, "public_key"):
            message.setup.public_key.counts_records = False
            del message.setup.public_key.slot_widths[-1]

    federation.tamper = tamper
    failed(await federation.train(job_of(SMALL)), FEATURE, "does not say of all parties what")
