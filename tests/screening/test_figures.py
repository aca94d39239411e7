"""Figures of a screening: noise is nothing, what is there is found, and what the label holder has is redundant."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from treetap.arrays import Ints
from treetap.trees import screening
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.metrics import auc
from treetap.trees.params import OWN_MODEL
from treetap.trees.screening import (
    Own,
    Screened,
    added_auc,
    cells_of,
    column_of,
    own_of,
    own_scores,
    screened,
    values_of,
)
from treetap.trees.tree_bins import GlobalBins, left_sums_of

Floats = np.ndarray[Any, np.dtype[np.float64]]


def _binned(columns: Floats) -> BinnedTable:
    names = [str(number) for number in range(columns.shape[1])]
    return bin_table(columns, names, 32, may_be_constant=names)


def _labels(logit: Floats, rng: np.random.Generator) -> tuple[Floats, Ints]:
    """Probabilities of class 1, and labels drawn by them."""
    p: Floats = 1 / (1 + np.exp(-logit))
    return p, (rng.random(len(p)) < p).astype(np.int64)


def _screened(scores: Floats, labels: Any, columns: Floats) -> Screened:
    """A partner with these columns (N, d), by sums as a party makes them."""
    bins, values = GlobalBins(_binned(columns), np.arange(columns.shape[1])), values_of(scores, labels)
    own, sums = own_of(scores, values), left_sums_of(bins, values, [1], [np.arange(len(labels))])[0]
    cells = cells_of(bins.candidates.shapes, sums, values.sum(axis=0))
    return screened("telco", [column_of(1 + at, "", of, own) for at, of in enumerate(cells)], own)


def _independent(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    return rng.normal(size=shape)


def _alike(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    return 0.9 * rng.normal(size=(shape[0], 1)) + 0.4 * rng.normal(size=shape)


def _mostly_zero(shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    return np.where(rng.random(shape) < 0.9, 0.0, rng.exponential(size=shape))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize(
    ("records", "share", "columns", "drawn"),
    [(600, 0.3, 4, _independent), (1000, 0.05, 8, _alike), (1500, 0.2, 8, _mostly_zero), (1500, 0.02, 4, _independent)],
)
def test_noise_reads_nothing_found_in_95_of_100_draws(records: int, share: float, columns: int, drawn: Any) -> None:
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(100):
        p, labels = _labels(math.log(share / (1 - share)) + rng.normal(size=records), rng)
        its = _screened(p, labels, drawn((records, columns), rng))
        assert (its.added_auc is None) == its.said.endswith("nothing found beyond your own model")
        wrong += its.added_auc is not None
    assert wrong <= 5


def test_what_is_there_is_found_and_what_the_label_holder_has_is_redundant() -> None:
    rng = np.random.default_rng(1)
    known, new = rng.normal(size=(2, 6000))
    p, labels = _labels(known - 1 + 0.8 * new, rng)
    of_known = screening._scaled(known, labels)
    its = _screened(
        of_known, labels, np.column_stack([known + 0.1 * rng.normal(size=6000), new, rng.normal(size=6000)])
    )
    redundant, added, noise = its.columns
    assert its.added_auc is not None
    estimate, low, high = its.added_auc
    assert low < auc(p, labels) - auc(of_known, labels) < high
    assert low < estimate < high
    assert (redundant.redundancy or 0) > 0.9
    assert (1 if added.redundancy is None else added.redundancy) < 0.1
    assert noise.p_value > 0.01
    assert abs(noise.iv) < 0.02
    assert its.carried_by == 1
    assert "most of it from one column" in its.said


def test_noise_has_no_information_on_average() -> None:
    """IV and gains of noise are 0 but for their own chance, once what noise has is taken off."""
    rng, ivs, gains = np.random.default_rng(2), [], []
    for _ in range(20):
        p, labels = _labels(rng.normal(size=3000) - 1, rng)
        of_noise = _screened(p, labels, rng.normal(size=(3000, 4))).columns
        ivs += [column.iv for column in of_noise]
        gains += [[column.gain_alone, column.gain_beyond] for column in of_noise]
    assert np.mean(ivs) == pytest.approx(0, abs=4 * float(np.std(ivs)) / math.sqrt(len(ivs)))
    assert np.abs(np.mean(gains, axis=0) / np.std(gains, axis=0)).max() < 4 / math.sqrt(len(gains))


def test_own_scores_have_not_seen_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """By columns of noise they tell nothing, as scores of a model of these records would."""
    monkeypatch.setattr(screening, "OWN_MODEL", replace(OWN_MODEL, n_estimators=12))
    rng = np.random.default_rng(3)
    columns, labels = rng.normal(size=(400, 5)), rng.integers(0, 2, 400)
    assert abs(auc(own_scores(_binned(columns), labels), labels) - 0.5) < 0.1
    informed = own_scores(_binned(np.column_stack([labels + 0.5 * rng.normal(size=400)])), labels)
    assert auc(informed, labels) > 0.85
    assert informed.mean() == pytest.approx(labels.mean(), abs=0.02)


def test_a_party_without_a_useful_column() -> None:
    """None at all, or one value in all records: nothing found, and no division by nothing."""
    own = Own(good=50, bad=50, auc=0.7, g=0.0, h=20.0, spread=1.0)
    assert screened("telco", [], own).added_auc is None
    constant = np.array([[0, 20 << 32, 100, 50, 50], [0, 0, 0, 0, 0]])
    column = column_of(1, "", constant, own)
    assert (column.iv, column.gain_beyond, column.redundancy, column.p_value) == (0.0, 0.0, None, 1.0)
    assert screened("telco", [column], own).added_auc is None


@pytest.mark.parametrize("area", [0.45, 0.5, 0.7, 0.999])
def test_added_auc_grows_with_the_gain_and_stays_below_1(area: float) -> None:
    own = Own(good=900, bad=100, auc=area, g=0.0, h=60.0, spread=1.0)
    several = [added_auc(own, gain, 0.001) for gain in (0.0, 0.01, 0.1, 10.0)]
    assert several == sorted(several)
    for estimate, low, high in several:
        assert 0 <= low <= estimate <= high <= 1 - area + 1e-9 if area >= 0.5 else 0 <= low <= high
