"""Columns in turns: the label holder finds which trees are of one column, and links their sums without a fault."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.sums.test_reading import PARTY, benchmark, figures_of
from treetap.attacks.sums import attack
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.sums.sketches import _covered, linked_in_turns, linked_places, sums_of, turns_of_columns
from treetap.attacks.view.opened_sums import OpenedSums
from treetap.errors import BadInput
from treetap.trees.params import BoostingParams

__all__ = ["benchmark"]
HOLDER = "label-holder"
PAGE = Path(__file__).resolve().parents[3] / "docs" / "threats.md"


def in_turns(
    benchmark: Any, name: str = "breast_cancer", records: int = 150, **params: Any
) -> tuple[OpenedSums, TrueColumns]:
    """The label holder's view of a training in turns, and the truth; small unless told otherwise."""
    case = benchmark.case_of(name, records)
    leaves = "multi_output_tree" if case.objective == "multi:softprob" else "one_output_per_tree"
    given: dict[str, Any] = {"n_estimators": 44, "max_bin": 8, "cycle": (HOLDER, PARTY), "multi_strategy": leaves}
    settings = BoostingParams(max_depth=1, model="additive", objective=case.objective, **given | params)
    opened, _ = benchmark.opened_sums(case, settings)
    values = case.inputs[:, case.own :]
    return opened, TrueColumns.of_numbers([str(j) for j in range(values.shape[1])], values, settings.max_bin)


@pytest.mark.parametrize(
    ("params", "known"),
    [
        pytest.param({}, True, id="one after the other"),
        pytest.param({"cycle": (PARTY, HOLDER, PARTY)}, True, id="a party named twice"),
        pytest.param({"subsample": 0.7}, True, id="drawn records"),
        pytest.param({"n_estimators": 20}, False, id="no column's second tree"),
    ],
)
def test_trees_of_one_column_are_found_by_its_left_sets(params: dict[str, Any], *, known: bool, benchmark: Any) -> None:
    """Nobody told the number of columns: sums of a left set that is known say where the column comes again."""
    opened, truth = in_turns(benchmark, **params)
    given: Any = opened.params
    trees = sums_of(PARTY, opened.trees, lambda tree: given.drawn(tree, opened.records))
    column = [int(given.columns(tree.index, PARTY, len(truth.names))[0]) for tree in trees]
    turns = [int(given.columns(tree.index, PARTY, 1000)[0]) for tree in trees]
    groups = turns_of_columns(trees, turns)
    assert sorted(number for group in groups for number in group) == list(range(len(trees)))
    assert all(len({column[number] for number in group}) == 1 for group in groups)
    assert len(groups) == (len(truth.names) if known else len(trees))
    read = figures_of(opened, truth, steps=0)
    assert (read.links, read.contradictions, present(read.differences).wrong) == (1.0, 0, 0)
    with pytest.raises(BadInput, match="most_candidates"):
        linked_in_turns(trees, turns, most=len(truth.names))


def test_a_column_that_no_set_shows_again_is_not_mistaken(benchmark: Any) -> None:
    """Without a left set, as of trees without gain, each tree stands for itself; links between them are not claimed."""
    opened, truth = in_turns(benchmark)
    bare = replace(opened, trees=tuple(replace(tree, won=()) for tree in opened.trees), left_sets=())
    read = figures_of(bare, truth, steps=0)
    assert read.links == 1.0
    assert read.candidates == figures_of(opened, truth, steps=0).candidates


def by_left_sets(opened: OpenedSums, truth: TrueColumns) -> list[float]:
    """The cells that left sets alone place: of a reader who puts nested ones in chains, and of one who knows the turns.

    Of a chain with sets of several columns those of most are counted, as if the reader knew the others to be wrong.
    """
    params: Any = opened.params
    sets = {}
    for it in opened.left_sets:
        inside = np.zeros(opened.records, dtype=bool)
        inside[it.left] = True
        sets[inside.tobytes()] = int(params.columns(it.tree, PARTY, len(truth.names))[0]), inside
    of_column = np.array([column for column, _ in sets.values()])
    member = np.array([inside for _, inside in sets.values()], dtype=np.int64)
    size = member.sum(axis=1)
    nested = (member @ member.T == size[None]) & (size[:, None] > size[None])
    chained = _covered(nested, np.where(nested, size[:, None] - size[None], -np.inf))
    shares = []
    for groups in (chained, [np.flatnonzero(of_column == column) for column in np.unique(of_column)]):
        placed = np.zeros(truth.codes.shape, dtype=bool)
        for group in groups:
            column = int(np.bincount(of_column[group]).argmax())
            interval = member[group[of_column[group] == column]].sum(axis=0)
            for rows in (interval == number for number in np.unique(interval)):
                placed[rows, column] |= len(np.unique(truth.codes[rows, column])) == 1
        shares.append(float(placed.mean()))
    return shares


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.second_tier
@pytest.mark.skipif("TREETAP_DATA" not in os.environ, reason="needs TREETAP_DATA, the public tables")
@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "credit", "obesity"])
def test_the_page_says_what_turns_tell(name: str, benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links and cells of a reader who takes candidates as it finds them, and of one who knows the turns."""
    opened, truth = in_turns(benchmark, name, 3000, n_estimators=40, max_bin=32)
    knowing = figures_of(opened, truth)
    monkeypatch.setattr(attack, "linked_in_turns", lambda trees, _, most: linked_places(trees, sampled=True, most=most))
    unaware = figures_of(opened, truth)
    bound = present(knowing.given).placed
    assert present(knowing.together).placed == pytest.approx(bound, abs=0.001)
    shares = [(100 * present(it.links), 100 * present(it.together).placed) for it in (unaware, knowing)]
    (links, cells), (all_links, all_cells) = np.round(shares, 1).tolist()
    alone = [100 * share for share in by_left_sets(*in_turns(benchmark, name, 3000, n_estimators=100, max_bin=32))]
    row = f"| {name.replace('_', ' ')} | {links:g} → {all_links:g} % | {cells:g} → {all_cells:g} % |"
    row += " {:.3g} → {:.3g} % |".format(*np.round(alone, 1))
    assert row in re.sub(r" +", " ", PAGE.read_text(encoding="utf-8")), row
