"""Jobs that are resumed under other defences than those under which their first tree was grown."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.simulator import Federation, finished
from tests.worlds import PARTIES, manifest, spec, world
from treetap.models.store import TREES, read_model
from treetap.party.defences.settings import Defences
from treetap.party.runtime.job_store import Store
from treetap.party.setup.labelled_table import AS_THEY_ARE
from treetap.trees.ensemble import Tree
from treetap.trees.params import BoostingParams, ForestParams, TreeParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
HOLDER = PARTIES[0]
BOOSTING = BoostingParams(n_estimators=3, max_depth=2, max_bin=5)
FOREST = ForestParams(n_estimators=3, max_depth=2, max_bin=5)
WITHDRAWN: dict[str, Any] = {"id_lmid": {"xi": 0.0}}
ALONE: dict[str, Any] = {"reduced_leakage": {"trees": 1}}
#: Parameters, defences before and after, and of each tree whether other parties know a split of it.
CHANGES: dict[str, tuple[TreeParams, dict[str, Any], dict[str, Any], list[bool]]] = {
    "forest, a limit taken out": (FOREST, WITHDRAWN, {}, [False, True, True]),
    "boosting, a limit taken out": (BOOSTING, WITHDRAWN, {}, [False, True, True]),
    "forest, a limit added": (FOREST, {}, WITHDRAWN, [True, False, False]),
    "boosting, a limit added": (BOOSTING, {}, WITHDRAWN, [True, False, False]),
    "own trees taken out": (BOOSTING, {"reduced_leakage": {"trees": 3}}, {}, [False, True, True]),
    "more own trees": (FOREST, ALONE, {"reduced_leakage": {"trees": 2}}, [False, False, True]),
}


def change_after_a_tree(federation: Federation, defences: Defences) -> None:
    """Kill the label holder as its second tree begins; it comes back with these defences."""
    begins = (HOLDER, "begin_tree", False)
    federation.kill_at(
        HOLDER,
        lambda message: (message.to, message.word, message.served) == begins,
        nth=2,
        back=True,
        defences=defences,
    )


def test_labels_may_change_before_the_first_tree_alone(tmp_path: Path) -> None:
    """They are noted before it: trees beside which no labels are noted go on with none."""
    store = Store(tmp_path).job("job")
    store.claim("s", "d")
    assert store.bind("noisy", "labels")
    assert store.bind(AS_THEY_ARE, "labels")
    store.lines(TREES).put({"tree": {}, "own": []}, 0)
    assert store.bind(AS_THEY_ARE, "labels")
    assert not store.bind("noisy", "labels")
    other = Store(tmp_path).job("other")
    other.claim("s", "d")
    other.lines(TREES).put({"tree": {}, "own": []}, 0)
    assert not other.bind(AS_THEY_ARE, "labels")


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(("params", "before", "after", "shared"), CHANGES.values(), ids=CHANGES)
async def test_what_a_tree_withheld_stays_hidden(
    params: TreeParams, before: dict[str, Any], after: dict[str, Any], shared: list[bool], tmp_path: Path
) -> None:
    """Each tree has the defences of its time; the model has no constant entries if a tree of it withholds anything."""
    here = world(60, seed=3)

    federation = Federation(tmp_path, here.tables, defences={HOLDER: Defences(**before)})
    change_after_a_tree(federation, Defences(**after))
    assert (await federation.train(spec(params, key_bits=512))).state == "interrupted"
    await asyncio.sleep(200)
    finished(await federation.resume())
    await federation.close()
    states = federation.states
    lines = read_model(states[HOLDER] / "models" / "job")[1]
    assert [bool(Tree.from_dict(line["tree"]).splits) for line in lines] == shared
    assert manifest(states[HOLDER])["hides_constants"]
