"""Names in files that are not Python: no command there runs a module, and each file, folder and module named is there.

Operators copy commands from these files, and no tool that moves a module looks into them.
"""

from __future__ import annotations

import os
import re
import subprocess
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from tests.weight import PRODUCTION

ROOT = Path(__file__).parents[2]
PACKAGES = "treetap|party|coordinator|attacks|tests|benchmarks"
#: But for the campaign's, which only a clone has.
RUN = re.compile(rf"""-m[\s,"']+(?!tests\.(?:campaign|weight)\b)(?:{PACKAGES})\b[\w.]*""")
#: A path below a folder of the clone, and the name or the end of the path of a source or a page.
BELOW = re.compile(rf"(?<![\w./*-])(?:protos|docs|examples|{PACKAGES})/[\w./*-]*")
ENDING = re.compile(r"(?<![\w./*<>{}$-])(?!google/)(?:[\w-]+/)*[\w-]+\.(?:py|pyi|proto|md)\b")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
MODULE = re.compile(r"(?<![\w./-])(?![\w.-]+\.svc\b)(?:treetap|party|coordinator|attacks|tests)(?:\.[A-Za-z_]\w*)+")
#: What makes a file or a host of what looks like a module: party.toml, coordinator.log, coordinator.example.org.
#: Kubernetes' services have names with .svc.
NO_MODULE = re.compile(r"\.(?:toml|yaml|log|csv|crt|key|json|service|watched|example\.org)\b")
#: Pages with variables of their own such as `party.trees`, and pictures.
NO_MODULES_IN = (".j2", ".svg", ".html", ".js")
#: Pages by the names that they had when their figures were recorded.
AS_RECORDED = "tests/fixtures/figures.txt"
#: The README's name on the site.
FIRST_PAGE = "index.md"


@cache
def tracked() -> tuple[str, ...]:
    """Every file of the clone as it is now, but for what git ignores."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone, or git is not installed: the files that belong to it are not known")
    return tuple(name for name in listed.split("\0") if name and (ROOT / name).is_file())


@cache
def folders() -> frozenset[str]:
    """The folders of these files."""
    return frozenset(str(folder) for name in tracked() for folder in PurePosixPath(name).parents)


def exists(path: str) -> bool:
    """True if a file or folder has that path, or one that matches the pattern."""
    if "*" in path:
        return any(fnmatchcase(name, path) for name in (*tracked(), *folders()))
    return path in tracked() or path in folders()


def is_module(name: str) -> bool:
    """True if a module or package has that dotted name, or the text of one contains the name."""
    path = re.sub(rf"^treetap/(?=({'|'.join(PRODUCTION[1:])})\b)", "", name.replace(".", "/"))
    if exists(path) or exists(f"{path}.py"):
        return True
    module, _, attribute = path.rpartition("/")
    holders = [each for each in tracked() if each == f"{module}.py" or fnmatchcase(each, f"{module}/*.pyi")]
    return any(re.search(rf"\b{attribute}\b", (ROOT / each).read_text(encoding="utf-8")) for each in holders)


def faults(file: str, line: str) -> list[str]:
    """The names in a line of that file which no file, folder or module has, and the commands that run a module."""
    here = PurePosixPath(file).parent
    line = re.sub(r"\bWORD\b", "*", line)  # stands for any protocol
    found = [f"runs a module: {command}" for command in RUN.findall(line)]
    named = [name.rstrip("./-") for name in BELOW.findall(line)]
    for name in named:
        if not any(
            exists(os.path.normpath(place / name)) for place in (PurePosixPath(), here, PurePosixPath("protos"))
        ):
            found.append(f"no such path: {name}")
    for link in LINK.findall(line) if file.endswith(".md") else ():
        if not exists(os.path.normpath(here / link)):
            found.append(f"no such page: {link}")
    for name in ENDING.findall(line):
        there = (each == name or each.endswith(f"/{name}") for each in tracked())
        if name not in (*named, FIRST_PAGE) and not any(there):
            found.append(f"no such file: {name}")
    for name in MODULE.findall(line) if not file.endswith(NO_MODULES_IN) else ():
        if not NO_MODULE.search(name) and not is_module(name):
            found.append(f"no such module: {name}")
    return found


def lines(file: str) -> list[str]:
    """A file's lines; none where it is not text."""
    try:
        return (ROOT / file).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []


@pytest.mark.second_tier
def test_every_name_outside_python_is_of_something_there() -> None:
    """Image, compose files, units, scripts, settings, messages, pages and their templates."""
    files = [file for file in tracked() if not file.endswith((".py", ".pyi")) and (ROOT / file).stat().st_size < 2**20]
    files.remove(AS_RECORDED)
    assert {"Dockerfile", "CHANGELOG.md", ".ci/run", "docs/deploy.md", "examples/compose/operator/run.sh"} <= set(files)
    found = [
        f"{file}:{number}: {fault}"
        for file in files
        for number, line in enumerate(lines(file), 1)
        for fault in faults(file, line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("file", "line", "says"),
    [
        ("Dockerfile", 'CMD ["python", "-m", "treetap.commands.cli", "--help"]', "runs a module"),
        ("docker-compose.yml", "test: [CMD, python, -m, treetap.commands.cli]", "runs a module"),
        ("docs/deploy.md", "python -m treetap status", "runs a module"),
        ("docs/deploy.md", "See `party/gone/`.", "no such path: party/gone"),
        ("Makefile", "PROTOS := $(wildcard protos/gone/*.proto)", "no such path: protos/gone/*.proto"),
        ("protos/treetap/wire/v2/setup.proto", 'import "treetap/wire/v2/gone.proto";', "no such path: treetap/wire"),
        ("docs/adr/0070-the-house-by-folders.md", "As `gone.py` has it.", "no such file: gone.py"),
        ("docs/deploy.md", "[there](gone.md#part)", "no such page: gone.md"),
        ("docs/deploy.md", "[there](deploy/operations.md)", "no such page: deploy/operations.md"),
        ("docs/transcript.md", "from treetap.wire.gone import Reader", "no such module: treetap.wire.gone"),
        ("pyproject.toml", 'modules = ["party.gone"]', "no such module: party.gone"),
        ("docs/transcript.md", "`treetap.wire.v2.StepDemand`", "no such module: treetap.wire.v2.StepDemand"),
    ],
)
def test_what_is_gone_is_found(file: str, line: str, says: str) -> None:
    """One line each of what a moved or removed file leaves behind."""
    assert any(fault.startswith(says) for fault in faults(file, line))
