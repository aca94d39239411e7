"""Sizes: security, hiding, precision."""

from __future__ import annotations

from dataclasses import fields, replace

import gmpy2
import numpy as np
import pytest

from treetap.errors import BadInput, DataError, Malformed
from treetap.lattice.columns import FixedPoint
from treetap.lattice.kernels import Member
from treetap.lattice.parameters import STATISTICAL_BITS, TOTAL_BITS, Parameters, plain_bits_for
from treetap.lattice.scheme import LatticeKey, scheme_of


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8])
def test_chosen_parameters_hide_and_build(members):
    """For one to eight members the choice reaches the statistical bits, and the library has the sizes assumed."""
    chosen = Parameters.choose(100, 1600, members)
    assert chosen.statistical_bits >= STATISTICAL_BITS
    assert chosen.modulus.bit_length() == 30 * chosen.data_primes <= TOTAL_BITS[chosen.degree]
    assert 3 * 2**chosen.plain_bits / 4 <= chosen.plain < 2**chosen.plain_bits
    every = [*chosen.primes, chosen.plain]
    assert len(set(every)) == len(every)
    assert all(prime % (2 * chosen.degree) == 1 and gmpy2.is_prime(prime) for prime in every)
    assert scheme_of(chosen).modulus == chosen.plain
    # flooding plus masked noise leaves two bits of q/t: one to decrypt, one of budget
    assert 4 * chosen.plain * (chosen.flood + chosen.masked_noise) <= chosen.modulus


@pytest.mark.parametrize(
    ("members", "sizes", "hidden"),
    [(1, (8192, 4, 22), 40.3), (2, (8192, 5, 20), 42.3), (3, (8192, 6, 20), 40.3), (4, (16384, 8, 22), 53.5)],
)
def test_the_sizes_of_a_hundred_trees(members, sizes, hidden):
    """Those that the documents name, with the bits by which they hide the masks."""
    chosen = Parameters.choose(100, 1600, members)
    assert (chosen.degree, chosen.data_primes, chosen.plain_bits) == sizes
    assert chosen.statistical_bits == pytest.approx(hidden, abs=0.1)


def test_a_plaintext_of_thirty_bits_has_a_prime_of_its_own():
    """The largest prime of 30 bits is t there, and none of q's."""
    parameters = Parameters(8192, 6, 30, 8, 1)
    assert parameters.plain > max(parameters.primes)
    assert Parameters(8192, 6, 29, 8, 1).primes[0] == parameters.plain
    key = LatticeKey(parameters)
    half = key.modulus // 2
    assert key.decrypt(key.encrypt(np.array([half, -half])), 3).tolist() == [half, -half, 0]


def test_more_of_anything_hides_less():
    """The argument's bits fall with columns, with members and with plaintext bits, and rise with primes."""
    base = Parameters(8192, 6, 20, 100, 1)
    assert replace(base, columns=1000).statistical_bits < base.statistical_bits
    assert replace(base, members=2).statistical_bits < base.statistical_bits
    assert replace(base, plain_bits=22).statistical_bits < base.statistical_bits
    assert replace(base, data_primes=4).statistical_bits < base.statistical_bits


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"degree": 4096}, "degree"),
        ({"data_primes": 8}, "128-bit"),
        ({"data_primes": 2}, "hidden"),
        ({"members": 4}, "hidden"),
        ({"plain_bits": 40}, "plaintexts"),
        ({"columns": 0}, "column"),
    ],
)
def test_weak_parameters_are_refused(change, word):
    """A set below 128 bits, or one that would not hide the masks, cannot be made, not even from a peer's bytes."""
    good = Parameters(8192, 6, 20, 1600, 1)
    with pytest.raises(BadInput, match=word):
        replace(good, **change)
    forged = object.__new__(Parameters)
    forged.__dict__.update({**vars(good), **change})
    with pytest.raises(Malformed):
        Parameters.from_bytes(forged.to_bytes())
    assert Parameters.from_bytes(good.to_bytes()) == good


@pytest.mark.parametrize("name", [field.name for field in fields(Parameters)])
def test_every_boundary_of_a_field_is_refused_at_once(name):
    """Parameters from a peer are compared before use: a computation with 2^40 members would not end."""
    agreed = Parameters(8192, 6, 20, 1600, 1)
    own = getattr(agreed, name)
    for value in sorted({0, 1, own - 1, own + 1, 2 * own, *(1 << k for k in (16, 31, 32, 40, 63)), 2**64 - 1} - {own}):
        forged = object.__new__(Parameters)
        forged.__dict__.update({**vars(agreed), name: value})
        with pytest.raises(Malformed, match="other lattice parameters than this job agreed on"):
            Member(agreed, forged.to_bytes() + bytes(100))
        if value > 1 << 31 or not value:
            with pytest.raises(BadInput):
                replace(agreed, **{name: value})
            with pytest.raises(Malformed):
                Parameters.from_bytes(forged.to_bytes())


def test_what_cannot_fit_is_refused():
    """Too many members, or a tolerance finer than any plaintext, end in one message."""
    with pytest.raises(BadInput, match="Paillier"):
        Parameters.choose(100, 1600, 20)
    with pytest.raises(BadInput, match="larger plaintexts"):
        Parameters.choose(100, 1600, 1, tolerance=1e-9)


@pytest.mark.parametrize(("centre", "spread"), [(0.0, 0.1), (5000.0, 300.0), (-1e-6, 1e-7)])
def test_scores_keep_their_tolerance_and_never_wrap(centre, spread):
    """Whichever leaf each tree contributes, also far from zero and at the extremes, the score is within 1e-4."""
    rng = np.random.default_rng(5)
    trees = [rng.normal(centre, spread, rng.integers(2, 17)) for _ in range(200)]
    modulus = 3 * 2 ** plain_bits_for(200, 1e-4) // 4 + 1
    fixed = FixedPoint(trees, modulus)
    span = sum(tree.max() - tree.min() for tree in trees)
    picks = [
        [int(tree.argmax()) for tree in trees],
        [int(tree.argmin()) for tree in trees],
        *([int(rng.integers(len(tree))) for tree in trees] for _ in range(50)),
    ]
    sums = np.array([sum(int(part[j]) for part, j in zip(fixed.integers, pick, strict=True)) for pick in picks])
    exact = np.array([sum(tree[j] for tree, j in zip(trees, pick, strict=True)) for pick in picks])
    assert np.abs(sums).max() <= fixed.limit <= (modulus - 1) // 2
    assert np.abs(fixed.decode(sums) - exact).max() <= 1e-4 * span
    assert fixed.limit > 0.9 * (modulus - 1) / 2  # the plaintext is used


def test_a_scale_that_cannot_hold_is_refused():
    """Too small a modulus, a weight that is not finite and a sum beyond the model are errors, never a wrong score."""
    with pytest.raises(BadInput, match="larger plaintext"):
        FixedPoint([np.array([0.0, 1.0])] * 1000, 2**20)
    with pytest.raises(DataError, match="finite"):
        FixedPoint([np.array([0.0, np.nan])], 2**20)
    fixed = FixedPoint([np.array([0.0, 1.0])], 2**20)
    with pytest.raises(Malformed, match="exceeds"):
        fixed.decode(np.array([fixed.limit + 1]))
    assert FixedPoint([np.array([3.0])], 2**20).decode(np.array([0])).tolist() == [3.0]  # a tree of one leaf


def test_differences_that_wrap_come_back_exactly():
    """Terms beyond t/2 may be sent as their representatives, if the whole sum is a score."""
    fixed = FixedPoint([np.array([0.0, 1.0])], 1009, tolerance=1e-2)
    low, high = sorted(fixed.integers[0].tolist())
    terms = fixed.wrap(np.array([high - low, low]))
    assert np.abs(terms).max() <= 504
    assert high - low > 504
    assert int(fixed.wrap(terms.sum())) == high
