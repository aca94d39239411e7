"""The users' choices for a key: scheme, length, randomisation of ciphertexts; and the sizes that follow."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol, get_args

#: Randomisations by the owner of a key; the first is the default.
Obfuscation = Literal["short-exponent", "half-length", "standard"]
OBFUSCATIONS: tuple[str, ...] = get_args(Obfuscation)
#: Schemes whose ciphertexts are added: by multiplication modulo the square of a key's n or, without keys, on a lattice;
#: the first is the default.
PAILLIER, LATTICE = SCHEMES = ("paillier", "lattice")
#: Lengths of n that are offered; and one that can be broken, for tests and to repeat papers' figures, with a warning.
KEY_LENGTHS = (1024, 2048, 3072)
BREAKABLE_BITS = 512
#: The length of a key if a job names none.
KEY_BITS = 2048
#: The fields of a job about its keys.
KEY_FIELDS = ("scheme", "key_bits", "obfuscation")
#: The line between two parties if a job names none, in bit/s and as a file has it; the units of its speed.
LINE, LINE_KEY = 10**9, "1 Gbit/s"
UNITS = {"bit/s": 1, "kbit/s": 10**3, "Mbit/s": 10**6, "Gbit/s": 10**9}
#: Rounds of the proof of a key's form.
PROOF_ROUNDS = 128
#: On a lattice: bits of a signed plaintext; most bins of a column that is summed, beside that of missing values.
LATTICE_PLAIN_BITS, LATTICE_BINS = 3072, 255


class Chosen(Protocol):
    """A message that names a key: JobSpec."""

    scheme: str
    key_bits: int


@dataclass(frozen=True)
class KeyKind:
    """Scheme and length of a key, before there is one.

    Attributes:
        scheme: its name.
        bits: length of n; 0: the scheme has none.
    """

    scheme: str
    bits: int

    @classmethod
    def of(cls, spec: Chosen) -> KeyKind:
        """The key that a job names; one of before there was a choice names no scheme: Paillier's."""
        return cls(spec.scheme or PAILLIER, spec.key_bits)

    @property
    def on_lattice(self) -> bool:
        """True if words of a lattice take the place of ciphertexts under a key."""
        return self.scheme == LATTICE

    @property
    def ciphertext_bytes(self) -> int:
        """Width of a ciphertext on the wire."""
        return -(-2 * self.bits // 8)

    @property
    def proof_bytes(self) -> int:
        """Bytes of the proof that comes with a key: a number, then two numbers and two bits a round; 0 without keys."""
        return (1 + 2 * PROOF_ROUNDS) * -(-self.bits // 8) + PROOF_ROUNDS // 4 if self.bits else 0

    @property
    def plain_bits(self) -> int:
        """Bits of a signed plaintext: two fewer than n, of which it is a residue."""
        return LATTICE_PLAIN_BITS if self.on_lattice else self.bits - 2

    @property
    def breakable(self) -> bool:
        """True for a length that can be broken."""
        return self.bits == BREAKABLE_BITS


def bits_per_second(line: str) -> int:
    """The speed of a line as a file has it, such as "100 Mbit/s".

    Raises:
        ValueError: it is none, or below 1 bit/s or above 1,000 Gbit/s.
    """
    read = re.fullmatch(rf"([0-9]{{1,12}}(?:\.[0-9]{{1,9}})?) ({'|'.join(UNITS)})", line)
    speed = int(Decimal(read[1]) * UNITS[read[2]]) if read else 0
    if not 1 <= speed <= 1000 * UNITS["Gbit/s"]:
        raise ValueError(f"write a number and {', '.join(UNITS)}, up to 1000 Gbit/s, such as {LINE_KEY!r}")
    return speed


def bin_faults(scheme: str, max_bin: int) -> list[str]:
    """The fault of a job whose columns may have more bins than its scheme takes, by the names of a job file."""
    if scheme != LATTICE or max_bin <= LATTICE_BINS:
        return []
    return [
        f"max_bin = {max_bin}: must be at most {LATTICE_BINS} where scheme = {scheme!r}, which takes "
        f"{LATTICE_BINS + 1} bins of a column, one for missing values counted; use scheme = {PAILLIER!r} for more"
    ]


def key_faults(scheme: str, key_bits: int, obfuscation: str) -> list[str]:
    """The faults of a scheme, of a key length and of a kind of randomisation, by the names of a job file."""
    if scheme == LATTICE:
        given = {"key_bits": key_bits, "obfuscation": obfuscation}
        return [f"{name}: scheme {scheme!r} has none; leave it out" for name, value in given.items() if value]
    if scheme != PAILLIER:
        return [f"scheme = {scheme!r}: must be one of {', '.join(SCHEMES)}"]
    faults = []
    if key_bits not in (*KEY_LENGTHS, BREAKABLE_BITS):
        allowed = f"{', '.join(map(str, KEY_LENGTHS[:-1]))} or {KEY_LENGTHS[-1]}"
        faults.append(
            f"key_bits = {key_bits}: must be {allowed} where scheme = {scheme!r} ({BREAKABLE_BITS} only for tests and "
            "to reproduce a paper's figure)"
        )
    if obfuscation not in OBFUSCATIONS:
        faults.append(f"obfuscation = {obfuscation!r}: must be one of {', '.join(OBFUSCATIONS)}")
    return faults
