"""Encrypted histograms in Python integers, from another ChaCha20 and gmpy2's products: what the kernels must equal."""

from __future__ import annotations

import random

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from gmpy2 import mpz

N, Q = 4096, 1 << 104
PUBLIC, SECRET, ERROR, MASK, MASK_ERROR, FLOOD = range(6)
SLOT = 1 << 128


def words_of(seed, number, word, use):
    """Words of 32 bits of a stream, of eight blocks at a time the first words first; 128 at a time."""
    nonce = b"".join(part.to_bytes(4, "little") for part in (0, number, word, use))
    stream = Cipher(algorithms.ChaCha20(seed, nonce), mode=None).encryptor()
    while True:
        yield np.frombuffer(stream.update(bytes(512)), dtype="<u4").reshape(8, 16).T.ravel()


def drawn(stream, count):
    return np.concatenate([next(stream) for _ in range(count // 128)])


def public(seed, block):
    """Coefficients of a: four limbs of 26 bits around 0."""
    limbs = (drawn(words_of(seed, block, 0, PUBLIC), 4 * N) & (2**26 - 1)).astype(np.int64) - 2**25
    return [sum(int(limb) << 26 * place for place, limb in enumerate(row)) % Q for row in limbs.reshape(N, 4)]


def ternary(stream, most=3072):
    """Bytes modulo 3 less 1, without 255; all again while more than `most` are not 0."""
    while True:
        drawn_bytes = np.empty(0, dtype=np.uint8)
        while len(drawn_bytes) < N:
            new = drawn(stream, 1024).astype("<u4").view(np.uint8)
            drawn_bytes = np.concatenate([drawn_bytes, new[new < 255]])
        small = (drawn_bytes[:N] % 3).astype(np.int64) - 1
        if np.count_nonzero(small) <= most:
            return small


def secret(seed, word, most=3072):
    return ternary(words_of(seed, 0, word, SECRET), most)


def errors(stream):
    """Ones among 42 bits less 21, and 22 bits that are left, of two words that are 512 apart."""
    halves = np.stack([drawn(stream, 1024).reshape(2, 512) for _ in range(N // 512)], axis=1).reshape(2, N)
    ones = np.array([[bin(word & 0x1FFFFF).count("1") for word in half.tolist()] for half in halves]).sum(axis=0) - 21
    return ones.tolist(), ((halves[0] >> 21 << 11) | halves[1] >> 21).tolist()


def product(dense, small):
    """dense·small modulo X^N + 1 and 2^104."""
    whole = mpz(at_slot(dense)) * at_slot([int(x) for x in small])
    folded = coefficients(whole)
    return [(low - high) % Q for low, high in zip(folded[:N], folded[N:], strict=True)]


def at_slot(coefficients):
    parts = [
        int.from_bytes(b"".join(max(sign * x, 0).to_bytes(16, "little") for x in coefficients), "little")
        for sign in (1, -1)
    ]
    return mpz(parts[0] - parts[1])


def coefficients(whole):
    """2N signed coefficients of an integer at 2^128."""
    half = SLOT // 2
    data = int(whole + half * ((SLOT ** (2 * N) - 1) // (SLOT - 1))).to_bytes(32 * N, "little")
    return [int.from_bytes(data[at : at + 16], "little") - half for at in range(0, 32 * N, 16)]


def scaled(value, t, bits, dither):
    """(q/t)·(value mod t), rounded by 22 random bits, its error below 2^-20."""
    by = bits + 20
    return ((value % t) * ((Q << by) // t) + (dither << (by - 22))) >> by


def encrypted(a, s, seed, block, word, bits, less, values):
    """Words of a block's records, -(a·s)[i] + e + (q/t)·m."""
    masks = product(a, s)
    noise, dither = errors(words_of(seed, block, word, ERROR))
    return [
        (noise[i] - masks[i] + scaled(value, (1 << bits) - less, bits, dither[i])) % Q for i, value in enumerate(values)
    ]


def indicator(codes, cell):
    """Σ X^(N-1-i) over the records of a cell."""
    return [int(code == cell) for code in [*codes, *[None] * (N - len(codes))]][::-1]


def hidden(total, zero, seed, candidate, bits, most=3072):
    """u and the second half: total + a0·u + e', rounded."""
    u = ternary(words_of(seed, candidate, 0, MASK), most)
    noise, _ = errors(words_of(seed, candidate, 0, MASK_ERROR))
    rows = zip(total, product(zero, u), noise, strict=True)
    return u, [((x + y + e + (1 << (103 - bits))) % Q) >> (104 - bits) for x, y, e in rows]


def answered(sums, zeros, u, seed, candidate, flood, bits):
    """First halves of a candidate, one a word: sum + (b0·u)[N-1] + three uniform numbers less their mean, rounded."""
    stream = words_of(seed, candidate, 0, FLOOD)
    words = iter(int(word) for block in stream for word in block)
    out = []
    for total, zero in zip(sums, zeros, strict=True):
        x = total + sum(b * int(y) for b, y in zip(zero, u[::-1], strict=True)) - (3 * ((1 << flood) - 2) // 2 + 1)
        for _ in range(3):
            x += sum(next(words) << 32 * place for place in range(4)) % (1 << flood)
        out.append(((x + (1 << (103 - bits))) % Q) >> (104 - bits))
    return out


def opened(second, first, s, bits, t):
    """The residue of a candidate's sum."""
    x = (first + sum(int(a) * int(y) for a, y in zip(second, s[::-1], strict=True))) % (1 << bits)
    return ((x * t + (1 << (bits - 1))) >> bits) % t


def own_words(rng: random.Random, a, s, bits, t, values):
    """Words under randomness of Python's own, as another implementation would make them."""
    masks = product(a, s)
    return [
        (sum(rng.getrandbits(1) - rng.getrandbits(1) for _ in range(21)) - masks[i] + Q * (value % t) // t) % Q
        for i, value in enumerate(values)
    ]
