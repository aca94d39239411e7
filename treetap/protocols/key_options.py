"""The users' choices for a key: scheme, length, randomisation of ciphertexts; and the sizes that follow.

Imports nothing. A scheme is one line of `SCHEMES` and one package, which has the modules `public_key` and `secret_key`
and, if its keys come with a proof of their form, `key_proof`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, get_args

#: Randomisations by the owner of a key; the first is the default.
Obfuscation = Literal["short-exponent", "half-length", "standard"]
OBFUSCATIONS: tuple[str, ...] = get_args(Obfuscation)


@dataclass(frozen=True)
class Scheme:
    """A scheme whose ciphertexts are added: by multiplication modulo a key's n or, without keys, on a lattice.

    Attributes:
        package: its package.
        key_bits: lengths of n that are offered.
        breakable_key_bits: lengths that can be broken, for tests and to repeat papers' figures; a use is warned of.
        ciphertext_factor: length of a ciphertext by that of n.
        plain_divisor: length of n by that of the number modulo which plaintexts are added.
        most_plain_bits: bits of a signed plaintext where there is no n; else 0.
        most_bins: of a column that is summed, beside that of missing values; 0: any number.
        proof_rounds: rounds of the proof of a key's form; 0: the scheme has none.
        refused: randomisations that it does not have, each with the reason.
    """

    package: str
    key_bits: Sequence[int] = ()
    breakable_key_bits: Sequence[int] = ()
    ciphertext_factor: int = 0
    plain_divisor: int = 1
    most_plain_bits: int = 0
    most_bins: int = 0
    proof_rounds: int = 0
    refused: Mapping[str, str] = field(default_factory=dict)

    def ciphertext_bytes(self, bits: int) -> int:
        """Width of a ciphertext on the wire, in bytes, under a key of `bits` bits."""
        return -(-self.ciphertext_factor * bits // 8)

    def plain_bits(self, bits: int) -> int:
        """Bits of a signed plaintext under a key of `bits` bits: two fewer than the number of which it is a residue."""
        return self.most_plain_bits or -(-bits // self.plain_divisor) - 2

    def proof_bytes(self, bits: int) -> int:
        """Bytes of the proof of a key's form: a number, then two numbers and two bits a round."""
        return (1 + 2 * self.proof_rounds) * -(-bits // 8) + self.proof_rounds // 4 if self.proof_rounds else 0

    def offers(self, bits: int, *, allow_breakable: bool) -> bool:
        """True for a length that a key can have."""
        return bits in self.key_bits or (allow_breakable and bits in self.breakable_key_bits)


#: The length of a key if a job names none.
KEY_BITS = 2048
#: The fields of a job about its keys.
KEY_FIELDS = ("scheme", "key_bits", "obfuscation")
PAILLIER = "paillier"
OKAMOTO_UCHIYAMA = "okamoto-uchiyama"
LATTICE = "lattice"
#: Name in a job → scheme; the first is the default.
SCHEMES: Mapping[str, Scheme] = {
    PAILLIER: Scheme(
        package="treetap.additive.paillier",
        key_bits=(1024, 2048, 3072),
        breakable_key_bits=(512,),
        ciphertext_factor=2,
        plain_divisor=1,
        proof_rounds=128,
    ),
    OKAMOTO_UCHIYAMA: Scheme(
        package="treetap.additive.okamoto_uchiyama",
        key_bits=(2048, 3072),
        breakable_key_bits=(1024,),
        ciphertext_factor=1,
        plain_divisor=3,
        refused={"half-length": "the proof that it rests on is for n = pq"},
    ),
    LATTICE: Scheme(package="treetap.lattice", most_plain_bits=3072, most_bins=255),
}


class Chosen(Protocol):
    """Messages that name a key: JobSpec, EiniParams."""

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
    def of(cls, chosen: Chosen) -> KeyKind:
        """The key that a job or a prediction names; one of before there was a choice names no scheme: Paillier's."""
        return cls(chosen.scheme or PAILLIER, chosen.key_bits)

    @property
    def on_lattice(self) -> bool:
        """True if words of a lattice take the place of ciphertexts under a key."""
        return self.scheme == LATTICE

    @property
    def ciphertext_bytes(self) -> int:
        """Width of a ciphertext on the wire."""
        return SCHEMES[self.scheme].ciphertext_bytes(self.bits)

    @property
    def proof_bytes(self) -> int:
        """Bytes of the proof that comes with a key; 0 where there is none."""
        return SCHEMES[self.scheme].proof_bytes(self.bits)

    @property
    def plain_bits(self) -> int:
        """Bits of a signed plaintext."""
        return SCHEMES[self.scheme].plain_bits(self.bits)

    @property
    def remedy(self) -> str:
        """Keys whose plaintexts have more bits, as an advice."""
        roomier = [
            name
            for name, scheme in SCHEMES.items()
            if scheme.key_bits and scheme.plain_bits(self.bits) > self.plain_bits
        ]
        return "a longer key" + "".join(f" or scheme = {name!r}" for name in roomier)

    @property
    def by_name(self) -> dict[str, str | int]:
        """The scheme and, where it has keys, their length, by the names of a job file."""
        return {"scheme": self.scheme, **({"key_bits": self.bits} if self.bits else {})}

    @property
    def breakable(self) -> bool:
        """True for a length that can be broken."""
        return self.bits in SCHEMES[self.scheme].breakable_key_bits


def bin_faults(scheme: str, max_bin: int) -> list[str]:
    """The fault of a job whose columns may have more bins than its scheme takes, by the names of a job file."""
    most = SCHEMES[scheme].most_bins if scheme in SCHEMES else 0
    if not most or max_bin <= most:
        return []
    return [
        f"max_bin = {max_bin}: must be at most {most} where scheme = {scheme!r}, which takes {most + 1} bins of a "
        f"column, one for missing values counted; use scheme = {PAILLIER!r} for more"
    ]


def key_faults(scheme: str, key_bits: int, obfuscation: str) -> list[str]:
    """The faults of a scheme, of a key length and of a kind of randomisation, by the names of a job file."""
    if scheme not in SCHEMES:
        return [f"scheme = {scheme!r}: must be one of {', '.join(SCHEMES)}"]
    faults, offered = [], SCHEMES[scheme]
    if not offered.key_bits:
        given = {"key_bits": key_bits, "obfuscation": obfuscation}
        return [f"{name}: scheme {scheme!r} has none; leave it out" for name, value in given.items() if value]
    if not offered.offers(key_bits, allow_breakable=True):
        allowed = f"{', '.join(map(str, offered.key_bits[:-1]))} or {offered.key_bits[-1]}"
        breakable = ", ".join(map(str, offered.breakable_key_bits))
        faults.append(
            f"key_bits = {key_bits}: must be {allowed} where scheme = {scheme!r} ({breakable} only for tests and to "
            "reproduce a paper's figure)"
        )
    if obfuscation not in OBFUSCATIONS:
        faults.append(f"obfuscation = {obfuscation!r}: must be one of {', '.join(OBFUSCATIONS)}")
    elif obfuscation in offered.refused:
        others = " or ".join(repr(kind) for kind in OBFUSCATIONS if kind not in offered.refused)
        why = offered.refused[obfuscation]
        faults.append(f"obfuscation = {obfuscation!r}: scheme {scheme!r} has none, since {why}; use {others}")
    return faults
