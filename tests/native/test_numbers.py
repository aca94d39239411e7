"""Kernels of `numbers.c` where the arithmetic could go wrong, in every form, against plain integers."""

from __future__ import annotations

import ctypes
import platform
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from gmpy2 import mpz, powmod

from tests.native.forms import HERE
from treetap.native import library
from treetap.native.library import Form
from treetap.native.numbers import WORDS, Batch, Modulus

pytestmark = pytest.mark.skipif(not HERE, reason="the kernels were not compiled")

BITS = (64, 1024, 1366, 2048, 3072, 4096, 6144)
#: Rounding modes of <fenv.h>, by the name of the machine; 0 is to the nearest.
MODES = {"x86_64": (0x400, 0x800, 0xC00), "aarch64": (0x800000, 0x400000, 0xC00000)}


def moduli(bits: int) -> list[int]:
    """The largest, the smallest, some whose digits are nearly all zeros or ones, a square, a random one."""
    top, half = 1 << bits - 1, 1 << bits // 2
    prime_like = (half - 1) ** 2 | 1
    return [
        (1 << bits) - 1,
        top | 1,
        (1 << bits) - half - 1,
        (1 << bits) - half + 1,
        prime_like,
        random.Random(bits).getrandbits(bits) | top | 1,
    ]


def operands(kernel: Modulus, modulus: int) -> list[int]:
    """Numbers below 4N: the ends of every bound, all-ones, alternating and half digits, single bits at their seams."""
    bits, limbs = kernel.words.bits, kernel.limbs
    full, digit = kernel.r - 1, (1 << bits) - 1
    patterns = [
        full >> bits * (limbs // 2),
        full >> bits * (limbs // 2) << bits * (limbs // 2),
        sum(digit << bits * place for place in range(0, limbs, 2)),
        sum(digit << bits * place for place in range(1, limbs, 2)),
        sum(1 << bits * place + bits - 1 for place in range(limbs)),
        sum(digit >> 1 << bits * place for place in range(limbs)),
        sum(1 << place for place in range(0, bits * limbs, 2)),
    ]
    ends = [multiple * modulus + more for multiple in (0, 1, 2, 3, 4) for more in (-1, 0, 1)]
    seams = [1 << bits * place for place in (1, 7, limbs // 2, limbs - 1)]
    masks = [(1 << 8 * modulus.bit_length() // 8 + more) - 1 for more in (0, 1, 2)]
    numbers = [*ends, modulus // 2, *seams, *(seam - 1 for seam in seams), *masks, *patterns]
    return sorted({number % (4 * modulus) for number in numbers if number >= 0})


def made(kernel: Modulus, numbers: list[int]) -> Batch:
    """Numbers as they are, with no Montgomery form."""
    return np.stack([kernel.constant(number) for number in numbers])


def integers(kernel: Modulus, batch: Batch) -> list[int]:
    """What the words of each number stand for; no word is too large."""
    bits = kernel.words.bits
    assert not (batch >> np.uint64(bits)).any()
    return [sum(word << bits * place for place, word in enumerate(row)) for row in batch.tolist()]


def kernel_of(modulus: int, form: Form) -> Modulus:
    return Modulus(modulus, WORDS[form].limbs_for(modulus.bit_length()), form)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("form", HERE)
def test_operands_at_every_bound(form: Form, bits: int) -> None:
    """Products and squares are right and below 3N, numbers leave below N, and joins are plain integers."""
    for modulus in moduli(bits)[:: 1 if form != "plain" else 2]:
        kernel = kernel_of(modulus, form)
        numbers, inverse = operands(kernel, modulus), int(powmod(kernel.r, -1, modulus))
        shift = 1 + bits % 5
        others = numbers[shift:] + numbers[:shift]
        left, right = made(kernel, numbers), made(kernel, others)
        for made_of, products in (
            (others, kernel.products(left, right)),
            (numbers, kernel.products(left, left)),
            ([numbers[-1]] * len(numbers), kernel.products(left, left[-1])),
        ):
            results = integers(kernel, products)
            assert max(results) < 3 * modulus
            expected = [a * b * inverse % modulus for a, b in zip(numbers, made_of, strict=True)]
            assert [result % modulus for result in results] == expected
        assert integers(kernel, kernel.leave(left)) == [number * inverse % modulus for number in numbers]
        joined = integers(kernel, kernel.join(left, right, 2 * kernel.limbs))
        assert joined == [a + b * modulus for a, b in zip(numbers, others, strict=True)]


@pytest.mark.parametrize("form", HERE)
def test_the_largest_number_leaves_and_the_largest_factor_is_taken(form: Form) -> None:
    """A number may fill its words where the other factor is at most N, modulo the longest modulus too."""
    longest = WORDS[form].most * WORDS[form].bits - 4
    for modulus in [*moduli(2048), (1 << longest) - 1]:
        kernel = kernel_of(modulus, form)
        full = made(kernel, [kernel.r - 1, kernel.r - 2, modulus, 0])
        inverse = int(powmod(kernel.r, -1, modulus))
        assert integers(kernel, kernel.leave(full)) == [
            number * inverse % modulus for number in (kernel.r - 1, kernel.r - 2, 0, 0)
        ]
        entered = integers(kernel, kernel.products(full, kernel.constant(modulus - 1)))
        assert max(entered) < 3 * modulus
        assert entered[0] % modulus == (kernel.r - 1) * -inverse % modulus


@pytest.mark.parametrize("bits", [1366, 2048, 4096])
@pytest.mark.parametrize("form", HERE)
def test_chains_of_500_products(form: Form, bits: int) -> None:
    """Errors that add up, and numbers that grow, would show."""
    modulus = moduli(bits)[bits % 6]
    kernel = kernel_of(modulus, form)
    numbers = [number for number in operands(kernel, modulus) if number][-kernel.words.lanes :]
    factors, inverse = numbers[::-1], mpz(powmod(kernel.r, -1, modulus))
    product = square = made(kernel, numbers)
    by = made(kernel, factors)
    for _ in range(500):
        product = kernel.products(product, by)
        square = kernel.products(square, square)
    assert [number % modulus for number in integers(kernel, product)] == [
        number * powmod(factor * inverse, 500, modulus) % modulus
        for number, factor in zip(numbers, factors, strict=True)
    ]
    power = 1 << 500
    assert [number % modulus for number in integers(kernel, square)] == [
        powmod(number, power, modulus) * powmod(inverse, power - 1, modulus) % modulus for number in numbers
    ]


def rows_of(form: Form) -> int:
    return 3 * WORDS[form].lanes + 1


@pytest.mark.parametrize("form", HERE)
def test_every_row_comes_to_its_place(form: Form) -> None:
    """Whatever the number of rows, one more or less than lanes; with places, and with one number for all."""
    modulus = moduli(1024)[-1]
    kernel, count = kernel_of(modulus, form), rows_of(form)
    numbers = [random.Random(place).randrange(modulus) for place in range(count)]
    batch, inverse = made(kernel, numbers), int(powmod(kernel.r, -1, modulus))
    for many in range(1, count + 1):
        expected = [a * b * inverse % modulus for a, b in zip(numbers[:many], numbers[::-1], strict=False)]
        found_here = kernel.products(batch[:many], np.ascontiguousarray(batch[::-1][:many]))
        assert [number % modulus for number in integers(kernel, found_here)] == expected
        out = np.zeros_like(batch)
        places = np.arange(count, dtype=np.int64)
        kernel.products(batch, batch, places[:many], places[::-1][:many].copy(), out, places[::-1][:many].copy())
        assert [number % modulus for number in integers(kernel, out[::-1][:many])] == expected
        assert not out[: count - many].any()


@contextmanager
def rounding(mode: int) -> Iterator[None]:
    """This thread rounds in another way."""
    libm = ctypes.CDLL(None)
    assert libm.fesetround(mode) == 0
    try:
        yield
    finally:
        libm.fesetround(0)


def in_thread(action: Callable[[], None]) -> None:
    """Run an action in a thread of its own; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:  # noqa: BLE001
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


@pytest.mark.skipif(platform.machine() not in MODES, reason="its rounding modes are not known here")
@pytest.mark.parametrize("form", HERE)
def test_other_rounding_modes_are_refused_or_change_nothing(form: Form) -> None:
    """The mode is a thread's own: in one that was changed each kernel refuses by name, in others it goes on."""
    modulus = moduli(1024)[0]
    kernel = kernel_of(modulus, form)
    batch = made(kernel, [modulus - 1, 5, modulus // 3])
    table, digits = np.stack([batch, batch])[:, :2].copy(), np.array([[0, 1]], dtype=np.uint16)
    places, steps = np.zeros((3, 1), dtype=np.int64), np.array([1], dtype=np.int32)
    calls: list[Callable[[], Batch]] = [
        lambda: kernel.products(batch, batch),
        lambda: kernel.products(batch, batch[::-1].copy()),
        lambda: kernel.leave(batch),
        lambda: kernel.fixed_base(table, digits),
        lambda: kernel.chain(batch, 1, batch, places, steps, -steps, 0),
        lambda: kernel.join(batch, batch, 2 * kernel.limbs),
    ]
    expected, block = [call() for call in calls], kernel._block

    def changed(mode: int) -> None:
        with rounding(mode):
            for call, result in zip([lambda: kernel_of(modulus, form)._block, *calls], [block, *expected], strict=True):
                if form == "ifma":
                    assert np.array_equal(call(), result)
                else:
                    with pytest.raises(FloatingPointError, match="rounding mode is not to the nearest"):
                        call()

    for mode in MODES[platform.machine()]:
        in_thread(lambda mode=mode: changed(mode))  # type: ignore[misc]
        with rounding(mode):
            in_thread(lambda: None)
    for call, result in zip(calls, expected, strict=True):
        assert np.array_equal(call(), result)


def test_a_form_that_the_processor_lacks_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a kernel is called."""
    monkeypatch.setattr(library, "forms", lambda: ("plain",))
    monkeypatch.setattr(library.compiled(), "treetap_has_avx2", lambda: 0)
    with pytest.raises(library.Unavailable, match=r"the processor has no AVX2 and FMA"):
        kernel_of(2**127 - 1, "avx2")
    assert integers(kernel_of(15, "plain"), kernel_of(15, "plain").leave(made(kernel_of(15, "plain"), [0]))) == [0]


@pytest.mark.parametrize("form", library.FORMS)
def test_numbers_have_the_words_that_the_proof_needs(form: Form) -> None:
    """R ≥ 16·N (multiply.h), whatever the length; a modulus that leaves less is refused."""
    words = WORDS[form]
    for bits in range(2, words.most * words.bits - 3, 7):
        limbs = words.limbs_for(bits)
        assert limbs % words.rows == 0
        assert words.bits * limbs >= bits + 4
        assert limbs >= words.lanes
    with pytest.raises(ValueError, match="does not fit its words"):
        Modulus((1 << words.bits * words.fewest - 3) - 1, words.fewest, form)
