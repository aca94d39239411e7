"""What a forge reads and what a release must not have: placeholders, forms and workflows, the citation."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.needs import needs_libraries
from tests.weight import ROOT
from tools.forge import SCHEMAS, commands
from tools.release.check import FILLED, left, versions
from tools.renderers.papers import DIMIP, FED_EINI, ID2GRAPH, PIVODL, SENSFL, Paper

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ZEROS = "0" * 40
#: What a publisher does: placeholder → what stands there then.
FILLING = {"treetap.invalid": "example.org", '  "Private :: Do Not Upload",\n': "", ZEROS: "1" * 40}


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """The files of a release in which everything is filled in."""
    shutil.copytree(ROOT / ".github", tmp_path / ".github")
    for name in (*FILLED, "CHANGELOG.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        text = path.read_text()
        for old, new in FILLING.items():
            text = text.replace(old, new)
        path.write_text(text)
    _change(tmp_path, "CHANGELOG.md", "## [Unreleased]", "## [0.1.0] - 2027-01-02")
    _change(tmp_path, "CITATION.cff", "version: 0.1.0\n", "version: 0.1.0\ndate-released: 2027-01-02\n")
    return tmp_path


def _change(root: Path, name: str, old: str, new: str) -> None:
    text = (root / name).read_text()
    assert old in text
    (root / name).write_text(text.replace(old, new, 1))


def _faults(root: Path, tag: str | None = "v0.1.0") -> list[str]:
    return [*left(root), *versions(root, tag)]


def test_a_release_with_everything_filled_in_passes(filled: Path) -> None:
    """So that each fault below is the only one; the sources as they are have each kind."""
    assert _faults(filled) == []
    waiting = "\n".join(left(ROOT))
    assert all(word in waiting for word in ("treetap.invalid", "Private :: Do Not Upload", ZEROS))


@pytest.mark.parametrize("name", ["pyproject.toml", "SECURITY.md", "CODE_OF_CONDUCT.md", "CITATION.cff"])
def test_each_file_with_a_placeholder_is_refused(filled: Path, name: str) -> None:
    """As it lies in the sources, with the lines."""
    shutil.copy(ROOT / name, filled / name)
    faults = list(left(filled))
    assert len(faults) >= 1
    assert all(re.match(rf"{re.escape(name)}:\d+: \S.* is a placeholder", fault) for fault in faults)


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (".github/ISSUE_TEMPLATE/config.yml", "example.org", "treetap.invalid", "config.yml:4: treetap.invalid"),
        (".github/workflows/release.yml", "1" * 40, ZEROS, f"@{ZEROS} has no digest"),
        (".github/workflows/release.yml", "@" + "1" * 40, "@v3", "attest-build-provenance@v3 has no digest"),
        (".github/workflows/tests.yml", "@11bd7190", "@1bd7190", "actions/checkout@1bd71901"),
        ("CHANGELOG.md", "## [0.1.0] - 2027-01-02", "## [0.1.0]", "write ## [0.1.0] - YYYY-MM-DD"),
        ("CHANGELOG.md", "2027-01-02", "2027-01-03", "date-released is 2027-01-02, and 2027-01-03 elsewhere"),
        ("CITATION.cff", "version: 0.1.0", "version: 0.2.0", "version is 0.2.0, and 0.1.0 elsewhere"),
        ("pyproject.toml", 'version = "0.1.0"', 'version = "0.1.1"', "the tag is 'v0.1.0'"),
    ],
)
def test_what_is_left_is_named(filled: Path, name: str, old: str, new: str, says: str) -> None:
    """Placeholders, actions without a digest, versions and dates that differ."""
    _change(filled, name, old, new)
    assert any(says in fault for fault in _faults(filled))


def test_a_missing_file_and_no_tag(filled: Path) -> None:
    """A file that a release has is missed; without a tag none is compared."""
    (filled / "SECURITY.md").unlink()
    assert _faults(filled, tag=None) == ["SECURITY.md: is not there"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_name_what_is_there(path: Path) -> None:
    """Jobs that are waited for, workflows that are called, words of make."""
    jobs: dict[str, dict[str, Any]] = yaml.safe_load(path.read_text())["jobs"]
    words = set(re.findall(r"^([a-z.$()A-Z/-]+):", (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv"), re.M))
    for job in jobs.values():
        waited = job.get("needs", [])
        assert {waited} if isinstance(waited, str) else set(waited) <= set(jobs)
        if "uses" in job:
            assert (ROOT / job["uses"]).is_file()
        said = "\n".join(step.get("run", "") for step in job.get("steps", []))
        assert set(re.findall(r"\bmake ([\w./-]+)", said)) <= words


@pytest.mark.parametrize("name", ["Makefile", ".pre-commit-config.yaml", ".github/workflows/release.yml"])
def test_tools_that_are_run_are_there(name: str) -> None:
    """Each has the module, or is a folder with one to run."""
    modules = re.findall(r"-m (tools\.[\w.]*\w)", (ROOT / name).read_text())
    files = [module.replace(".", "/") for module in modules]
    assert files
    assert [file for file in files if not any((ROOT / f"{file}{end}.py").is_file() for end in ("", "/__main__"))] == []


PAPERS = {paper.title.lower(): paper for paper in (FED_EINI, ID2GRAPH, PIVODL, DIMIP, SENSFL)}
CITED: list[dict[str, Any]] = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]


@pytest.mark.parametrize("cited", CITED, ids=lambda cited: cited["title"][:20])
def test_the_five_papers_are_cited_as_pages_cite_them(cited: dict[str, Any]) -> None:
    """Title, authors in order, year, and the number where a preprint has one."""
    paper: Paper = PAPERS[cited["title"].lower()]
    assert ", ".join(author["family-names"] for author in cited["authors"]) == paper.authors
    assert cited["year"] == paper.year
    numbers = {each["value"].replace("arXiv:", "arXiv ") for each in cited.get("identifiers", [])}
    assert numbers == set(re.findall(r"arXiv \d{4}\.\d{5}", paper.where))
    assert len(CITED) == len(PAPERS)


@pytest.mark.second_tier
@pytest.mark.parametrize("check", list(commands(ROOT)), ids=[*SCHEMAS, "zizmor"])
def test_forge_files_fit_their_schemas(check: list[str]) -> None:
    """Nothing is found, as `make lint` has it."""
    needs_libraries("check_jsonschema", extra="dev")
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("name", "old", "new", "at"),
    [
        (".github/workflows/tests.yml", "runs-on:", "runs_on:", 0),
        (".github/workflows/tests.yml", "    timeout-minutes: 60\n", "", 1),
        (".github/dependabot.yml", "weekly", "often", 2),
        (".github/ISSUE_TEMPLATE/config.yml", "contact_links", "contacts", 3),
        (".github/ISSUE_TEMPLATE/fault.yml", "type: dropdown", "type: menu", 4),
        ("CITATION.cff", "type: software", "type: program", 5),
        (".github/workflows/tests.yml", "permissions:\n  contents: read\n", "permissions: write-all\n", 6),
        (".github/workflows/release.yml", '--tag "$GITHUB_REF_NAME"', "--tag ${{ github.ref_name }}", 6),
    ],
)
def test_a_fault_of_each_kind_is_found(filled: Path, name: str, old: str, new: str, at: int) -> None:
    """By the check whose matter it is, which names the file."""
    needs_libraries("check_jsonschema", extra="dev")
    _change(filled, name, old, new)
    done = subprocess.run(list(commands(filled))[at], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert name.rpartition("/")[2] in done.stdout + done.stderr


def test_a_folder_without_the_files_is_refused(tmp_path: Path) -> None:
    """Nothing that is to be checked is passed over."""
    with pytest.raises(FileNotFoundError, match=re.escape(next(iter(SCHEMAS.values()))[0])):
        list(commands(tmp_path))
