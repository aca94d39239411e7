"""Bitwise comparison under encryption: Python's order, one bit of outcome, and nothing else that depends on values."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from tests.library.engines import workers
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.comparison import GainComparison, bits_of, blinded, champion_is_larger
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import Malformed
from treetap.trees.slots import Slots

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
WIDTH = 67
LARGEST = 2**WIDTH - 1


@pytest.fixture(scope="module")
def key() -> Iterator[SecretKey]:
    """A short key: what is compared does not depend on its length."""
    with warnings.catch_warnings(action="ignore"):
        yield SecretKey.generate(512, allow_breakable=True)


def _opened(key: SecretKey, x: int, y: int, width: int) -> list[int]:
    """What the challenger with x sees of a champion with y."""
    sent = key.encrypt_many(bits_of(x, width), "short-exponent")
    return key.decrypt_many(blinded(key.public, sent, y))


def test_all_small_numbers_are_compared_right(key: SecretKey) -> None:
    """Every pair of numbers of three bits."""
    for x in range(8):
        for y in range(8):
            assert champion_is_larger(_opened(key, x, y, 3)) == (x < y), (x, y)


@pytest.mark.second_tier
def test_comparisons_are_pythons(key: SecretKey) -> None:
    """Edges, near numbers, and random ones of the whole width."""
    draw = random.Random(7)
    edges = [(0, 0), (0, 1), (1, 0), (LARGEST, LARGEST), (LARGEST, LARGEST - 1), (0, LARGEST), (2**66, 2**66 - 1)]
    near = [(value, value + 1) for value in (draw.randrange(LARGEST) for _ in range(2))]
    anyhow = [(draw.randrange(LARGEST), draw.randrange(LARGEST)) for _ in range(4)]
    for x, y in edges + near + anyhow:
        assert champion_is_larger(_opened(key, x, y, WIDTH)) == (x < y), (x, y)
        assert champion_is_larger(_opened(key, y, x, WIDTH)) == (y < x), (y, x)


@pytest.mark.second_tier
def test_the_challenger_sees_one_bit(key: SecretKey) -> None:
    """The zero is at a uniform place, all other numbers are uniform: chi-square and Kolmogorov-Smirnov at 1e-9 each."""
    places: Counter[int] = Counter()
    others = []
    for _ in range(150):
        opened = _opened(key, 0b1010_0000, 0b1010_0001, 8)  # they differ in the lowest bit
        places[opened.index(0)] += 1
        others += [plain % key.public.n for plain in opened if plain]
    for _ in range(20):
        others += [plain % key.public.n for plain in _opened(key, 200, 3, 8)]
    assert len(others) == 150 * 7 + 20 * 8
    assert stats.chisquare([places[place] for place in range(8)]).pvalue > 1e-9
    assert stats.kstest([float(plain / key.public.n) for plain in others], "uniform").pvalue > 1e-9


def test_ciphertexts_are_fresh_and_their_number_is_the_width(key: SecretKey) -> None:
    """Sizes do not depend on values, and an answer has none of the ciphertexts that it was made from."""
    width = key.public.ciphertext_bytes
    for x, y in ((0, 0), (0, LARGEST), (LARGEST, 5)):
        sent = key.encrypt_many(bits_of(x, WIDTH), "half-length")
        first, second = blinded(key.public, sent, y), blinded(key.public, sent, y)
        assert len(sent) == len(first) == WIDTH * width
        blocks = [block[at : at + width] for block in (sent, first, second) for at in range(0, len(block), width)]
        assert len(set(blocks)) == 3 * WIDTH


@pytest.mark.real_time
@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("threads", [0, 2])
async def test_workers_compare_many_numbers(key: SecretKey, threads: int) -> None:
    """Outcomes come in the order of the numbers; answers that no champion gives are refused."""
    async with workers(threads) as engine:
        holder = KeyHolder(engine, key, Slots((60,)), "short-exponent")
        await holder.start()
        comparison = GainComparison(engine, holder, WIDTH)
        theirs, mine = [5, 2**66, 0], [6, 3, 0]
        bits = await comparison.encrypted_bits(theirs)
        tasks = [(key.public, each, value) for each, value in zip(bits, mine, strict=True)]
        answers = await comparison.blinded(tasks)
        assert await comparison.outcomes(key.public, answers) == [True, False, False]
        with pytest.raises(Malformed, match="takes 67 ciphertexts"):
            await comparison.outcomes(key.public, [answers[0][:-1]])
        with pytest.raises(Malformed, match="takes 67 ciphertexts"):
            await comparison.blinded([(key.public, bits[0] + bits[1], 4)])
        with pytest.raises(Malformed, match="67 of 67 blinded numbers are zero"):
            await comparison.outcomes(key.public, [key.encrypt_many([0] * WIDTH, "standard")])
        with pytest.raises(Malformed, match="not below n²"):
            await comparison.blinded([(key.public, bytes(len(bits[0])), 4)])


def test_bits_are_those_of_the_number() -> None:
    """Lowest first; a number that does not fit is a bug."""
    value = int(np.random.default_rng(1).integers(0, 2**62))
    assert sum(bit << place for place, bit in enumerate(bits_of(value, WIDTH))) == value
    with pytest.raises(ValueError, match="does not fit its bits"):
        bits_of(8, 3)
