"""Sentences that `make demo` on plain Debian has to print, by processor and TREETAP_NATIVE; it runs in `.ci/run`."""

from __future__ import annotations

import io
import tarfile

import pytest

from tests.containers.bare_demo import AS_IT_IS, expected, faults, sources


@pytest.mark.parametrize(
    ("native", "has_ifma", "backend", "built"),
    [
        (AS_IT_IS, True, "ifma", "compiled by ziglang"),
        (AS_IT_IS, False, "gmpy2", "not compiled when treetap was installed: there was no C compiler"),
        ("1", True, "ifma", "compiled by ziglang"),
        ("1", False, "gmpy2", "compiled by ziglang"),
        ("0", True, "gmpy2", "TREETAP_NATIVE=0"),
    ],
)
def test_what_a_bare_machine_has_to_say(native: str, has_ifma: bool, backend: str, built: str) -> None:
    """The parties' backend in the demo's report, and doctor's sentence about the build; anything else is a fault."""
    assert expected(native, has_ifma=has_ifma)[0] == backend
    parties = f"arithmetic: feature-b {backend}, feature-c {backend}, label-holder {backend}"
    demo = f"The federation's test metrics and the centralised\nmodel's are equal.\n{parties}"
    why = "; the processor has no AVX-512 IFMA" if backend == "gmpy2" else ""
    doctor = f"arithmetic auto: {backend}, as {expected(native, has_ifma=has_ifma)[1]}{why}"
    assert built in doctor
    assert faults(f"{demo}\nDOCTOR\n{doctor}", native, has_ifma=has_ifma) == []
    other = "ifma" if backend == "gmpy2" else "gmpy2"
    assert faults(f"{demo.replace(backend, other)}\nDOCTOR\n{doctor}", native, has_ifma=has_ifma) == [
        f"not said: {parties}"
    ]
    assert len(faults(demo, native, has_ifma=has_ifma)) >= 2


def test_the_sources_are_those_that_git_knows() -> None:
    """An archive with the build's files, without this machine's kernels."""
    with tarfile.open(fileobj=io.BytesIO(sources())) as archive:
        names = archive.getnames()
    assert {"Makefile", "build_backend/kernels.py", "treetap/native/numbers.c"} <= set(names)
    assert not [name for name in names if name.endswith(".so") or name.startswith(".venv")]
