"""Compile the C files of `treetap/native` into `kernels.so`, or record beside it why nothing was compiled.

    python tools/build_backend/kernels.py             compile, if the sources or the commands have changed since
    python tools/build_backend/kernels.py requires    print the package with a compiler that is needed, or nothing

`$CC` compiles, else clang, which makes faster kernels than gcc, else gcc or cc; `$CFLAGS` are passed on.
`TREETAP_NATIVE=0` compiles nothing, `TREETAP_NATIVE=host` of each file the fastest form that this processor runs: a
third of the work, for processors that have no faster form. Without a compiler on the machine, `ziglang` (clang) is
asked for where the processor has AVX2 and FMA, hence kernels that are faster than GMP, or where `TREETAP_NATIVE=1` says
that such a processor will run the result.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NATIVE = Path(__file__).resolve().parents[2] / "treetap" / "native"
#: The functions name their own targets, so that the library loads on every processor of its machine's kind.
FLAGS = ["-O3", "-g0", "-fPIC", "-ffp-contract=off", "-Wno-psabi"]
#: Kernels split products of doubles exactly: a compiler that may reorder sums makes other numbers of them.
INEXACT = (
    "-ffast-math",
    "-Ofast",
    "-funsafe-math-optimizations",
    "-fassociative-math",
    "-freciprocal-math",
    "-ffp-model=fast",
    "-ffp-model=aggressive",
)
FORMS = ("IFMA", "AVX512", "AVX2", "PLAIN")
#: Files that are compiled once for each of their forms of lanes.h, by -D; the others once.
FORMED = {
    "curve.c": FORMS,
    "histogram_sums.c": FORMS[1:],
    "histogram_words.c": FORMS[1:],
    "numbers.c": FORMS,
}
ZIG = "ziglang"
#: Values of TREETAP_NATIVE; empty is as not set.
CHOICES = ("", "0", "1", HOST := "host")
CPUINFO = Path("/proc/cpuinfo")


class Refused(Exception):
    """A compiler that is not used; the text says why."""


def chosen() -> str:
    """TREETAP_NATIVE, one of `CHOICES`. Raises SystemExit for another value."""
    choice = os.environ.get("TREETAP_NATIVE", "")
    if choice not in CHOICES:
        sys.exit(f"TREETAP_NATIVE={choice}: must be {', '.join(CHOICES[1:-1])} or {HOST}, or not be set")
    return choice


def wanted() -> bool:
    """True if kernels are worth a compiler that has to be fetched."""
    if (choice := chosen()) in ("0", "1"):
        return choice == "1"
    try:
        return {"avx2", "fma"} <= set(CPUINFO.read_text(encoding="ascii", errors="replace").split())
    except OSError:
        return False


def compiler() -> list[str] | None:
    """The command of a C compiler: `$CC`, clang, gcc, cc, then ziglang's; None without any."""
    if own := shlex.split(os.environ.get("CC", "")):
        return own
    for name in ("clang", "gcc", "cc"):
        if path := shutil.which(name):
            return [path]
    if importlib.util.find_spec(ZIG):
        return [sys.executable, "-m", ZIG, "cc", "-mcpu=baseline"]  # its default is the processor at hand
    return None


def requirements(native: Path = NATIVE) -> list[str]:
    """Packages that compiling needs here: none, or the one with a compiler."""
    if chosen() == "0" or _current(native) or compiler() or not wanted():
        return []
    return [ZIG]


def build(native: Path = NATIVE) -> None:
    """Compile if anything has changed; a failure is recorded and printed, and raises nothing."""
    if chosen() == "0":
        _record_failure(native, "TREETAP_NATIVE=0 was set")
    elif not _current(native):
        command = compiler()
        if command is None:
            _record_failure(native, "there was no C compiler ($CC, clang, gcc, cc); TREETAP_NATIVE=1 fetches one")
        else:
            _compile(native, command)


def _compile(native: Path, command: list[str]) -> None:
    own = shlex.split(os.environ.get("CFLAGS", ""))
    with tempfile.TemporaryDirectory(dir=native) as folder:
        made, compiling = Path(folder, "kernels.so"), [*command, *own, *FLAGS]
        cache = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        try:
            forms, most = _forms(compiling, cache), len(FORMS)
            if chosen() == HOST:
                forms, most = _from_fastest(forms, compiling, native, folder, cache), 1
            units = [
                [*options, "-c", "-o", str(Path(folder, f"{place}.o")), str(source)]
                for place, (source, options) in enumerate(_units(native, forms, most))
            ]
            with ThreadPoolExecutor(os.cpu_count()) as several:  # those that take longest are the last by name
                list(several.map(lambda unit: _run([*compiling, *unit], cache), reversed(units)))
            _run([*compiling, "-shared", "-o", str(made), *(unit[-2] for unit in units), "-lm"], cache)
            said = _run([*command, "--version"], cache)
        except Refused as why:
            _record_failure(native, str(why))
        except OSError as error:
            _record_failure(native, f"{shlex.join(command)} could not be run: {error.strerror}")
        except subprocess.CalledProcessError as error:
            lines = [line for line in error.stderr.splitlines() if "error" in line] or error.stderr.splitlines()
            _record_failure(native, f"{shlex.join(command)} failed: {lines[0] if lines else error.returncode}")
        else:
            made.replace(native / "kernels.so")
            name = (said.splitlines() or [shlex.join(command)])[0]
            record = {
                "compiler": f"{ZIG}: {name}" if ZIG in command else name,
                "flags": shlex.join([*own, *FLAGS]),
                "forms": " ".join(forms[:most]).lower(),
                "sources": _digest(native),
                "choice": chosen(),
            }
            _record(native, record)


def _forms(compiling: list[str], cache: dict[str, str]) -> tuple[str, ...]:
    """The forms that the compiler's target can have: asked of itself, as it may make code for another machine.

    Raises:
        Refused: it is told to compute with doubles inexactly, or its target has the highest byte of a word first.
    """
    if told := [word for word in compiling if word in INEXACT]:
        raise Refused(
            f"{told[0]} was set, with which products of doubles are not exact: leave it out of $CC and $CFLAGS"
        )
    said = _run([*compiling, "-dM", "-E", "-x", "c", os.devnull], cache)
    macros = said.split()
    if "__FAST_MATH__" in macros:
        raise Refused(f"{compiling[0]} computes with -ffast-math, with which products of doubles are not exact")
    if "#define __BYTE_ORDER__ __ORDER_BIG_ENDIAN__" in said.splitlines():
        raise Refused(f"{compiling[0]} makes code for a big-endian machine, for which the kernels are not written")
    return FORMS if "__x86_64__" in macros else ("PLAIN",)


def _from_fastest(
    forms: tuple[str, ...], compiling: list[str], native: Path, folder: str, cache: dict[str, str]
) -> tuple[str, ...]:
    """The forms from the fastest on that this processor runs; a small library is made to ask it.

    Raises:
        Refused: what the compiler makes does not load here.
    """
    asking = Path(folder, "processor.so")
    _run([*compiling, "-shared", "-o", str(asking), str(native / "processor.c")], cache)
    try:
        return forms[forms.index(_fastest(asking)) :]
    except OSError:
        raise Refused(
            f"TREETAP_NATIVE={HOST} was set, and {compiling[0]} makes code for another machine than this"
        ) from None


def _run(command: list[str], extra: dict[str, str]) -> str:
    """The standard output of a command that succeeds, with more variables in its environment."""
    done = subprocess.run(command, env=os.environ | extra, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout


def _sources(native: Path) -> list[Path]:
    return sorted(native.glob("*.c"))


def _units(native: Path, forms: tuple[str, ...], most: int) -> list[tuple[Path, list[str]]]:
    """Each source with the options of one compilation, in its `most` fastest of the forms."""
    units: list[tuple[Path, list[str]]] = []
    for source in _sources(native):
        own = [form for form in forms if form in FORMED[source.name]][:most] if source.name in FORMED else None
        units += [(source, [])] if own is None else [(source, [f"-D{form}"]) for form in own]
    return units


def _digest(native: Path) -> str:
    """Of the sources' contents, headers included, and of the commands: times of files change when they are copied."""
    read = [*_sources(native), *sorted(native.glob("*.h"))]
    told = FLAGS + [f"{name}={os.environ[name]}" for name in ("CC", "CFLAGS") if os.environ.get(name)]
    return hashlib.sha256(b"".join([*(path.read_bytes() for path in read), shlex.join(told).encode()])).hexdigest()


def _current(native: Path) -> bool:
    """True if the kernels are those of the sources, and in the forms that are asked for or in all."""
    try:
        record = json.loads((native / "kernels.json").read_text(encoding="utf-8"))
        if record.get("sources") != _digest(native):
            return False
        fastest = _fastest(native / "kernels.so").lower()
    except (OSError, ValueError):
        return False
    return record.get("choice") != HOST or (chosen() == HOST and record["forms"] == fastest)


def _fastest(library: Path) -> str:
    """The fastest form that this processor runs, asked of a library with processor.c.

    Raises:
        OSError: it is missing or, in a folder that was copied or by a compiler for another machine, of another kind.
    """
    loaded = ctypes.CDLL(str(library))
    return next(form for form in FORMS if getattr(loaded, f"treetap_has_{form.lower()}")())


def _record_failure(native: Path, why: str) -> None:
    (native / "kernels.so").unlink(missing_ok=True)
    _record(native, {"why": why})
    print(f"treetap's native kernels are not compiled: {why}", file=sys.stderr)


def _record(native: Path, record: dict[str, str]) -> None:
    (native / "kernels.json").write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] == ["requires"]:
        print(*requirements())
    else:
        build()
