"""Kernels for tests: those that were installed, or, on a processor that cannot run them, the same C with its
instructions emulated (`tests/native/emulated`).
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from treetap.native import library

ROOT = Path(__file__).parents[2]
EMULATED = ROOT / "tests" / "native" / "emulated"
#: Compiled once for all workers of a run, and for the next one.
BUILT = ROOT / "build" / "emulated-kernels"


def has_ifma() -> bool:
    """True if this processor runs the kernels as they are."""
    return "avx512ifma" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split()


@contextmanager
def kernels() -> Iterator[None]:
    """This process has the kernels, whatever its processor; skips where there is neither IFMA nor a C compiler."""
    try:
        library.load()
    except library.Unavailable as error:
        if shutil.which("cc") is None:
            pytest.skip(f"no kernels ({error}), and no C compiler for emulated ones")
    else:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "PATH", compiled())
        library.load.cache_clear()
        try:
            yield
        finally:
            library.load.cache_clear()


def compiled() -> Path:
    """The emulated kernels' library, compiled unless its sources have been already."""
    sources = [path for path in (ROOT / "treetap" / "native").glob("*.c") if path.name != "processor.c"]
    sources = sorted([*sources, EMULATED / "processor.c"])
    headers = [EMULATED / "immintrin.h", *sorted((ROOT / "treetap" / "native").glob("*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, *headers])).hexdigest()
    made = BUILT / f"{digest[:16]}.so"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            for older in BUILT.glob("*.so"):
                older.unlink()
            draft = made.with_suffix(".draft")
            command = ["cc", "-O1", "-fPIC", "-shared", "-I", EMULATED, "-o", draft, *sources]
            subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True, timeout=120)
            draft.rename(made)
    return made
