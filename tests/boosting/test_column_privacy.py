"""`column_privacy` in a federation: the trainer's trees with the noise that was drawn, budgets, and refusals by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.boosting.column_noise import ColumnNoise
from party.defences.column_budget import ColumnBudget
from party.defences.settings import ColumnPrivacyTable, Defences
from party.growth.feature_party import OwnTree
from tests.library.trees.repairs import by_number
from tests.simulator import Federation, run
from tests.worlds import PARTIES, World, manifest, spec, world
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees import centralised
from treetap.trees.binning import bin_table
from treetap.trees.ensemble import Tree
from treetap.trees.noised_sums import NoisedParty
from treetap.trees.params import BoostingParams, TreeParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
LABEL_HOLDER, FEATURE, OTHER = PARTIES
BASE = BoostingParams(n_estimators=2, max_depth=3, max_bin=6, min_child_weight=0.0)
#: Weak enough that noised candidates win on small tables.
WEAK = ColumnPrivacyTable(epsilon=500.0, delta=1e-6, trees=2)
#: Chance that a statistical test fails on right code.
ALPHA = 1e-6
#: World, parameters, ε by feature party.
CASES: dict[str, tuple[dict[str, Any], BoostingParams, tuple[float, ...]]] = {
    "missing values, sampled": ({"missing": 0.2}, replace(BASE, subsample=0.8), (3000.0, 900.0)),
    "one party alone, few bits, strong noise": ({}, replace(BASE, gradient_bits=6), (60.0,)),
    "several outputs": (
        {"objective": "multi:softprob", "classes": 3},
        replace(BASE, objective="multi:softprob", multi_strategy="multi_output_tree"),
        (4000.0, 4000.0),
    ),
    "a tree per class, parties sit trees out": (
        {"objective": "multi:softprob", "classes": 3},
        replace(BASE, objective="multi:softprob", n_estimators=1, party_dropout={FEATURE: 0.3}),
        (2000.0, 2000.0),
    ),
    "numbers, few columns and leaves": (
        {"objective": "reg:squarederror", "missing": 0.1},
        replace(BASE, objective="reg:squarederror", colsample_bytree=0.6, max_leaves=5),
        (20000.0,),
    ),
}


class DrawnNoise:
    """The noise that parties have drawn, by party, tree and node: (candidates, S) in the canonical order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sums: dict[tuple[str, int, int], np.ndarray] = {}
        self.attempts: dict[str, list[int]] = {}
        draw = ColumnNoise.of

        async def drawn(noise: ColumnNoise, tree: OwnTree, stage: int, nodes: list[int]) -> Any:
            added = await draw(noise, tree, stage, nodes)
            party = noise._context.party
            if added is not None:
                order, places = tree.columns.order(1), added.reshape(len(nodes), -1, added.shape[1])
                for node, of_node in zip(nodes, places, strict=True):
                    self.sums[party, tree.index, node] = np.empty_like(of_node)
                    self.sums[party, tree.index, node][order] = of_node
                self.attempts.setdefault(party, []).append(noise._context.attempt)
            return added

        monkeypatch.setattr(ColumnNoise, "of", drawn)


def _defences(epsilons: tuple[float, ...], trees: int = 3) -> dict[str, Defences]:
    return {
        party: Defences(column_privacy=ColumnPrivacyTable(epsilon=epsilon, delta=1e-6, trees=trees))
        for party, epsilon in zip(PARTIES[1:], epsilons, strict=False)
    }


def _federation(folder: Path, here: World, defences: dict[str, Defences], **policies: Any) -> Federation:
    given = {LABEL_HOLDER: {"noised_sums": True, "max_column_leakage": None}, **policies}
    return Federation(folder, here.tables, defences=defences, policies=given)


def _spec(params: TreeParams) -> Any:
    return spec(params, key_bits=512, obfuscation="standard")


def _central(
    here: World, params: BoostingParams, defences: Mapping[str, Defences], drawn: DrawnNoise
) -> centralised.CentralModel:
    """The model of all columns at hand with the noise that was drawn."""
    tables = []
    for name, block in here.parties:
        tables.append((name, bin_table(block, [str(j) for j in range(block.shape[1])], params.max_bin)))
    outputs = params.outputs_per_tree(here.classes)
    noised = {}
    for party, own in defences.items():
        assert (table := own.column_privacy) is not None
        noise = ColumnPrivacy(table.epsilon, table.delta, table.trees).noise(params, outputs)
        noised[party] = NoisedParty(noise, lambda t, node, party=party: drawn.sums[party, t, node])  # type: ignore[misc]
    return centralised.train(tables, here.y, params, here.classes, noised=noised)


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize("case", CASES)
def test_the_federation_finds_the_trees_of_the_drawn_noise(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trees, gains, weights and split tables are the trainer's with that noise, bit for bit; the report names it."""
    of_world, params, epsilons = CASES[case]
    here, drawn, defences = world(80, (1, 3, 2), seed=4, **of_world), DrawnNoise(monkeypatch), _defences(epsilons)

    async def main() -> dict[str, Path]:
        federation = _federation(tmp_path, here, defences)
        status = await federation.train(_spec(params))
        assert (status.state, status.error) == ("finished", "")
        await federation.close()
        return federation.states

    states = run(main())
    central = _central(here, params, defences, drawn)
    shards = {party: read_model(states[party] / "models" / "job")[1] for party in PARTIES}
    trees = [Tree.from_dict(line["tree"]) for line in shards[LABEL_HOLDER]]
    assert [by_number(tree) for tree in trees] == [by_number(tree) for tree in central.ensemble.trees]
    for party, lines in shards.items():
        kept = [OwnSplit.from_dict(split) for line in lines for split in line.get("splits", line.get("own"))]
        assert [(split.feature, split.bin, split.missing_left) for split in kept] == [
            (candidate.feature, candidate.bin, candidate.missing_left) for candidate, _ in central.splits[party]
        ]
    told = manifest(states[LABEL_HOLDER])["column_privacy"]
    for party, epsilon in zip(PARTIES[1:], epsilons, strict=False):
        assert told[party] == manifest(states[party])["column_privacy"]
        assert told[party]["epsilon"] == epsilon
        (charge,) = ColumnBudget(states[party], None).charges()
        assert (charge.table, charge.job, charge.epsilon) == ("train", "job", epsilon)
    assert any(split.owner in defences for tree in trees for split in tree.splits)
