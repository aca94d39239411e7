"""The compiled kernels, loaded once per process."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

#: Where the build puts the kernels, beside this file.
PATH = Path(__file__).with_name("kernels.so")


class Unavailable(Exception):
    """No kernels for this processor; the text says why."""


@cache
def load() -> ctypes.CDLL:
    """The kernels, on a processor that can run them.

    Raises:
        Unavailable: they were not compiled, do not load, or the processor lacks AVX-512 IFMA.
    """
    if not PATH.exists():
        raise Unavailable("the native kernels were not compiled when treetap was installed")
    try:
        library = ctypes.CDLL(str(PATH))
    except OSError as error:
        raise Unavailable(f"the native kernels do not load: {error}") from error
    if not library.treetap_has_ifma():
        raise Unavailable("the processor has no AVX-512 IFMA")
    return library
