"""The arithmetic of ciphertexts and blinded identifiers in this process: `gmpy2` or `ifma`.

`gmpy2` computes with GMP and libsodium, one number at a time; `ifma` with the compiled kernels of `treetap.native`,
eight at a time. Both give the same bytes. A party's file chooses, `auto` takes `ifma` where it can be had, and each of
the party's processes is told once, when it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from treetap.errors import BadInput
from treetap.native import library

Choice = Literal["auto", "gmpy2", "ifma"]
Name = Literal["gmpy2", "ifma"]
CHOICES: tuple[Choice, ...] = get_args(Choice)


@dataclass(frozen=True)
class Backend:
    """What was chosen, and a sentence that says why."""

    name: Name
    reason: str


class _Process:
    """The backend of this process."""

    name: Name = "gmpy2"


def choose(choice: str) -> Backend:
    """The backend that a choice means on this machine; it is not used yet.

    Raises:
        BadInput: an unknown choice, or `ifma` where it cannot be had.
    """
    if choice not in CHOICES:
        raise BadInput(f"arithmetic is one of {', '.join(CHOICES)}, not {choice!r}")
    if choice == "gmpy2":
        return Backend("gmpy2", "the party's file says so")
    try:
        library.load()
    except library.Unavailable as error:
        if choice == "ifma":
            raise BadInput(f'arithmetic = "ifma" cannot be had: {error}; take "auto" or "gmpy2"') from error
        return Backend("gmpy2", str(error))
    return Backend("ifma", "the processor has AVX-512 IFMA" if choice == "auto" else "the party's file says so")


def use(name: Name) -> None:
    """Compute with this backend in this process from now on: objects made before keep theirs.

    Raises:
        BadInput: `ifma` cannot be had.
    """
    _Process.name = choose(name).name


def in_use() -> Name:
    """The backend of this process."""
    return _Process.name
