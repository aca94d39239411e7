"""Builds of the kernels without a compiler, with gcc, clang or ziglang, and with faults; none stops an install."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.test_histograms import everything
from treetap.additive.paillier.public_key import residues
from treetap.native import arithmetic, library
from treetap.native.histograms import Histograms
from treetap.psi.lists import group

ROOT = Path(__file__).parents[2]
FORMS = ("ifma", "avx512", "avx2", "plain")
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")


@pytest.fixture
def kernels(monkeypatch):
    """The module of the build, as a build frontend imports it: no package of treetap."""
    monkeypatch.delenv("TREETAP_NATIVE", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CFLAGS", raising=False)
    spec = importlib.util.spec_from_file_location("kernels", ROOT / "tools" / "build_backend" / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def native(tmp_path):
    """A folder with two small C files of the kernels, of which one has forms."""
    folder = tmp_path / "native"
    folder.mkdir()
    shutil.copy(ROOT / "treetap" / "native" / "processor.c", folder)
    forms = (f"#ifdef {form.upper()}\nint form_{form}(void) {{ return 1; }}\n#endif\n" for form in FORMS)
    (folder / "numbers.c").write_text("".join(forms))
    return folder


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without a compiler, on which ziglang is not installed either."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine that has just the compilers that are named, each of which is this machine's by another name."""
    folder, compiler, path = tmp_path / "bin", shutil.which("cc"), os.environ["PATH"]
    folder.mkdir()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(folder))

    def having(*names, also=""):
        for name in names:
            version = f'[ "$1" = --version ] && echo "{name} 1.2" && exit'
            (folder / name).write_text(f'#!/bin/sh\n{version}\nPATH={path} exec {compiler} {also} "$@"\n')
            (folder / name).chmod(0o755)

    return having


def record(native: Path):
    return json.loads((native / "kernels.json").read_text())


@pytest.mark.parametrize("driver", sorted((ROOT / "tests" / "native").glob("drive_*.c")), ids=lambda path: path.stem)
def test_drivers_of_the_sanitisers_compile(driver):
    """A driver calls a kernel as it declares it: else the sanitisers, which run late, would be the first to say so."""
    flags = ("-fsyntax-only", "-Wall", "-Werror", "-Wno-psabi", "-DPLAIN")
    subprocess.run([shutil.which("cc"), *flags, str(driver)], check=True, timeout=60)


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


@pytest.mark.second_tier(but=2)
@pytest.mark.parametrize(
    ("names", "own", "taken"),
    [
        (("cc",), "", "cc"),
        (("cc", "gcc"), "", "gcc"),
        (("cc", "gcc", "clang"), "", "clang"),
        (("cc", "gcc", "clang"), "gcc", "gcc"),
    ],
    ids=str,
)
def test_the_compiler_that_is_taken(kernels, native, machine, monkeypatch, names, own, taken):
    """Clang before gcc before cc, and $CC before all; all forms are compiled, and the record names it and its flags."""
    machine(*names)
    monkeypatch.setenv("CC", own)
    kernels.build(native)
    assert record(native)["compiler"] == f"{taken} 1.2"
    assert record(native)["flags"] == "-O3 -g0 -fPIC -ffp-contract=off -Wno-psabi"
    assert record(native)["forms"].split() == list(FORMS)
    library = ctypes.CDLL(str(native / "kernels.so"))
    assert [getattr(library, f"form_{form}")() for form in FORMS] == [1, 1, 1, 1]


@pytest.mark.second_tier
def test_a_source_is_compiled_in_its_own_forms(kernels, native):
    """Encrypted histograms have no form for AVX-512 IFMA, which they would not use; a name that is no file is none."""
    (native / "histogram_sums.c").write_text((native / "numbers.c").read_text().replace("form_", "sums_"))
    kernels.build(native)
    library = ctypes.CDLL(str(native / "kernels.so"))
    assert [hasattr(library, f"sums_{form}") for form in FORMS] == [False, True, True, True]
    assert all((ROOT / "treetap" / "native" / name).exists() for name in kernels.FORMED)


@pytest.mark.second_tier
def test_a_build_for_this_processor(kernels, native, monkeypatch):
    """TREETAP_NATIVE=host: its fastest form of each file; all forms serve it too, and it does not serve who asks for
    all, nor a processor whose fastest form is another.
    """
    (native / "histogram_sums.c").write_text((native / "numbers.c").read_text().replace("form_", "sums_"))

    def built(choice, **changed):
        monkeypatch.setenv("TREETAP_NATIVE", choice)
        if changed:
            (native / "kernels.json").write_text(json.dumps(record(native) | changed))
        kernels.build(native)
        made = (native / "kernels.so").read_bytes()  # a path is loaded once in a process
        held = [[form for form in FORMS if f"{name}_{form}\0".encode() in made] for name in ("form", "sums")]
        return (held, record(native)["forms"]), (native / "kernels.so").stat().st_mtime_ns

    able = library.forms()
    for_this, for_all = [built("host"), built("host"), built("host", forms="none")], [*map(built, ("", "host", "1"))]
    fastest = [[able[0]], [next(form for form in able if form != "ifma")]], able[0]
    whole = [list(FORMS), list(FORMS[1:])], " ".join(FORMS)
    assert [made for made, _ in (*for_this, *for_all)] == 3 * [fastest] + 3 * [whole]
    assert [len({when for _, when in some}) for some in (for_this[:2], for_this, for_all)] == [1, 2, 1]


def test_what_does_not_load_makes_nothing_for_this_processor(kernels, native, monkeypatch):
    """A compiler for another machine: it cannot be asked which form to make."""
    monkeypatch.setenv("CC", "cc -c")
    monkeypatch.setenv("TREETAP_NATIVE", "host")
    kernels.build(native)
    assert "cc makes code for another machine than this" in record(native)["why"]


def test_the_kernels_that_the_tests_go_through_have_all_forms():
    """`make test` compiles again what `make demo` compiled for one processor."""
    assert json.loads(library.RECORD.read_text()).get("choice") != "host"


def test_ziglang_where_there_is_nothing_else(kernels, native, machine, monkeypatch, tmp_path):
    """As a package of the Python that builds, for the oldest processor of its kind and not for the one at hand."""
    machine("zig")
    package = tmp_path / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(
        "import os, sys\n"
        "assert sys.argv[1] == 'cc'\n"
        f"os.execv({str(tmp_path / 'bin' / 'zig')!r}, ['zig', *(w for w in sys.argv[2:] if w != '-mcpu=baseline')])\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name == "ziglang")
    assert kernels.compiler() == [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"]
    kernels.build(native)
    assert record(native)["compiler"] == "ziglang: zig 1.2"
    assert ctypes.CDLL(str(native / "kernels.so")).form_plain() == 1
    machine("cc")
    assert kernels.compiler() == [str(tmp_path / "bin" / "cc")]


@pytest.mark.campaign
@pytest.mark.usefixtures("same_arithmetic_after")
@pytest.mark.parametrize("name", ["gcc", "clang", "ziglang"])
def test_the_kernels_by_each_compiler(kernels, monkeypatch, tmp_path, name):
    """Each form that the processor has computes as gmpy2 and libsodium do, whichever compiler made it, and encrypted
    histograms have the words of the compiler that built the installed kernels.
    """
    commands = {"gcc": "gcc", "clang": "clang", "ziglang": f"{sys.executable} -m ziglang cc -mcpu=baseline"}
    if not (importlib.util.find_spec(name) if name == "ziglang" else shutil.which(name)):
        pytest.skip(f"{name} is not installed")
    made = tmp_path / "made"
    shutil.copytree(ROOT / "treetap" / "native", made, ignore=shutil.ignore_patterns("kernels.*", "__pycache__"))
    installed = everything(Histograms("plain"))
    monkeypatch.setenv("CC", commands[name])
    kernels.build(made)
    assert record(made)["forms"].split() == list(FORMS), record(made)
    monkeypatch.setattr(library, "PATH", made / "kernels.so")
    library.forms.cache_clear()
    try:
        results = [computed(form) for form in ("gmpy2", *library.forms())]
        assert all(everything(Histograms(form)) == installed for form in library.forms())
    finally:
        library.forms.cache_clear()
    assert len(results) >= 2
    assert all(result == results[0] for result in results)


def computed(form):
    """Products modulo numbers of three lengths, and points, by one backend."""
    arithmetic.use(form)
    products = []
    for bits in (1366, 2048, 4096):
        ring, values = residues(2**bits - 105), [2**bits - 106, 1, 0, *(3**k % 2**bits for k in range(900, 909))]
        left = ring.batch(values)
        products.append(ring.numbers(ring.multiply(ring.multiply(left, left), ring.batch(values[::-1]))))
    points = group().hash_points(bytes(range(64)) * 9)
    raised = group().raise_points((2**254 + 2**77 + 8).to_bytes(32, "little"), points)
    return products, points, raised, group().leading_valid(points)


def test_a_compiler_for_another_machine(kernels, native, monkeypatch):
    """What it makes code for decides, not the processor that it runs on: elsewhere there is the plain form alone."""
    monkeypatch.setenv("CC", f"{shutil.which('cc')} -U__x86_64__ -ffreestanding")
    kernels.build(native)
    assert record(native)["forms"] == "plain"
    library = ctypes.CDLL(str(native / "kernels.so"))
    assert library.form_plain() == 1
    assert not hasattr(library, "form_avx2")
    assert [getattr(library, f"treetap_has_{form}")() for form in FORMS] == [0, 0, 0, 1]


@pytest.mark.parametrize(("variable", "words"), [("CC", "cc -Ofast"), ("CFLAGS", "-O2 -ffast-math")])
def test_flags_that_make_doubles_inexact_are_refused(kernels, native, monkeypatch, variable, words):
    """By name; nothing is compiled."""
    monkeypatch.setenv(variable, words)
    kernels.build(native)
    assert record(native)["why"].startswith(f"{words.split()[1]} was set, with which products of doubles are not exact")
    assert not (native / "kernels.so").exists()
    assert not {*kernels.FLAGS} & {*kernels.INEXACT}


def test_a_compiler_that_is_inexact_by_itself_is_refused(kernels, native, machine):
    """A wrapper, or a file with the compiler's defaults, sets the flag: the compiler's own macro tells."""
    machine("cc", also="-ffast-math")
    kernels.build(native)
    assert record(native)["why"].endswith("cc computes with -ffast-math, with which products of doubles are not exact")


@pytest.mark.skipif("fma" not in Path("/proc/cpuinfo").read_text().split(), reason="the processor has no FMA")
def test_products_and_sums_are_not_contracted(kernels, native, monkeypatch):
    """To fused multiply-adds, of which the kernels name each; $CFLAGS are passed on, and these flags win."""
    monkeypatch.setenv("CFLAGS", "-ffp-contract=fast -DNAME=treetap_sum")
    (native / "sum.c").write_text(
        '__attribute__((target("fma"))) double NAME(double a, double b, double c) { return a * b + c; }\n'
    )
    kernels.build(native)
    add = ctypes.CDLL(str(native / "kernels.so")).treetap_sum
    add.restype, add.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    assert add(1 + 2.0**-30, 1 - 2.0**-30, -1.0) == 0.0  # -2^-60 where the product is not rounded
    assert record(native)["flags"].startswith("-ffp-contract=fast -DNAME=treetap_sum -O3")


@pytest.mark.second_tier
def test_other_flags_compile_again(kernels, native, monkeypatch):
    """As another source does; so does another $CC or $CFLAGS."""
    kernels.build(native)
    before = record(native)["sources"]
    monkeypatch.setattr(kernels, "FLAGS", [*kernels.FLAGS, "-DNEW"])
    kernels.build(native)
    assert record(native)["sources"] != before
    monkeypatch.setenv("CFLAGS", "-DOWN")
    kernels.build(native)
    assert record(native)["flags"].startswith("-DOWN")
    before = record(native)["sources"]
    monkeypatch.setenv("CC", "cc -DMORE")
    kernels.build(native)
    assert record(native)["sources"] != before


@pytest.mark.second_tier
def test_a_library_of_another_machine_is_compiled_again(kernels, native):
    """A folder that was copied with it holds the same sources, and an install again is what its error asks for."""
    kernels.build(native)
    (native / "kernels.so").unlink()
    (native / "kernels.so").write_bytes(b"made for another machine")
    kernels.build(native)
    assert ctypes.CDLL(str(native / "kernels.so")).form_plain() == 1


def test_a_target_with_the_highest_byte_first_is_refused(kernels, native, machine):
    """The kernels copy words from and to bytes."""
    machine("cc", also="-U__BYTE_ORDER__ -D__BYTE_ORDER__=__ORDER_BIG_ENDIAN__")
    kernels.build(native)
    assert "big-endian" in record(native)["why"]
    assert not (native / "kernels.so").exists()


def test_a_build_without_a_compiler(kernels, native, bare, capsys):
    """Nothing is compiled, an older library is gone, and the reason is recorded and printed."""
    (native / "kernels.so").touch()
    kernels.build(native)
    assert not (native / "kernels.so").exists()
    assert record(native)["why"].startswith("there was no C compiler")
    assert "no C compiler" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "pays"),
    [("fpu sse2 avx2", False), ("fpu fma avx2", True), ("fma avx2 avx512f avx512ifma", True), ("", False)],
)
def test_a_compiler_is_fetched_only_where_it_pays(kernels, native, bare, monkeypatch, tmp_path, flags, pays):
    """TREETAP_NATIVE decides, else the processor does: its kernels have to be faster than GMP."""
    (tmp_path / "cpuinfo").write_text(f"model name\t: One with avx-512\nflags\t\t: {flags}\n")
    monkeypatch.setattr(kernels, "CPUINFO", tmp_path / "cpuinfo")
    assert kernels.requirements(native) == (["ziglang"] if pays else [])
    for value, packages in (("1", ["ziglang"]), ("0", [])):
        monkeypatch.setenv("TREETAP_NATIVE", value)
        assert kernels.requirements(native) == packages


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
    """TREETAP_NATIVE=0 compiles nothing, with a compiler at hand; a word that it has not is an error."""
    monkeypatch.setenv("TREETAP_NATIVE", "0")
    kernels.build(native)
    assert not (native / "kernels.so").exists()
    assert record(native)["why"] == "TREETAP_NATIVE=0 was set"
    monkeypatch.setenv("TREETAP_NATIVE", "yes")
    for call in (kernels.build, kernels.requirements):
        with pytest.raises(SystemExit, match="TREETAP_NATIVE=yes: must be 0, 1 or host, or not be set"):
            call(native)
