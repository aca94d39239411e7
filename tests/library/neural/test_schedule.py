"""Order, batches and rates, which every party works out for itself."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.errors import DataError
from treetap.neural.params import SplitnnParams
from treetap.neural.schedule import Schedule


def schedule(
    records: int, batch_size: int, *, rounds: int | None = None, share: float = 0.1, seed: int = 0
) -> Schedule:
    """The schedule of a job of three epochs."""
    params = SplitnnParams(
        epochs=3, batch_size=batch_size, early_stopping_rounds=rounds, validation_share=share, seed=seed
    )
    return Schedule.of(params, records)


@given(records=st.integers(2, 120), batch_size=st.integers(2, 40), epoch=st.integers(0, 4), seed=st.integers(0, 9))
@settings(max_examples=60)
def test_an_epoch_covers_each_record_once(records: int, batch_size: int, epoch: int, seed: int) -> None:
    """Batches are full but for the last, which has at least two records and at most one more than the others."""
    if records < batch_size:
        return
    found = schedule(records, batch_size, seed=seed)
    batches = found.epoch(epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(records))
    assert len(batches) == found.batches
    assert {len(batch) for batch in batches[:-1]} <= {batch_size}
    assert 2 <= len(batches[-1]) <= batch_size + 1
    assert (len(batches[-1]) == batch_size + 1) == (records % batch_size == 1)


def test_each_epoch_has_its_order_and_every_party_finds_it() -> None:
    """The order follows from the seed and the epoch; another seed gives another one."""
    one, two = schedule(50, 8), schedule(50, 8)
    orders = [np.concatenate(one.epoch(epoch)) for epoch in range(3)]
    assert np.array_equal(orders[1], np.concatenate(two.epoch(1)))
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[0], np.concatenate(schedule(50, 8, seed=1).epoch(0)))
    assert not np.array_equal(orders[0], np.arange(50))


def test_validation_records_are_set_aside() -> None:
    """Training and validation share no record; the share is kept; without early stopping none is set aside."""
    found = schedule(53, 8, rounds=2, share=0.2)
    assert len(found.validation) == 11
    assert sorted([*found.training.tolist(), *found.validation.tolist()]) == list(range(53))
    assert set(np.concatenate(found.epoch(2)).tolist()) == set(found.training.tolist())
    assert np.array_equal(np.concatenate(found.validation_batches()), found.validation)
    assert [len(rows) for rows in found.validation_batches()] == [8, 3]
    assert not len(schedule(53, 8).validation)
    assert schedule(53, 8).validation_batches() == []


@pytest.mark.parametrize(("share", "expected"), [(0.0001, 1), (0.8, 8)])
def test_there_is_a_record_on_each_side(share: float, expected: int) -> None:
    """A tiny share sets one record aside, and a batch must be left to train on."""
    assert len(schedule(10, 2, rounds=1, share=share).validation) == expected


def test_a_batch_larger_than_the_training_is_refused() -> None:
    """The error names the field and how many records there are, those set aside left out."""
    with pytest.raises(DataError, match="batch_size = 16: there are 15 records to train on; name a smaller one"):
        schedule(15, 16)
    with pytest.raises(DataError, match="batch_size = 16: there are 15 records"):
        schedule(20, 16, rounds=1, share=0.25)
    assert len(schedule(16, 16).epoch(0)) == 1


def test_a_constant_rate_stays_and_a_cosine_falls_to_nothing() -> None:
    """The cosine begins at the rate, is half of it in the middle, and would be 0 after the last batch."""
    constant = Schedule.of(SplitnnParams(epochs=4, batch_size=10, learning_rate=0.3), 100)
    assert {constant.rate(epoch, batch) for epoch in range(4) for batch in range(10)} == {0.3}
    cosine = Schedule.of(SplitnnParams(epochs=4, batch_size=10, learning_rate=0.3, schedule="cosine"), 100)
    rates = [cosine.rate(epoch, batch) for epoch in range(4) for batch in range(10)]
    assert rates[0] == 0.3
    assert rates[20] == pytest.approx(0.15)
    assert all(later < sooner for sooner, later in pairwise(rates))
    assert rates[-1] == pytest.approx(0.3 * np.sin(np.pi / 80) ** 2)
    assert cosine.rate(4, 0) == 0.0


def test_parties_sit_out_by_their_probability() -> None:
    """Two of three parties sit out in their shares and not together; the third, without one, never does."""
    params = SplitnnParams(batch_size=2, party_dropout={"a": 0.3, "b": 0.3})
    found = Schedule.of(params, 10)
    out = {
        name: np.array([not found.takes_part(epoch, batch, name) for epoch in range(40) for batch in range(50)])
        for name in ("a", "b", "c")
    }
    error = np.sqrt(0.21 / 2_000)
    assert abs(out["a"].mean() - 0.3) < 5 * error
    assert abs(out["b"].mean() - 0.3) < 5 * error
    assert abs((out["a"] & out["b"]).mean() - 0.09) < 5 * error
    assert not out["c"].any()
    other = Schedule.of(SplitnnParams(batch_size=2, party_dropout={"a": 0.3}, seed=1), 10)
    assert not all(other.takes_part(0, batch, "a") == found.takes_part(0, batch, "a") for batch in range(50))
