"""Rounds of two parties, and the randomness that a dealer hands both of them.

A party is a generator: it yields what it sends in a round and how many bytes it is due, and is resumed with these. Both
lengths follow from the layout alone, never from a number. Randomness comes of a seed for each party; what no seed can
give, since it fits the other party's numbers, are corrections. An operation takes all its randomness before its first
round, so that operations that share their rounds (`together`) take it in the order in which they are named.
"""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from treetap.arrays import Array, Ints, Words
from treetap.errors import Malformed

SEED_BYTES = 32
T = TypeVar("T")


class Round(NamedTuple):
    """What a party sends in a round, and how many bytes its peer sends it; none: there is no message."""

    send: bytes
    due: int


Rounds = Generator[Round, bytes, T]


def exchange(send: bytes, due: int) -> Rounds[bytes]:
    """One round.

    Raises:
        Malformed: the peer's message has another length.
    """
    got = yield Round(send, due)
    if len(got) != due:
        raise Malformed(f"a message of shares has {len(got):,} bytes, {due:,} were due")
    return got


def trade(mine: Sequence[Words], due: Sequence[tuple[int, ...]]) -> Rounds[list[Words]]:
    """One round: send arrays, and get the peer's, which have these shapes."""
    sizes = [math.prod(shape) for shape in due]
    got = yield from exchange(b"".join(array.tobytes() for array in mine), 8 * sum(sizes))
    words, ends = np.frombuffer(got, np.uint64), accumulate(sizes)
    return [words[end - size : end].reshape(shape) for end, size, shape in zip(ends, sizes, due, strict=True)]


def swap(mine: Words) -> Rounds[Words]:
    """Send an array and get the peer's of the same shape."""
    return (yield from trade([mine], [mine.shape]))[0]


def together(*parties: Rounds[T]) -> Rounds[list[T]]:
    """Run operations of one party in the same rounds; what each returns."""
    results: dict[int, T] = {}
    got: dict[int, Any] = dict.fromkeys(range(len(parties)))
    while got:
        rounds: dict[int, Round] = {}
        for number, message in got.items():
            try:
                rounds[number] = parties[number].send(message)
            except StopIteration as end:
                results[number] = end.value
        if not rounds:
            break
        whole = memoryview(
            (yield from exchange(b"".join(r.send for r in rounds.values()), sum(r.due for r in rounds.values())))
        )
        ends = accumulate(r.due for r in rounds.values())
        got = {number: whole[end - r.due : end] for (number, r), end in zip(rounds.items(), ends, strict=True)}
    return [results[number] for number in range(len(parties))]


# ---- bits side by side


def packed(bits: Array) -> Words:
    """Bits of any shape as words, bit k mod 64 of word ⌊k/64⌋; what is beyond the last is 0."""
    raw = np.packbits(bits, bitorder="little")
    return np.concatenate([raw, np.zeros(-len(raw) % 8, np.uint8)]).view(np.uint64)


def unpacked(words: Words, *shape: int) -> Array:
    """Bits that `packed` made words of."""
    return np.unpackbits(words.view(np.uint8), count=math.prod(shape), bitorder="little").reshape(shape)


def words_of(bits: int) -> int:
    """Words that hold that many bits."""
    return -(-bits // 64)


# ---- randomness


@cache
def _zeros(bits: int) -> memoryview:
    """To be encrypted: large ones are not made anew, which takes more time than the words themselves."""
    return memoryview(bytes(1 << bits))


class Stream:
    """Pseudo-random words of a seed: AES-256 in counter mode."""

    def __init__(self, seed: bytes) -> None:
        self._next = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor().update

    def words(self, *shape: int) -> Words:
        """The next words, which cannot be written to."""
        size = 8 * math.prod(shape)
        return np.frombuffer(self._next(_zeros(size.bit_length())[:size]), np.uint64).reshape(shape)

    def permutations(self, nodes: int, n: int) -> Ints:
        """A permutation of n for each node, by the order of drawn words (two are equal: n²/2^65)."""
        return np.argsort(self.words(nodes, n), axis=1, kind="stable")


class Side:
    """A party of a stage, and what the dealer handed it.

    Attributes:
        first: this party permutes first, numbers the candidates, and learns the winners' numbers. The label holder is
            not the first where it and a feature party choose among this one's columns, and is where winners of several
            feature parties meet.
        stream: its part of the randomness.
    """

    def __init__(self, first: bool, seed: bytes, corrections: bytes) -> None:
        self.first, self.stream = first, Stream(seed)
        self._corrections, self._at = corrections, 0

    def dealt(self, *shape: int) -> Words:
        """The next corrections.

        Raises:
            Malformed: the dealer sent fewer.
        """
        size = 8 * math.prod(shape)
        part = self._corrections[self._at : self._at + size]
        if len(part) != size:
            raise Malformed(f"the dealer's corrections end after {len(self._corrections):,} bytes")
        self._at += size
        return np.frombuffer(part, np.uint64).reshape(shape)

    def share(self, *shape: int) -> Words:
        """This party's share of dealt numbers: corrections at the first party, words of the stream at the other."""
        return self.dealt(*shape) if self.first else self.stream.words(*shape)


class Dealer:
    """Deals what the operations of both sides take, in the same order.

    Attributes:
        seeds: of the last and of the first party.
        last, first: their streams.
        corrections: parts of what each gets beside its seed, by `Side.first`.
    """

    def __init__(self, seeds: tuple[bytes, bytes] | None = None) -> None:
        self.seeds = seeds or (os.urandom(SEED_BYTES), os.urandom(SEED_BYTES))
        self.last, self.first = map(Stream, self.seeds)
        self.corrections: tuple[list[bytes], list[bytes]] = [], []

    def give(self, *arrays: Words, first: bool = True) -> None:
        """Add corrections of a party."""
        self.corrections[first].extend(array.tobytes() for array in arrays)
