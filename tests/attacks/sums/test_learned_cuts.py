"""Cuts that left sets alone tell: compared with a search over all cells that a record could be in."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.attacks.sums.attack import SumsEvidence, read_columns
from treetap.attacks.sums.least_squares import learned_cuts
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.schema import SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.opened_sums import LeftSet, OpenedSums
from treetap.errors import BadInput
from treetap.trees.params import BoostingParams

RECORDS, BINS = 120, 8
VALUES = np.random.default_rng(5).permuted(
    np.repeat(np.arange(BINS), RECORDS // BINS)[:, None].repeat(3, axis=1), axis=0
)
COLUMNS = TrueColumns.of_numbers(["a", "b", "c"], VALUES.astype(np.float64), BINS)
ALL = np.arange(RECORDS)


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
    assert [it.placed for it in learned.by_column] == [1 / BINS, 1 / BINS, 0.0]
    assert (learned.cells.claims, learned.cells.wrong) == (2 * RECORDS // BINS, 0)
    assert (learned.tied, learned.foreign, learned.unknown) == (0, 0, 0)


def test_answers_for_a_node_tell_of_its_records_alone() -> None:
    """Two cuts in two nodes: a record lies between two of them only if its node's cut says so."""
    low, high = ALL[: RECORDS // 2], ALL[RECORDS // 2 :]
    learned = learned_cuts([answer(0, 1, low), answer(0, 5, high)], COLUMNS)
    code = VALUES[:, 0]
    sure = [
        {0, 1} if k < RECORDS // 2 and code[k] <= 1 else {6, 7} if k >= RECORDS // 2 and code[k] > 5 else None
        for k in ALL
    ]
    assert learned.by_column[0].between == pytest.approx(sum(it is not None for it in sure) / RECORDS)
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
    opened = OpenedSums((), ("b",), RECORDS, BoostingParams(max_bin=BINS), (answer(0, 2), answer(1, 4)), recorded=False)
    other = TrueColumns.of_numbers(["a", "b", "c"], VALUES[::-1].astype(np.float64), BINS)
    read = read_columns(SumsEvidence("b", opened, COLUMNS, SumsSettings(), lambda _: None, Kept()))
    assert [it.cuts for it in read.cuts] == [1, 1, 0]
    with pytest.raises(BadInput, match="2 of its 2 left sets are of no column"):
        read_columns(SumsEvidence("b", opened, other, SumsSettings(), lambda _: None, Kept()))
