"""What `make` installs, and what it says meanwhile: tools/install.py, and the files that call it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools import install

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
#: As pip 23 and pip 25 say the same: metadata are no package, and a file of the cache is not fetched.
PIP = {
    "23": """Collecting pyarrow>=15 (from treetap==0.1.0)
  Obtaining dependency information for pyarrow>=15 from https://index.invalid/pyarrow.whl.metadata
  Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (3.0 kB)
  Using cached mdurl-0.1.2-py3-none-any.whl (10.0 kB)
  Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl (55.0 MB)
Building wheels for collected packages: treetap
  Building editable for treetap (pyproject.toml): started
Installing collected packages: mdurl, pyarrow, treetap
""",
    "25": """Collecting pyarrow>=15 (from treetap==0.1.0)
  Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl.metadata (3.0 kB)
Using cached mdurl-0.1.2-py3-none-any.whl (10.0 kB)
Downloading pyarrow-26.0.1-cp311-cp311-manylinux_2_28_x86_64.whl (55.0 MB)
Building wheels for collected packages: treetap
  Building editable for treetap (pyproject.toml): started
Installing collected packages: mdurl, pyarrow, treetap
""",
}


@pytest.mark.parametrize("version", PIP)
def test_stages_and_bytes_of_pip(version: str) -> None:
    """What is counted after each of pip's lines."""
    progress, lines = install.Progress(), PIP[version].splitlines()
    said = [str(progress) for _ in progress.after(lines)]
    assert (progress.files, progress.megabytes, progress.taken) == (2, 55.0, pytest.approx(0.01))
    assert said[0] == "  finding and fetching packages: 0 files, 0 MB so far"
    assert "  finding and fetching packages: 2 files, 55 MB so far; now pyarrow, 55.0 MB" in said
    assert [re.sub(r":.*", "", line) for line in said[-2:]] == [
        "  building treetap, with its kernels",
        "  installing 3 packages",
    ]


@pytest.mark.parametrize(("status", "tail"), [(0, "  55 MB fetched"), (3, "Installing collected packages")])
def test_pip_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], status: int, tail: str
) -> None:
    """Well, with megabytes and seconds; or with its last words and its status."""
    pip = tmp_path / "python"
    pip.write_text(f"#!/bin/sh\ncat <<'END'\n{PIP['25']}END\necho \"$@\" >'{tmp_path}/asked'\nexit {status}\n")
    pip.chmod(0o755)
    monkeypatch.setattr(install.sys, "executable", str(pip))
    monkeypatch.setattr(install.sys, "argv", ["install", "demo,test", "--no-compile"])
    assert install.main() == status
    said = capfd.readouterr()
    stages = ["finding and fetching packages", "building treetap, with its kernels", "installing 3 packages"]
    assert re.findall(r"^  (.+) …$", said.out, re.M) == stages
    assert (said.err if status else said.out).splitlines()[-1].startswith(tail)
    assert (tmp_path / "asked").read_text().split()[-3:] == ["--editable", f"{ROOT}[demo,test]", "--no-compile"]


@pytest.mark.parametrize("extra", ["test", "nothing"])
def test_alone_is_for_packages_that_an_index_has(extra: str) -> None:
    """An extra that asks for treetap would fetch what an index has under its name."""
    with pytest.raises(SystemExit, match=f"the extra '{extra}' has no packages of its own alone"):
        install.wanted(extra)


def test_each_target_says_what_it_brings() -> None:
    """Targets of the environment have extras that there are, and megabytes before a byte is fetched."""
    asked = dict(re.findall(r"^\$\(VENV\)/(\.\w+):.*?install\.py (\S+)", MAKEFILE, re.M | re.S))
    assert list(asked) == [".demo", ".test", ".dev", ".docs"]
    assert {extra for extras in asked.values() for extra in extras.split(",")} <= set(EXTRAS)
    sizes = re.findall(r'@echo "Installing [^"]*: [^"]*\d [MG]B[^"]*once\."\n\t@\$\(BIN\)/python tools', MAKEFILE)
    assert len(sizes) == len(asked)


def test_make_completes_what_failed_and_installs_once(tmp_path: Path) -> None:
    """In a folder with a blank. The demo asks for kernels of this processor, unless the tests are installed beside it
    or the user says otherwise.
    """
    root, python = tmp_path / "a clone", tmp_path / "python"
    root.mkdir()
    shutil.copy(ROOT / "Makefile", root)
    (root / "pyproject.toml").touch()
    python.write_text(f"""#!/bin/sh
[ "$1" = -m ] || exec echo "$TREETAP_NATIVE for $2"
mkdir -p .venv/bin && cp '{python}' .venv/bin/python && [ ! "$BROKEN" ] && cp '{python}' .venv/bin/pip
""")
    python.chmod(0o755)
    steps: list[tuple[str, dict[str, str], list[str]]] = [
        ("demo", {"BROKEN": "1"}, []),
        ("demo", {}, ["host for demo"]),
        ("demo", {}, []),
        ("test", {}, [" for demo,test"]),
        ("demo -W pyproject.toml", {}, [" for demo"]),
        ("demo -W pyproject.toml", {"TREETAP_NATIVE": "0"}, ["0 for demo"]),
    ]
    for words, settings, asked in steps:
        ended = subprocess.run(
            ["make", *f".venv/.{words}".split()],
            cwd=root,
            env={"PATH": os.environ["PATH"], "PYTHON": str(python)} | settings,
            stdout=subprocess.PIPE,
            text=True,
            timeout=60,
            check="BROKEN" not in settings,
        )
        assert re.findall(r"^\w* for .+", ended.stdout, re.M) == asked


def test_the_site_needs_its_builder_alone() -> None:
    """The pages are copied by Python's own library, and docstrings are read without an import of treetap."""
    assert re.search(r"^site: \$\(VENV\)/\.docs\b", MAKEFILE, re.M)
    assert "install.py docs --alone" in MAKEFILE
    assert install.wanted("docs") == EXTRAS["docs"]
    bare = [sys.executable, "-S", "-c", "import tools.renderers.site"]  # -S: no package of an environment
    subprocess.run(bare, cwd=ROOT, env={}, check=True, timeout=60)
    for page in (ROOT / "mkdocs.yml", ROOT / "docs" / "reference" / "api.md"):
        assert "force_inspection" not in page.read_text(encoding="utf-8")


def test_the_base_image_is_a_build_argument() -> None:
    """Each stage begins from it or from a stage above, so that one digest settles the whole image."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    stages = re.findall(r"^FROM (\S+) AS (\S+)$", text, re.M)
    assert len(stages) == len(re.findall(r"^FROM ", text, re.M))
    known = {"${BASE}"}
    for begun_from, name in stages:
        assert begun_from in known
        known.add(name)
    copied = set(re.findall(r"^COPY --from=(\S+)", text, re.M))
    assert copied < known
    assert text.index("ARG BASE=python:3.11-slim-bookworm\n") < text.index("\nFROM ")
    assert "BASE" not in (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
