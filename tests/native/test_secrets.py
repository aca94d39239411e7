"""No branch and no address of the kernels for blinded ids depends on a scalar or on an id, in the compiled code."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.forms import HERE
from treetap.native import library

pytestmark = [pytest.mark.second_tier, pytest.mark.skipif(not HERE, reason="the kernels were not compiled")]
NATIVE = Path(__file__).parents[2] / "treetap" / "native"
#: Valgrind knows no AVX-512.
WATCHED = [form for form in HERE if form in ("avx2", "plain")]


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.parametrize("form", WATCHED)
def test_memcheck_finds_no_branch_on_a_secret(form: str, tmp_path: Path) -> None:
    """Compiled as by an install; where a branch is added that depends on a result, it is reported."""
    driver = tmp_path / "driver"
    sources = [Path(__file__).with_name("drive_secrets.c"), NATIVE / "curve.c", NATIVE / "sha512.c"]
    flags = ["-O3", "-ffp-contract=off", "-Wno-psabi", f"-D{form.upper()}"]
    subprocess.run(["cc", *flags, "-o", driver, *sources, "-lm"], check=True)
    watched = ["valgrind", "--quiet", "--error-exitcode=9", driver]
    clean = subprocess.run(watched, capture_output=True, text=True, check=False)
    said = [line for line in clean.stderr.splitlines() if "depends on" in line or "Use of" in line]
    assert not said, clean.stderr
    assert clean.stderr.count("Uninitialised byte") == 3  # the results depend on the secrets, as memcheck sees them
    assert subprocess.run([*watched, "branch"], capture_output=True, check=False).returncode == 9


@pytest.mark.skipif(
    shutil.which("objdump") is None or platform.machine() != "x86_64", reason="no objdump, or another machine's code"
)
def test_the_compiled_ladders_have_one_branch_each() -> None:
    """That of the loop over the scalar's bits; and they call nothing."""
    said = subprocess.run(["objdump", "-d", library.PATH], capture_output=True, text=True, check=True).stdout
    ladders = [part for part in said.split("\n\n") if re.match(r"[0-9a-f]+ <ladder[.>]", part)]
    assert len(ladders) == len(library.FORMS)
    for code in ladders:
        assert len(code.splitlines()) > 800
        assert len(re.findall(r"\tj[a-z]+ ", code)) == 1
        assert not re.search(r"\tcall|\tcmov", code)
