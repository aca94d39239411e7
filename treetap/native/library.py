"""The compiled kernels, loaded once per process."""

from __future__ import annotations

import ctypes
import json
import platform
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

#: Where the build puts the kernels, beside this file.
PATH = Path(__file__).with_name("kernels.so")
#: The build's record, beside this file: `compiler`, or `why` nothing was compiled.
RECORD = Path(__file__).with_name("kernels.json")


#: Forms of the kernels, each a set of functions with its name at their ends, the fastest first: see lanes.h.
Form = Literal["ifma", "avx512", "avx2", "plain"]
FORMS: tuple[Form, ...] = get_args(Form)
#: What a processor must have for a form.
INSTRUCTIONS: dict[Form, str] = {
    "ifma": "AVX-512 IFMA",
    "avx512": "AVX-512 (F, DQ, BW, VL)",
    "avx2": "AVX2 and FMA",
    "plain": "nothing but a compiler's own code",
}

#: The kernels' interface: raise it, here and in processor.c, when the arguments of one change.
INTERFACE = 8

#: To do where there are none.
REMEDY = "install a C compiler, or set TREETAP_NATIVE=1, and install treetap again"


class Unavailable(Exception):
    """No kernels for this processor; the text says why."""


def in_bounds(holds: bool, says: str) -> None:
    """Raise ValueError if a kernel would read or write beyond what it is given; `python -O` leaves asserts out."""
    if not holds:
        raise ValueError(says)


def argument(value: Any) -> Any:
    """A kernel's argument: an array's address, bytes and null pointers as they are, numbers as size_t."""
    if hasattr(value, "flags"):  # no instance is asked for: a party serves before it imports numpy
        in_bounds(value.flags.c_contiguous, "a kernel takes whole blocks")
        return ctypes.c_void_p(value.ctypes.data)
    return ctypes.c_size_t(value) if isinstance(value, int) else value


def built() -> str:
    """A sentence about how the kernels were compiled when treetap was installed, or why they were not."""
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if PATH.exists():
        how = {"compiler": "an unrecorded compiler", "flags": "with unrecorded flags"} | record
        alone = f", in the form {how['forms']} alone" if how.get("choice") == "host" else ""
        return f"the native kernels were compiled by {how['compiler']} ({how['flags']}){alone}"
    return f"the native kernels were not compiled when treetap was installed: {record.get('why', 'nothing says why')}"


def compiled() -> ctypes.CDLL:
    """The kernels, of which those for polynomials (`lattice.c`) run on every processor.

    Raises:
        Unavailable: they were not compiled, or do not load.
    """
    return _opened(PATH)


def processor() -> str:
    """Name of this machine's processor, with its family where the system says it: some names say little."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    said = {name.strip(): text.strip() for name, _, text in (line.partition(":") for line in lines)}
    name = said.get("model name") or platform.processor() or platform.machine()
    return f"{name}, family {said['cpu family']}" if "cpu family" in said else name


@cache
def forms() -> tuple[Form, ...]:
    """The forms that this processor can run, the fastest first; `plain` is among them.

    A library that was compiled for one kind of processor (`TREETAP_NATIVE=host`) has one form alone: its fastest.

    Raises:
        Unavailable: as `compiled`, or this processor's fastest form was not compiled.
    """
    library = compiled()
    able = [form for form in FORMS if getattr(library, f"treetap_has_{form}")()]
    made = tuple(form for form in able if hasattr(library, f"treetap_hash_points_{form}"))
    if made[:1] != (able[0],):
        raise Unavailable(f"{built()}, and the form of this processor is {able[0]}: install treetap again")
    return made


def lacking(form: Form) -> str:
    """Why a form is not among `forms()`."""
    if getattr(compiled(), f"treetap_has_{form}")():
        return f"{built()}: install treetap again without TREETAP_NATIVE=host"
    return f"the processor has no {INSTRUCTIONS[form]}"


def checked(form: Form) -> Form:
    """The form itself.

    Raises:
        Unavailable: as `forms`, or the form was not compiled, or the processor lacks its instructions.
    """
    if form not in forms():
        raise Unavailable(lacking(form))
    return form


@cache
def _opened(path: Path) -> ctypes.CDLL:
    if not path.exists():
        raise Unavailable(built())
    try:
        library = ctypes.CDLL(str(path))
        interface = library.treetap_interface()
    except (OSError, AttributeError) as error:
        raise Unavailable(f"the native kernels do not load: {error}; install treetap again") from error
    if interface != INTERFACE:
        raise Unavailable("the native kernels were compiled from other sources: install treetap again")
    return library
