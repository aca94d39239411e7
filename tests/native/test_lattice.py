"""Kernels for polynomials against naive arithmetic, against another ChaCha20, and in both forms."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import scheme_of
from treetap.native import lattice as native
from treetap.native import library

PARAMETERS = Parameters(8192, 4, 22, 100, 1)
RING = scheme_of(PARAMETERS).ring
N = RING.degree
RNG = np.random.default_rng(8)
FORMS = ("plain", "AVX2")


@pytest.fixture(params=FORMS)
def form(request):
    """Compute with plain instructions, then with AVX2 where the processor has it."""
    first = native.instructions()
    if native.instructions(FORMS.index(request.param)) != request.param:
        pytest.skip("the processor has no AVX2")
    yield request.param
    native.instructions(FORMS.index(first))


def residues(coefficients):
    return (np.array(coefficients, dtype=object) % RING.primes.astype(object)).astype(np.uint32)


def times(left, right):
    """left·right for polynomials by their coefficients modulo each prime, through the transforms."""
    left, right, out = left.copy(), right.copy(), RING.zeros()
    RING.transform(left)
    RING.transform(right)
    RING.multiply_add(out, left, RING.montgomery(right))
    RING.transform(out, back=True)
    return out


def signed(coefficients):
    """Small coefficients from their residues; all primes must agree."""
    small = np.where(coefficients > RING.primes // 2, coefficients.astype(np.int64) - RING.primes, coefficients)
    assert (small == small[0]).all()
    return small[0]


@pytest.mark.usefixtures("form")
@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.integers(0, N - 1), st.integers(-(2**29), 2**29)), min_size=1, max_size=4))
def test_products_are_those_of_the_definition(terms):
    """Dense polynomials with extreme residues times sparse ones: X^N is -1, sums wrap modulo each prime."""
    dense = RNG.integers(0, RING.primes, RING.shape, dtype=np.uint32)
    dense[:, :2] = 0, 1
    dense[:, 2:3] = RING.primes - 1
    sparse, expected = np.zeros(N, dtype=object), np.zeros(RING.shape, dtype=object)
    for power, factor in terms:
        sparse[power] += factor
        turned = np.concatenate([-dense[:, N - power :].astype(object), dense[:, : N - power].astype(object)], axis=1)
        expected += factor * turned
    assert (times(dense, residues(sparse)) == expected % RING.primes.astype(object)).all()


@pytest.mark.usefixtures("form")
def test_values_are_those_at_the_roots():
    """The value at place 64b + 8l + g is the polynomial's at the (2·brv(64b + 8g + l) + 1)-th power of the root."""
    coefficients = RNG.integers(0, RING.primes, RING.shape, dtype=np.uint32)
    values = coefficients.copy()
    RING.transform(values)
    for place in (0, 1, 8, 63, 64, 5000, N - 1):
        block, within, group = place // 64, place // 8 % 8, place % 8
        power = 2 * int(f"{64 * block + 8 * group + within:013b}"[::-1], 2) + 1
        for k, prime in enumerate(PARAMETERS.primes):
            x, found = pow(native._root(prime, 2 * N), power, prime), 0
            for coefficient in coefficients[k][::-1]:
                found = (found * x + int(coefficient)) % prime
            assert found == values[k, place]
    RING.transform(values, back=True)
    assert (values == coefficients).all()


def key_stream(seed, number, blocks):
    """The words of the first `blocks` blocks that a seed expands to, in the order of `polynomials.h`."""
    out = np.empty(16 * blocks, dtype=np.uint32)
    sizes = ctypes.c_uint32(number), ctypes.c_size_t(blocks)
    library.compiled().treetap_lattice_words(seed, *sizes, ctypes.c_void_p(out.ctypes.data))
    return out


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("number", [0, 3, 2**32 - 1])
def test_seeds_expand_by_chacha20(number):
    """Words are those of another ChaCha20, of eight blocks at a time the first words first."""
    seed = RNG.bytes(32)
    nonce = (number << 32).to_bytes(16, "little")  # a counter of 32 bits, then the number of the stream
    stream = Cipher(algorithms.ChaCha20(seed, nonce), mode=None).encryptor().update(bytes(64 * 64))
    expected = np.frombuffer(stream, dtype="<u4").reshape(8, 8, 16).swapaxes(1, 2).ravel()
    assert (key_stream(seed, number, 64) == expected).all()


def even(counts, expected):
    """χ² of counts against what is expected stays below its mean by eight standard deviations."""
    freedom = len(counts) - 1
    return ((counts - expected) ** 2 / expected).sum() < freedom + 8 * math.sqrt(2 * freedom)


@pytest.mark.usefixtures("form")
def test_samples_have_their_distributions():
    """Secrets are ternary, errors centred binomial of 42 bits, uniform polynomials and blinds fill their range."""
    secret, ternary = RING.secret(), RING.zeros()
    RING.multiply_add(ternary, np.ones(RING.shape, dtype=np.uint32), secret)  # out of Montgomery's form
    RING.transform(ternary, back=True)
    ternary = signed(ternary)
    assert even(np.array([(ternary == value).sum() for value in (-1, 0, 1)]), np.full(3, N / 3))
    errors = []
    for _ in range(4):
        second = RING.uniform(RNG.bytes(32))
        phase = RING.encrypt(secret, np.zeros(0, dtype=np.int64), second)
        RING.multiply_add(phase, second, secret)
        RING.transform(phase, back=True)
        errors.append(signed(phase))
    errors = np.concatenate(errors)
    expected = np.array([math.comb(42, 21 + value) for value in range(-9, 10)]) * len(errors) / 2**42
    assert even(np.array([(errors == value).sum() for value in range(-9, 10)]), expected)
    assert np.abs(errors).max() <= 21
    for k, prime in enumerate(PARAMETERS.primes):
        assert even(np.histogram(second[k], bins=32, range=(0, prime))[0], np.full(32, N / 32))
        assert second[k].max() < prime
    blinds = RING.blinds(50_000)
    assert even(np.histogram(blinds, bins=32, range=(0, RING.plain))[0], np.full(32, 50_000 / 32))


@pytest.mark.usefixtures("form")
def test_zeros_under_a_public_key_are_fresh_encryptions():
    """(b·u + e, a·u + e′): opened it is zero, the noise is below its bound and has the spread of N products."""
    secret = RING.secret()
    second = RING.uniform(RNG.bytes(32))
    key = RING.montgomery(np.stack([RING.encrypt(secret, np.zeros(0, dtype=np.int64), second), second]))
    zeros = [RING.encrypted_zero(key) for _ in range(2)]
    for phase, half in zeros:
        RING.multiply_add(phase, half, secret)
        RING.transform(phase, back=True)
        noise = signed(phase)
        assert np.abs(noise).max() <= PARAMETERS.fresh_noise
        # e·u and e′·s have N products each of variance 10.5·2/3, and e itself
        assert noise.var() == pytest.approx(2 * N * 10.5 * 2 / 3, rel=0.2)
    assert (zeros[0][1] != zeros[1][1]).mean() > 0.999


def test_both_forms_give_the_same_numbers(monkeypatch):
    """From the same randomness every operation has the same result with AVX2 and without."""
    monkeypatch.setattr(native.os, "urandom", lambda count: bytes(range(count)))
    first = native.instructions()
    values, mask = RNG.integers(-1000, 1000, N), RNG.random(N - 5) < 0.5

    def everything():
        secret, second = RING.secret(), RING.uniform(bytes(32))
        fresh = RING.encrypt(secret, values, second)
        key = RING.montgomery(np.stack([fresh, second]))
        zero = RING.encrypted_zero(key)
        for kept, half in zip(zero, (fresh, second), strict=True):
            RING.multiply_add(kept, half, RING.mask(mask))
        RING.add(zero[0], RING.flood(PARAMETERS.flood))
        RING.add(zero[0], RING.message(RING.blinds(100) - RING.plain // 2))
        return [secret, fresh, zero, RING.decrypt(secret, np.stack([fresh, second]))]

    try:
        found = []
        for place, name in enumerate(FORMS):
            if native.instructions(place) != name:
                pytest.skip("the processor has no AVX2")
            found.append(everything())
    finally:
        native.instructions(FORMS.index(first))
    assert found[0][3].tolist() == values.tolist()
    for plain, fast in zip(*found, strict=True):
        assert (plain == fast).all()


def test_arrays_of_other_shapes_are_refused():
    """The kernels are given addresses: another shape, type, layout or length never reaches them."""
    good = RING.zeros()
    for bad in (good[:3], good.astype(np.int64), np.zeros((4, N // 2), dtype=np.uint32)):
        with pytest.raises(ValueError, match="polynomial"):
            RING.add(good, bad)
    with pytest.raises(ValueError, match="blocks"):
        RING.add(good, np.zeros((N, 4), dtype=np.uint32).T)
    with pytest.raises(ValueError, match="slots"):
        RING.mask(np.ones(N + 1, dtype=bool))
    with pytest.raises(ValueError, match="seed"):
        RING.uniform(bytes(31))
    with pytest.raises(ValueError, match="degree"):
        native.Ring(4096, PARAMETERS.primes, PARAMETERS.plain)
    with pytest.raises(ValueError, match="another ring"):
        native.Ring(16384, (*PARAMETERS.primes[:3], 97), PARAMETERS.plain)
