"""One cipher: gmpy2 and every form of the native kernels give the same bytes from the same randomness."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gmpy2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.native.forms import HERE
from treetap.additive.paillier.public_key import Packer, PublicKey, TwistedObfuscators, residues
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Cells, Powers, Residues, power
from treetap.additive.residues.fixed_base import FixedBase
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.native import arithmetic, library, numbers, pairs
from treetap.protocols.key_options import OBFUSCATIONS
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine

NAMES: tuple[arithmetic.Name, ...] = ("gmpy2", *HERE)
pytestmark = pytest.mark.usefixtures("same_arithmetic_after")
BITS = (64, 410, 416, 1024, 1366, 2048, 4096, 6144)
#: Moduli of each length: the smallest, the largest, and ones whose limbs are mostly zeros or ones.
MODULI = [
    modulus
    for bits in BITS
    for modulus in (
        (1 << bits - 1) | 1,
        (1 << bits) - 1,
        (1 << bits) - (1 << 52) + 1 if bits > 104 else (1 << bits) - 59,
        (1 << bits - 1) | int.from_bytes(hashlib.shake_256(bytes([bits % 251])).digest(bits // 8 - 1), "big") | 1,
    )
]


@contextmanager
def computing(name: arithmetic.Name) -> Iterator[None]:
    """This process computes with a backend."""
    before = arithmetic.in_use()
    arithmetic.use(name)
    try:
        yield
    finally:
        arithmetic.use(before)


def alike(action: Callable[[], Any]) -> Any:
    """The result of an action that is the same in all backends."""
    results = []
    for name in NAMES:
        with computing(name):
            results.append(action())
    assert all(result == results[0] for result in results)
    return results[0]


class Reproducible:
    """Randomness that comes again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._drawn = 0
        monkeypatch.setattr(secrets, "token_bytes", self._bytes)
        monkeypatch.setattr(secrets, "randbelow", lambda bound: int.from_bytes(self._bytes(1024), "big") % bound)

    def again(self) -> None:
        """Begin anew."""
        self._drawn = 0

    def _bytes(self, count: int) -> bytes:
        self._drawn += 1
        return hashlib.shake_256(self._drawn.to_bytes(8, "big")).digest(count)


def rings(modulus: int) -> list[Residues]:
    """The same modulus in all backends."""
    found = []
    for name in NAMES:
        with computing(name):
            found.append(residues(modulus))
    return found


def extremes(modulus: int) -> list[int]:
    """0, 1, -1, all ones below the modulus, single bits at the seams of words, and some in between."""
    bits = modulus.bit_length()
    seams = [1 << place for place in (51, 52, 53, 103, 104, bits - 1) if place < bits]
    return [0, 1, 2, modulus - 1, modulus - 2, (1 << bits - 1) - 1, modulus >> 1, *(each % modulus for each in seams)]


@pytest.mark.parametrize("modulus", MODULI, ids=lambda modulus: f"{modulus.bit_length()} bits {modulus % 9973}")
def test_products_and_sums_of_extreme_numbers(modulus: int) -> None:
    """Every pair of extreme operands, and chains of products, agree with plain integers."""
    values = extremes(modulus)
    pairs = [(left, right) for left in values for right in values]
    for ring in rings(modulus):
        left, right = (ring.batch([pair[side] for pair in pairs]) for side in (0, 1))
        assert ring.numbers(left) == [pair[0] for pair in pairs]
        product = ring.multiply(left, right)
        assert ring.numbers(product) == [a * b % modulus for a, b in pairs]
        assert ring.numbers(ring.add(left, right)) == [(a + b) % modulus for a, b in pairs]
        again = ring.multiply(ring.add(product, product), ring.add(left, product))
        assert ring.numbers(again) == [2 * a * b * (a + a * b) % modulus for a, b in pairs]


@settings(max_examples=60)
@given(st.data())
def test_any_operands_modulo_any_odd_number(data: st.DataObject) -> None:
    """Products, powers, cells, bytes and multiples of random numbers, modulo random odd numbers of all lengths."""
    bits = data.draw(st.integers(60, 4300))
    modulus = data.draw(st.integers(1 << bits - 1, (1 << bits) - 1)) | 1
    number = st.integers(0, modulus - 1) | st.sampled_from(extremes(modulus))
    values = data.draw(st.lists(number, min_size=1, max_size=20))
    count = data.draw(st.integers(1, 6))
    cells = np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=40)), dtype=np.int64)
    places = np.array([data.draw(st.integers(0, len(values) - 1)) for _ in cells], dtype=np.int64)
    exponent = data.draw(st.integers(1, 1 << 40))
    factor = data.draw(st.integers(0, modulus))
    width = -(-bits // 8) + data.draw(st.integers(0, 2 * bits // 8))
    wide = b"".join((value * value % (1 << 8 * width)).to_bytes(width, "big") for value in values)
    expected = [1] * count
    for cell, place in zip(cells.tolist(), places.tolist(), strict=True):
        expected[cell] = expected[cell] * values[place] % modulus
    for ring in rings(modulus):
        batch = ring.batch(values)
        assert ring.numbers(ring.cell_products(batch, Cells(places, cells, count))) == expected
        assert ring.numbers(power(ring, batch, exponent)) == [gmpy2.powmod(each, exponent, modulus) for each in values]
        assert ring.write(batch, width) == b"".join(each.to_bytes(width, "big") for each in values)
        found = [int.from_bytes(wide[at : at + width], "big") for at in range(0, len(wide), width)]
        assert ring.numbers(ring.multiples(wide, width, factor)) == [each * factor % modulus for each in found]


@pytest.mark.parametrize("extra", [0, 53, 1074, 4000])
def test_multiples_of_numbers_far_wider_than_the_modulus(extra: int) -> None:
    """Numbers of more words than any modulus may have are read piece by piece."""
    modulus = (1 << 4297) - 1
    width = 538 + extra
    values = [0, 1, modulus - 1, (1 << 8 * width) - 1, 3 << 8 * width - 3]
    data = b"".join(value.to_bytes(width, "big") for value in values)
    for ring in rings(modulus):
        assert ring.numbers(ring.multiples(data, width, 5)) == [5 * value % modulus for value in values]


@pytest.mark.parametrize("form", library.FORMS)
def test_words_beyond_the_kernels_are_refused(form: library.Form) -> None:
    """Their buffers have one size."""
    words = numbers.WORDS[form]
    with pytest.raises(ValueError, match=rf"up to {words.most} words, not 280"):
        words.read(bytes(2000), 2000, 280)
    with pytest.raises(ValueError, match="not 280"):
        words.write(np.zeros((1, 280), dtype=np.uint64), 2000)


@settings(max_examples=60)
@given(st.integers(8, 130), st.lists(st.integers(0, 2**1100), min_size=1, max_size=9), st.integers(0, 5))
@example(8, [0, 1, 2**1100], 0)
def test_blocks_are_read_alike(width: int, numbers_drawn: list[int], kind: int) -> None:
    """What is zero or too large is found at the same place, whatever the width of a block."""
    modulus = (1 << 8 * width - 3 - kind) - 1 - 2 * kind
    data = b"".join((number % (1 << 8 * width)).to_bytes(width, "big") for number in numbers_drawn)
    reads = [ring.read(data, width) for ring in rings(modulus)]
    assert reads[0][1] == reads[1][1]
    good = reads[0][1]
    expected = [number % (1 << 8 * width) for number in numbers_drawn][:good]
    for ring, (batch, _) in zip(rings(modulus), reads, strict=True):
        assert ring.numbers(batch[:good]) == expected


@pytest.mark.second_tier
@pytest.mark.parametrize("bits", [1024, 2048])
def test_ciphertexts_are_the_same_bytes(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner's and another party's ciphertexts, packed sums and opened plaintexts, for every obfuscation."""
    made = SecretKey.generate(bits)
    drawn = Reproducible(monkeypatch)
    n = int(made.public.n)
    plains = [0, 1, -1, 2**200, -(2**200), n // 2, -(n // 2), *range(-5, 7)]

    def run() -> list[Any]:
        drawn.again()
        key = SecretKey(int(made._p), int(made._q))
        public, found = key.public, []
        for kind in OBFUSCATIONS:
            blob = key.encrypt_many(plains, kind)
            other = TwistedObfuscators(public, kind, window=5)
            found += [blob, public.write(public.encrypt(plains, other.draw(len(plains)))), key.decrypt_many(blob)]
            assert found[-1] == plains
        small = key.encrypt_many(range(-5, 6), "short-exponent")
        packed = public.write(Packer(public, 60, 4).pack_fresh(public.read(small)))
        return [*found, packed, key.decrypt_many(packed)]

    alike(run)


def test_candidate_sums_are_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A feature party's packed candidates at the root and below it, with missing values and joint cells."""
    made = SecretKey.generate(1024)
    slots = Slots((40, 20))
    drawn = Reproducible(monkeypatch)
    rng = np.random.default_rng(5)
    shapes = [(2, False), (3, True), (4, False), (3, False)]
    codes = np.stack([rng.integers(0, bins + missing, 300) for bins, missing in shapes], axis=1)
    columns = [rng.integers(-(2**30), 2**30, 300), np.ones(300, dtype=np.int64)]

    async def run() -> list[Any]:
        key = SecretKey(int(made._p), int(made._q))
        blob = key.encrypt_many(slots.encode(columns), "short-exponent")
        sums = EncryptedSums(Engine(), key.public, slots, codes, shapes)
        width = key.public.ciphertext_bytes
        for first in range(0, 300, 70):
            rows = np.arange(first, min(first + 70, 300))
            await sums.add_block(rows, blob[rows[0] * width : (rows[-1] + 1) * width])
        order = np.arange(sums.n_candidates)[::-1]
        root = await sums.candidates(None, order)
        below = await sums.candidates([np.arange(0, 300, 3), np.arange(1, 7), np.arange(0)], order)
        return [root, below, sums.products, sums.operations, key.decrypt_many(root)]

    def once() -> list[Any]:
        drawn.again()
        return asyncio.run(run())

    alike(once)


@pytest.mark.second_tier
def test_windows_change_no_power() -> None:
    """A table of any window gives base^e, in both."""
    modulus, rng = MODULI[-1], np.random.default_rng(7)
    exponents = rng.integers(0, 256, (11, 13), dtype=np.uint8)
    exponents[0], exponents[1] = 0, 255
    expected = [gmpy2.powmod(5, int.from_bytes(row.tobytes(), "little"), modulus) for row in exponents]
    for ring in rings(modulus):
        for window in (4, 7, 9):
            assert ring.numbers(FixedBase(ring, gmpy2.mpz(5), 104, window).powers(exponents)) == expected


def test_programs_of_many_values() -> None:
    """Simultaneous powers: an even exponent, a single factor, values of some results only."""
    modulus = MODULI[9]
    rng = np.random.default_rng(3)
    values = [int(each) for each in rng.integers(1, 2**62, 12)]
    places = rng.integers(0, 12, (10, 3))
    for exponent in (1, 2, 96, 2**130 + 2**64):
        program = Powers.of(exponent, [7, 0, 140])
        expected = [
            gmpy2.powmod(values[row], exponent, modulus)
            * gmpy2.powmod(values[at[0]], 1 << 7, modulus)
            * values[at[1]]
            * gmpy2.powmod(values[at[2]], 1 << 140, modulus)
            % modulus
            for row, at in enumerate(places)
        ]
        for ring in rings(modulus):
            found = ring.powers(ring.batch(values[:10]), program, ring.batch(values), places)
            assert ring.numbers(found) == expected


def test_products_of_any_number_of_factors_are_written() -> None:
    """None, few, and more than one digit and two digits of their number hold; a residue beside them changes nothing."""
    modulus, counts = MODULI[4], [0, 1, 2, 255, 256, 300, 66_000]
    factor, beside = modulus // 3, modulus // 7
    width = -(-modulus.bit_length() // 8)
    cells = np.repeat(np.arange(len(counts)), counts)
    expected = [int(gmpy2.powmod(factor, count, modulus)) for count in counts]
    for ring in rings(modulus):
        values, good = ring.read_factors(factor.to_bytes(width, "big"), width)
        assert good == 1
        products = ring.cell_products(values, Cells(np.zeros(len(cells), dtype=np.int64), cells, len(counts)))
        for other in (1, beside):
            written = ring.write_products(ring.multiply(products, ring.batch([other])), np.array(counts), width)
            assert written == b"".join((number * other % modulus).to_bytes(width, "big") for number in expected)


@pytest.mark.parametrize("spares", [1, 5, 4096])
def test_cells_that_grow(spares: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products go on from those that cells hold, and begin in further cells; few spare rows change no product."""
    monkeypatch.setattr(pairs, "SPARES", spares)
    modulus, rng = MODULI[5], np.random.default_rng(2)
    blocks = [(np.sort(rng.integers(0, 4, 90)), 4), (np.append(rng.integers(2, 6, 80), [4, 5]), 6), (np.full(60, 3), 6)]
    for ring in rings(modulus):
        products, expected, held = ring.ones(0), [1] * 6, 0
        for cells, count in blocks:
            batch = ring.batch(range(2, 2 + len(cells)))
            products = ring.multiply_into(products, batch, Cells(np.arange(len(cells)), cells, count, held))
            for value, cell in enumerate(cells.tolist(), start=2):
                expected[cell] = expected[cell] * value % modulus
            held = count
            assert ring.numbers(products[:held]) == expected[:held]


@pytest.mark.parametrize("form", HERE)
def test_the_kernels_refuse_what_does_not_fit(form: library.Form) -> None:
    """Arrays of another shape, places outside and moduli that are even or too large never reach an address."""
    words = numbers.WORDS[form]
    limbs = words.limbs_for(127)
    modulus = numbers.Modulus(2**127 - 1, limbs, form)
    good = np.zeros((3, limbs), dtype=np.uint64)
    with pytest.raises(ValueError, match="another modulus"):
        modulus.products(np.zeros((3, 2 * limbs), dtype=np.uint64), good)
    with pytest.raises(ValueError, match="outside"):
        modulus.products(good, good, np.array([0, 3]), np.array([0, 1]))
    with pytest.raises(ValueError, match="different lengths"):
        modulus.products(good, good[:2])
    with pytest.raises(ValueError, match="64-bit"):
        modulus.leave(good.astype(np.int64))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="odd"):
        numbers.Modulus(2**100, limbs, form)
    with pytest.raises(ValueError, match="last entry"):
        modulus.fixed_base(np.zeros((2, 4, limbs), dtype=np.uint64), np.full((1, 2), 4, dtype=np.uint16))
    with pytest.raises(ValueError, match="up to"):
        words.limbs_for(14_000)


def test_public_key_refuses_alike() -> None:
    """Damaged blocks are refused by both, and the trivial ciphertext is known by its bytes."""
    n = SecretKey.generate(1024).public.to_bytes()

    def run() -> list[bool]:
        public = PublicKey.from_bytes(n)
        return public.trivial((1).to_bytes(256, "big") + (257).to_bytes(256, "big")).tolist()

    assert alike(run) == [True, False]
