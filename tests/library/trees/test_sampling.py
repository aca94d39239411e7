"""Seeded draws."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

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


def test_who_takes_part_is_the_same_everywhere() -> None:
    """All processes of a job draw this, so it hangs on no release of any library."""
    drawn = [sampling.takes_part(0, tree, "telco", 0.5) for tree in range(16)]
    assert "".join(str(int(there)) for there in drawn) == "0000110001010101"


def test_names_that_run_together_differ() -> None:
    """Parts of a name are kept apart, and a number is not its digits."""
    draws = [sampling.generator(1, *path).integers(2**60) for path in (("a", 12), ("a1", 2), ("a", "12"), ("a", 1, 2))]
    assert len(set(draws)) == 4
    assert sampling.generator(1, np.int64(7)).integers(2**60) == sampling.generator(np.int64(1), 7).integers(2**60)


def test_another_process_draws_the_same() -> None:
    """Python's randomised string hash plays no part."""
    code = "from treetap.trees import sampling; print(sampling.columns(3, 5, 'bank', 40, 0.5).tolist())"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "77"}
    )
    assert found.stdout.strip() == str(sampling.columns(3, 5, "bank", 40, 0.5).tolist())


def test_validation_rows_depend_on_the_seed_alone() -> None:
    """The share asked for, the same for one seed; labels have no say, since every party can repeat the draw."""
    held = sampling.validation_rows(0, 101, 0.2)
    assert held.sum() == 20
    assert (held == sampling.validation_rows(0, 101, 0.2)).all()
    assert (held != sampling.validation_rows(1, 101, 0.2)).any()


def test_too_few_records_to_validate() -> None:
    """With nothing to set aside the error says so; two records leave one on each side."""
    with pytest.raises(DataError, match="too few"):
        sampling.validation_rows(0, 1, 0.5)
    assert sampling.validation_rows(0, 2, 0.9).sum() == 1
