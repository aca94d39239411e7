"""Compile the C files of `treetap/native` into `kernels.so`, or record beside it why nothing was compiled.

    python build_backend/kernels.py             compile, if the sources have changed since
    python build_backend/kernels.py requires    print the package with a compiler that is needed, or nothing

`TREETAP_NATIVE=0` compiles nothing. Without a compiler on the machine, `ziglang` (clang) is asked for where the
processor has AVX-512 IFMA, or where `TREETAP_NATIVE=1` says that such a processor will run the result.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NATIVE = Path(__file__).resolve().parent.parent / "treetap" / "native"
#: The functions name their own targets, so that the library loads on every x86-64.
FLAGS = ["-O3", "-fPIC", "-ffp-contract=off", "-Wno-psabi"]
#: Files that are compiled once for each form of lanes.h, by -D; the others once.
FORMED = ("curve.c", "numbers.c")
FORMS = ("IFMA", "AVX512", "AVX2", "PLAIN")
ZIG = "ziglang"


def wanted() -> bool:
    """True if kernels are worth a compiler that has to be fetched."""
    if (choice := os.environ.get("TREETAP_NATIVE")) is not None:
        return choice == "1"
    try:
        return "avx512ifma" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()
    except OSError:
        return False


def compiler() -> list[str] | None:
    """The command of a C compiler: `$CC`, cc, gcc, clang, then ziglang's; None without any."""
    if own := shlex.split(os.environ.get("CC", "")):
        return own
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec(ZIG):
        return [sys.executable, "-m", ZIG, "cc", "-mcpu=baseline"]  # its default is the processor at hand
    return None


def requirements(native: Path = NATIVE) -> list[str]:
    """Packages that compiling needs here: none, or the one with a compiler."""
    if os.environ.get("TREETAP_NATIVE") == "0" or _current(native) or compiler() or not wanted():
        return []
    return [ZIG]


def build(native: Path = NATIVE) -> None:
    """Compile if the sources have changed; a failure is recorded and printed, and raises nothing."""
    if os.environ.get("TREETAP_NATIVE") == "0":
        _record_failure(native, "TREETAP_NATIVE=0 was set")
    elif not _current(native):
        command = compiler()
        if command is None:
            _record_failure(native, "there was no C compiler ($CC, cc, gcc, clang); TREETAP_NATIVE=1 fetches one")
        else:
            _compile(native, command)


def _compile(native: Path, command: list[str]) -> None:
    with tempfile.TemporaryDirectory(dir=native) as folder:
        made = Path(folder, "kernels.so")
        cache = {"ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        try:
            objects = []
            for place, (source, options) in enumerate(_units(native)):
                objects.append(str(Path(folder, f"{place}.o")))
                _run([*command, *FLAGS, *options, "-c", "-o", objects[-1], str(source)], cache)
            _run([*command, "-shared", "-o", str(made), *objects, "-lm"], cache)
            said = _run([*command, "--version"], cache)
        except OSError as error:
            _record_failure(native, f"{shlex.join(command)} could not be run: {error.strerror}")
        except subprocess.CalledProcessError as error:
            lines = [line for line in error.stderr.splitlines() if "error" in line] or error.stderr.splitlines()
            _record_failure(native, f"{shlex.join(command)} failed: {lines[0] if lines else error.returncode}")
        else:
            made.replace(native / "kernels.so")
            name = (said.splitlines() or [shlex.join(command)])[0]
            _record(native, {"compiler": f"{ZIG}: {name}" if ZIG in command else name, "sources": _digest(native)})


def _run(command: list[str], extra: dict[str, str]) -> str:
    """The standard output of a command that succeeds, with more variables in its environment."""
    done = subprocess.run(command, env=os.environ | extra, check=True, capture_output=True, text=True)  # noqa: S603
    return done.stdout


def _sources(native: Path) -> list[Path]:
    return sorted(native.glob("*.c"))


def _units(native: Path) -> list[tuple[Path, list[str]]]:
    """Each source with the options of one compilation."""
    return [
        (source, options)
        for source in _sources(native)
        for options in ([[f"-D{form}"] for form in FORMS] if source.name in FORMED else [[]])
    ]


def _digest(native: Path) -> str:
    """Of the sources' contents, headers included: times of files change when they are copied."""
    read = [*_sources(native), *sorted(native.glob("*.h"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()


def _current(native: Path) -> bool:
    try:
        record = json.loads((native / "kernels.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return (native / "kernels.so").exists() and record.get("sources") == _digest(native)


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
