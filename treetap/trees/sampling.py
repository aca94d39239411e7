"""Seeded draws of records and columns: the model randomness that every process of a job repeats.

Each draw has its own generator, seeded by SHA-256 over the seed and the draw's name: the same on every machine and in
every process (Python's own hash of a string is not), and independent of the order of the draws. numpy
may change the stream behind a generator between releases, so let one party make each draw (rows: the label holder,
columns: their owner) rather than two that must agree. All must agree on the parties of a tree, so that draw is taken
from the digest itself.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from treetap.errors import DataError

Bools = npt.NDArray[np.bool_]


def generator(seed: int, *path: str | int) -> np.random.Generator:
    """The generator of one named draw."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(int.from_bytes(_digest(seed, *path), "little"))))


def takes_part(seed: int, tree: int, party: str, dropout: float) -> bool:
    """False with probability `dropout`, tree by tree: the party then offers no candidates to tree number `tree`.

    Dropout (Srivastava et al. 2014) of whole parties: a model that has grown without each of them now and then leans
    less on any one.
    """
    return int.from_bytes(_digest(seed, "party", tree, party)[:8], "little") >= dropout * 2.0**64


def rows(seed: int, tree: int, n: int, subsample: float, eligible: Bools) -> Bools:
    """The mask (n,) of records that tree number `tree` sums over.

    As in XGBoost each eligible record is drawn independently with probability `subsample`, afresh for every tree (also
    for the trees of one round).
    """
    if subsample >= 1.0:
        return eligible.copy()
    return (generator(seed, "rows", tree).random(n) < subsample) & eligible


def drawn(seed: int, tree: int, n: int, subsample: float, *, bootstrap: bool) -> npt.NDArray[np.int64]:
    """The draws of each of n records by tree number `tree` of a forest: (n,), ⌊subsample · n⌋ in all, at least one.

    Without `bootstrap` no record is drawn twice.
    """
    count = max(1, int(subsample * n))
    chosen = generator(seed, "records", tree).choice(n, size=count, replace=bootstrap)
    return np.bincount(chosen, minlength=n).astype(np.int64)


def columns(seed: int, tree: int, party: str, d: int, colsample: float) -> npt.NDArray[np.int64]:
    """The columns of a party's d that a tree uses: max(1, ⌊colsample·d⌋) of them, ascending; none if d = 0.

    The product is one of 32-bit floats, as in XGBoost: 0.29 of 100 columns are 29, not 28. XGBoost draws from all
    columns together; here each party draws from its own, so that none learns the others' number of columns.
    """
    if d == 0:
        return np.zeros(0, dtype=np.int64)
    count = max(1, int(np.float32(colsample) * np.float32(d)))
    if count == d:
        return np.arange(d)
    return np.sort(generator(seed, "columns", tree, party).choice(d, size=count, replace=False)).astype(np.int64)


def validation_rows(seed: int, n: int, share: float) -> Bools:
    """The mask (n,) of records set aside to detect over-fitting: `share` of them, rounded, at least one.

    Not stratified by the label, on purpose: every party knows the seed and sees which records a tree sampled, and a
    draw per class would reveal to it which records share a class. Raises DataError if one side would be empty.
    """
    if n < 2:
        raise DataError(f"{n} records are too few to set some aside for validation")
    count = min(max(1, round(share * n)), n - 1)
    mask = np.zeros(n, dtype=bool)
    mask[generator(seed, "validation").choice(n, size=count, replace=False)] = True
    return mask


def _digest(seed: int, *path: str | int) -> bytes:
    """32 bytes that belong to one named draw."""
    parts = [f"s:{part}" if isinstance(part, str) else f"i:{int(part)}" for part in (seed, *path)]
    return hashlib.sha256("\x1f".join(parts).encode()).digest()
