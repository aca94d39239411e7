"""Which of two parties' numbers is larger, by a bitwise comparison under the Paillier key of one of them.

Damgård, Geisler and Krøigaard, "Efficient and Secure Comparison for On-Line Auctions" (2007), and "A correction to
'Efficient and secure comparison for on-line auctions'" (2009); here with Paillier's scheme, and with an outcome that is
for both.

1. The challenger, with x and the key, encrypts the bits x_i (`encrypted_bits`).
2. The champion, with y, computes c_i = x_i − y_i + 1 + 3·Σ_{j>i} (x_j ⊕ y_j) under encryption. Exactly one c_i is 0
   where x < y: that of the highest bit in which they differ. None is where x ≥ y. It multiplies each c_i by a uniform
   unit modulo n, re-randomises with a standard obfuscator, since the reader owns the key, and shuffles (`blinded`).
3. The challenger opens them, and sees whether one is zero (`champion_is_larger`). A nonzero c_i is below 2^10 and hence
   a unit modulo n, so its product is a uniform unit: it says nothing of x or y. The place of the zero is uniform.

Both follow the protocol: a champion that computes another c_i could learn a bit of x that is not the outcome. A
challenger that sends other numbers than bits learns how many c_i are zero modulo which prime factors of n. The proof of
its key (`treetap.additive.paillier.key_proof`) leaves two: one of C(70, 3) outcomes, below 16 bits, of 67 of a gain.
Under a modulus of 67 factors it would read them all.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import gmpy2
from gmpy2 import mpz

from treetap.additive.paillier.public_key import PublicKey, random_unit
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.errors import Malformed
from treetap.native.library import in_bounds
from treetap.process.together import together
from treetap.usage import finish_unit
from treetap.workers.engines import Engine


def bits_of(value: int, width: int) -> list[int]:
    """The bits of a number 0 ≤ value < 2^width, lowest first."""
    in_bounds(0 <= value < 1 << width, "a number that does not fit its bits")
    return [value >> place & 1 for place in range(width)]


def blinded(public: PublicKey, encrypted_bits: bytes, value: int) -> bytes:
    """Step 2: as many ciphertexts as bits, in a fresh secret order, for the owner of the key.

    Args:
        encrypted_bits: ciphertexts of the other number's bits, lowest first.
        value: the own number y, of as many bits.

    Raises:
        Malformed: not ciphertexts under this key.
    """
    modulus, n = public.n_squared, public.n
    theirs = public.ring.numbers(public.read(encrypted_bits))
    own = bits_of(value, len(theirs))
    blinded_bits = []
    differing = mpz(1)  # ciphertext of Σ (x_j ⊕ y_j) over higher bits
    for bit, y in zip(reversed(theirs), reversed(own), strict=True):
        c = bit * (1 + (1 - y) * n) * gmpy2.powmod(differing, 3, modulus) % modulus
        # A uniform unit as factor hides all of a nonzero plaintext; the obfuscator hides the factor's traces.
        blinded_bits.append(gmpy2.powmod(c, random_unit(n), modulus))
        finish_unit()
        differing = differing * (_negated(bit, modulus) * (1 + n) if y else bit) % modulus
    secrets.SystemRandom().shuffle(blinded_bits)
    return public.write(public.rerandomise_standard(public.ring.batch(blinded_bits)))


def _negated(ciphertext: mpz, modulus: mpz) -> mpz:
    try:
        return gmpy2.invert(ciphertext, modulus)
    except ZeroDivisionError:
        raise Malformed("a ciphertext shares a factor with n: it is no ciphertext under this key") from None


def champion_is_larger(plains: Sequence[int]) -> bool:
    """Step 3: True if one of the opened numbers is zero, which is where x < y; `Malformed` for several zeros."""
    zeros = sum(plain == 0 for plain in plains)
    if zeros > 1:
        raise Malformed(f"{zeros} of {len(plains)} blinded numbers are zero: an honest comparison has one at most")
    return zeros == 1


class GainComparison:
    """Comparisons of numbers of `width` bits, by a party's workers.

    Args:
        engine: workers that may see this party's own numbers, for the part without a key.
        holder: the own key.
        width: bits of a number.
    """

    def __init__(self, engine: Engine, holder: KeyHolder, width: int) -> None:
        self._engine, self._holder, self._width = engine, holder, width

    async def encrypted_bits(self, values: Sequence[int]) -> list[bytes]:
        """Step 1, as challenger: `width` ciphertexts for each number."""
        return await self._holder.encrypt_numbers([bits_of(value, self._width) for value in values])

    async def blinded(self, tasks: Sequence[tuple[PublicKey, bytes, int]]) -> list[bytes]:
        """Step 2, as champion, for each challenger's key and encrypted bits, and own number.

        Raises:
            Malformed: other than `width` ciphertexts under that key.
        """
        for public, bits, _ in tasks:
            self._check(public, bits)
        calls = [
            self._engine.call(place % self._engine.workers, blinded, public, bits, value)
            for place, (public, bits, value) in enumerate(tasks)
        ]
        return await together(*calls)

    async def outcomes(self, public: PublicKey, blocks: Sequence[bytes]) -> list[bool]:
        """Step 3, as challenger with the key `public`: for each answer, whether the champion's number is larger.

        Raises:
            Malformed: other than `width` ciphertexts, or an answer that no honest champion gives.
        """
        for block in blocks:
            self._check(public, block)
        return await self._holder.apply(_open, blocks)

    def _check(self, public: PublicKey, block: bytes) -> None:
        if len(block) != self._width * public.ciphertext_bytes:
            raise Malformed(
                f"a comparison of gains takes {self._width} ciphertexts of {public.ciphertext_bytes} bytes, not "
                f"{len(block)} bytes"
            )


def _open(secret: SecretKey, block: bytes) -> bool:
    return champion_is_larger(secret.decrypt_many(block))
