"""A label holder's attack on columns: what follows exactly is right, more sums tell more, and the attack is blind."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.attacks.present import present
from tests.attacks.sums.test_opened_sums import BOOSTING, CASES, opened_by, trained
from tests.commands.command import python
from tests.worlds import PARTIES, World, world
from treetap.attacks.sums import attack, propagation
from treetap.attacks.sums.attack import SumsEvidence, read_columns
from treetap.attacks.sums.propagation import Kept, Knowledge, Linked, differences, left_sets
from treetap.attacks.sums.schema import CellsRead, ColumnFigures, SumsSettings
from treetap.attacks.sums.scoring import TrueColumns, Truth
from treetap.attacks.sums.sketches import Ints, PartySums, chains, linked_places, sums_of
from treetap.attacks.view.opened_sums import OpenedSums, OpenedTree, WonSplit
from treetap.errors import BadInput
from treetap.trees.params import BoostingParams

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
PARTY = "feature-party"
pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark's module, which has a label holder's view of a centralised training."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("columns_from_sums")


def figures_of(
    opened: OpenedSums, truth: TrueColumns, party: str = PARTY, kept: Kept | None = None, **settings: int
) -> ColumnFigures:
    """The attack without a word of progress."""
    given = SumsSettings(**settings)
    return read_columns(SumsEvidence(party, opened, truth, given, lambda _: None, kept or Kept()))


def small(benchmark: Any, records: int = 200, **params: Any) -> tuple[OpenedSums, TrueColumns]:
    """A training on part of the breast cancer table."""
    case = benchmark.case_of("breast_cancer", records)
    given = BoostingParams(**{"n_estimators": 10, "max_depth": 4, "max_bin": 8} | params)
    opened, _ = benchmark.opened_sums(case, given)
    values = case.inputs[:, case.own :]
    return opened, TrueColumns.of_numbers([str(j) for j in range(values.shape[1])], values, given.max_bin)


def test_a_column_of_known_order_is_read_exactly() -> None:
    """One column of sixteen bins, one tree whose values are all different: every record is placed."""
    rng = np.random.default_rng(0)
    column = rng.permutation(16).astype(np.float64)
    values = np.stack([*rng.integers(-(2**40), 2**40, (2, 16)), np.ones(16, dtype=np.int64)], axis=1)
    values[:, 1] = np.abs(values[:, 1])
    lefts = np.array([values[column <= cut].sum(axis=0) for cut in range(15)])
    order = rng.permutation(15)
    tree = OpenedTree(0, values, {1: np.arange(16)}, {PARTY: {1: lefts[order]}}, (), {})
    opened = OpenedSums((tree,), (PARTY,), 16, BoostingParams(max_bin=16))
    read = figures_of(opened, TrueColumns.of_numbers(["a"], column[:, None], 16))
    assert (present(read.together).placed, present(read.together).wrong, read.links) == (1.0, 0, 1.0)
    assert (read.best, round(read.rank_correlation or 0, 9)) == ("a", 1.0)
    assert read.left_sets.placed == 0.0


@pytest.mark.parametrize("count", [1, 2, 3])
def test_sets_of_a_sum_are_all_listed(count: int) -> None:
    """Of every sum of up to three records, the records in all sets that have it, and those in none."""
    rng = np.random.default_rng(count)
    values = rng.integers(0, 6, size=(9, 2))  # few values: many sums are those of several sets
    keys = propagation.keys_of(values)
    every = [list(chosen) for chosen in combinations(range(9), count)]
    for chosen in every:
        key = keys[chosen].sum(dtype=np.uint64)
        same = [set(other) for other in every if (values[other].sum(axis=0) == values[chosen].sum(axis=0)).all()]
        inside = present(propagation._inside(keys, key, count, once=True))
        sure, never = inside
        assert sure is not None
        assert set(np.flatnonzero(sure)) == set.intersection(*same)
        assert set(np.flatnonzero(~never)) == set.union(*same)
    assert propagation._inside(keys, np.uint64(1), count, once=True)[0] is None  # type: ignore[index]


def truth_of(here: World, party: str, max_bin: int) -> TrueColumns:
    """The true columns of a party of a world."""
    block = here.blocks[PARTIES.index(party)]
    texts = {column: count for (name, column), count in here.categories.items() if name == party}
    return TrueColumns.of_numbers([f"{party}{j}" for j in range(block.shape[1])], block, max_bin, texts)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("case", [name for name in CASES if name != "a forest with bins per node"])
def test_what_follows_exactly_is_right(case: str, tmp_path: Path) -> None:
    """With links given, no cell is claimed or excluded wrongly, whatever the job; and left sets tell less than all."""
    here, params, more = CASES[case]
    opened = opened_by(trained(tmp_path, here, params, **more))
    for party in opened.parties:
        trees = sums_of(party, opened.trees, lambda tree: params.drawn(tree, len(here.y)))
        columns = truth_of(here, party, params.max_bin)
        truth = Truth.of(columns, trees, party)
        linked = Linked(trees, *truth.given_links())
        knowledge = Knowledge.nothing(linked.records, linked.chains)
        left_sets(linked, knowledge)
        by_left_sets = int((knowledge.known >= 0).sum())
        differences(linked, knowledge, lambda _: None)
        assert knowledge.contradictions == 0
        assert (knowledge.known >= 0).sum() >= by_left_sets
        for number, chain in enumerate(truth.named(linked)):
            cells = chain.cells(columns)[:, columns.codes[:, chain.column]].T  # (N, cells): where each record is
            part = knowledge.possible[:, knowledge.first[number] : knowledge.first[number + 1]]
            assert (part | ~cells)[cells.any(axis=1)].all()
        read = figures_of(opened, columns, party)
        assert read.left_sets.placed <= present(read.given).placed
        assert 0 <= (read.together or present(read.given)).placed <= 1


def test_bins_of_each_node_cannot_be_linked(tmp_path: Path) -> None:
    """The figures say so, and claim nothing."""
    here, params, more = CASES["a forest with bins per node"]
    opened = opened_by(trained(tmp_path, here, params, **more))
    read = figures_of(opened, truth_of(here, opened.parties[0], params.max_bin), opened.parties[0])
    assert read.together is None
    assert "anew in every node" in read.reasons["sums"]


@pytest.mark.second_tier
def test_links_are_of_the_sums_alone(benchmark: Any) -> None:
    """More trees tell more, own links come near to given ones, and few claims are wrong."""
    shares = []
    for trees, linked in ((2, 0.7), (12, 0.9)):
        opened, truth = small(benchmark, n_estimators=trees)
        read = figures_of(opened, truth)
        assert read.together is not None
        assert present(read.links) > linked
        assert trees == 2 or read.together.wrong <= 0.1 * read.together.claims
        assert read.together.placed <= present(read.given).placed + 0.02
        shares.append(read.together.placed)
    assert shares[0] < shares[1]
    assert shares[1] > 0.5


@pytest.mark.second_tier
@pytest.mark.campaign
def test_a_brief_attack_is_a_floor_that_says_so(benchmark: Any) -> None:
    """Without least squares it has the differences of the whole one; with little work fewer passes, then trees."""
    opened, truth = small(benchmark, n_estimators=4)
    whole, brief = figures_of(opened, truth), figures_of(opened, truth, steps=0)
    assert present(whole.compared).floor == ""
    assert (brief.differences, brief.left_sets, brief.links) == (whole.differences, whole.left_sets, whole.links)
    assert (brief.read, brief.together, brief.given) == (whole.differences, None, None)
    assert brief.reasons == {}
    assert present(brief.compared).floor.startswith("a floor")
    size = brief.records * (brief.candidates + brief.columns)
    once = figures_of(opened, truth, steps=0, work=7 * size)  # one pass of four trees, and no second one
    assert (once.trees, once.reasons) == (4, {})
    assert 0 < present(once.differences).claims < present(whole.differences).claims
    part = figures_of(opened, truth, steps=0, work=3 * size)
    assert (part.trees, list(part.reasons)) == (3, ["trees"])
    assert part.reasons["trees"].startswith("the first 3 of 4 are read")
    again = figures_of(opened, truth, steps=0, work=3 * size)
    assert again.model_copy(update={"seconds": part.seconds}) == part
    assert figures_of(opened, truth, work=7 * size).compared.floor == present(brief.compared).floor  # type: ignore[union-attr]


@pytest.mark.second_tier
@pytest.mark.campaign
def test_columns_of_which_trees_draw_some_are_linked_too(benchmark: Any) -> None:
    """With half of the columns in each tree candidates come and go."""
    opened, truth = small(benchmark, 300, n_estimators=12, colsample_bytree=0.5)
    trees = sums_of(PARTY, opened.trees, lambda tree: opened.params.drawn(tree, opened.records))
    read = figures_of(opened, truth)
    assert {tree.candidates for tree in trees} == {7 * 5}
    assert read.together is not None
    assert read.together.placed > 0.1
    assert read.together.wrong < 0.3 * read.together.claims


def guard(
    opened: OpenedSums, truths: Sequence[TrueColumns], monkeypatch: pytest.MonkeyPatch, seen: list[TrueColumns]
) -> None:
    """The guard of the attack: it makes the same claims whatever table scores them; AssertionError otherwise.

    `seen` gets each table, for an attacker that cheats.
    """
    claimed: list[list[Ints]] = []

    def scored(columns: TrueColumns, trees: Sequence[PartySums], _: str) -> Truth:
        seen.append(columns)
        claimed.append([])
        return Truth(
            columns, [np.eye(tree.candidates, len(columns.lefts), dtype=bool) for tree in trees], cuts_alone=False
        )

    def noted(cells: Ints, *_: Any) -> CellsRead:
        claimed[-1].append(cells.copy())
        return CellsRead(placed=0.0, claims=0, wrong=0)

    monkeypatch.setattr(Truth, "of", scored)
    monkeypatch.setattr(attack, "cells_read", noted)
    unanswered = replace(opened, left_sets=())  # the floor by left sets alone has links given
    for truth in truths:
        figures_of(unanswered, truth)
    for (*one, _), (*other, _) in combinations(claimed, 2):  # of own links, not the bound
        assert all(map(np.array_equal, one, other))


@pytest.mark.second_tier
def test_the_attack_is_blind_and_one_that_is_handed_the_columns_fails_its_guard(
    benchmark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Claims do not depend on the table that scores them, unless the attacker cheats."""
    opened, truth = small(benchmark, n_estimators=4)
    values = np.random.default_rng(1).permuted(truth.values, axis=0)
    tables = [truth, TrueColumns.of_numbers(truth.names, values, opened.params.max_bin)]
    seen: list[TrueColumns] = []
    with monkeypatch.context() as patches:
        guard(opened, tables, patches, seen)
    assert seen == tables

    def handed(linked: Linked, knowledge: Knowledge, *_: Any) -> None:
        cells = np.arange(len(linked.chains[0]) + 1)
        knowledge.keep(np.arange(linked.records), 0, cells == seen[-1].codes[:, :1] % len(cells))

    with monkeypatch.context() as patches:
        patches.setattr(attack, "differences", handed)
        with pytest.raises(AssertionError):
            guard(opened, tables, patches, seen)


@pytest.mark.parametrize(("key", "value"), [("most_candidates", 69), ("most_cells", 10_000)])
def test_what_would_take_too_long_is_left_out(key: str, value: int, benchmark: Any) -> None:
    """The reason names the setting and the size."""
    opened, truth = small(benchmark, n_estimators=1)
    settings = SumsSettings.read({key: value})
    read = read_columns(SumsEvidence(PARTY, opened, truth, settings, lambda _: None, Kept()))
    assert read.together is None
    assert f"{key} = {value}" in read.reasons["sums"]


def test_tied_winners_place_no_record_wrongly() -> None:
    """Two cuts have equal sums, since the record between them was not drawn: its owner cut at the lower one."""
    column = np.array([0, 0, 0, 1, 2, 2, 3, 3])
    rng = np.random.default_rng(0)
    trees = []
    for index, cut in enumerate((0, 2)):
        values = np.stack([*rng.integers(1, 2**40, (2, 8)), np.ones(8, dtype=np.int64)], axis=1)
        if index == 0:
            values[3] = 0
        lefts = np.array([values[column <= k].sum(axis=0) for k in range(3)])
        places = (0, 1) if index == 0 else (2,)
        won = (WonSplit(1, PARTY, places, np.flatnonzero(column <= cut)),)
        nodes = {1: np.arange(8), 2: won[0].left, 3: np.flatnonzero(column > cut)}
        trees.append(OpenedTree(index, values, nodes, {PARTY: {1: lefts}}, won, {}))
    draws = [(tree.values[:, 2]).astype(np.int64) for tree in trees]
    truth_columns = TrueColumns.of_numbers(["a"], column[:, None].astype(np.float64), 4)
    observed = sums_of(PARTY, trees, lambda tree: draws[tree])
    linked = Linked(observed, *Truth.of(truth_columns, observed, PARTY).given_links())
    knowledge = Knowledge.nothing(8, linked.chains)
    left_sets(linked, knowledge)
    claimed = np.flatnonzero(knowledge.known[:, 0] >= 0)
    assert (knowledge.known[claimed, 0] == column[claimed]).all()
    assert knowledge.possible[np.arange(8), column].all()


def test_another_table_is_refused(benchmark: Any) -> None:
    """Sums that are of no column of it are counted."""
    opened, truth = small(benchmark, n_estimators=2)
    other = TrueColumns.of_numbers(truth.names, truth.values[::-1], opened.params.max_bin)
    with pytest.raises(BadInput, match=r"\[\[victim\]\] feature-party: \d+% of the sums .* not the table"):
        figures_of(opened, other)


@pytest.mark.second_tier
def test_finished_steps_are_kept(benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attack that was interrupted goes on from the last finished step, to the same figures."""
    opened, truth = small(benchmark, n_estimators=4)
    whole = figures_of(opened, truth)
    folder = tmp_path / "steps"
    kept = Kept.of(folder, "one")
    with monkeypatch.context() as patches:
        patches.setattr(attack, "shares", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            figures_of(opened, truth, kept=kept)
    assert len(list(folder.glob("*.npz"))) == 2  # links, differences
    assert folder.stat().st_mode & 0o077 == 0
    with monkeypatch.context() as patches:
        patches.setattr(attack, "linked_places", _interrupted)
        again = figures_of(opened, truth, kept=kept)
    assert again.model_copy(update={"seconds": 0}) == whole.model_copy(update={"seconds": 0})
    kept.clear()
    assert not folder.exists()


def _interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_chains_are_nested(benchmark: Any) -> None:
    """Every candidate is in one chain; in a chain left sets grow."""
    opened, _ = small(benchmark, n_estimators=3)
    trees = sums_of(PARTY, opened.trees, lambda tree: opened.params.drawn(tree, opened.records))
    places = linked_places(trees, sampled=False, most=4_000)
    linked = chains(trees, places)
    assert sorted(np.concatenate(linked).tolist()) == list(range(trees[0].candidates))
    for number, tree in enumerate(trees):
        for chain in linked:
            counts = tree.counts[:, places[number, chain]]
            assert (np.diff(counts, axis=1) >= 0).mean() > 0.98


@pytest.mark.second_tier
def test_the_benchmark_runs_as_a_script() -> None:
    """The figures as JSON, of the bundled table alone."""
    given = ("--records", "120", "--trees", "1", "2", "--bins", "8", "--json")
    done = python(BENCHMARKS / "columns_from_sums.py", *given)
    assert done.status == 0, done.err
    first, last = json.loads(done.out)["rows"]
    assert (last["set"], last["records"], last["columns"], first["trees"], last["trees"]) == (
        "breast_cancer",
        120,
        10,
        1,
        2,
    )
    assert first["given"]["placed"] <= last["given"]["placed"]


@pytest.mark.second_tier
def test_a_world_without_gaps_is_read(tmp_path: Path) -> None:
    """Over real messages of a federation: many of two parties' cells after five small trees."""
    here, params = world(60, (2, 2, 2), seed=5), replace(BOOSTING, n_estimators=5, max_bin=8)
    opened = opened_by(trained(tmp_path, here, params))
    for party in opened.parties:
        read = figures_of(opened, truth_of(here, party, params.max_bin), party)
        assert read.together is not None
        assert read.together.placed > 0.3
        assert read.together.wrong <= 0.1 * read.together.claims
