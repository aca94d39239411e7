"""Pairwise masks: sums are exact, shares are uniform, a mask is used once; and the ring that they live in."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

from treetap.errors import Conflict, DataError, Malformed
from treetap.privacy.masks import MaskKey, PairwiseMasks, Ring, decode, encode, largest

NAMES = [f"party-{number}" for number in range(10)]


def _parties(count: int, context: bytes = b"job 1") -> dict[str, PairwiseMasks]:
    keys = {name: MaskKey() for name in NAMES[:count]}
    publics = {name: key.public for name, key in keys.items()}
    return {name: PairwiseMasks(name, key, publics, context) for name, key in keys.items()}


def _values(count: int, size: int = 50) -> dict[str, Ring]:
    generator = np.random.default_rng(count)
    return {name: generator.integers(0, 2**64 - 1, size=size, dtype=np.uint64, endpoint=True) for name in NAMES[:count]}


def _total(shares: list[Ring]) -> Ring:
    return np.add.reduce(np.array(shares, dtype=np.uint64), axis=0)


@pytest.mark.parametrize("count", range(2, 11))
def test_masks_cancel_exactly(count: int) -> None:
    """The shares of all parties add up to their values modulo 2^64, whatever the order of names, and so do subsets."""
    parties, values = _parties(count), _values(count)
    shares = [each.masked(values[name], "metrics", 3, NAMES[:count][::-1]) for name, each in parties.items()]
    assert np.array_equal(_total(shares), _total(list(values.values())))
    some = NAMES[1:count]
    shares = [parties[name].masked(values[name], "metrics", 4, some) for name in some]
    assert np.array_equal(_total(shares), _total([values[name] for name in some]))


@pytest.mark.parametrize("count", range(2, 11))
def test_a_missing_party_leaves_noise(count: int) -> None:
    """Without one share no element of the sum is right, and the sum of the others' zeros looks uniform."""
    parties = _parties(count)
    zeros = np.zeros(4000, dtype=np.uint64)
    shares = [each.masked(zeros, "scores", 0, NAMES[:count]) for each in parties.values()]
    for missing in range(count):
        rest = _total(shares[:missing] + shares[missing + 1 :])
        assert (rest != 0).all()
        assert stats.kstest(rest / 2.0**64, "uniform").pvalue > 1e-9


def test_a_repeat_gives_identical_bytes_and_other_values_none() -> None:
    """The same call gives the same share; the same mask for other values, or for other parties, is refused."""
    parties, values = _parties(3), _values(3)
    one = parties[NAMES[0]]
    first = one.masked(values[NAMES[0]], "scores", 7, NAMES[:3])
    assert one.masked(values[NAMES[0]], "scores", 7, NAMES[:3][::-1]).tobytes() == first.tobytes()
    with pytest.raises(Conflict, match="a mask is used once"):
        one.masked(values[NAMES[1]], "scores", 7, NAMES[:3])
    with pytest.raises(Conflict, match="a mask is used once"):
        one.masked(values[NAMES[0]], "scores", 7, NAMES[:2])
    one.close_before("scores", 8)
    with pytest.raises(Conflict, match="are over"):
        one.masked(values[NAMES[0]], "scores", 7, NAMES[:3])
    one.masked(values[NAMES[0]], "metrics", 7, NAMES[:3])


def test_every_sum_has_masks_of_its_own() -> None:
    """Purpose, round, parties, context and keys each change every element."""
    zeros = np.zeros(20, dtype=np.uint64)
    keys = [MaskKey() for _ in range(4)]
    publics = {name: key.public for name, key in zip(NAMES, keys, strict=False)}
    one, other = (PairwiseMasks(NAMES[0], keys[0], publics, context) for context in (b"1", b"2"))
    found = [
        one.masked(zeros, "a", 1, NAMES[:3]),
        one.masked(zeros, "a", 2, NAMES[:3]),
        one.masked(zeros, "a1", 1, NAMES[:3]),
        one.masked(zeros, "b", 1, NAMES[:4]),
        one.masked(zeros, "b", 2, NAMES[:3]),
        other.masked(zeros, "a", 1, NAMES[:3]),
        _parties(4)[NAMES[0]].masked(zeros, "a", 1, NAMES[:3]),
    ]
    assert len(np.unique(np.concatenate(found))) == 7 * 20


@pytest.mark.parametrize("public", [bytes(32), bytes([1]) + bytes(31), b"short", b"\xec" + b"\xff" * 30 + b"\x7f", b""])
def test_bad_public_keys_are_refused(public: bytes) -> None:
    """Keys of low order, with which anybody knows the secret, and bytes that are no key."""
    with pytest.raises(Malformed, match="mask key of party-1"):
        PairwiseMasks(NAMES[0], MaskKey(), {NAMES[1]: public}, b"job")


def test_two_parties_with_one_key_are_refused() -> None:
    """A party that repeats another's key cannot have its secret half."""
    key, other = MaskKey(), MaskKey()
    with pytest.raises(Malformed, match="another party"):
        PairwiseMasks(NAMES[0], key, {NAMES[1]: key.public}, b"job")
    with pytest.raises(Malformed, match="another party"):
        PairwiseMasks(NAMES[0], key, {NAMES[1]: other.public, NAMES[2]: other.public}, b"job")


def test_secrets_are_not_shown_or_stored() -> None:
    """Neither object can be pickled or copied, nor does its repr have a secret."""
    key, other = MaskKey(), MaskKey()
    masks = PairwiseMasks(NAMES[0], key, {NAMES[1]: other.public}, b"job")
    for held in (key, masks):
        with pytest.raises(TypeError, match="not pickled"):
            pickle.dumps(held)
        with pytest.raises(TypeError, match="not pickled"):
            copy.deepcopy(held)
        assert key.common_secret(other.public, "b").hex() not in repr(held)
    assert (repr(key), repr(masks)) == ("<MaskKey>", "<PairwiseMasks of party-0 with party-1>")


def test_the_ring_adds_numbers_of_both_signs() -> None:
    """Sums of encoded numbers decode to the sum, to 2^-33 per term."""
    generator = np.random.default_rng(4)
    terms = generator.normal(scale=1e4, size=(10, 100))
    total = _total([encode(each, 10) for each in terms])
    assert np.allclose(decode(total), terms.sum(axis=0), rtol=0, atol=10 * 2.0**-33)
    assert decode(encode(np.array([-(2.0**-32), 0.0, 5.0]), 1)).tolist() == [-(2.0**-32), 0.0, 5.0]
    limit = largest(10)
    assert decode(_total([encode(np.array([-limit, limit]), 10)] * 10)).tolist() == [-(2.0**30), 2.0**30]


def test_numbers_out_of_range_are_counted_and_not_shown() -> None:
    """Infinite, missing and large numbers are refused."""
    with pytest.raises(DataError, match="3 of 4 numbers are beyond") as refusal:
        encode(np.array([1.0, 7.7e17, np.inf, np.nan]), 10)
    assert "7.7" not in str(refusal.value)
