"""What lies outside Python: names in files, pictures of the docs, and the tutorial's tables.

Names in files that are not Python: no command there runs a module, and each file, folder and module named is there.

Operators copy commands from these files, and no tool that moves a module looks into them.
"""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from html import unescape
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.attacks.frontiers import frontier, point
from tests.commands.command import python
from tests.needs import needs_libraries
from tests.weight import PRODUCTION
from tools import renderers
from tools.renderers.rendering import texts
from treetap.lab.experiment.frontier import picture
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredAlone, Recommended

ROOT = Path(__file__).parents[2]
PACKAGES = "treetap|party|coordinator|attacks|tests|benchmarks"
#: But for the campaign's, which only a clone has.
RUN = re.compile(rf"""-m[\s,"']+(?!tests\.(?:campaign|weight)\b)(?:{PACKAGES})\b[\w.]*""")
#: A path below a folder of the clone, but with a shell's variable; the name or end of the path of a source or a page.
BELOW = re.compile(rf"(?<![\w./*-])(?:protos|docs|examples|tools|lab|ops|{PACKAGES})/(?![\w./*-]*\$)[\w./*-]*")
ENDING = re.compile(r"(?<![\w./*<>{}$-])(?!google/)(?:[\w-]+/)*[\w-]+\.(?:py|pyi|proto|md)\b")
LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")
MODULE = re.compile(r"(?<![\w./-])(?![\w.-]+\.svc\b)(?:treetap|party|coordinator|attacks|tests)(?:\.[A-Za-z_]\w*)+")
#: What makes a file or a host of what looks like a module: party.toml, coordinator.log, coordinator.example.org.
#: Kubernetes' services have names with .svc.
NO_MODULE = re.compile(r"\.(?:toml|yaml|log|csv|crt|key|json|service|watched|invalid|example\.org)\b")
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


# ---- The text of the pictures in docs/ against what the programs print and draw now: numbers and seconds may differ


DOCS = Path(__file__).parents[2] / "docs"
RENDERED = "import sys; from tools.renderers.demo import main; sys.exit(main())"
#: Symbol of a setting in a picture → its key.
KEYS = {"ξ": "xi", "ε": "epsilon", "trees": "trees"}
#: Before settings that every party knows.
OF_JOB = "settings of the job "
LABELS = {
    **{"no defence": "none", "Reduced-Leakage": "reduced_leakage", "ID-LMID": "id_lmid", "label DP": "label_dp"},
    **{"label DP + refit": "label_dp + refit", "Grafting-LDP": "grafting", "Grafting-LDP + refit": "grafting + refit"},
}


@pytest.mark.campaign
def test_the_picture_of_the_demo_is_what_it_prints(tmp_path: Path) -> None:
    """A whole demo; of two pictures a copy with another word alone is told as stale."""
    kept = (DOCS / "demo.svg").read_text(encoding="utf-8")
    changed = kept.replace("Together", "Tagether", 1)
    assert changed != kept
    (tmp_path / "demo.svg").write_text(changed, encoding="utf-8")
    checked = python("-c", RENDERED, "--check", DOCS / "demo.svg", tmp_path / "demo.svg", paths=[DOCS.parent])
    assert checked.status == 1, checked.err
    assert re.findall(r"(\S+) is stale", checked.err) == [str(tmp_path / "demo.svg")]
    assert "Tagether" in checked.err


def test_every_picture_is_small_and_says_how_it_is_drawn() -> None:
    """Of docs/, in the renderers' own list."""
    lines = re.findall(r"^(\S+\.(?:svg|png)) {2,}\S", renderers.__doc__ or "", re.MULTILINE)
    for path in [*DOCS.glob("*.png"), *DOCS.glob("*.svg")]:
        assert any(path.match(name) for name in lines), path
        assert path.stat().st_size <= 200_000, path


def _frontier(kept: str) -> FrontierDocument:
    """The document that a picture of a frontier was drawn from, by its own texts."""
    head = re.search(r"<title>AUC against what is read of labels and columns, each defence, (.+?), (\w+)</title>", kept)
    before, alone = re.search(r"without the training ([\d.]+)", kept), re.search(r">(\w+) alone ([\d.]+)<", kept)
    assert head is not None
    assert before is not None
    assert alone is not None
    known = float(before[1])
    mark = r"<title>([^<:]+?) ?(?:(ξ|ε|trees) (NUM))?: AUC (NUM)(?: ± (NUM))?, labels guessed (NUM) ± (NUM)</title>"
    points = []
    for label, symbol, value, *figures in re.findall(mark.replace("NUM", r"[\d.]+"), unescape(kept)):
        auc, auc_sd, guessed, guessed_sd = (float(it) if it else None for it in figures)
        assert guessed is not None
        of_job = dict(it.split(" ") for it in label.removeprefix(OF_JOB).split(", ")) if OF_JOB in label else {}
        settings: dict[str, Any] = {key: int(it) if it.isdigit() else it for key, it in of_job.items()}
        settings |= {KEYS[symbol]: float(value)} if symbol else {}
        points.append(
            point("job" if of_job else LABELS[label], settings, auc, guessed, before=known).model_copy(
                update={
                    "auc": Measured(mean=auc, sd=auc_sd),
                    "added": Measured(mean=guessed - known, sd=guessed_sd),
                }
            )
        )
    chosen = re.search(r'<circle class="chosen" cx="([\d.]+)" cy="([\d.]+)"', kept)
    assert chosen is not None
    places = re.findall(r'class="mark" transform="translate\(([\d.]+) ([\d.]+)\)"[^>]*><title>', kept)
    return frontier(*points).model_copy(
        update={
            "table": head[1],
            "protocol": head[2],
            "label_holder": alone[1],
            "measure": "AUC" if "AUC by 40 known" in kept else "accuracy",
            "before": Measured(mean=known),
            "alone": MeasuredAlone(auc=Measured(mean=float(alone[2])), accuracy=Measured(mean=None)),
            "points": points,
            "recommended": Recommended(point=places.index(chosen.groups()), says=""),
        }
    )


def test_the_picture_of_a_frontier_is_what_is_drawn() -> None:
    """Drawn again from the figures that the picture itself has: legend, titles, axes and marks have the same text."""
    kept = (DOCS / "frontier.svg").read_text(encoding="utf-8")
    document = _frontier(kept)
    assert len(document.points) > 10
    assert any(it.settings.get("model") == "additive" for it in document.points)
    drawn = picture(document)
    assert set(texts(drawn)) == set(texts(kept))
    other = picture(document.model_copy(update={"protocol": "forest"}))
    assert set(texts(other)) != set(texts(kept))


@pytest.mark.second_tier
def test_the_picture_of_growth_is_what_is_drawn(tmp_path: Path) -> None:
    """From its committed results."""
    needs_libraries("matplotlib", extra="bench")
    from tools.renderers import growth

    growth.draw(growth.read_results(growth.RESULTS), tmp_path / "growth.svg")
    drawn, kept = (texts((folder / "growth.svg").read_text(encoding="utf-8")) for folder in (tmp_path, DOCS))
    assert set(drawn) == set(kept)
    assert len(set(kept)) > 5


# ---- The tutorial's tables are what their script writes, and such as a bank's are


LOANS = Path(__file__).parents[2] / "examples" / "loans"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder that the script writes."""
    folder = tmp_path_factory.mktemp("loans")
    subprocess.run([sys.executable, str(LOANS / "loans.py"), str(folder)], check=True, timeout=60)
    return folder


def rows(path: Path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["loans", "bank", "telco"])
def test_the_script_writes_the_table_again(written, name):
    """Byte for byte, on any machine."""
    assert (written / f"{name}.csv").read_bytes() == (LOANS / f"{name}.csv").read_bytes()


def test_the_table_is_like_a_banks():
    """5,000 customers, 21 % defaults, columns with 2 to 15 % of their cells missing."""
    table = rows(LOANS / "loans.csv")
    assert len({row["customer"] for row in table}) == len(table) == 5000
    assert sum(row["defaulted"] == "yes" for row in table) == 1050
    missing = {name: sum(not row[name] for row in table) / 5000 for name in table[0]}
    assert 0.14 < max(missing.values()) < 0.16
    assert sum(share > 0.015 for share in missing.values()) == 5


def test_each_half_has_customers_that_the_other_has_not():
    """The cells of a customer are those of the joined table, in another order."""
    table = {row["customer"]: row for row in rows(LOANS / "loans.csv")}
    bank, telco = rows(LOANS / "bank.csv"), rows(LOANS / "telco.csv")
    ids = [{row["customer"] for row in half} for half in (bank, telco)]
    assert ids[0] - ids[1]
    assert ids[1] - ids[0]
    assert {*bank[0]} | {*telco[0]} == {*table[bank[0]["customer"]]}
    assert all(table[row["customer"]] | row == table[row["customer"]] for half in (bank, telco) for row in half)
