"""Forms of the kernels that this processor has: tests go through all of them."""

from __future__ import annotations

from treetap.native import library


def _here() -> tuple[library.Form, ...]:
    try:
        return library.forms()
    except library.Unavailable:
        return ()


#: The fastest first; `plain` is among them, and there are none where nothing was compiled.
HERE = _here()
