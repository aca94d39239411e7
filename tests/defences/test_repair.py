"""Repair in a federation: that of the joined table, in files of the label holder alone, whatever it changes."""

from __future__ import annotations

import asyncio
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.blindness.comparison import PLAIN, RECORDS, between_parties, of_coordinator
from tests.blindness.observed import Act, Crossed, Observed, observed
from tests.defences.test_changed_defences import change_after_a_tree
from tests.library.trees.repairs import VARIANTS, Ints, in_order_of_nodes, trained
from tests.simulator import Federation, Message, finished, run
from tests.worlds import PARTIES, World, manifest, spec, world
from treetap.models.own_split import OwnSplit
from treetap.models.store import read_model, read_repaired
from treetap.party.defences.settings import Defences, LabelDp, ReducedLeakage
from treetap.privacy.label_dp import staged
from treetap.trees.ensemble import Tree, deciding_splits, importance_by_owner
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.repair import RepairedTree, repair

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
HOLDER = PARTIES[0]
BOOSTING = BoostingParams(n_estimators=3, max_depth=3, max_bin=5, subsample=0.8, min_child_weight=0.1)
FOREST = ForestParams(n_estimators=3, max_depth=3, max_bin=5, colsample_bytree=0.7)
THREE: dict[str, Any] = {"objective": "multi:softprob", "classes": 3}
NOISY = Defences(label_dp=LabelDp(epsilon=1.0))
REPAIRED = NOISY.model_copy(update={"grafting": True, "refit": True})
CASES: dict[str, tuple[dict[str, Any], TreeParams, Defences]] = {
    "forest": (THREE, FOREST, REPAIRED),
    "forest, bins per node, drawn twice": (
        {},
        replace(FOREST, binning="per-node", bootstrap=True, subsample=1.0),
        NOISY.model_copy(update={"grafting": True}),
    ),
    "boosting, stopped early": (
        {},
        replace(BOOSTING, early_stopping_rounds=1, validation_share=0.2),
        NOISY.model_copy(update={"refit": True}),
    ),
    "boosting, vector leaves, the first tree alone": (
        THREE,
        replace(BOOSTING, objective="multi:softprob", multi_strategy="multi_output_tree", n_estimators=2),
        REPAIRED.model_copy(update={"reduced_leakage": ReducedLeakage(trees=1)}),
    ),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("setting", "params", "own"), CASES.values(), ids=CASES)
def test_a_federation_repairs_as_the_joined_table_does(
    setting: dict[str, Any], params: TreeParams, own: Defences, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Published repairs are those of the centralised model, and so are importances; the manifest says what is used."""
    _fix_noise(monkeypatch)
    here = world(60, seed=3, **setting)
    states = _trained(tmp_path, here, params, own)
    noisy: Ints = np.load(states[HOLDER] / "noisy_labels" / "0.npz")["labels"]  # in order of ids
    clean = here.y.astype(np.int64)
    assert (noisy != clean).any()
    model, _ = trained(here.parties, noisy, clean, params, here.classes, own.withholding)
    lines, expected = read_repaired(states[HOLDER] / "models" / "job"), repair(model, params)
    assert [in_order_of_nodes(RepairedTree(*(Tree.from_dict(line[name]) for name in VARIANTS))) for line in lines] == [
        in_order_of_nodes(each) for each in expected
    ]
    assert any(tree.grafting.local for tree in expected)
    stored = manifest(states[HOLDER])
    used = "grafting_refit" if own.grafting and own.refit else "grafting" if own.grafting else "refit"
    assert (stored["values"], stored["hides_constants"]) == (used, True)
    last = len(expected) if stored["best_round"] is None else stored["best_round"] + 1
    trees = [getattr(each, used) for each in expected[:last]]
    owners = importance_by_owner(replace(tree, splits=deciding_splits(tree)) for tree in trees)
    assert {name: each["weight"] for name, each in stored["importance_by_party"].items()} == {
        name: each.weight for name, each in owners.items()
    }
    for state in states.values():
        assert not list(state.glob("**/reached-*"))


def test_own_splits_of_a_repair_are_those_of_its_subtrees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has the handle, node and meaning of one split below a graft; none is missing, no handle comes twice."""
    _fix_noise(monkeypatch)
    here = world(60, seed=3)
    states = _trained(tmp_path, here, BOOSTING, REPAIRED)
    folder = states[HOLDER] / "models" / "job"
    first = sum(len(line["own"]) for line in read_model(folder)[1])
    handles = []
    for line in read_repaired(folder):
        own = {each["handle"]: OwnSplit.from_dict(each) for each in line["own"]}
        grafts = [sub for name in VARIANTS for sub in Tree.from_dict(line[name]).local]
        nodes = {split.handle: split.node for sub in grafts for split in sub.splits}
        assert {handle: each.node for handle, each in own.items()} == nodes
        handles += sorted(own)
    assert handles == list(range(first, first + len(handles)))
    assert handles


def _fix_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noisy labels drawn from a seed: by few of chance's draws no graft has a split."""
    fixed = random.Random(1).randrange
    monkeypatch.setattr("treetap.party.defences.noisy_labels.staged", lambda *drawn: staged(*drawn[:-1], fixed))


def _trained(folder: Path, here: World, params: TreeParams, own: Defences) -> dict[str, Path]:
    """The parties' states."""

    async def main() -> dict[str, Path]:
        federation = Federation(folder, here.tables, defences={HOLDER: own})
        finished(await federation.train(spec(params, key_bits=512)))
        return federation.states

    return run(main())


@pytest.mark.second_tier
@pytest.mark.parametrize("params", [BOOSTING, FOREST], ids=["boosting", "forest"])
def test_no_message_tells_whether_trees_are_repaired(
    params: TreeParams, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same noisy labels and orders of candidates all that crosses has equal fields, counts and sizes."""
    here = world(40, (2, 2, 1), seed=4, missing=0.1)

    def generator() -> random.Random:
        return random.Random(5)

    monkeypatch.setattr("treetap.party.growth.split_table.secrets.SystemRandom", generator)
    observed(tmp_path / "first", here.tables, _training(params, "first"), defences={HOLDER: NOISY})
    crossed: list[list[Crossed]] = []
    shards: list[list[bytes]] = []
    for own in (NOISY, REPAIRED):
        first = tmp_path / "first"
        act = _training(params, "again")
        found, states = observed(tmp_path / "f", here.tables, act, trained=first, defences={HOLDER: own})
        crossed.append(found)
        shards.append([(state / "models" / "again" / "trees.jsonl").read_bytes() for state in states.values()])
        assert (states[HOLDER] / "models" / "again" / "repaired.jsonl").is_file() is (own is REPAIRED)
    assert of_coordinator(crossed[0]) == of_coordinator(crossed[1])
    assert between_parties(crossed[0], PLAIN | RECORDS) == between_parties(crossed[1], PLAIN | RECORDS)
    assert shards[0] == shards[1]


def _training(params: TreeParams, job: str) -> Act:
    async def act(federation: Observed) -> dict[str, Path]:
        finished(await federation.train(spec(params, obfuscation="standard", key_bits=512), job))
        return federation.states

    return act


@pytest.mark.second_tier
@pytest.mark.parametrize("word", ["store_tree", "publish"])
def test_a_resumed_job_repairs_the_same_trees(word: str, tmp_path: Path) -> None:
    """Killed before its last tree is stored, or once its repairs are written but not published, it ends as if never."""
    here = world(40, seed=4)
    states = _trained(tmp_path / "whole", here, FOREST, REPAIRED)

    async def main() -> dict[str, Path]:
        federation = Federation(tmp_path / "killed", here.tables, defences={HOLDER: REPAIRED})
        shutil.copytree(states[HOLDER] / "noisy_labels", federation.state(HOLDER) / "noisy_labels")
        shutil.copy(states[HOLDER] / "ledger.jsonl", federation.state(HOLDER))
        met = 0

        def kill(message: Message) -> None:
            nonlocal met
            if (message.to, message.word, message.served) == (HOLDER, word, False):
                met += 1
                if met == (FOREST.n_estimators if word == "store_tree" else 1):
                    # A file of repairs that a killed process had begun: its last line is torn.
                    if word == "publish":
                        (federation.state(HOLDER) / "jobs" / "job" / "repaired.jsonl").write_bytes(b'{"refit"')
                    federation.restart(HOLDER)

        federation.hook = kill
        status = await federation.train(spec(FOREST, key_bits=512))
        assert status.state == "interrupted"
        await asyncio.sleep(200)
        status = finished(await federation.resume())
        return federation.states

    resumed = run(main())
    for name in ("trees.jsonl", "repaired.jsonl"):
        first, second = (each[HOLDER] / "models" / "job" / name for each in (states, resumed))
        assert first.read_bytes() == second.read_bytes()


def test_a_job_cannot_be_repaired_from_its_middle_on(tmp_path: Path) -> None:
    """Killed after a tree, a job with repairs that its label holder has just added does not go on, and says why."""
    here = world(40, seed=4)

    async def main() -> str:
        federation = Federation(tmp_path, here.tables, defences={HOLDER: NOISY})
        change_after_a_tree(federation, REPAIRED)
        await federation.train(spec(FOREST, key_bits=512))
        await asyncio.sleep(200)
        status = await federation.resume()
        return status.error

    assert "grafting or refit under [defences] was added after it was grown" in run(main())
