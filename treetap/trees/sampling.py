"""Seeded draws of records, columns and parties: the model randomness that every process of a job repeats.

Draws that parties compare are defined here down to the bit, whatever release of numpy is installed:

1. A draw has a name: `treetap draw`, the job's seed and the draw's path, joined by bytes 0x1f, in UTF-8. A text of the
   path is written `s:TEXT`, a number, the seed too, `i:NUMBER` in decimal. No text has a byte 0x1f.
2. Block i of the draw, from 0, is SHA-256 (FIPS 180-4) over the name, a byte 0x1f and i as 8 bytes, the lowest first.
   A block is four words of 64 bits, each with its lowest byte first. Word j of the draw is word j mod 4 of block ⌊j/4⌋.
3. `happens(p)`: word 0 is below p · 2^64; of n records, record i is drawn if word i is.
4. `smallest(k of n)`, without replacement: the k places with the smallest of words 0..n−1, of equal ones the lowest.
5. `integers(below m)`, with replacement: words at or above ⌊2^64/m⌋ · m are passed over, of the others w mod m is taken
   in order. There is no bias.
6. A party sits a tree out if the first word of SHA-256 over seed and path alone, joined as in 1, is below p · 2^64.

The product p · 2^64 of a float64 p is exact. Shares become numbers of records or columns as each function says.

`generator` is for draws that one party makes and no other repeats: numpy may change its stream between releases.
"""

from __future__ import annotations

import hashlib
import math
from functools import lru_cache

import numpy as np

from treetap.arrays import Bools, Ints, Words
from treetap.errors import DataError

#: Begins the name of every draw.
DOMAIN = "treetap draw"
#: Words of a block of SHA-256.
_WORDS = 4
#: Blocks that are hashed before they are copied into the words.
_AT_ONCE = 1 << 14


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """The generator of one named draw of a single party."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(_key(seed, *path), "little"))))


def words(count: int, seed: int, *path: str | int, first: int = 0) -> Words:
    """Words (count,) of a named draw, from word number `first`, which is a multiple of 4: steps 1 and 2."""
    blocks, begin = -(-count // _WORDS), first // _WORDS
    name = hashlib.sha256("\x1f".join([DOMAIN, *_parts(seed, *path), ""]).encode())  # before the number of a block
    drawn = np.empty(blocks * _WORDS, dtype=np.uint64)
    for done in range(0, blocks, _AT_ONCE):
        some = range(begin + done, begin + min(done + _AT_ONCE, blocks))
        digests = []
        for number in some:
            block = name.copy()
            block.update(number.to_bytes(8, "little"))
            digests.append(block.digest())
        drawn[done * _WORDS : (done + len(some)) * _WORDS] = np.frombuffer(b"".join(digests), dtype="<u8")
    return drawn[:count]


def happens(chance: float, count: int, seed: int, *path: str | int) -> Bools:
    """Events (count,) of this chance each, in [0, 1]: step 3."""
    if chance >= 1.0:
        return np.ones(count, dtype=bool)
    return words(count, seed, *path) < np.uint64(math.ceil(chance * 2.0**64))


def smallest(count: int, n: int, seed: int, *path: str | int) -> Ints:
    """`count` of the places 0..n−1, ascending, none twice; 1 ≤ count ≤ n: step 4."""
    keys = words(n, seed, *path)
    border = np.partition(keys, count - 1)[count - 1]
    drawn = keys < border
    drawn[np.flatnonzero(keys == border)[: count - int(drawn.sum())]] = True
    return np.flatnonzero(drawn).astype(np.int64)


def integers(below: int, count: int, seed: int, *path: str | int) -> Ints:
    """Whole numbers (count,) from 0 to below − 1, below ≤ 2^63: step 5."""
    last = np.uint64((1 << 64) // below * below - 1)
    drawn, first = np.zeros(0, dtype=np.uint64), 0
    while len(drawn) < count:
        lacking = -(-(count - len(drawn)) // _WORDS) * _WORDS
        more = words(lacking, seed, *path, first=first)
        drawn, first = np.concatenate([drawn, more[more <= last]]), first + lacking
    return (drawn[:count] % np.uint64(below)).astype(np.int64)


def takes_part(seed: int, tree: int, party: str, dropout: float) -> bool:
    """False with probability `dropout`, tree by tree: the party then offers no candidates to tree number `tree`.

    Dropout (Srivastava et al. 2014) of whole parties: a model that has grown without each of them now and then leans
    less on any one.
    """
    return int.from_bytes(_key(seed, "party", tree, party)[:8], "little") >= dropout * 2.0**64


def rows(seed: int, tree: int, n: int, subsample: float, eligible: Bools) -> Bools:
    """The mask (n,) of records that tree number `tree` sums over.

    As in XGBoost each eligible record is drawn independently with probability `subsample`, afresh for every tree (also
    for the trees of one round).
    """
    if subsample >= 1.0:
        return eligible.copy()
    return happens(subsample, n, seed, "rows", tree) & eligible


def drawn(seed: int, tree: int, n: int, subsample: float, *, bootstrap: bool) -> Ints:
    """The draws of each of n records by tree number `tree` of a forest: (n,), ⌊subsample · n⌋ in all, at least one.

    Without `bootstrap` no record is drawn twice. The product is one of 64-bit floats.
    """
    count = max(1, int(subsample * n))
    if bootstrap:
        return np.bincount(integers(n, count, seed, "records", tree), minlength=n).astype(np.int64)
    times = np.zeros(n, dtype=np.int64)
    times[np.arange(n) if count == n else smallest(count, n, seed, "records", tree)] = 1
    return times


def columns(seed: int, tree: int, party: str, d: int, colsample: float) -> Ints:
    """The columns of a party's d that a tree uses: max(1, ⌊colsample·d⌋) of them, ascending; none if d = 0.

    The product is one of 32-bit floats, as in XGBoost: 0.29 of 100 columns are 29, not 28. XGBoost draws from all
    columns together; here each party draws from its own, so that none learns the others' number of columns.
    """
    if d == 0:
        return np.zeros(0, dtype=np.int64)
    count = max(1, int(np.float32(colsample) * np.float32(d)))
    if count == d:
        return np.arange(d)
    return smallest(count, d, seed, "columns", tree, party)


@lru_cache(maxsize=4)  # every tree of a job asks for the same records
def validation_rows(seed: int, n: int, share: float) -> Bools:
    """The mask (n,) of records set aside to detect over-fitting: `share` of them, rounded, at least one; read-only.

    Not stratified by the label, on purpose: every party knows the seed and sees which records a tree sampled, and a
    draw per class would reveal to it which records share a class. Raises DataError if one side would be empty.
    """
    if n < 2:
        raise DataError(f"{n} records are too few to set some aside for validation")
    count = min(max(1, round(share * n)), n - 1)
    mask = np.zeros(n, dtype=bool)
    mask[smallest(count, n, seed, "validation")] = True
    mask.setflags(write=False)
    return mask


def _key(seed: int, *path: str | int) -> bytes:
    """32 bytes of a name by itself."""
    return hashlib.sha256("\x1f".join(_parts(seed, *path)).encode()).digest()


def _parts(*path: str | int) -> list[str]:
    return [f"s:{part}" if isinstance(part, str) else f"i:{int(part)}" for part in path]
