"""The users' choices for a Paillier key: its length, and the randomisation of ciphertexts. Imports nothing."""

from __future__ import annotations

from typing import Literal, get_args

KEY_BITS = (1024, 2048, 3072)
#: Only to reproduce a paper's figure; breakable, and its use is warned of.
PAPER_KEY_BITS = 512
#: Randomisations by the owner of a key; the first is the default.
Obfuscation = Literal["short-exponent", "half-length", "standard"]
OBFUSCATIONS: tuple[str, ...] = get_args(Obfuscation)


def key_faults(key_bits: int, obfuscation: str) -> list[str]:
    """The faults of a key length and of a kind of randomisation, by the names of a job file."""
    faults = []
    if key_bits not in (*KEY_BITS, PAPER_KEY_BITS):
        allowed = f"{', '.join(map(str, KEY_BITS[:-1]))} or {KEY_BITS[-1]}"
        faults.append(f"key_bits = {key_bits}: must be {allowed} ({PAPER_KEY_BITS} only to reproduce a paper's figure)")
    if obfuscation not in OBFUSCATIONS:
        faults.append(f"obfuscation = {obfuscation!r}: must be one of {', '.join(OBFUSCATIONS)}")
    return faults
