"""`treetap model` of a label holder whose model has subtrees that it alone knows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.command import refused, treetap
from tests.commands.test_model import BANK
from tests.grafted import add_grafts, withdraw_leaves
from tests.published import write_files
from treetap.commands.model.card import card
from treetap.commands.model.view import describe
from treetap.models.store import REPAIRED, TREES, VALUES, read_model, read_repaired

#: A model without local subtrees.
PLAIN = BANK


def _changed(folder: Path, change: Callable[[Path], None]) -> Path:
    copy = Path(shutil.copytree(PLAIN, folder / "model"))
    change(copy)
    return copy


@pytest.mark.parametrize("change", [add_grafts, withdraw_leaves])
def test_the_label_holder_sees_its_own_subtrees(change: Callable[[Path], None], tmp_path: Path) -> None:
    """Under its tree, by name and threshold; a leaf in whose place one stands says so and shows no weight."""
    folder = _changed(tmp_path, change)
    found = describe(folder)
    for tree in found["trees"]:
        roots = {each["root"] for each in tree["local"]}
        for leaf in tree["leaves"]:
            above = {leaf["node"] >> up for up in range(leaf["node"].bit_length())}
            assert ({leaf["local"]} if "local" in leaf else set()) == above & roots
        for subtree in tree["local"]:
            assert all({"feature", "left", "right"} <= set(split) for split in subtree["splits"])
    own = sum(len(each["splits"]) for tree in found["trees"] for each in tree["local"])
    assert sum(row["weight"] for row in found["importance"]["features_of_local_subtrees"]) == own
    shown = treetap("model", "show", folder)
    assert shown.status == 0
    for tree in found["trees"]:
        for each in tree["local"]:
            assert f"by the local subtree at node {each['root']}" in shown.out
            assert f"local subtree at node {each['root']}, known to the label holder alone" in shown.out
    assert ("values of leaves: grafting_refit, by clean labels" in shown.out) == (change is add_grafts)


@pytest.mark.parametrize("change", [add_grafts, withdraw_leaves])
def test_a_card_tells_nothing_of_them(change: Callable[[Path], None], tmp_path: Path) -> None:
    """It is that of the model without them: which leaves others do not see further is not for them."""
    folder, plain = _changed(tmp_path / "changed", change), _changed(tmp_path / "plain", lambda _: None)
    assert card(folder, names=True) == card(plain, names=True)


def test_a_subtree_that_is_no_tree_is_named(tmp_path: Path) -> None:
    """One message, status 2: of a node without children, and of an unknown repair."""
    folder = _changed(tmp_path, add_grafts)
    manifest, lines = read_model(folder)
    repaired = read_repaired(folder)
    write_files(folder, {**manifest, VALUES: "magic"}, {TREES: lines, REPAIRED: repaired})
    assert "values = 'magic': must be one of refit, grafting, grafting_refit" in refused(
        treetap("model", "show", folder)
    )
    del repaired[0]["grafting_refit"]["local"][0]["leaves"][0]
    write_files(folder, manifest, {TREES: lines, REPAIRED: repaired})
    assert "tree 0: the local subtree at node 1 is none of bank's own" in refused(treetap("model", "show", folder))
