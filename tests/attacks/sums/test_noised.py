"""Sums under noise, and cuts that are learned from them.

- Noised sums: planted worlds in which records are read in spite of noise, and one in which noise hides everything.
- Cuts that left sets alone tell: compared with a search over all cells that a record could be in.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.attacks.present import present
from treetap.attacks.report.sums import ALLOWED, way_rows, words
from treetap.attacks.report.sums import NOISED as ROW
from treetap.attacks.sums.attack import ALONE, NOISED, SumsEvidence, read_columns
from treetap.attacks.sums.least_squares import learned_cuts
from treetap.attacks.sums.noised import cuts_of_columns
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.schema import ColumnFigures, SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.opened_sums import LeftSet, OpenedSums, OpenedTree
from treetap.errors import BadInput
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_sums, largest_guess
from treetap.privacy.discrete_gaussian import discrete_gaussians
from treetap.trees.candidates import CandidateList
from treetap.trees.params import BoostingParams

PARTY, RECORDS, BINS, TREES = "b", 160, 8, 12
PARAMS = BoostingParams(n_estimators=TREES, max_depth=3, max_bin=BINS)
LEARNED_RECORDS, LEARNED_BINS = 120, 8
VALUES = np.random.default_rng(5).permuted(
    np.repeat(np.arange(LEARNED_BINS), LEARNED_RECORDS // LEARNED_BINS)[:, None].repeat(3, axis=1), axis=0
)
COLUMNS = TrueColumns.of_numbers(["a", "b", "c"], VALUES.astype(np.float64), LEARNED_BINS)
ALL = np.arange(LEARNED_RECORDS)


def world(epsilon: float, left_sets: tuple[LeftSet, ...] = (), seed: int = 0) -> tuple[OpenedSums, TrueColumns]:
    """Two columns that tell nothing of one another, and trees whose nodes are drawn: no crowd tells of a record."""
    rng = np.random.default_rng(seed)

    def seeded(count: int, variance: Fraction) -> np.ndarray:
        return discrete_gaussians(count, variance, rng.bytes)

    codes = np.stack([rng.permutation(np.arange(RECORDS) % BINS) for _ in range(2)], axis=1)
    truth = TrueColumns.of_numbers(["x", "y"], codes.astype(np.float64), BINS)
    privacy = ColumnPrivacy(epsilon, 1e-6, TREES)
    noise, candidates = privacy.noise(PARAMS, 1), CandidateList([it.shape for it in truth.bins.features])
    g_most, h_most = noise.bounds[0], noise.bounds[1]
    trees = []
    for index in range(TREES):
        values = np.stack(
            [
                rng.integers(-g_most, g_most, RECORDS),
                rng.integers(0, h_most, RECORDS),
                np.ones(RECORDS, dtype=np.int64),
            ],
            axis=1,
        )
        nodes = {1: np.arange(RECORDS)}
        for node in (1, 2, 3):
            side = rng.random(len(nodes[node])) < 0.5
            nodes |= {2 * node: nodes[node][side], 2 * node + 1: nodes[node][~side]}
        order, sums = rng.permutation(len(candidates)), {}
        for node, rows in nodes.items():
            exact = [
                values[rows][codes[rows, f] <= k].sum(axis=0)
                for f, k in zip(candidates.feature, candidates.bin, strict=True)
            ]
            sums[node] = (np.array(exact) + drawn_sums(candidates, noise, 1, seeded)[0])[order]
        trees.append(OpenedTree(index, values, nodes, {PARTY: sums}, (), {}))
    return OpenedSums(tuple(trees), (PARTY,), RECORDS, PARAMS, left_sets, noised={PARTY: privacy}), truth


def figures_of(opened: OpenedSums, truth: TrueColumns, **settings: int) -> ColumnFigures:
    """The attack without a word of progress."""
    return read_columns(SumsEvidence(PARTY, opened, truth, SumsSettings(**settings), lambda _: None, Kept()))


@pytest.fixture(scope="module")
def read() -> ColumnFigures:
    """The figures of a world with a z of 1.5."""
    return figures_of(*world(100.0))


def test_records_are_read_in_spite_of_noise_and_links_are_found(read: ColumnFigures) -> None:
    """Most cells are named and most claims right; the crowd, which is uniform, names one of eight."""
    assert present(read.noise).z == pytest.approx(1.5, abs=0.01)
    assert read.named[NOISED] > 0.5 > 3 * read.named[ALONE]
    assert present(read.given).wrong < present(read.given).claims / 2
    assert (present(read.compared).word, present(read.explained).word) == ("severe", "severe")


@pytest.mark.second_tier
def test_under_huge_noise_nothing_more_is_found() -> None:
    """ε of .05: both words are "nothing found", and nothing is claimed."""
    read = figures_of(*world(0.05))
    assert (present(read.compared).word, present(read.explained).word) == ("nothing found", "nothing found")
    assert present(read.given).claims == 0
    assert present(read.noise).allowed == pytest.approx(largest_guess(0.05, 1e-6, 1 / BINS, BINS))


def test_what_left_sets_exclude_is_never_sampled() -> None:
    """Under noise that hides all, the answer for one cut divides the guesses by it."""
    _, truth = world(0.05)
    low = np.flatnonzero(truth.codes[:, 0] <= 0)
    read = figures_of(*world(0.05, (LeftSet(0, 1, PARTY, low, np.arange(RECORDS)),)))
    assert read.named[NOISED] >= (1 + 1 / BINS) / 2 / BINS  # all of the first bin, which the cut names
    assert read.left_sets.placed == pytest.approx(1 / BINS / 2)
    assert (present(read.given).placed, present(read.given).wrong) == (1 / BINS / 2, 0)


def test_a_part_is_named_as_one() -> None:
    """Too little work for all trees: the reason and the floor say so, and the first tree is always read."""
    opened, truth = world(100.0)
    read = figures_of(opened, truth, work=1_000)
    assert read.trees == 1
    assert read.reasons["trees"].startswith("the first 1 of 12 are read")
    assert present(read.compared).floor.startswith("a floor")
    again = figures_of(opened, truth, work=1_000)
    assert again.model_copy(update={"seconds": read.seconds}) == read


def test_another_table_is_refused() -> None:
    """Its cells are nowhere near the sums."""
    opened, truth = world(1000.0)
    other = TrueColumns.of_numbers(truth.names, truth.values[::-1] ** 2 % 7, BINS)
    with pytest.raises(BadInput, match="not the table that the party trained on"):
        figures_of(opened, other)


def test_the_report_has_a_row_for_each_part(read: ColumnFigures) -> None:
    """Left sets alone, noised sums and what ε allows; the sentence has the same figures."""
    assert present(read.compared).floor == ""
    rows = way_rows(read)
    assert [row[0] for row in rows] == ["left sets alone (floor)", ROW, ALLOWED]
    assert rows[-1][1] in words(PARTY, read)
    assert f"{100 * read.named[NOISED]:.1f} %" in words(PARTY, read)


def test_neighbours_are_linked_by_their_noise() -> None:
    """Cells that are far below the noise: a path through its draws is the column's order, whichever column it is."""
    rng = np.random.default_rng(1)
    cells = [rng.normal(0.0, 0.5, (16, 60)) for _ in range(3)]
    total = cells[0].sum(axis=0)
    cells = [it + (total - it.sum(axis=0)) / 16 for it in cells]
    draws = [rng.normal(size=(16, 60)) for _ in cells]
    lefts = np.concatenate(
        [np.cumsum(it + draw - draw.mean(axis=0), axis=0)[:-1] for it, draw in zip(cells, draws, strict=True)]
    )
    order = rng.permutation(len(lefts))
    found = cuts_of_columns(lefts[order], cells, total)
    for column, places in enumerate(found):
        assert places is not None
        assert (order[places] == np.arange(15) + 15 * column).mean() > 0.8


def test_the_largest_guess() -> None:
    """1/W at ε 0 and 1 at last; of randomised response, which reaches it, e^ε / (e^ε + W − 1)."""
    assert largest_guess(0.0, 0.0, 1 / 32, 32) == pytest.approx(1 / 32)
    assert largest_guess(4.0, 0.0, 1 / 32, 32) == pytest.approx(np.exp(4) / (np.exp(4) + 31))
    assert largest_guess(16.0, 1e-6, 1 / 32, 32) > 0.9999
    assert largest_guess(1e6, 1e-6, 0.5, 2) == 1.0
    assert largest_guess(1.0, 1e-6, 0.9, 2) == pytest.approx(0.9 * np.e / (0.9 * np.e + 0.1), abs=1e-5)


def answer(column: int, cut: int, space: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None) -> LeftSet:
    """The left set of values up to a cut, of all records or those of a node."""
    here = ALL if space is None else space
    return LeftSet(0, 1, "b", here[VALUES[here, column] <= cut], here)


def test_answers_for_all_records_place_every_record_between_two_cuts() -> None:
    """Of a column with cuts all; in one bin where two cuts are neighbours, or one is at the end."""
    learned = learned_cuts([answer(0, 2), answer(0, 3), answer(0, 2), answer(1, 0)], COLUMNS)
    assert [(it.column, it.cuts, it.between) for it in learned.by_column] == [
        ("a", 2, 1.0),
        ("b", 1, 1.0),
        ("c", 0, 0.0),
    ]
    assert [it.placed for it in learned.by_column] == [1 / LEARNED_BINS, 1 / LEARNED_BINS, 0.0]
    assert (learned.cells.claims, learned.cells.wrong) == (2 * LEARNED_RECORDS // LEARNED_BINS, 0)
    assert (learned.tied, learned.foreign, learned.unknown) == (0, 0, 0)


def test_answers_for_a_node_tell_of_its_records_alone() -> None:
    """Two cuts in two nodes: a record lies between two of them only if its node's cut says so."""
    low, high = ALL[: LEARNED_RECORDS // 2], ALL[LEARNED_RECORDS // 2 :]
    learned = learned_cuts([answer(0, 1, low), answer(0, 5, high)], COLUMNS)
    code = VALUES[:, 0]
    sure = [
        {0, 1}
        if k < LEARNED_RECORDS // 2 and code[k] <= 1
        else {6, 7}
        if k >= LEARNED_RECORDS // 2 and code[k] > 5
        else None
        for k in ALL
    ]
    assert learned.by_column[0].between == pytest.approx(sum(it is not None for it in sure) / LEARNED_RECORDS)
    assert learned.by_column[0].placed == 0.0
    with_all = learned_cuts([answer(0, 1), answer(0, 5)], COLUMNS)
    assert with_all.by_column[0].between == 1.0 > learned.by_column[0].between


def test_ties_foreign_sets_and_unknown_nodes_claim_nothing() -> None:
    """Which of two columns was cut stays open; a set of no column, or of a node that is not known, is counted."""
    tie = np.flatnonzero((VALUES[:, 0] <= 3) == (VALUES[:, 1] <= 3))[:9]
    strange = LeftSet(0, 1, "b", ALL[::2], ALL)
    unknown = LeftSet(0, 2, "b", ALL[:4], None)
    learned = learned_cuts([answer(0, 3, tie), strange, unknown], COLUMNS)
    assert (learned.tied, learned.foreign, learned.unknown) == (1, 1, 1)
    assert all(it.cuts == 0 for it in learned.by_column)
    assert learned.cells.claims == 0


def test_a_constraint_may_exchange_the_sides() -> None:
    """The right side of a cut is sent left only by a party with constraints."""
    exchanged = LeftSet(0, 1, "b", np.flatnonzero(VALUES[:, 2] > 4), ALL)
    assert learned_cuts([exchanged], COLUMNS).foreign == 1
    learned = learned_cuts([exchanged], COLUMNS, mirrored=True)
    assert (learned.by_column[2].cuts, learned.by_column[2].between, learned.cells.wrong) == (1, 1.0, 0)


def test_another_table_is_refused_without_sums() -> None:
    """Most of its left sets are of no column."""
    opened = OpenedSums(
        (), ("b",), LEARNED_RECORDS, BoostingParams(max_bin=LEARNED_BINS), (answer(0, 2), answer(1, 4)), recorded=False
    )
    other = TrueColumns.of_numbers(["a", "b", "c"], VALUES[::-1].astype(np.float64), LEARNED_BINS)
    read = read_columns(SumsEvidence("b", opened, COLUMNS, SumsSettings(), lambda _: None, Kept()))
    assert [it.cuts for it in read.cuts] == [1, 1, 0]
    with pytest.raises(BadInput, match="2 of its 2 left sets are of no column"):
        read_columns(SumsEvidence("b", opened, other, SumsSettings(), lambda _: None, Kept()))
