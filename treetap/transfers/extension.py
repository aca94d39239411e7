"""The extension of base transfers to a bit a record: Ishai, Kilian, Nissim, Petrank (CRYPTO 2003), Figure 1.

S, a feature party, has 128 bits s_j and a seed k_j for each; R, a label holder, has both seeds of each pair. A stream
is one node of one tree; G(k) is the expansion of seed k for it, a bit a record. Of record i, R has the bit c_i (it is
in the node) and S the bit x_i (it goes left):

1. R: t^j = G(k_j⁰), and sends u^j = t^j ⊕ G(k_j¹) ⊕ c.
2. S: q^j = G(k_j) ⊕ s_j·u^j, so that row q_i = t_i ⊕ c_i·s, and sends y_i = H(q_i ⊕ s) ⊕ x_i.
3. R: c_i AND (y_i ⊕ H(t_i)).

The message for c_i = 0 is the constant 0 here, so that S sends one bit a record. H hashes a row of 128 bits and its
number i to a bit: of π(π(x) ⊕ i) ⊕ π(x) the lowest (Guo, Katz, Wang, Yu, "Efficient and Secure Multiparty
Computation from Fixed-Key Block Ciphers", S&P 2020, TMMO), π being AES under a public key of the stream. The number
keeps equal rows apart, the key streams, attempts and pairs of parties.

A second use of a stream with other bits would show them: c ⊕ c' to S, and x ⊕ x' to R. `Seeds` refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from treetap.arrays import Bools, Words
from treetap.errors import Conflict, Malformed
from treetap.usage import finish_unit

#: Pairs of seeds: columns of the extension, and bits of its rows.
PAIRS = 128
SEED_BYTES = 16
#: Records that are computed at a time, in a core's cache: 256 KiB of columns.
BLOCK = 1 << 14
_WORD = 64

#: A tree and a node of it.
Stream = tuple[int, int]
#: Called before a stream's first bit is computed; what it raises prevents the use.
Mark = Callable[[Stream], None]
#: A bit or eight of them in each byte, as is said where one is.
Bits = npt.NDArray[np.uint8]


def message_bytes(records: int) -> int:
    """Bytes of the receiver's message: 16 a record, records padded to 64."""
    return PAIRS * 8 * _words(records)


def reply_bytes(records: int) -> int:
    """Bytes of the sender's message: a bit a record."""
    return -(-records // 8)


class Seeds:
    """Seeds of base transfers at one party, and the streams that they served; in memory only."""

    def __init__(self, session: bytes, mark: Mark) -> None:
        """`session`: as in base transfers. `mark`: notes a stream durably before its first use, or raises."""
        self._session, self._mark, self._begun = session, mark, set[Stream]()

    def begin(self, stream: Stream) -> CipherContext:
        """π of a stream, which begins now.

        Raises:
            Conflict: it has begun before.
        """
        if stream in self._begun:
            raise Conflict("tree {}, node {}: its left bits were transferred before".format(*stream))
        self._begun.add(stream)
        self._mark(stream)
        tree, node = stream
        text = self._session + tree.to_bytes(8, "big") + node.to_bytes(8, "big")
        key = blake2b(text, digest_size=SEED_BYTES, person=b"treetap rows").digest()
        return Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305 - a permutation, nothing is enciphered


class ReceiverSeeds(Seeds):
    """Both seeds of every pair, at a label holder.

    Attributes:
        zeros: k_j⁰, 16 bytes each.
        ones: k_j¹, the same.
    """

    def __init__(self, zeros: Sequence[bytes], ones: Sequence[bytes], session: bytes, mark: Mark) -> None:
        super().__init__(session, mark)
        self.zeros, self.ones = zeros, ones


class SenderSeeds(Seeds):
    """One seed of every pair, at a feature party.

    Attributes:
        chosen: k_j, 16 bytes each.
        masks: all ones where s_j is 1, shape (128, 1).
        row: s as a row, shape (2,).
    """

    def __init__(self, bits: Bits, seeds: Sequence[bytes], session: bytes, mark: Mark) -> None:
        super().__init__(session, mark)
        self.chosen = seeds
        self.masks: Words = (0 - bits.astype(np.uint64))[:, None]
        self.row: Words = np.packbits(bits, bitorder="little").view(np.uint64)


@dataclass(frozen=True, repr=False)
class Chosen:
    """What the receiver keeps of a stream until the reply comes.

    Attributes:
        records: n.
        inside: c, eight bits a byte.
        pads: H(t_i), the same.
    """

    records: int
    inside: Bits
    pads: Bits


def choose(seeds: ReceiverSeeds, stream: Stream, inside: Bools) -> tuple[bytes, Chosen]:
    """Step 1 of the receiver: u, blocks of records one after the other, in each the columns; and what it keeps.

    `inside`: which of n records are in the node, of all that the sender answers for, shape (n,).

    Raises:
        Conflict: the stream has begun before.
    """
    permutation, words = seeds.begin(stream), _words(len(inside))
    choices = np.zeros(8 * words, dtype=np.uint8)
    packed = _packed(inside)
    choices[: len(packed)] = packed
    both = _streams(seeds.zeros, stream), _streams(seeds.ones, stream)
    message, pads = bytearray(), []
    for first in range(0, words, BLOCK // _WORD):
        part = choices.view(np.uint64)[first : first + BLOCK // _WORD]
        t, other = (_expanded(streams, len(part)) for streams in both)
        message += (t ^ other ^ part).tobytes()
        pads.append(_hashed(permutation, _rows(t), first))
        finish_unit()
    return bytes(message), Chosen(len(inside), packed, _packed(np.concatenate(pads)[: len(inside)]))


def send(seeds: SenderSeeds, stream: Stream, message: bytes, left: Bools) -> bytes:
    """Step 2 of the sender: y, eight bits a byte. `left`: which of n records go left, shape (n,).

    Raises:
        Malformed: a message of another length.
        Conflict: the stream has begun before.
    """
    if len(message) != message_bytes(len(left)):
        raise Malformed(f"a choice for {len(left)} records has {message_bytes(len(left))} bytes, not {len(message)}")
    permutation, words = seeds.begin(stream), _words(len(left))
    chosen, columns, pads = _streams(seeds.chosen, stream), np.frombuffer(message, dtype=np.uint64), []
    for first in range(0, words, BLOCK // _WORD):
        count = min(BLOCK // _WORD, words - first)
        u = columns[PAIRS * first : PAIRS * (first + count)].reshape(PAIRS, count)
        q = _expanded(chosen, count) ^ (u & seeds.masks)
        pads.append(_hashed(permutation, _rows(q) ^ seeds.row, first))
        finish_unit()
    return _packed(np.concatenate(pads)[: len(left)] ^ left).tobytes()


def receive(chosen: Chosen, reply: bytes) -> Bools:
    """Step 3 of the receiver: which records are in the node and go left, shape (n,).

    Raises:
        Malformed: a reply of another length.
    """
    if len(reply) != reply_bytes(chosen.records):
        raise Malformed(
            f"left bits of {chosen.records} records have {reply_bytes(chosen.records)} bytes, not {len(reply)}"
        )
    bits = chosen.inside & (chosen.pads ^ np.frombuffer(reply, dtype=np.uint8))
    return np.unpackbits(bits, count=chosen.records, bitorder="little").view(np.bool_)


def _words(records: int) -> int:
    return -(-records // _WORD)


def _packed(bits: Bits | Bools) -> Bits:
    return np.packbits(bits, bitorder="little")


def _streams(seeds: Sequence[bytes], stream: Stream) -> list[CipherContext]:
    """G of each seed: AES in counter mode, from tree, node and 0 on. Of this call alone: threads share no cipher."""
    tree, node = stream
    counter = modes.CTR(tree.to_bytes(4, "big") + node.to_bytes(8, "big") + bytes(4))
    return [Cipher(algorithms.AES(seed), counter).encryptor() for seed in seeds]


def _expanded(streams: Sequence[CipherContext], words: int) -> Words:
    """The next words of each stream, shape (128, words)."""
    zeros = bytes(8 * words)
    return np.frombuffer(b"".join(stream.update(zeros) for stream in streams), np.uint64).reshape(PAIRS, words)


def _rows(columns: Words) -> Words:
    """The transpose of a matrix of bits: (128, words) becomes (64·words, 2). See Warren, "Hacker's Delight", 7-3."""
    bits = columns.reshape(2, _WORD, -1).transpose(1, 0, 2).copy()
    for exponent in range(5, -1, -1):
        width = 1 << exponent
        mask, shift = np.uint64((2**_WORD - 1) // (2**width + 1)), np.uint64(width)
        halves = bits.reshape(_WORD // (2 * width), 2, width, -1)
        low, high = halves[:, 0], halves[:, 1]
        swapped = ((low >> shift) ^ high) & mask
        high ^= swapped
        low ^= swapped << shift
    return bits.transpose(2, 0, 1).reshape(-1, 2)


def _hashed(permutation: CipherContext, rows: Words, first: int) -> Bits:
    """H of rows whose first has the number 64·first, a byte each."""
    inner = np.frombuffer(permutation.update(rows.tobytes()), np.uint64).reshape(-1, 2)
    tweaked = inner.copy()
    tweaked[:, 0] ^= np.arange(_WORD * first, _WORD * first + len(rows), dtype=np.uint64)
    outer = np.frombuffer(permutation.update(tweaked.tobytes()), np.uint64).reshape(-1, 2)
    return ((outer[:, 0] ^ inner[:, 0]) & np.uint64(1)).astype(np.uint8)
