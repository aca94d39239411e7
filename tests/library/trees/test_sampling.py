"""Seeded draws."""

from __future__ import annotations

import hashlib
import itertools
import time

import numpy as np
import pytest

from tests import draws
from treetap.errors import DataError
from treetap.trees import sampling

ALL = np.ones(1000, dtype=bool)


def test_rows_are_bernoulli_per_tree() -> None:
    """Sample sizes vary around the rate as a binomial's do, and trees draw afresh."""
    drawn = np.stack([sampling.rows(1, tree, 1000, 0.3, ALL) for tree in range(200)])
    sizes = drawn.sum(axis=1)
    assert abs(sizes.mean() - 300) < 5
    assert 10 < sizes.std() < 19
    assert abs(drawn.mean(axis=0).std() - np.sqrt(0.3 * 0.7 / 200)) < 0.005


def test_rows_outside_the_eligible_are_never_drawn() -> None:
    """Validation records stay out, and leaving them out does not move the draw of the others."""
    eligible = np.arange(1000) % 3 > 0
    drawn = sampling.rows(1, 0, 1000, 0.5, eligible)
    assert (drawn == (sampling.rows(1, 0, 1000, 0.5, ALL) & eligible)).all()
    whole = sampling.rows(1, 0, 1000, 1.0, eligible)
    assert (whole == eligible).all()
    assert whole is not eligible


@pytest.mark.parametrize(
    ("d", "rate", "count"),
    [(10, 0.67, 6), (10, 0.05, 1), (10, 1.0, 10), (1, 0.3, 1), (0, 0.5, 0), (100, 0.29, 29), (50, 0.58, 29)],
)
def test_columns_round_down_but_keep_one(d: int, rate: float, count: int) -> None:
    """max(1, ⌊rate·d⌋) different columns, ascending; none where there are none."""
    drawn = sampling.columns(3, 5, "bank", d, rate)
    assert len(drawn) == count
    assert (np.diff(drawn) > 0).all()
    assert ((drawn >= 0) & (drawn < d)).all()


def test_columns_depend_on_seed_tree_and_party() -> None:
    """Any of the three changes the draw; the same three repeat it; all columns get their turn."""
    first = sampling.columns(3, 5, "bank", 40, 0.5).tolist()
    assert first == sampling.columns(3, 5, "bank", 40, 0.5).tolist()
    for other in ((4, 5, "bank"), (3, 6, "bank"), (3, 5, "shop")):
        assert first != sampling.columns(*other, 40, 0.5).tolist()
    seen = np.concatenate([sampling.columns(3, tree, "bank", 10, 0.3) for tree in range(100)])
    assert (np.bincount(seen, minlength=10) > 10).all()


def test_parties_sit_trees_out_at_their_rate() -> None:
    """As often as asked, each party by itself and afresh in every tree; with a share of 0 never."""
    there = {name: [sampling.takes_part(7, tree, name, 0.3) for tree in range(2000)] for name in ("bank", "shop")}
    for drawn in there.values():
        assert abs(np.mean(drawn) - 0.7) < 0.03
    both = np.mean(np.logical_and(*there.values()))
    assert abs(both - 0.49) < 0.03
    assert there["bank"] != [sampling.takes_part(8, tree, "bank", 0.3) for tree in range(2000)]
    assert all(sampling.takes_part(7, tree, "bank", 0.0) for tree in range(200))
    assert not any(sampling.takes_part(7, tree, "bank", 1 - 2**-53) for tree in range(200))


def test_words_are_those_of_the_definition() -> None:
    """Fixed vectors: the first words of a name, which `printf` and `sha256sum` give too, and words from the middle."""
    first = sampling.words(5, 7, "rows", 3)
    block = hashlib.sha256(b"treetap draw\x1fi:7\x1fs:rows\x1fi:3\x1f" + bytes(8)).digest()
    assert first[:4].tobytes() == block
    assert [f"{int(word):016x}" for word in first] == [
        "f578f64fc9939fb4",
        "a5f980dc70e2cb51",
        "295036946db35544",
        "117e9cab0ca93e9b",
        "67795af9f0daa915",
    ]
    assert (sampling.words(3, 7, "rows", 3, first=4) == sampling.words(7, 7, "rows", 3)[4:]).all()
    many = sampling.words(100_001, 7, "rows", 3)  # more than are hashed at once
    assert (many[65_536:65_540] == sampling.words(4, 7, "rows", 3, first=65_536)).all()
    assert len(many) == 100_001


def test_draws_are_those_of_another_implementation() -> None:
    """Every draw, over sizes and shares, as plain Python computes it from the definition."""
    for seed, n, share in itertools.product((0, 2**63 - 1), (2, 3, 41, 130), (0.01, 0.3, 0.8, 1 - 2**-53, 1.0)):
        eligible = [place % 5 > 0 for place in range(n)]
        for tree in (0, 9):
            of_boosting = sampling.rows(seed, tree, n, share, np.array(eligible))
            assert of_boosting.tolist() == draws.rows(seed, tree, share, eligible)
            for bootstrap in (False, True):
                of_forest = sampling.drawn(seed, tree, n, share, bootstrap=bootstrap)
                assert of_forest.tolist() == draws.drawn(seed, tree, n, share, bootstrap=bootstrap)
            assert sampling.columns(seed, tree, "käse", n, share).tolist() == draws.columns(
                seed, tree, "käse", n, share
            )
            assert sampling.takes_part(seed, tree, "b", share) == draws.takes_part(seed, tree, "b", share)
        assert sampling.validation_rows(seed, n, share).tolist() == draws.set_aside(seed, n, share)


def test_draws_are_these() -> None:
    """Fixed vectors of every draw: a model of a seed is the same in the next release."""
    drawn = [sampling.takes_part(0, tree, "telco", 0.5) for tree in range(16)]
    assert "".join(str(int(there)) for there in drawn) == "0000110001010101"
    assert np.flatnonzero(sampling.rows(1, 0, 20, 0.3, ALL[:20])).tolist() == [4, 5, 8, 10, 14, 16]
    assert np.flatnonzero(sampling.drawn(1, 0, 20, 0.3, bootstrap=False)).tolist() == [3, 4, 8, 9, 14, 16]
    assert sampling.drawn(1, 0, 20, 0.8, bootstrap=True).tolist() == [
        0,
        0,
        1,
        0,
        0,
        0,
        1,
        2,
        1,
        0,
        1,
        2,
        0,
        0,
        1,
        2,
        0,
        3,
        0,
        2,
    ]
    assert sampling.columns(1, 0, "bank", 20, 0.3).tolist() == [2, 6, 7, 8, 11, 12]
    assert np.flatnonzero(sampling.validation_rows(1, 20, 0.3)).tolist() == [1, 3, 4, 15, 17, 18]


@pytest.mark.parametrize("below", [1, 2, 3, 10, 2**62 + 1, 2**63])
def test_integers_have_no_bias(below: int) -> None:
    """Words that would make low numbers likelier are passed over, and the next ones taken; the same as one by one."""
    drawn = sampling.integers(below, 400, 5, "numbers")
    assert drawn.tolist() == draws.integers(below, 400, 5, "numbers")
    assert ((drawn >= 0) & (drawn <= below - 1)).all()
    third = (
        float(np.mean(drawn < below / 3)) if below > 10 else 1 / 3
    )  # with the remainder of all words it would be a half
    assert abs(third - 1 / 3) < 0.08


def test_equal_keys_go_to_the_lowest_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal words of 64 bits come in no test by chance."""
    keys = np.array([5, 2, 9, 2, 2, 0], dtype=np.uint64)
    monkeypatch.setattr(sampling, "words", lambda *_: keys)
    drawn = [sampling.smallest(count, 6, 1).tolist() for count in range(1, 7)]
    assert drawn == [[5], [1, 5], [1, 3, 5], [1, 3, 4, 5], [0, 1, 3, 4, 5], [0, 1, 2, 3, 4, 5]]


def test_a_million_records_are_drawn_in_time() -> None:
    """CPU of a tree's draw: 0.3 s is what it may cost, and 0.6 what a busy processor is given here."""
    before = time.process_time()
    assert abs(sampling.rows(1, 0, 1_000_000, 0.5, np.ones(1_000_000, dtype=bool)).mean() - 0.5) < 0.003
    assert time.process_time() - before < 0.6


def test_names_that_run_together_differ() -> None:
    """Parts of a name are kept apart, and a number is not its digits."""
    draws = [int(sampling.words(1, 1, *path)[0]) for path in (("a", 12), ("a1", 2), ("a", "12"), ("a", 1, 2))]
    assert len(set(draws)) == 4
    assert sampling.words(1, 1, np.int64(7)) == sampling.words(1, np.int64(1), 7)


def test_too_few_records_to_validate() -> None:
    """With nothing to set aside the error says so; two records leave one on each side."""
    with pytest.raises(DataError, match="too few"):
        sampling.validation_rows(0, 1, 0.5)
    assert sampling.validation_rows(0, 2, 0.9).sum() == 1
