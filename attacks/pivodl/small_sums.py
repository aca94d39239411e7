"""Sums over few records of a node by their value: which kinds of records, up to three, add up to g and h.

A kind is a score that some record can have: with p of the second class, h = p(1 − p), and g = p − y for its unknown
label y. So a sum of kinds is known but for the number of records of the second class, by which g is less. Many records
share a score after few trees, and a sum then names kinds, not records. A sum counts as read where exactly one choice of
kinds gives it.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import numpy.typing as npt

from treetap.attacks.view.known_trees import Ints
from treetap.trees.loss import UNIT

Keys = npt.NDArray[np.uint64]
#: Most records of a sum → most kinds of which sums of so many are listed.
LISTED = {1: 1_000_000, 2: 700, 3: 90}
#: Odd factors of g and h, by which a pair becomes one number modulo 2^64: sums of keys are keys of sums.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xD1342543DE82EF95], dtype=np.uint64)
#: Bits of the table of keys' beginnings.
_BITS = 23
#: Stands for no sum, or several.
UNREAD = -1


def keys_of(sums: Ints) -> Keys:
    """A key of each pair g, h of sums (…, 2)."""
    keys: Keys = (sums.astype(np.uint64) * _FACTORS).sum(axis=-1, dtype=np.uint64)
    return keys


class SmallSums:
    """All sums over no record to three.

    Args:
        kinds: (K, 2) g and h of records of the first class, distinct.

    Attributes:
        choices: (sums, 3) the kinds of each sum, −1 beyond their number.
    """

    def __init__(self, kinds: Ints) -> None:
        own, none = keys_of(kinds), np.full((1, max(LISTED)), UNREAD, dtype=np.int64)
        keys, choices, largest = [np.zeros(1, dtype=np.uint64)], [none], 0
        for size, most in LISTED.items():
            if not len(kinds) or len(kinds) > most:
                break
            listed = _choices(len(kinds), size)
            of_first = own[listed].sum(axis=1, dtype=np.uint64)
            keys += [of_first - keys_of(np.array([second * UNIT, 0])) for second in range(size + 1)]
            padded = np.pad(listed, ((0, 0), (0, max(LISTED) - size)), constant_values=UNREAD)
            choices += [padded] * (size + 1)
            largest = size
        every, first, times = np.unique(np.concatenate(keys), return_index=True, return_counts=True)
        alone = times == 1
        self._keys, self.choices = every[alone], np.concatenate(choices)[first[alone]]
        # most keys are of no sum: the first bits of a key tell that of nearly all
        self._begun = np.zeros(1 << _BITS, dtype=bool)
        self._begun[(self._keys >> np.uint64(64 - _BITS)).astype(np.int64)] = True
        #: The largest h of a listed sum.
        self.largest = largest * int(kinds[:, 1].max(initial=0))

    def read(self, keys: Keys) -> Ints:
        """Of each key the place among `choices` of the one sum that has it; `UNREAD` of others."""
        places = np.full(len(keys), UNREAD, dtype=np.int64)
        likely = np.flatnonzero(self._begun[(keys >> np.uint64(64 - _BITS)).astype(np.int64)])
        near = np.minimum(np.searchsorted(self._keys, keys[likely]), len(self._keys) - 1)
        right = self._keys[near] == keys[likely]
        places[likely[right]] = near[right]
        return places


def _choices(kinds: int, size: int) -> Ints:
    """(n, size) choices of kinds, in ascending order within each, repetitions included."""
    if size == 1:
        return np.arange(kinds, dtype=np.int64)[:, np.newaxis]
    if size == 2:
        return np.stack(np.triu_indices(kinds), axis=1).astype(np.int64)
    return np.array(list(combinations_with_replacement(range(kinds), size)), dtype=np.int64)
