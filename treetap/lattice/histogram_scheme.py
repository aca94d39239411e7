"""Sizes of a job of encrypted histograms, which both roles agree on; layout of plaintexts and of candidates' sums.

Commitments to nonces, and the seed that all nonces of an attempt make.

A lattice's public polynomials come of it: a party that chose them could choose a0 = 0 and read the sets of records, or
a = 0 and read the values (docs/cryptography.md).
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise

import numpy as np

from treetap.arrays import Ints, Words
from treetap.errors import BadInput, PlaintextOverflow, Refused
from treetap.lattice.histogram_parameters import MODULUS_BITS, HistogramParameters
from treetap.lattice.parameters import STATISTICAL_BITS
from treetap.native.histogram_arrays import DEGREE, HALF_BITS, SEED_BYTES, Binned, Moduli
from treetap.native.histograms import Histograms
from treetap.native.library import REMEDY, Unavailable
from treetap.native.rings import crt
from treetap.trees.candidates import CandidateList, Shape
from treetap.trees.slots import Slots
from treetap.trees.tree_bins import accumulate_cells

_WORD = 64
_LOW = (1 << HALF_BITS) - 1


@cache
def kernels() -> Histograms:
    """The kernels in this processor's fastest form.

    Raises:
        BadInput: there are none here.
    """
    try:
        return Histograms()
    except Unavailable as failure:
        raise BadInput(
            f"scheme = 'lattice' needs native kernels, but {failure}: {REMEDY}, or train with scheme = 'paillier'"
        ) from failure


def moduli_of(parameters: HistogramParameters) -> Moduli:
    """The t_j as the kernels take them."""
    return Moduli(parameters.word_bits, parameters.complements)


def rounded_up(count: int) -> int:
    """The smallest power of two that is not below a count."""
    return 1 << max(count - 1, 0).bit_length()


def parameters_of(
    records: int,
    slots: Slots,
    max_bin: int,
    candidates: int,
    queries: int,
    attempt: int,
    hiding: int = STATISTICAL_BITS,
    *,
    noised: bool = False,
) -> HistogramParameters:
    """The sizes of a job, which all its parties compute alike. `noised`: sums of some party have noise or masks.

    Raises:
        BadInput: none hide and decrypt its sums.
        Refused: they hide those of fewer attempts.
    """
    try:
        parameters = HistogramParameters.choose(
            records, slots.widths, max_bin + 1, candidates, queries, hiding=hiding, noised=noised
        )
    except BadInput as failure:
        raise BadInput(f"scheme = 'lattice': {failure}") from failure
    if attempt > parameters.attempts:
        raise Refused(
            f"attempt {attempt} of a job on a lattice: sums are hidden in {parameters.attempts} attempts together; "
            "train under another name"
        )
    return parameters


def blocks_of(records: int) -> int:
    """The number of blocks of records."""
    return -(-records // DEGREE)


def first_halves_bytes(parameters: HistogramParameters, candidates: int) -> int:
    """Bytes of the first halves of that many candidates."""
    return -(-candidates * parameters.words * parameters.reply_bits // 8)


# ---- plaintexts


def encode(slots: Slots, values: Ints) -> Words:
    """Values (n, slots) as plaintexts: two's complement (words, n), the lowest words first.

    Raises:
        PlaintextOverflow: a value does not fit its slot.
    """
    words = slots.bits // _WORD + 1
    out = np.zeros((words, len(values)), dtype=np.uint64)
    for place, (width, offset) in enumerate(zip(slots.widths, slots.offsets, strict=True)):
        column, bound = np.ascontiguousarray(values[:, place]), 1 << (width - 1)
        if column.size and (int(column.max()) >= bound or int(column.min()) <= -bound):
            raise PlaintextOverflow(f"slot {place} of {width} bits holds values below {bound} in magnitude")
        sign = (column >> 63).astype(np.uint64)
        word, bit = divmod(offset, _WORD)
        parts = [column.view(np.uint64) << np.uint64(bit)]
        if bit:
            parts.append((column >> (_WORD - bit)).view(np.uint64))
        _add(out, word, [*parts, *[sign] * (words - word - len(parts))])
    return out


def added(parameters: HistogramParameters, values: Ints) -> Words:
    """Words (n, words, 2) that add plaintexts with these slots (n, slots) to sums of words: ⌊(q/t_j)·(m mod t_j)⌉.

    Raises:
        PlaintextOverflow: a value does not fit its slot.
    """
    plains = Slots(parameters.widths).encode(list(values.T))
    out = np.empty((len(values), parameters.words, 2), dtype=np.uint64)
    for place, modulus in enumerate(parameters.moduli):
        words = [(2 * (plain % modulus << MODULUS_BITS) + modulus) // (2 * modulus) for plain in plains]
        out[:, place, 0] = [word & _LOW for word in words]
        out[:, place, 1] = [word >> HALF_BITS & _LOW for word in words]
    return out


def sum_masks(parameters: HistogramParameters, candidates: int) -> tuple[Words, Words]:
    """Masks r of that many candidates' sums, and words that add them; both fresh, and for one answer alone.

    Returns:
        r (candidates, words), uniform modulo each t_j, which the label holder never gets: it opens residues of m + r.
        Words (candidates, words, 2) as `added` gives them, for the same half unit of noise (`noised`).
    """
    return kernels().sum_masks(candidates, moduli_of(parameters), os.urandom(SEED_BYTES))


def _add(out: Words, first: int, parts: Sequence[Words]) -> None:
    """Add a number of several words modulo 2^(64·words)."""
    carry = np.zeros(out.shape[1], dtype=np.uint64)
    for word, part in enumerate(parts[: len(out) - first], start=first):
        total = out[word] + part
        over = total < part
        total += carry
        carry = (over | (total < carry)).astype(np.uint64)
        out[word] = total


def shares_of(parameters: HistogramParameters, residues: Words, *, minus: bool = False) -> Words:
    """Shares (n, w) modulo the product of the t_j of plaintexts: what is opened, or `minus` the masks, (n, words)."""
    moduli = parameters.moduli
    return crt(residues, moduli, math.prod(moduli).bit_length() // _WORD + 1, minus)


class Opener:
    """Sums of slots from residues modulo the t_j (Chinese remainders)."""

    def __init__(self, parameters: HistogramParameters, slots: Slots) -> None:
        self._slots, moduli = slots, parameters.moduli
        self._product = math.prod(moduli)
        self._weights = [self._product // t * pow(self._product // t, -1, t) for t in moduli]

    def sums(self, residues: Words) -> Ints:
        """Residues (n, words) as sums (n, slots); `Malformed` where one has bits above the last slot."""
        half, product = self._product // 2, self._product
        out = np.empty((len(residues), len(self._slots.widths)), dtype=np.int64)
        for place, row in enumerate(residues.tolist()):
            plain = sum(x * weight for x, weight in zip(row, self._weights, strict=True)) % product
            out[place] = self._slots.decode(plain - product if plain > half else plain, 1)[0]
        return out


# ---- candidates


def radices(shapes: Sequence[Shape]) -> list[int]:
    """The number of cells of each feature, one for missing values included."""
    return [shape.n_bins + shape.has_missing for shape in shapes]


def left_sums(cells: Words, shapes: Sequence[Shape]) -> Words:
    """Left sums of all candidates in canonical order, from those of all cells of these features: sums along axis 0.

    Halves of numbers modulo q are added without carries: a sum has at most 257 cells.
    """
    starts = [0, *accumulate(radices(shapes))]
    parts = [_of_feature(cells[start:end], shape) for (start, end), shape in zip(pairwise(starts), shapes, strict=True)]
    return np.concatenate([cells[:0], *parts])


def _of_feature(cells: Words, shape: Shape) -> Words:
    if not shape.has_missing:
        cells = np.concatenate([cells, np.zeros_like(cells[:1])])
    flat = cells.reshape(len(cells), -1).view(np.int64)
    sums = accumulate_cells(flat.T[:, np.newaxis], CandidateList([shape]))[0]
    halves: Words = sums.view(np.uint64).reshape(len(sums), *cells.shape[1:])
    return halves


NONCE_BYTES = 32


@cache
def self_test() -> bytes:
    """SHA-256 of words and products that this machine's kernels make of fixed seeds; every form gives the same.

    Raises:
        BadInput: there are no kernels here.
    """
    fixed, seed, sums = kernels(), bytes(SEED_BYTES), np.zeros((1, 2, DEGREE), dtype=np.uint64)
    public = fixed.public(seed, 0, 1)
    words, _ = fixed.encrypt(public, 0, fixed.secrets(seed, 1), seed, Moduli(38, (0,)), DEGREE)
    fixed.cells(public, Binned(np.zeros((1, DEGREE), dtype=np.uint8), (1,)), 0, range(1), sums)
    return hashlib.sha256(words.tobytes() + sums.tobytes()).digest()


def commitment(party: str, nonce: bytes) -> bytes:
    """SHA-256 that binds a party to its nonce, of `NONCE_BYTES`, before any is opened."""
    return hashlib.sha256(b"treetap lattice nonce\x1f" + party.encode() + b"\x1f" + nonce).digest()


def seed_of(job: str, attempt: int, nonces: Mapping[str, bytes]) -> bytes:
    """32 bytes: SHA-256 of the attempt and of every party's nonce, by the parties' names."""
    state = hashlib.sha256(f"treetap lattice seed\x1f{job}\x1f{attempt}".encode())
    for party, nonce in sorted(nonces.items()):
        state.update(b"\x1f" + party.encode() + b"\x1f" + nonce)
    return state.digest()
