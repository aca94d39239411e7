"""The noise of ciphertexts of the lattice scheme, by the secret key."""

from __future__ import annotations

import numpy as np

from treetap.lattice.scheme import LatticeKey, scheme_of


def noise_budget(key: LatticeKey, data: bytes) -> int:
    """Bits by which noise could still grow."""
    scheme, q, primes = scheme_of(key.parameters), key.parameters.modulus, key.parameters.primes
    first, second = scheme.ciphertext(data)
    phase = first.copy()
    scheme.ring.multiply_add(phase, second, key._secret)
    scheme.ring.transform(phase, back=True)
    whole = [q // prime * pow(q // prime, -1, prime) for prime in primes]
    scaled = key.modulus * (phase.astype(object) * np.array(whole, dtype=object)[:, np.newaxis]).sum(axis=0) % q
    most = max(min(int(residue), q - int(residue)) for residue in scaled)
    return max(0, q.bit_length() - most.bit_length() - 1)
