"""ID-LMID and Reduced-Leakage in a federation: the oracle's trees, and no set of records that breaks Eq. 6."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.recorded import KEY_BITS, transcript
from tests.library.trees.repairs import by_number
from tests.simulator import Federation, finished, run
from tests.worlds import PARTIES, World, spec, world
from treetap.attacks.view.known_trees import expected_views
from treetap.attacks.view.view import read_view
from treetap.models.store import read_model
from treetap.party.defences.settings import Defences, IdLmid, ReducedLeakage
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.centralised import CentralModel
from treetap.trees.centralised_forest import CentralForest, train_forest
from treetap.trees.ensemble import ROOT, Tree
from treetap.trees.information import class_counts, node_bounds
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.wire.frame import name_of
from treetap.wire.v2 import control_pb2, exchange_pb2

Sent = list[tuple[str, str, exchange_pb2.PeerMessage]]
Steps = list[control_pb2.StepRequest]
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
BOOSTING = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, subsample=0.8)
FOREST = ForestParams(n_estimators=2, max_depth=4, max_bin=6, colsample_bytree=0.7)
THREE: dict[str, Any] = {"objective": "multi:softprob", "classes": 3}
#: World, parameters, ξ and its counts, trees that the label holder grows alone.
CASES: dict[str, tuple[dict[str, Any], TreeParams, dict[str, Any]]] = {
    "boosting": ({}, BOOSTING, {"id_lmid": IdLmid(xi=0.3)}),
    "boosting, early stopping": (
        {},
        replace(BOOSTING, early_stopping_rounds=1, validation_share=0.2),
        {"id_lmid": IdLmid(xi=0.35)},
    ),
    "boosting, vector leaves": (
        THREE,
        replace(BOOSTING, objective="multi:softprob", multi_strategy="multi_output_tree", min_child_weight=0.0),
        {"id_lmid": IdLmid(xi=0.3, counts="paper")},
    ),
    "boosting, a tree per class": (
        THREE,
        replace(BOOSTING, objective="multi:softprob", max_depth=2, n_estimators=1),
        {"id_lmid": IdLmid(xi=0.3), "reduced_leakage": ReducedLeakage(trees=1)},
    ),
    "boosting, the best split first": (
        {},
        replace(BOOSTING, grow_policy="lossguide", min_child_weight=0.5),
        {"id_lmid": IdLmid(xi=0.3)},
    ),
    "boosting, few leaves, the best split first": (
        {},
        replace(BOOSTING, grow_policy="lossguide", max_leaves=5, min_child_weight=0.5),
        {"reduced_leakage": ReducedLeakage(trees=1)},
    ),
    "forest": (THREE, FOREST, {"id_lmid": IdLmid(xi=0.35)}),
    "forest, counts of the paper": ({}, FOREST, {"id_lmid": IdLmid(xi=0.3, counts="paper")}),
    "forest, drawn with replacement, bins per node": (
        {},
        replace(FOREST, bootstrap=True, subsample=1.0, binning="per-node", min_samples_leaf=2),
        {"id_lmid": IdLmid(xi=0.4)},
    ),
    "forest, parties sit trees out": (
        {},
        replace(FOREST, n_estimators=4, party_dropout={"feature-b": 0.5}),
        {"id_lmid": IdLmid(xi=0.4), "reduced_leakage": ReducedLeakage(trees=1)},
    ),
}


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(("setting", "params", "defences"), CASES.values(), ids=CASES)
def test_the_federation_finds_the_oracles_trees_and_shows_no_more(
    setting: dict[str, Any], params: TreeParams, defences: dict[str, Any], tmp_path: Path
) -> None:
    """Trees, withdrawn parts and views equal those of the joined table; every set in a transcript keeps Eq. 6."""
    here, own = world(60, seed=3, **setting), Defences(**defences)
    states, sent, steps = _train(tmp_path, here, params, own)
    central = _central(here, params, own)
    lines = read_model(states[PARTIES[0]] / "models" / "job")[1]
    trees = tuple(Tree.from_dict(line["tree"]) for line in lines)
    assert [by_number(tree) for tree in trees] == [by_number(tree) for tree in central.ensemble.trees]
    assert any(tree.local for tree in trees)
    for party in PARTIES[1:]:
        view = read_view(transcript(states, party), party=party)
        columns = here.tables[party][0]
        foreseen = expected_views(central, here.parties, party, columns)
        known = [{node: found.records.tolist() for node, found in tree.nodes.items()} for tree in view.trees]
        assert known == [{node: found.records.tolist() for node, found in tree.nodes.items()} for tree in foreseen]
        if own.id_lmid is not None and own.id_lmid.counts == "shown":
            worst = max(_bounds(here, [rows for tree in known for node, rows in tree.items() if node != ROOT]))
            assert worst <= own.id_lmid.xi
    _assert_nothing_below_withdrawn(trees, states, sent, steps)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("seed", range(6))
def test_no_set_in_a_transcript_breaks_the_limit(seed: int, tmp_path: Path) -> None:
    """Random jobs: labels, protocol, depth, draws and ξ; every set that a party receives, makes or derives keeps ξ."""
    rng = np.random.default_rng(seed)
    classes, xi = int(rng.integers(2, 5)), float(rng.uniform(0.05, 0.8))
    here = world(int(rng.integers(40, 90)), seed=seed, objective="multi:softprob", classes=classes, missing=0.1)
    depth, draws = int(rng.integers(2, 5)), float(rng.choice([0.5, 0.8, 1.0]))
    if seed % 2:
        params: TreeParams = replace(FOREST, max_depth=depth, subsample=draws, bootstrap=bool(rng.integers(2)))
    else:
        params = BoostingParams(
            objective="multi:softprob",
            multi_strategy="multi_output_tree",
            n_estimators=2,
            max_depth=depth,
            max_bin=6,
            subsample=draws,
            min_child_weight=0.0,
            early_stopping_rounds=[None, 2][int(rng.integers(2))],
        )
    states, *_ = _train(tmp_path, here, params, Defences(id_lmid=IdLmid(xi=xi)))
    for party in PARTIES[1:]:
        trees = read_view(transcript(states, party), party=party).trees
        shown = [known.records.tolist() for tree in trees for node, known in tree.nodes.items() if node != ROOT]
        assert max(_bounds(here, shown), default=0.0) <= xi


@pytest.mark.second_tier
def test_without_a_limit_the_model_is_the_same_bit_for_bit(tmp_path: Path) -> None:
    """ξ = ∞ changes no byte of any party's shard, and ξ = 0 leaves the other parties nothing but the root."""
    here = world(60, seed=3)
    for params in (BOOSTING, FOREST):
        shards = []
        for name, own in {"none": Defences(), "inf": Defences(id_lmid=IdLmid(xi=np.inf))}.items():
            states, *_ = _train(tmp_path / type(params).__name__ / name, here, params, own)
            shards.append([(state / "models" / "job" / "trees.jsonl").read_bytes() for state in states.values()])
        assert shards[0] == shards[1]
        states, *_ = _train(tmp_path / type(params).__name__ / "zero", here, params, Defences(id_lmid=IdLmid(xi=0.0)))
        for party in PARTIES[1:]:
            assert all(set(tree.nodes) == {ROOT} for tree in read_view(transcript(states, party), party=party).trees)


def test_a_limit_costs_no_ciphertext_of_a_record_and_few_of_candidates(tmp_path: Path) -> None:
    """The class of a record shares its ciphertext; candidates take ⌈candidates / groups⌉ with fewer groups in each."""
    here = world(60, seed=3)
    counts = {}
    params = replace(BOOSTING, subsample=1.0)
    for name, own in {"none": Defences(), "inf": Defences(id_lmid=IdLmid(xi=np.inf))}.items():
        _, sent, _ = _train(tmp_path / name, here, params, own)
        bodies = [(name_of(each), each) for _, _, each in sent]
        records = sum(len(each.protocol.boosting.gradients.ciphertexts) for kind, each in bodies if kind == "gradients")
        sums = sum(len(each.growth.candidate_sums.ciphertexts) for kind, each in bodies if kind == "candidate_sums")
        counts[name] = records, sums
    assert counts["none"][0] == counts["inf"][0]
    assert counts["none"][1] <= counts["inf"][1] <= 2 * counts["none"][1]


def _train(folder: Path, here: World, params: TreeParams, own: Defences) -> tuple[dict[str, Path], Sent, Steps]:
    """The parties' states, every message between them, and every step that the coordinator asked for."""
    sent: Sent = []
    steps: Steps = []

    def keep(sender: str, to: str, message: exchange_pb2.PeerMessage) -> None:
        sent.append((sender, to, message))

    async def main() -> dict[str, Path]:
        federation = Federation(folder, here.tables, record="received", defences={PARTIES[0]: own})
        federation.tamper = keep
        finished(await federation.train(spec(params, key_bits=KEY_BITS, obfuscation="standard")))
        steps.extend(request for kind, _, request in federation.conducted if kind == "begin")
        return federation.states

    return run(main()), sent, steps


def _central(here: World, params: TreeParams, own: Defences) -> CentralModel | CentralForest:
    """The same model of the joined table."""
    if isinstance(params, ForestParams):
        return train_forest(here.parties, here.y, params, here.classes, withholding=own.withholding)
    assert isinstance(params, BoostingParams)
    tables = [
        (name, bin_table(block, [f"{name}-{j}" for j in range(block.shape[1])], params.max_bin))
        for name, block in here.parties
    ]
    return centralised.train(tables, here.y, params, here.classes, own.withholding)


def _bounds(here: World, sets: list[list[int]]) -> Iterator[float]:
    """The larger divergence of Eq. 6 of each set of records, over all records."""
    counts = np.array([class_counts(here.y[rows], here.classes) for rows in sets])
    yield from node_bounds(counts, class_counts(here.y, here.classes)).larger.tolist() if sets else [0.0]


def _assert_nothing_below_withdrawn(trees: tuple[Tree, ...], states: dict[str, Path], sent: Sent, steps: Steps) -> None:
    """No message, step or shard of another party has a node below a withdrawn one, which is one leaf to all others."""
    for tree in trees:
        hidden = {each.node for sub in tree.local for each in (*sub.splits, *sub.leaves)} - {s.root for s in tree.local}
        assert {each.root for each in tree.local} <= {leaf.node for leaf in tree.leaves}
        nodes = set()
        for _, _, message in sent:
            if message.round == tree.index and message.WhichOneof("body") == "growth":
                growth = message.growth
                nodes |= set(growth.candidate_sums.nodes) | {each.node for each in growth.children.children}
                nodes |= {each.node for each in (*growth.instance_spaces.spaces, *growth.won_splits.splits)}
        for step in steps:
            if step.round == tree.index:
                nodes |= set(step.growth.build_histograms.nodes)
        assert nodes or not tree.splits
        assert not nodes & hidden
        for party in PARTIES[1:]:
            line = read_model(states[party] / "models" / "job")[1][tree.index]
            assert len(line["leaves"]) == len(tree.leaves)
            assert not {split["node"] for split in line["splits"]} & hidden
