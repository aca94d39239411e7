"""Residues by a cipher that hides nothing: for measuring everything else, and for nothing more.

An element is the logarithm m of 1 + m·n to the base 1 + n, so a product is a sum of small numbers; obfuscators have the
logarithm 0, and the primes of a key need be none. What the steps around it do stays as it is: exponents are drawn,
plaintexts are checked and made residues modulo n, blocks have the width of a ciphertext, and sums come back right, so
that the model is the true one.
No package of treetap has this file, and no option leads here: `false_party` puts it into the processes of a benchmark.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import gmpy2
import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from treetap.additive.paillier import public_key, secret_key
from treetap.additive.residues.batches import Batch, Cells, Digits, Places, Powers, Residues
from treetap.party.setup import steps
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.usage import finish_unit

#: Words of a logarithm and bits of a word: sums of millions of records need no carry. The last word has the sign.
WORDS, BITS = 5, 32
_BYTES, _MASK = WORDS * BITS // 8, np.uint64((1 << BITS) - 1)
#: Records of one cell whose sums are exact in a double.
MOST = 1 << 20
_SMALL = gmpy2.primorial(1 << 16)
Bytes = npt.NDArray[np.uint8]


class FalseResidues:
    """Arithmetic on logarithms; methods are those of `treetap.additive.residues.batches.Residues`.

    A batch is an array (n, WORDS) of words, least significant first, modulo 2^160; or an array (n,) of integers, what
    powers are. A block holds 1 + m + 2^(half of its bits), and 1 if m is zero, as the trivial ciphertext is.
    """

    number_bytes = WORDS * 8
    _moduli: ClassVar[set[mpz]] = set()

    def __init__(self, modulus: int, bits: int = 0) -> None:
        """`modulus`: n² of a key, or p² of a key whose n² came before; `bits`: is not needed."""
        del bits
        self.modulus = mpz(modulus)
        root = gmpy2.isqrt(self.modulus)
        n = next((n for n in self._moduli if not n % root), root)
        self._moduli.add(n)
        self._n = n

    def read(self, data: bytes, width: int) -> tuple[Batch, int]:
        blocks = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
        words = _words(blocks)
        words[:, 0] -= np.uint64(1)  # may borrow: `_carried` puts that right
        finish_unit()
        return _carried(words), len(blocks)

    def write(self, batch: Batch, width: int) -> bytes:
        half = width // 2
        if batch.dtype == object:
            return b"".join([_number(m, half).to_bytes(width, "big") for m in batch])
        words = _carried(batch)
        filled = words.any(axis=1)
        words[:, 0] += np.uint64(1)
        words = _carried(words)
        negative = words[:, -1] >> np.uint64(BITS - 1) > 0
        blocks = np.zeros((len(words), width), dtype=np.uint8)
        blocks[filled & ~negative, width - half - 1] = 1
        blocks[negative, width - half :] = 0xFF  # of 2^(8·half) - |1 + m|
        blocks[:, -_BYTES:] = words.astype("<u4").view(np.uint8).reshape(-1, _BYTES)[:, ::-1]
        finish_unit()
        return blocks.tobytes()

    def read_factors(self, data: bytes, width: int) -> tuple[Batch, int]:
        return self.read(data, width)

    def write_products(self, batch: Batch, factors: Places, width: int) -> bytes:
        del factors
        return self.write(batch, width)

    def batch(self, numbers: Iterable[int]) -> Batch:
        """A number that is no 1 + m·n is an obfuscator's."""
        return _from_integers([self._logarithm(mpz(number)) for number in numbers])

    def _logarithm(self, number: mpz) -> int:
        m, rest = gmpy2.f_divmod(number - 1, self._n)
        return 0 if rest else int(m)

    def numbers(self, batch: Batch) -> list[mpz]:
        logarithms = batch if batch.dtype == object else _integers(batch)
        return [(1 + mpz(int(m)) * self._n) % self.modulus for m in logarithms]

    def multiples(self, data: bytes, width: int, factor: int) -> Batch:
        """Of n: the plaintexts, to which one is to be added. Of one: ciphertexts."""
        if factor == 1:
            half = width // 2
            blocks = [data[at : at + width] for at in range(0, len(data), width)]
            return _array([_opened(mpz.from_bytes(block, "big"), half) for block in blocks])
        if factor != self._n:
            raise ValueError("a false cipher multiplies by n or by one")
        plains = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
        words = _words(plains)
        words[plains[:, 0] != 0] -= _words_of(int(self._n))  # of n - |m|
        finish_unit()
        return _carried(words)

    def ones(self, count: int) -> Batch:
        return np.zeros((count, WORDS), dtype=np.uint64)

    def add(self, left: Batch, right: Batch) -> Batch:
        """One is added to m·n, which makes 1 + m·n: `left` is its logarithm."""
        if right.any():
            raise ValueError("a false cipher adds one")
        return left

    def multiply(self, left: Batch, right: Batch) -> Batch:
        if left.dtype != right.dtype:
            left, right = (side if side.dtype == object else _array(_integers(side)) for side in (left, right))
        product: Batch = left + right
        return product

    def cell_products(self, values: Batch, cells: Cells) -> Batch:
        if len(cells.places) > MOST:
            raise ValueError(f"a false cipher sums {MOST} records at once")
        chosen = _carried(values)[cells.places]
        sums = [np.bincount(cells.numbers, chosen[:, word], cells.count) for word in range(WORDS)]
        finish_unit()
        return np.stack(sums, axis=1).astype(np.uint64)

    def multiply_into(self, products: Batch, values: Batch, cells: Cells) -> Batch:
        if len(products) < cells.count:
            grown = self.ones(max(cells.count, 3 * cells.held // 2))
            grown[: cells.held] = products[: cells.held]
            products = grown
        products[cells.held : cells.count] = 0
        products[: cells.count] += self.cell_products(values, cells)
        return products

    def fixed_base(self, table: Batch, digits: Digits) -> Batch:
        del table
        finish_unit()
        return self.ones(len(digits))

    def powers(self, base: Batch, program: Powers, values: Batch, places: Places) -> Batch:
        exponent = sum(mpz(-1 - 2 * operand) << position for position, operand in program.factors if operand < 0)
        position_of = {operand: position for position, operand in program.factors if operand >= 0}
        known = _integers(values)
        sums = base if base.dtype == object else _integers(base)
        totals = [
            int(m) * exponent + sum(known[place] << position_of[k] for k, place in enumerate(row))
            for m, row in zip(sums, places.tolist(), strict=True)
        ]
        finish_unit()
        return _array(totals)

    def join(self, low: Batch, other: Residues, high: Batch, width: int) -> bytes:
        """Both have the logarithm of the whole."""
        del other, high
        return self.write(low, width)


def _words(blocks: Bytes) -> Batch:
    """The last words of big-endian blocks."""
    return blocks[:, : -_BYTES - 1 : -1].copy().view("<u4").astype(np.uint64)


def _words_of(number: int) -> Batch:
    return np.array([number >> BITS * word & int(_MASK) for word in range(WORDS)], dtype=np.uint64)


def _carried(words: Batch) -> Batch:
    """Words below 2^32 of the same numbers modulo 2^160; a word may be below zero, as two's complement has it."""
    carried = words.view(np.int64).copy()
    for word in range(WORDS - 1):
        carried[:, word + 1] += carried[:, word] >> BITS
    carried &= np.int64(_MASK)
    return carried.view(np.uint64)


def _integers(words: Batch) -> list[int]:
    """Signed integers."""
    packed = _carried(words).astype("<u4").tobytes()
    return [int.from_bytes(packed[at : at + _BYTES], "little", signed=True) for at in range(0, len(packed), _BYTES)]


def _from_integers(numbers: list[int]) -> Batch:
    words = np.array([_words_of(number) for number in numbers], dtype=np.uint64)
    return words.reshape(-1, WORDS)


def _array(numbers: list[Any]) -> Batch:
    held = np.empty(len(numbers), dtype=object)
    held[:] = numbers
    return held


def _number(m: int, half: int) -> mpz:
    return mpz(1 + m + (1 << 8 * half) if m else 1)


def _opened(number: mpz, half: int) -> int:
    return 0 if number == 1 else int(number - 1 - (mpz(1) << 8 * half))


def _no_prime(bits: int) -> mpz:
    """A number of the form that a key needs, without small factors: any two that share none will do here."""
    while True:
        drawn = mpz(secrets.randbits(bits)) | (mpz(3) << (bits - 2)) | 3
        if gmpy2.gcd(drawn, _SMALL) == 1:
            return drawn


def substitute() -> None:
    """Have this process compute with them: every ciphertext that it makes from now on can be read by anyone."""
    arithmetic: Callable[..., Residues] = FalseResidues
    for module in (public_key, secret_key):
        module.residues = arithmetic  # type: ignore[attr-defined]
    secret_key._blum_prime = _no_prime  # noqa: SLF001 - no name of its own, on purpose
    secret_key.SecretKey.prove = _no_proof  # type: ignore[method-assign, assignment]
    steps.check_proof = _no_check  # type: ignore[attr-defined] # imported there by this name


def _no_proof(secret: secret_key.SecretKey, bound_to: bytes) -> bytes:
    """As many bytes as a proof has."""
    del bound_to
    return bytes(KeyKind(PAILLIER, secret.public.bits).proof_bytes)


def _no_check(n: mpz, proof: bytes, bound_to: bytes, rounds: int = 0) -> None:
    """Take any proof."""
