"""Pack many ciphertexts into one and re-randomise it, in one run of squarings.

The packed ciphertext is r^n · Π c_k^(2^(bits·k)), in each scheme modulo its own number. Packing by Horner's rule
squares |n| times and so does r^n; simultaneous exponentiation (Straus 1964) shares the squarings, which makes
re-randomisation nearly free. The exponent n is cut into sliding windows of odd digits; exponent and positions are
public, so the order of steps is fixed per key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gmpy2 import mpz

from treetap.additive.residues.batches import Batch, Powers
from treetap.additive.sums.public_keys import PublicKey


class Packer:
    """Packs groups of `bits` bits under one key.

    Attributes:
        groups: ciphertexts that one packed ciphertext holds.
    """

    def __init__(self, public: PublicKey, bits: int, groups: int) -> None:
        self._public = public
        self._bits = bits
        self.groups = groups
        self._program = Powers.of(int(public.n), [bits * place for place in range(groups)])

    def pack(self, ciphertexts: Batch, units: Sequence[mpz]) -> Batch:
        """r^n · Π c_k^(2^(bits·k)) of each `groups` ciphertexts, least significant first; the last has the rest.

        `units` holds the r of each packed ciphertext, fresh uniform elements of Z*_n wherever the result leaves this
        party (`pack_fresh`).
        """
        ring, count = self._public.ring, len(units)
        values = np.concatenate([ciphertexts, ring.ones(1)])
        places = np.arange(count * self.groups, dtype=np.int64).reshape(count, self.groups)
        return ring.powers(ring.batch(units), self._program, values, np.minimum(places, len(ciphertexts)))

    def pack_fresh(self, ciphertexts: Batch) -> Batch:
        """Pack any number of ciphertexts, each packed one with its own fresh standard obfuscator."""
        count = -(-len(ciphertexts) // self.groups)
        return self.pack(ciphertexts, self._public.units(count))
