"""How this installation gets an extra: never by a name that a package index would look up."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.weight import PRODUCTION
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
    read = [path for top in PRODUCTION for path in (root / top).rglob("*.py")]
    read += [path for top in ("docs", "examples") for path in (root / top).rglob("*") if path.suffix in TEXTS]
    assert len(read) > 500
    bare = re.compile(r"pip install [^\n]*\btreetap\[")
    texts = {path: path.read_text(encoding="utf-8") for path in (*read, root / "README.md", root / "Makefile")}
    assert [str(path.relative_to(root)) for path, text in texts.items() if bare.search(text)] == []
    assert bare.search("pip install 'treetap[api]'")


@pytest.mark.second_tier
@pytest.mark.long
def test_packages_of_an_actors_name_stay_whole(tmp_path: Path) -> None:
    """The wheel claims one name: packages `party` and `coordinator` work beside it, installed before and after."""
    root, clone, wheels = Path(__file__).parents[2], tmp_path / "clone", tmp_path / "wheels"
    without = shutil.ignore_patterns("__pycache__", "kernels.so", "kernels.json", "*.egg-info")
    for name in (*PRODUCTION, "tools/build_backend"):
        shutil.copytree(root / name, clone / name, symlinks=True, ignore=without)
    for name in ("pyproject.toml", "LICENSE", "README.md", "MANIFEST.in"):
        shutil.copy(root / name, clone / name)
    for name in ("party", "coordinator"):
        (tmp_path / name / name).mkdir(parents=True)
        (tmp_path / name / name / "__init__.py").write_text("OF = 'another project'\n")
        (tmp_path / name / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n')
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TREETAP_NATIVE": "0"}

    def run(*words: str | Path) -> str:
        ended = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
    for source in (clone, tmp_path / "party", tmp_path / "coordinator"):
        run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", wheels, source)
    (made,) = wheels.glob("treetap-*.whl")
    with zipfile.ZipFile(made) as wheel:
        (claimed,) = (name for name in wheel.namelist() if name.endswith("/top_level.txt"))
        assert wheel.read(claimed).split() == [b"treetap"]
    python = tmp_path / "venv" / "bin" / "python"
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    for wheel_of in ("party-", "treetap-", "coordinator-"):
        run(*pip, "--python", python, "install", "--no-deps", "--no-index", *wheels.glob(f"{wheel_of}*"))
    ours = "treetap.party.policy, treetap.coordinator.jobs, treetap.attacks.audit"
    said = run(python, "-c", f"import {ours}, party, coordinator; print(treetap.__file__, party.OF, coordinator.OF)")
    assert said.split(maxsplit=1) == [str(site / "treetap" / "__init__.py"), "another project another project\n"]
