"""The canonical candidate order."""

from __future__ import annotations

import numpy as np
import pytest

from treetap.trees.candidates import Candidate, CandidateList


def test_order_is_feature_bin_missing_right_missing_left() -> None:
    """The order is spelled out for a complete feature, one with missing values and one with a single value."""
    found = CandidateList([(3, False), (3, True), (1, True)])
    assert [found.at(k) for k in range(len(found))] == [
        Candidate(0, 0, False),
        Candidate(0, 1, False),
        Candidate(1, 0, False),
        Candidate(1, 0, True),
        Candidate(1, 1, False),
        Candidate(1, 1, True),
        Candidate(1, 2, False),
        Candidate(2, 0, False),
    ]
    assert found.first.tolist() == [0, 2, 7, 8]
    assert found.cell.tolist() == [0, 4, 8, 10]


def test_directions() -> None:
    """Bins up to the candidate's go left, missing values where it says."""
    shapes = [(3, True)]
    codes = np.array([[0], [1], [2], [3]], dtype=np.int32)
    found = CandidateList(shapes)
    directions = [found.goes_left(codes, found.at(k)).tolist() for k in range(len(found))]
    assert directions == [
        [True, False, False, False],
        [True, False, False, True],
        [True, True, False, False],
        [True, True, False, True],
        [True, True, True, False],
    ]


def test_missing_never_seen_goes_right() -> None:
    """A feature that had no missing value sends the missing code right, whatever the bin."""
    found = CandidateList([(3, False)])
    for k in range(len(found)):
        assert not found.goes_left(np.array([[3]]), found.at(k))[0]


def test_no_features_no_candidates() -> None:
    """A party without columns has an empty list; numbers outside a list are errors."""
    assert len(CandidateList([])) == 0
    for k in (-1, 2):
        with pytest.raises(IndexError):
            CandidateList([(3, False)]).at(k)
