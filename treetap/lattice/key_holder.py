"""The label holder: makes the key, encrypts columns of integers, decrypts sums.

The key is used for one job: a decryption that fails reveals one bit about it to a member.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from treetap.arrays import Ints
from treetap.errors import Malformed, PlaintextOverflow
from treetap.lattice.parameters import PARAMETERS_BYTES, Parameters
from treetap.lattice.scheme import scheme_of, to_bytes


class LatticeKey:
    """A secret key with its scheme. It cannot be pickled and its repr shows no secret."""

    def __init__(self, parameters: Parameters, _saved: bytes | None = None) -> None:
        """A fresh key; `from_worker` alone passes a saved one.

        Raises:
            BadInput: treetap's kernels were not compiled.
        """
        self.parameters = parameters
        self._scheme = scheme_of(parameters)
        self._secret = self._scheme.ring.secret() if _saved is None else self._scheme.secret_key(_saved)

    def __repr__(self) -> str:
        return f"LatticeKey(N = {self.parameters.degree})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not pickled or copied: hand it to a worker with for_worker()")

    @property
    def modulus(self) -> int:
        """t: sums are exact between -t/2 and t/2."""
        return self._scheme.modulus

    def public_bytes(self) -> bytes:
        """Parameters and a fresh public key, which is an encryption of zero, for the members."""
        return self.parameters.to_bytes() + self.encrypt(np.zeros(0, dtype=np.int64))

    def for_worker(self) -> bytes:
        """The key for a worker process of the same party, over its private pipe: the only way by which it leaves."""
        return self.parameters.to_bytes() + to_bytes(self._secret)

    @classmethod
    def from_worker(cls, data: bytes) -> LatticeKey:
        """The key in the worker."""
        return cls(Parameters.from_bytes(data[:PARAMETERS_BYTES]), data[PARAMETERS_BYTES:])

    def encrypt(self, column: Ints) -> bytes:
        """One column (n ≤ N,) as a ciphertext whose uniform half is a seed.

        Raises:
            PlaintextOverflow: more than N records, or a number outside ±t/2.
        """
        if len(column) > self.parameters.degree:
            raise PlaintextOverflow(f"{len(column)} records in a ciphertext of {self.parameters.degree} slots")
        if len(column) and max(int(column.max()), -int(column.min())) > (self.modulus - 1) // 2:
            raise PlaintextOverflow(f"a number beyond ±{(self.modulus - 1) // 2} does not fit a slot")
        seed, second = self._scheme.draw()
        return self._scheme.seeded(self._scheme.ring.encrypt(self._secret, column, second), seed)

    def decrypt(self, data: bytes, n: int) -> Ints:
        """The first n numbers of a returned sum.

        Raises:
            Malformed: not a ciphertext of these parameters, or its noise exceeds what a sum can have.
        """
        opened = self._scheme.ring.decrypt(self._secret, self._scheme.ciphertext(data))
        if opened is None:
            raise Malformed("a returned sum has more noise than the agreed number of columns can make")
        return opened[:n]

    def noise_budget(self, data: bytes) -> int:
        """Bits by which noise could still grow: for measurements, never for an answer to a member."""
        ring, q = self._scheme.ring, self.parameters.modulus
        first, second = self._scheme.ciphertext(data)
        phase = first.copy()
        ring.multiply_add(phase, second, self._secret)
        ring.transform_back(phase)
        primes = self.parameters.primes
        whole = [q // prime * pow(q // prime, -1, prime) for prime in primes]
        scaled = self.modulus * (phase.astype(object) * np.array(whole, dtype=object)[:, np.newaxis]).sum(axis=0) % q
        most = max(min(int(residue), q - int(residue)) for residue in scaled)
        return max(0, q.bit_length() - most.bit_length() - 1)
