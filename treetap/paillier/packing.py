"""Pack many ciphertexts into one and re-randomise it, in one run of squarings.

The packed ciphertext is r^n · Π c_k^(2^(bits·k)) mod n². Packing by Horner's rule squares |n| times and so does r^n;
simultaneous exponentiation (Straus 1964) shares the squarings, which makes re-randomisation nearly free. The exponent n
is cut into sliding windows of odd digits; exponent and positions are public, so the order of steps is fixed per key.
"""

from __future__ import annotations

from collections.abc import Sequence

from gmpy2 import mpz

from treetap.paillier.public_key import PublicKey, random_unit
from treetap.worker_process import finish_unit

_WINDOW = 6


def _odd_windows(exponent: mpz) -> list[tuple[int, int]]:
    """(position, odd digit below 2^6) with Σ digit·2^position = exponent, most significant first."""
    windows = []
    top = exponent.bit_length()
    while top > 0:
        if not exponent.bit_test(top - 1):
            top -= 1
            continue
        low = max(0, top - _WINDOW)
        while not exponent.bit_test(low):
            low += 1
        windows.append((low, int((exponent >> low) & ((1 << (top - low)) - 1))))
        top = low
    return windows


class Packer:
    """Packs groups of `bits` bits under one key.

    Attributes:
        groups: ciphertexts that one packed ciphertext holds.
    """

    def __init__(self, public: PublicKey, bits: int, groups: int) -> None:
        self._public = public
        self._bits = bits
        self.groups = groups
        self._windows = _odd_windows(public.n)

    def pack(self, ciphertexts: Sequence[mpz], r: mpz) -> mpz:
        """r^n · Π ciphertexts[k]^(2^(bits·k)) mod n²: at most `groups` ciphertexts, least significant first.

        `r` must be a fresh uniform element of Z*_n wherever the result leaves this party (`pack_fresh`).
        """
        modulus = self._public.n_squared
        square = r * r % modulus
        powers = [r]
        for _ in range((1 << (_WINDOW - 1)) - 1):
            powers.append(powers[-1] * square % modulus)
        steps = [(position, powers[digit >> 1]) for position, digit in self._windows]
        # The trivial ciphertext 1 of an empty sum changes nothing.
        steps += [(self._bits * place, value) for place, value in enumerate(ciphertexts) if value != 1]
        steps.sort(key=lambda step: step[0], reverse=True)
        product, level = mpz(1), steps[0][0]
        for position, value in steps:
            for _ in range(level - position):
                product = product * product % modulus
            level = position
            product = product * value % modulus
        finish_unit()
        return product  # n is odd, so the last step was at position 0

    def pack_fresh(self, ciphertexts: Sequence[mpz]) -> list[mpz]:
        """Pack any number of ciphertexts, each packed one with its own fresh standard obfuscator."""
        starts = range(0, len(ciphertexts), self.groups)
        return [self.pack(ciphertexts[start : start + self.groups], random_unit(self._public.n)) for start in starts]
