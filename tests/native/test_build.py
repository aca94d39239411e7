"""Builds of the kernels with a compiler, without one, and with one that fails; none of them stops an install."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")


@pytest.fixture
def kernels(monkeypatch):
    """The module of the build, as a build frontend imports it: no package of treetap."""
    monkeypatch.delenv("TREETAP_NATIVE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    spec = importlib.util.spec_from_file_location("kernels", ROOT / "build_backend" / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def native(tmp_path):
    """A folder with one small C file of the kernels."""
    shutil.copy(ROOT / "treetap" / "native" / "processor.c", tmp_path)
    return tmp_path


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without a compiler, on which ziglang is not installed either."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def record(native: Path):
    return json.loads((native / "kernels.json").read_text())


def test_a_build_with_a_compiler(kernels, native):
    """The library loads, the compiler is recorded, and it is compiled again only when a source changes."""
    kernels.build(native)
    assert ctypes.CDLL(str(native / "kernels.so")).treetap_has_ifma() in (0, 1)
    assert record(native)["compiler"]
    before = (native / "kernels.so").stat().st_ino
    kernels.build(native)
    assert (native / "kernels.so").stat().st_ino == before
    with (native / "processor.c").open("a") as source:
        source.write("int treetap_new(void) { return 3; }\n")
    kernels.build(native)
    again = shutil.copy(native / "kernels.so", native / "again.so")  # a path is loaded once per process
    assert ctypes.CDLL(str(again)).treetap_new() == 3
    before = record(native)
    (native / "more.h").write_text("/* a header */\n")
    kernels.build(native)
    assert record(native) != before


def test_a_build_without_a_compiler(kernels, native, bare, capsys):
    """Nothing is compiled, an older library is gone, and the reason is recorded and printed."""
    (native / "kernels.so").touch()
    kernels.build(native)
    assert not (native / "kernels.so").exists()
    assert record(native)["why"].startswith("there was no C compiler")
    assert "no C compiler" in capsys.readouterr().err


def test_a_compiler_is_fetched_only_where_it_is_wanted(kernels, native, bare, monkeypatch):
    """TREETAP_NATIVE decides, else the processor does."""
    for value, packages in (("1", ["ziglang"]), ("0", [])):
        monkeypatch.setenv("TREETAP_NATIVE", value)
        assert kernels.requirements(native) == packages
    monkeypatch.delenv("TREETAP_NATIVE")
    has_ifma = "avx512ifma" in Path("/proc/cpuinfo").read_text().split()
    assert kernels.requirements(native) == (["ziglang"] if has_ifma else [])


def test_no_compiler_is_fetched_beside_one(kernels, native, monkeypatch):
    """Whatever is wanted."""
    monkeypatch.setenv("TREETAP_NATIVE", "1")
    assert kernels.requirements(native) == []


def test_a_compiler_that_fails(kernels, native, monkeypatch):
    """Its first error is recorded; so is a command that does not exist."""
    (native / "processor.c").write_text("#error no such machine\n")
    kernels.build(native)
    assert "no such machine" in record(native)["why"]
    monkeypatch.setenv("CC", "no-such-compiler")
    kernels.build(native)
    assert record(native)["why"].startswith("no-such-compiler could not be run")


def test_a_build_that_is_not_wanted(kernels, native, monkeypatch):
    """TREETAP_NATIVE=0 compiles nothing, with a compiler at hand."""
    monkeypatch.setenv("TREETAP_NATIVE", "0")
    kernels.build(native)
    assert not (native / "kernels.so").exists()
    assert record(native)["why"] == "TREETAP_NATIVE=0 was set"


def test_a_header_that_changes_is_compiled_again(kernels, native):
    """As a source is."""
    (native / "header.h").write_text("#define VALUE 3\n")
    with (native / "processor.c").open("a") as source:
        source.write('#include "header.h"\nint treetap_value(void);\nint treetap_value(void) { return VALUE; }\n')
    kernels.build(native)
    before = record(native)["sources"]
    (native / "header.h").write_text("#define VALUE 4\n")
    kernels.build(native)
    assert record(native)["sources"] != before
    assert ctypes.CDLL(str(native / "kernels.so")).treetap_value() == 4
