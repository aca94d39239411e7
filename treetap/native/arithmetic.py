"""The arithmetic of ciphertexts and blinded identifiers in this process: `gmpy2` or a form of the native kernels.

`gmpy2` computes with GMP and libsodium, one number at a time; the compiled kernels of `treetap.native` with four or
eight at a time, in one of the forms of `treetap.native.library.FORMS`. All of them give the same bytes. A party's file
chooses: `native` takes the processor's fastest form, `auto` too unless that is `plain`, which was not measured to be
faster than GMP. Each of the party's processes gets the name once, when it starts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from treetap.errors import BadInput
from treetap.native import library
from treetap.native.library import FORMS, INSTRUCTIONS, Form

Name = Literal["gmpy2", Form]
Choice = Literal["auto", "native", Name]
CHOICES: tuple[Choice, ...] = ("auto", "gmpy2", "native", *FORMS)
NAMES: tuple[Name, ...] = get_args(Name)
#: Why a backend is used that was chosen by its name.
FILE = "the party's file says so"


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
        BadInput: an unknown choice, or one that cannot be had.
    """
    if choice not in CHOICES:
        raise BadInput(f"arithmetic is one of {', '.join(CHOICES)}, not {choice!r}")
    if choice == "gmpy2":
        return Backend("gmpy2", FILE)
    try:
        here = library.forms()
    except library.Unavailable as error:
        if choice == "auto":
            return Backend("gmpy2", str(error))
        raise BadInput(f'arithmetic = "{choice}" cannot be had: {error}; take "auto" or "gmpy2"') from error
    if choice in here:
        return Backend(choice, FILE)
    if choice in FORMS:
        fault = f'arithmetic = "{choice}" cannot be had: {library.lacking(choice)}'
        raise BadInput(f'{fault}; take "gmpy2" or a form that can be had: {", ".join(here)}')
    if here[0] == "plain":
        return Backend("gmpy2" if choice == "auto" else "plain", f"the processor has no {INSTRUCTIONS['avx2']}")
    return Backend(here[0], f"the processor has {INSTRUCTIONS[here[0]]}")


def use(name: Name) -> None:
    """Compute with this backend in this process from now on: objects made before keep theirs.

    Raises:
        BadInput: a form that cannot be had.
    """
    _Process.name = choose(name).name


def in_use() -> Name:
    """The backend of this process."""
    return _Process.name


def form_in_use() -> Form | None:
    """The form of the kernels that this process computes with; None if it computes with GMP and libsodium."""
    return None if _Process.name == "gmpy2" else _Process.name
