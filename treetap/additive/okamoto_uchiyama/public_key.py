"""Okamoto and Uchiyama's public half: operations that need no secret key (Okamoto and Uchiyama 1998).

n = p²q with primes p and q of one length, Enc(m; r) = g^m · r^n mod n. Sums multiply; plaintexts are residues modulo
the secret p, so sums must stay below p/2 in size: `plain_bits`, two bits fewer than p has. A ciphertext travels as a
big-endian block as wide as n.

The authors take powers of h = g^n for r^n. An n-th power of a uniform unit hides no less: a reader could multiply any
power of h by it himself. To add up, pack and re-randomise a party needs n alone. g stays with the owner, who alone
encrypts other numbers than 0, and no party has to trust an h that another has made.

Obfuscators, as in `treetap.additive.paillier.public_key`:

* standard: fresh uniform r, one full power; no assumption beyond the scheme's. r^n is uniform among the n-th powers,
  which are all encryptions of 0: its reader may own the key.
* short-exponent: h^a with h = (-y²)^n of an own uniform y, and a of 256 bits. Assumes that discrete logarithms with
  256-bit exponents are hard in a group whose order the reader does not know.
* half-length: none. Damgård, Jurik and Nielsen's proof is for n = pq: there n differs from the group's order by a
  number of half its length. For p²q it differs from the order (p-1)(q-1) of the n-th powers by more than this has.

The Jacobi symbol of x modulo n is that of x modulo q, since p occurs twice, and every party can compute it. Keys made
here have q ≡ 3 (mod 4), hence n ≡ 3 (mod 4), which a reader of the key can check: -y² has the symbol -1, and h^a either
symbol, as a is even or odd. So has r^n. The twist that Paillier's short obfuscators need has no counterpart here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from gmpy2 import mpz

from treetap.additive.residues.batches import Batch
from treetap.additive.residues.ciphertexts import SHORT_EXPONENT_BITS, Ciphertexts, Obfuscators
from treetap.errors import BadInput, PlaintextOverflow
from treetap.protocols.key_options import OBFUSCATIONS, OKAMOTO_UCHIYAMA, SCHEMES

SCHEME = SCHEMES[OKAMOTO_UCHIYAMA]


def check_key_bits(bits: int, allow_breakable: bool = False) -> None:
    """Refuse a key size that is not offered; never replace it by another.

    Args:
        bits: length of n.
        allow_breakable: accept 1024 bits too, with a warning; it exists for tests.

    Raises:
        BadInput: the size is not offered.
    """
    if not SCHEME.offers(bits, allow_breakable=allow_breakable):
        raise BadInput(f"Okamoto-Uchiyama keys have {' or '.join(map(str, SCHEME.key_bits))} bits, not {bits}")
    if bits not in SCHEME.key_bits:
        warnings.warn(f"a {bits}-bit Okamoto-Uchiyama key protects nothing: use it only for tests", stacklevel=3)


def check_obfuscation(kind: str) -> None:
    """`BadInput` for a kind of obfuscation that there is not."""
    if kind not in OBFUSCATIONS:
        raise BadInput(f"obfuscation is one of {', '.join(OBFUSCATIONS)}, not {kind!r}")
    if kind in SCHEME.refused:
        raise BadInput(f"Okamoto-Uchiyama has no {kind} obfuscation: {SCHEME.refused[kind]}")


class PublicKey(Ciphertexts):
    """Adds and re-randomises; cannot decrypt, and cannot encrypt other numbers than 0.

    Attributes:
        scheme: its name in a job.
        plain_bits: bits of a signed plaintext.

    Raises:
        BadInput: the size of n is not offered, or n is not 3 modulo 4.
    """

    __slots__ = ("plain_bits",)
    scheme = OKAMOTO_UCHIYAMA

    def __init__(self, n: int, allow_breakable: bool = False) -> None:
        bits = int(n).bit_length()
        check_key_bits(bits, allow_breakable)
        if n % 4 != 3:
            raise BadInput("an Okamoto-Uchiyama modulus p²q is 3 modulo 4, as q is; this one is not")
        self.plain_bits = SCHEME.plain_bits(bits)
        super().__init__(mpz(n), mpz(n), "n", SCHEME.ciphertext_bytes(bits))

    @classmethod
    def from_bytes(cls, data: bytes, allow_breakable: bool = False) -> PublicKey:
        """Read n back and check its size and form.

        Raises:
            BadInput: the number cannot be a modulus of an offered size.
        """
        return cls(int.from_bytes(data, "big"), allow_breakable)

    def obfuscators(self, kind: str) -> Obfuscators:
        """Obfuscators, `standard` or `short-exponent`, for ciphertexts whose readers do not own the key.

        Raises:
            BadInput: another kind.
        """
        check_obfuscation(kind)
        return Obfuscators(self, None if kind == "standard" else self.short_powers(SHORT_EXPONENT_BITS))

    def shifted(self, ciphertexts: Batch, plains: Sequence[int]) -> Batch:
        """Always refused: g is the owner's."""
        del ciphertexts, plains
        raise BadInput("under Okamoto-Uchiyama only the key's owner can add numbers of its own to a sum")

    def check_plains(self, plains: Sequence[int]) -> None:
        """Refuse plaintexts that could come back with another sign or size."""
        for plain in plains:
            if plain.bit_length() > self.plain_bits:
                raise PlaintextOverflow(
                    f"a plaintext of a {self.bits}-bit key has {self.plain_bits} bits, this one {plain.bit_length()}"
                )
