"""Trees whose splits come in the order of their loss changes, or end at a number of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle import OracleSplit, OracleTree
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.attacks.id2graph.schema import Settings
from treetap.attacks.registry import attack
from treetap.attacks.view.view import read_view
from treetap.errors import ConfigError
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.expansion import ExpansionRules, Expansions
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams
from treetap.trees.withholding import Withholding
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2

LABEL_HOLDER = PARTIES[0]
BEST_FIRST = BoostingParams(
    n_estimators=2, max_depth=5, max_bin=6, max_leaves=7, grow_policy="lossguide", min_child_weight=0.5
)
CASES: dict[str, tuple[dict[str, Any], BoostingParams]] = {
    "best first": ({"missing": 0.1}, BEST_FIRST),
    "best first, as deep as may be": ({}, replace(BEST_FIRST, max_leaves=0, max_depth=3)),
    "best first, few values, hence ties": (
        {"levels": 1, "missing": 0.1},
        replace(BEST_FIRST, max_bin=32, max_leaves=9, min_child_weight=1.5),
    ),
    "best first, vector leaves, sampled": (
        {"objective": "multi:softprob", "classes": 3},
        replace(
            BEST_FIRST, objective="multi:softprob", multi_strategy="multi_output_tree", subsample=0.7, n_estimators=1
        ),
    ),
    "level by level": ({}, replace(BEST_FIRST, grow_policy="depthwise", max_leaves=6)),
}


def _splits(tree: OracleTree) -> dict[int, OracleSplit]:
    return {node: it for node, it in tree.nodes.items() if isinstance(it, OracleSplit)}


def _best_first(tree: OracleTree) -> list[int]:
    """The splits of a finished tree in the order of their loss changes, each after its parent."""
    splits, order, waiting = _splits(tree), [], [1]
    while waiting := [node for node in waiting if node in splits]:
        node = max(waiting, key=lambda each: splits[each].gain)
        order.append(node)
        waiting = [each for each in waiting if each != node] + [2 * node, 2 * node + 1]
    return order


@pytest.mark.second_tier(but=1)
@pytest.mark.filterwarnings("ignore:a 512-bit")
@pytest.mark.parametrize("case", CASES)
async def test_the_federation_finds_the_oracles_trees_in_their_order(case: str, tmp_path: Path) -> None:
    """Splits come in the order of loss changes or of levels; sums come of no node that no split could follow."""
    of_world, params = CASES[case]
    here = world(60, (2, 2, 1), seed=3, **of_world)
    oracle = here.oracle(params)
    asked: list[control_pb2.StepRequest] = []
    decided: list[tuple[int, int, int]] = []

    federation = Federation(tmp_path, here.tables, record="received")
    finished(await federation.train(spec(params, key_bits=512, obfuscation="standard")))
    assert_oracles_model(federation.states, oracle)
    asked.extend(request for kind, _, request in federation.conducted if kind == "begin")
    decided.extend(federation.decided)
    await federation.close()
    for number, tree in enumerate(oracle):
        mine = [request for request in asked if request.round == number]
        applied: dict[int, set[int]] = {}
        for at, stage, node in decided:
            if at == number:
                applied.setdefault(stage, set()).add(node)
        assert set().union(*applied.values()) == set(_splits(tree))
        built = {
            (request.stage, node)
            for request in mine
            if name_of(request) == "build_histograms"
            for node in request.growth.build_histograms.nodes
        }
        leaves = len(tree.nodes) - len(_splits(tree))
        if params.grow_policy == "depthwise":
            assert all(node.bit_length() - 1 == stage for stage, nodes in applied.items() for node in nodes)
        else:
            order = _best_first(tree) if not oracle.ties else []
            done = 0
            for _, nodes in sorted(applied.items()):
                assert not order or set(order[done : done + len(nodes)]) == nodes
                done += len(nodes)
            assert all(len(nodes) < len(_splits(tree)) for nodes in applied.values())
        one_each = len({stage for stage, _ in built}) == len(built) <= max(applied) + 2
        assert one_each if params.expansion.one_by_one else len(built) < leaves
        assert not params.max_leaves or leaves <= params.max_leaves
    _audited(tmp_path, params, here.y)


def _audited(folder: Path, params: BoostingParams, labels: np.ndarray) -> None:
    """The transcripts of feature parties replay to whole trees, which the attacks take."""
    for party in PARTIES[1:]:
        view = read_view(folder / party / "state" / "transcripts" / "job", party=party)
        assert [tree.complete for tree in view.trees] == [True] * len(view.trees)
        assert not view.faults
        if any(view.leaves()):
            found = attack("id2graph", view.leaves(), view.records, None, 2, Settings())
            assert len(found.clusters) == len(labels)


def test_withdrawn_leaves_are_not_counted_with_the_others() -> None:
    """A limit of leaves and ID-LMID are refused together, by the label holder and by the centralised trainer."""
    Withholding(own_trees=3).check_leaves(5)
    Withholding(xi=0.3).check_leaves(0)
    with pytest.raises(ConfigError, match="max_leaves = 5 and ID-LMID do not go together"):
        Withholding(xi=0.3).check_leaves(5)


def _order(rules: ExpansionRules, gains: Sequence[tuple[int, float]]) -> list[int]:
    expansions = Expansions(rules)
    for node, gain in gains:
        expansions.offer(node, gain)
    taken = []
    while (node := expansions.take()) is not None:
        taken.append(node)
    return taken


def test_of_equal_nodes_the_older_one_comes_first() -> None:
    """By loss guide the largest, of equal ones the first that came; level by level as they come."""
    gains = [(5, 2.0), (4, 3.0), (7, 3.0), (6, 1.0)]
    assert _order(ExpansionRules(3, 0, "lossguide"), gains) == [4, 7, 5, 6]
    assert _order(ExpansionRules(3, 3, "lossguide"), gains) == [4, 7]
    assert _order(ExpansionRules(3, 4), gains) == [5, 4, 7]
    assert (ExpansionRules(3, 4).most_stages, ExpansionRules(3, 0, "lossguide").most_stages) == (3, 7)
    assert ExpansionRules(20, 4, "lossguide").most_stages == 3


def test_sums_of_a_waiting_node_come_again_where_a_tie_left_none_to_compare() -> None:
    """Tied candidates divide a node's weights differently; by the one its owner takes no child may be split."""
    # (g, h, 1): two candidates of gain 4 at the right child, of which one leaves a child heavy enough to be split
    light, heavy = UNIT // 2, UNIT
    rows = [(-2, heavy), (-2, heavy), (2, light), (2, light), (-2, light), (-2, light)]
    values = np.array([[g * UNIT, h, 1] for g, h in rows])
    tree = GrowingTree(
        values,
        BoostingCriterion(1.0, BoostingParams(min_child_weight=0.1, max_depth=4)),
        ExpansionRules(4, 0, "lossguide"),
        subtract=True,
    )
    tree._may_open = lambda _: True  # type: ignore[method-assign] # as if a tied candidate had such a child
    tree.take_candidates([np.array([[values[:2].sum(axis=0)]])], [()])
    assert [choice.node for choice in tree.choose()] == [1]
    tree.split(1, 0, np.array([0, 1]))
    tree._may_be_split = lambda _: False  # type: ignore[method-assign]
    tree._expansions.offer(9, 1.0)
    tree.next_stage()
    assert (tree.frontier, tree.build) == ([], [9])
