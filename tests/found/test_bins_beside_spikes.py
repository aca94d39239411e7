"""Columns in which few values have most records: each of these has a bin of its own, and the others share the rest."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.trees.rank_error import rank_error
from tests.oracle import bin_cuts
from tests.simulator import Federation, finished
from tests.trainings import fitting, jobs_of, oracle, policies
from tests.worlds import assert_oracles_model, spec, world
from treetap.tables.binned import ColumnBins
from treetap.trees.binning import FeatureBins, bin_table, quantile_cuts
from treetap.trees.centralised import train
from treetap.trees.metrics import auc
from treetap.trees.params import BoostingParams, TreeParams

Floats = npt.NDArray[np.float64]
NAN = float("nan")
N, BINS = 600, 16


def _mostly(share: float, *spikes: float, sign: float | None = None, seed: int = 0) -> Floats:
    """Of N values `share` is one of the spikes; the others are drawn around zero, or on one side of it."""
    draw = np.random.default_rng(seed)
    others = draw.normal(size=N) if sign is None else sign * draw.lognormal(size=N)
    return np.where(draw.random(N) < share, draw.choice(spikes, size=N), others)


COLUMNS = {
    **{f"{share:.0%} zeros, both signs": _mostly(share, 0.0) for share in (0.1, 0.5, 0.8, 0.9, 0.95, 0.99)},
    "the least": _mostly(0.9, 0.0, sign=1.0),
    "the largest": _mostly(0.9, 0.0, sign=-1.0),
    "least and largest": _mostly(0.8, -9.0, 9.0),
    "several": _mostly(0.7, -1.0, -0.5, 0.5, 2.0),
    "side by side": np.where(np.abs(_mostly(0.9, 1.0, 2.0, 3.0) - 2.5) < 0.5, 2.0, _mostly(0.9, 1.0, 2.0, 3.0)),
    "one within the rest": np.where(np.arange(N) % 25 == 0, 0.25, _mostly(0.9, 0.0)),
    "more than fit": _mostly(0.99, *range(-6, 6)),
    "signed zeros": np.where(np.arange(N) % 2 == 0, -0.0, _mostly(0.8, 0.0)),
    "missing": np.where(np.arange(N) % 3 == 0, NAN, _mostly(0.9, 0.0)),
    "counts": np.random.default_rng(1).geometric(0.12, N) * 1.0,
    "few values": np.random.default_rng(2).geometric(0.5, N) * 1.0,
    "one value": np.full(N, 3.0),
    "one record besides": np.concatenate([np.zeros(N - 2), [-1e-300, 1e300]]),
    "no spike": np.random.default_rng(3).normal(size=N),
}


def _bins(values: Floats, most: int, *, sketched: bool = False, parts: int = 1) -> FeatureBins:
    column = ColumnBins("x", most, categories=0, max_cat_to_onehot=1, sketched=sketched)
    for part in np.array_split(values, parts):
        column.add(part)
    return column.bins()


@pytest.mark.parametrize("most", [2, 3, BINS, 64])
@pytest.mark.parametrize("column", COLUMNS)
def test_a_value_with_a_bins_share_of_the_records_is_a_bin(column: str, most: int) -> None:
    """The oracle's cuts; as many bins as there may be; heavy values alone; the same in a stream as whole."""
    values = COLUMNS[column]
    bins = _bins(values, most)
    assert bins.cuts.tolist() == bin_cuts(values.tolist(), most)
    present, count = np.unique(values[~np.isnan(values)], return_counts=True)
    assert bins.n_bins == min(most, len(present))
    assert (np.bincount(bins.codes(present), minlength=bins.n_bins) > 0).all()
    heavy = np.flatnonzero(count * most >= count.sum())
    needed = len(np.unique(np.concatenate([[0], heavy, np.minimum(heavy + 1, len(present) - 1)])))
    if needed <= most:
        for spike in heavy:
            assert (bins.codes(present) == bins.codes(present[[spike]])).sum() == 1
    for parts in (1, 7):
        assert _bins(values, most, sketched=True, parts=parts).cuts.tolist() == bins.cuts.tolist()


@settings(max_examples=100, deadline=None)
@given(counts=st.lists(st.integers(1, 9) | st.integers(1, 400), min_size=1, max_size=40), most=st.integers(2, 12))
def test_any_counts_have_the_oracles_bins(counts: list[int], most: int) -> None:
    """As many as there may be, whichever values are heavy."""
    values = np.arange(len(counts)) * 1.0
    cuts = quantile_cuts(values, np.array(counts), most)
    assert cuts.tolist() == bin_cuts(np.repeat(values, counts).tolist(), most)
    assert len(cuts) == min(most, len(counts)) - 1


@pytest.mark.parametrize("share", [0.8, 0.95])
def test_a_sketch_has_cuts_beside_the_spike(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With blocks that are small beside the column: no more values share the spike's bin than a sketch may misplace."""
    n, size = 40_000, 512
    monkeypatch.setattr("treetap.tables.binned.BLOCK", size)
    draw = np.random.default_rng(4)
    values = np.where(draw.random(n) < share, 0.0, draw.normal(size=n))
    bins = _bins(values, BINS, sketched=True)
    beside = (bins.codes(values) == bins.codes(np.zeros(1))) & (values != 0)
    assert bins.n_bins == BINS
    assert (bins.codes(np.array([-1.0, 0.0, 1.0])) != bins.codes(np.zeros(1))).tolist() == [True, False, True]
    assert beside.mean() <= 2 * rank_error(n, size)


@pytest.mark.parametrize(("below", "above"), [(5, 300), (300, 5), (1, 1), (1, 20_000)])
def test_a_sketch_keeps_both_sides_of_the_spike(below: int, above: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one of which no block has a value any more; the ways in which values come in parts decide nothing."""
    n = 60_000
    monkeypatch.setattr("treetap.tables.binned.BLOCK", 64)
    draw = np.random.default_rng(6)
    values = np.zeros(n)
    places = draw.permutation(n)
    values[places[:below]] = -1 - draw.random(below)
    values[places[below : below + above]] = 1 + draw.random(above)
    bins = _bins(values, 32, sketched=True)
    assert len(np.unique(bins.codes(np.array([values.min(), 0.0, values.max()])))) == 3
    assert _bins(values, 32, sketched=True, parts=7).cuts.tolist() == bins.cuts.tolist()


def test_the_sign_of_what_is_not_zero_is_learned() -> None:
    """A label that follows the sign of the 5 % of records that have one, in the usual number of bins."""
    n, draw = 2_000, np.random.default_rng(0)
    net = np.where(draw.random(n) < 0.05, draw.normal(size=n).round(2), 0.0)
    paid = np.where(draw.random(n) < 0.1, draw.lognormal(size=n).round(2), 0.0)
    labels = ((net < 0) ^ (draw.random(n) < 0.01)).astype(np.int64)
    table = bin_table(np.stack([net, paid], axis=1), ["net", "paid"], 32)
    model = train([("bank", table)], labels, BoostingParams(n_estimators=10, max_depth=3))
    assert auc(model.predict([("bank", table)])[:, 0], labels == 1) > 0.85


JOBS: dict[str, Any] = {
    "boosting": partial(replace, max_bin=5),
    "forest": partial(replace, max_bin=5, binning="per-node"),
    "pivodl": partial(replace, max_bin=5),
}


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("protocol", JOBS)
async def test_the_federation_finds_the_oracles_model(protocol: str, tmp_path: Path) -> None:
    """Of columns that are mostly zero, in bins of the job and of every node."""
    params: TreeParams = JOBS[protocol](jobs_of(protocol).PARAMS, n_estimators=2, party_dropout={})
    here = fitting(world(60, (2, 2, 1), seed=6, zeros=0.7), params)
    job = spec(params, key_bits=512, obfuscation="standard")

    federation = Federation(tmp_path, here.tables, policies=policies(job))
    finished(await federation.train(job))
    assert_oracles_model(federation.states, oracle(here, params))
