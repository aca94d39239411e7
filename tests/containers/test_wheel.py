"""The release: a wheel with kernels for every processor of its kind, which a machine without a compiler installs."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.containers.bare_demo import BASE, auto_with_kernels
from tests.containers.composed import ROOT

# The programs of a release are installed and three archives built before the first test.
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("containers"),
]
#: What a fresh container does with the release that it finds in /release.
STEPS = """
set -e
for each in cc gcc clang; do ! command -v $each || { echo "a compiler: $each"; exit 3; }; done
python -m venv /venv
/venv/bin/pip install --quiet --disable-pip-version-check "$(ls /release/*x86_64.whl)[demo]"
/venv/bin/pip list --format freeze | grep -q ^ziglang && exit 4
cd /tmp && /venv/bin/treetap demo
/venv/bin/treetap doctor
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what `make dist` builds of the commit that is checked out."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    subprocess.run(["make", "build/tools"], cwd=ROOT, check=True, timeout=600)
    subprocess.run(
        ["build/tools/bin/python", "-m", "tools.release.dist", "--to", folder], cwd=ROOT, check=True, timeout=900
    )
    return folder


def kernels(release: Path, machine: str) -> tuple[dict[str, str], bytes]:
    """The record of the kernels in a machine's wheel, and the library."""
    with zipfile.ZipFile(next(release.glob(f"*{machine}.whl"))) as wheel:
        library = wheel.read("treetap/native/kernels.so")
        return json.loads(wheel.read("treetap/native/kernels.json")), library


def test_wheels_hold_the_kernels_of_their_machine(release: Path) -> None:
    """All forms on one kind of machine, the plain one on the other; both compiled by the pinned compiler."""
    forms = {"x86_64": ("ifma avx512 avx2 plain", 62), "aarch64": ("plain", 183)}
    for machine, (expected, elf) in forms.items():
        record, library = kernels(release, machine)
        assert record["forms"] == expected
        assert record["compiler"].startswith("ziglang: clang")
        assert (library[:4], int.from_bytes(library[18:20], "little")) == (b"\x7fELF", elf)
        assert str(ROOT).encode() not in library


def test_sums_and_the_list_of_packages(release: Path) -> None:
    """Every file has its SHA-256; the list names the pinned packages, with the hashes that pip compares."""
    lines = (release / "SHA256SUMS").read_text().splitlines()
    assert {line.split()[1] for line in lines} == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    for digest, name in (line.split() for line in lines):
        assert hashlib.sha256((release / name).read_bytes()).hexdigest() == digest
    listed = json.loads(next(release.glob("*.cdx.json")).read_text())
    assert listed["bomFormat"] == "CycloneDX"
    locked = (ROOT / "tools" / "release" / "locked" / "image.txt").read_text()
    named = {it["name"]: it["version"] for it in listed["components"]}
    assert f"grpcio=={named['grpcio']} " in locked


def test_the_wheel_runs_without_a_compiler(release: Path) -> None:
    """A fresh container installs it by its path, runs the demo with the kernels, and doctor names their compiler."""
    docker = pytest.importorskip("docker", reason="the package `docker` is not installed")
    try:
        docker.from_env().ping()
    except docker.errors.DockerException as failure:
        pytest.skip(f"no Docker engine runs here: {failure}")
    mounted = ["--volume", f"{release}:/release:ro", "--network", "host"]
    command = ["timeout", "--kill-after=20", "900", "docker", "run", "--rm", *mounted, BASE, "bash", "-c", STEPS]
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    said = ended.stdout.decode(errors="replace")
    assert ended.returncode == 0, said
    assert "the native kernels were compiled by ziglang: clang" in " ".join(said.split())
    assert f"auto: {auto_with_kernels()}" in said
