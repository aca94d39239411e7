"""Columns in which predictions may only increase, or only decrease: the oracle's trees, and what the parties send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.boosting.categories import categorical_world
from tests.oracle import OracleModel, oracle_train
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, World, assert_oracles_model, assert_oracles_scores, spec, world
from treetap.attacks.view.view import read_view
from treetap.errors import Malformed
from treetap.party.defences.settings import Defences, IdLmid, ReducedLeakage
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

LABEL_HOLDER, FEATURE, OTHER = PARTIES
BASE = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.5)
#: World, parameters, directions of each party's columns.
CASES: dict[str, tuple[dict[str, Any], BoostingParams, list[list[int]]]] = {
    "all parties, missing values": ({"missing": 0.25}, BASE, [[1, 0], [-1, 1], [1, 0]]),
    "one feature party, penalties, best first": (
        {"objective": "reg:squarederror"},
        replace(
            BASE, objective="reg:squarederror", reg_alpha=2.0, max_delta_step=6.0, grow_policy="lossguide", max_leaves=6
        ),
        [[0, 0], [0, 0], [-1, 1]],
    ),
    "few values, hence ties, parties that sit trees out": (
        {"levels": 1, "missing": 0.2},
        replace(BASE, n_estimators=4, max_bin=32, party_dropout={"feature-b": 0.4, "feature-c": 0.6}, reg_alpha=0.1),
        [[0, 0], [1, 0], [-1, -1]],
    ),
    "a tree per class, sampled": (
        {"objective": "multi:softprob", "classes": 3, "missing": 0.1},
        replace(BASE, objective="multi:softprob", n_estimators=1, max_depth=2, subsample=0.8, colsample_bytree=0.6),
        [[-1, 0], [1, 1], [0, 0]],
    ),
}


def _constraints(here: World, directions: list[list[int]]) -> dict[str, dict[str, int]]:
    """As the parties' files have them."""
    columns = {name: names for name, (names, _) in here.tables.items()}
    return {
        party: {column: direction for column, direction in zip(columns[party], own, strict=True) if direction}
        for party, own in zip(PARTIES, directions, strict=True)
    }


def _oracle(here: World, params: BoostingParams, directions: list[list[int]], **withheld: Any) -> OracleModel:
    marked = {party: own for party, own in zip(PARTIES, directions, strict=True) if any(own)}
    return oracle_train(here.parties, list(here.y), params, here.classes, monotone=marked, **withheld)


def _small(case: str) -> tuple[World, BoostingParams, list[list[int]]]:
    of_world, params, directions = CASES[case]
    return world(70, (2, 2, 2), seed=6, **of_world), params, directions


@pytest.mark.second_tier(but=1)
@pytest.mark.filterwarnings("ignore:a 512-bit")
@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_and_uses_the_oracles_model(case: str, tmp_path: Path) -> None:
    """Trees and scores are the oracle's; marks come once per tree, from parties with constraints alone."""
    here, params, directions = _small(case)
    oracle = _oracle(here, params, directions)
    free = _oracle(here, params, [[0, 0]] * 3)
    assert [tree.nodes for tree in oracle] != [tree.nodes for tree in free]
    sent: list[tuple[str, exchange_pb2.PeerMessage]] = []

    def keep(sender: str, _: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(message) == "candidate_sums":
            sent.append((sender, message))
        return message

    federation = Federation(tmp_path, here.tables, record="received", constraints=_constraints(here, directions))
    federation.tamper = keep
    finished(await federation.train(spec(params, key_bits=512, obfuscation="standard")))
    assert_oracles_model(federation.states, oracle)
    for protocol in ("interactive", "eini"):
        predicted = finished(
            await federation.predict(predict_request(model="job", table="", block=17, protocol=protocol))
        )
        assert_oracles_scores(predicted.predictions, oracle, here.newcomers, len(here.y))
    await federation.close()
    marked = [(sender, message) for sender, message in sent if message.growth.candidate_sums.marks]
    assert marked
    assert {sender for sender, _ in marked} == {
        party for party, own in zip(PARTIES, directions, strict=True) if any(own)
    } - {LABEL_HOLDER}
    for _, message in marked:
        assert (message.stage, message.part) == (0, 0)
        assert len(message.growth.candidate_sums.marks) == message.growth.candidate_sums.candidates
    for party in PARTIES[1:]:
        view = read_view(tmp_path / party / "state" / "transcripts" / "job", party=party)
        assert all(tree.complete for tree in view.trees)


@pytest.mark.filterwarnings("ignore:a 512-bit")
@pytest.mark.parametrize(
    ("defences", "withheld"),
    [
        (Defences(id_lmid=IdLmid(xi=0.35)), {"xi": 0.35}),
        (Defences(reduced_leakage=ReducedLeakage(trees=1)), {"own_trees": 1}),
    ],
    ids=["id_lmid", "reduced_leakage"],
)
async def test_bounds_hold_in_subtrees_that_the_label_holder_grows_alone(
    defences: Defences, withheld: dict[str, Any], tmp_path: Path
) -> None:
    """Withdrawn subtrees and own trees keep the bounds of the nodes above."""
    here, params, directions = _small("all parties, missing values")
    oracle = _oracle(here, params, directions, **withheld)
    assert any(tree.withdrawn for tree in oracle)

    federation = Federation(
        tmp_path, here.tables, defences={LABEL_HOLDER: defences}, constraints=_constraints(here, directions)
    )
    finished(await federation.train(spec(params, key_bits=512, obfuscation="standard")))
    assert_oracles_model(federation.states, oracle)


async def test_partitions_of_categories_beside_constraints(tmp_path: Path) -> None:
    """A party with columns of both kinds; the label holder's own columns have constraints too."""
    here, params = categorical_world(missing=0.15), replace(BASE, max_bin=8, max_depth=4)
    directions = {"label-holder": [0, 1], "feature-b": [0, 0, -1], "feature-c": [1, 0]}
    oracle = oracle_train(here.parties, list(here.y), params, categories=here.categories, monotone=directions)
    constraints = {
        party: {f"{party[-1]}{j}": direction for j, direction in enumerate(own) if direction}
        for party, own in directions.items()
    }

    federation = Federation(tmp_path, here.tables, encode="categorical", constraints=constraints)
    finished(await federation.train(spec(params)))
    assert_oracles_model(federation.states, oracle)


def _long(marks: list[int]) -> list[int]:
    return [*marks, 0]


def _unknown(marks: list[int]) -> list[int]:
    return [3, *marks[1:]]


@pytest.mark.parametrize("change", [_long, _unknown])
async def test_marks_that_are_none_are_refused(change: Callable[[list[int]], list[int]], tmp_path: Path) -> None:
    """A list of another length or with another mark ends the job at the label holder, which names the party."""
    here = world(40, (1, 1, 1))

    def tamper(sender: str, _: str, message: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage:
        if name_of(message) == "candidate_sums" and sender == FEATURE and message.stage == 0:
            marks = change(list(message.growth.candidate_sums.marks))
            del message.growth.candidate_sums.marks[:]
            message.growth.candidate_sums.marks.extend(marks)
        return message

    federation = Federation(tmp_path, here.tables, constraints={FEATURE: {"b0": 1}})
    federation.tamper = tamper
    failed = await federation.train(spec(BASE))
    assert failed.state in ("failed", "interrupted")
    assert "feature-b has sent marks that are not those of its" in failed.error


def test_an_owner_refuses_a_mirror_image_that_it_does_not_offer() -> None:
    """A place beyond the last is that of a constrained column's missing values alone, or none."""
    from treetap.party.growth.split_table import SplitTable
    from treetap.trees.binning import bin_table

    table = np.array([[0.0, 5.0], [1.0, np.nan], [2.0, 6.0], [np.nan, 7.0]])
    binned = replace(bin_table(table, ["a", "b"], 8), directions=np.array([1, 0]))
    columns = SplitTable("p", ["a", "b"], binned).columns_of_tree(0, BASE, permuted=False)
    marks = columns.marks()
    assert marks is not None
    (mirrored,), count = np.flatnonzero(marks == 2), len(marks)
    split, left = columns.split(1, np.arange(4), [count + int(mirrored)])
    assert (split.threshold, split.missing_left, left.tolist()) == (-np.inf, True, [3])
    assert type(split).from_dict(split.to_dict()) == split
    for place in (count, 2 * count):
        with pytest.raises(Malformed):
            columns.split(1, np.arange(4), [place])
