"""How this installation gets an extra: never by a name that a package index would look up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from treetap import version

TEXTS = {".ipynb", ".md", ".toml", ".yml"}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which treetap lies without its clone, and that is the current one."""
    monkeypatch.setattr(version, "_ROOT", tmp_path / "site-packages")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _recorded(monkeypatch: pytest.MonkeyPatch, *texts: str | None) -> None:
    """Let pip have recorded these origins, one for each distribution of that name on the path."""
    parts = [SimpleNamespace(read_text=lambda name, text=text: text) for text in texts]
    monkeypatch.setattr(version.metadata, "distributions", lambda name: parts)


def test_from_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The installation stays editable; the path is short where the reader is in the clone."""
    clone = Path(__file__).parents[2]
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.chdir(clone)
    assert version.install("api") == "pip install -e '.[api]'"
    monkeypatch.chdir(tmp_path)
    assert version.install("api") == f"pip install -e '{clone}[api]'"


def test_a_folder_of_its_name_is_not_taken_for_the_package(tmp_path: Path) -> None:
    """A program in the folder of a clone has one beside it, and an import looks there first."""
    (tmp_path / "treetap").mkdir()
    command = [sys.executable, "-c", "import treetap; print(treetap.__file__)"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert Path(done.stdout.strip()) == Path(version.__file__).with_name("__init__.py")


def test_from_a_wheel(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own path, as pip recorded it, from the first record that there is; without one the file is asked for."""
    wheel = elsewhere / "a folder" / "treetap-0.1.0-py3-none-any.whl"
    said = json.dumps({"url": wheel.as_uri(), "archive_info": {}})
    _recorded(monkeypatch, None, said)
    unknown = "pip install 'WHEEL[api]' (where WHEEL is the file that treetap was installed from)"
    assert version.install("api") == unknown  # deleted since
    wheel.parent.mkdir()
    wheel.touch()
    assert version.install("api") == "pip install 'a folder/treetap-0.1.0-py3-none-any.whl[api]'"
    for recorded in ((), (None,), (json.dumps({"url": "https://host.invalid/treetap.git", "vcs_info": {}}),)):
        _recorded(monkeypatch, *recorded)
        assert version.install("api") == unknown


def test_the_pip_of_this_python(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path where a shell would find another one, or none."""
    _recorded(monkeypatch)
    own = elsewhere / "bin" / "pip"
    own.parent.mkdir()
    own.touch(0o755)
    monkeypatch.setenv("PATH", "/nowhere")
    assert version.install("api").startswith("bin/pip install ")
    monkeypatch.setenv("PATH", str(own.parent))
    assert version.install("api").startswith("pip install ")


@pytest.mark.parametrize(("platform", "warned"), [("linux", True), ("darwin", False)])
def test_what_an_extra_brings_unasked(platform: str, warned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's libraries for graphics processors, with the section of the documents on how to do without."""
    monkeypatch.setattr(sys, "platform", platform)
    assert ("PyTorch brings CUDA, 5 GB" in version.install("neural")) == warned
    assert "CUDA" not in version.install("api")
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert "\n## PyTorch without CUDA\n" in page


def test_nothing_names_a_package_of_an_index() -> None:
    """Neither a message nor a page has the bare name with an extra behind `pip install`."""
    root = Path(__file__).parents[2]
    read = [path for top in ("treetap", "party", "coordinator", "attacks") for path in (root / top).rglob("*.py")]
    read += [path for top in ("docs", "examples") for path in (root / top).rglob("*") if path.suffix in TEXTS]
    assert len(read) > 500
    bare = re.compile(r"pip install [^\n]*\btreetap\[")
    texts = {path: path.read_text(encoding="utf-8") for path in (*read, root / "README.md", root / "Makefile")}
    assert [str(path.relative_to(root)) for path, text in texts.items() if bare.search(text)] == []
    assert bare.search("pip install 'treetap[api]'")
