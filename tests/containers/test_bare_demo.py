"""Sentences that `make demo` on plain Debian has to print, by processor and TREETAP_NATIVE; it runs in `.ci/run`."""

from __future__ import annotations

import io
import tarfile

import pytest

from tests.containers.bare_demo import AS_IT_IS, expected, faults, sources


@pytest.mark.parametrize(
    ("native", "auto", "backend", "built"),
    [
        (AS_IT_IS, "ifma", "ifma", "compiled by ziglang"),
        (AS_IT_IS, "avx2", "avx2", "compiled by ziglang"),
        (AS_IT_IS, "gmpy2", "gmpy2", "not compiled when treetap was installed: there was no C compiler"),
        ("1", "avx512", "avx512", "compiled by ziglang"),
        ("1", "gmpy2", "gmpy2", "compiled by ziglang"),
        ("0", "ifma", "gmpy2", "TREETAP_NATIVE=0"),
    ],
)
def test_what_a_bare_machine_has_to_say(native: str, auto: str, backend: str, built: str) -> None:
    """The parties' backend in the demo's report, and doctor's sentence about the build; anything else is a fault."""
    assert expected(native, auto)[0] == backend
    parties = f"arithmetic: feature-b {backend}, feature-c {backend}, label-holder {backend}"
    end = "report: runs/demo-boosting.html\nnext: treetap experiment examples/loans/exp.toml"
    demo = f"By its test metrics the model and the joined\ntable's are equal.\n{end}\n{parties}"
    why = "; the processor has no AVX2 and FMA" if backend == "gmpy2" else ""
    doctor = f"arithmetic auto: {backend}, as {expected(native, auto)[1]}{why}"
    assert built in doctor
    assert faults(f"{demo}\nDOCTOR\n{doctor}", native, auto) == []
    other = "avx2" if backend == "gmpy2" else "gmpy2"
    assert faults(f"{demo.replace(backend, other)}\nDOCTOR\n{doctor}", native, auto) == [f"not said: {parties}"]
    assert len(faults(demo, native, auto)) >= 2


def test_the_sources_are_those_that_git_knows() -> None:
    """An archive with the build's files, without this machine's kernels."""
    with tarfile.open(fileobj=io.BytesIO(sources())) as archive:
        names = archive.getnames()
    assert {"Makefile", "tools/build_backend/kernels.py", "treetap/native/numbers.c"} <= set(names)
    assert not [name for name in names if name.endswith(".so") or name.startswith(".venv")]
