"""Keys and results that a command makes do not get into git, and an image is built once."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from treetap.commands.certs.authority import write_new
from treetap.lab.experiment.kept import new_folder
from treetap.lab.local_federation import empty_folder

ROOT = Path(__file__).resolve().parents[2]
COMPOSED = [ROOT / "docker-compose.yml", *(ROOT / "examples").rglob("docker-compose.yml")]
#: Makes a folder of keys or results, and a file there.
MAKERS: dict[str, Callable[[Path], object]] = {
    "keys": lambda folder: write_new(folder / "tls" / "a.key", b"secret", 0o600),
    "an experiment": lambda folder: (new_folder(folder / "runs") / "a.key").write_text("secret"),
    "a workdir": lambda folder: (empty_folder(folder) / "a.key").write_text("secret"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("name", ["made", "made/below"])
def test_git_ignores_what_is_made(make: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    """The highest folder that was not there says so; a folder of the user's own stays as it is."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    make(tmp_path / name)
    assert (tmp_path / "made" / ".gitignore").read_text() == "*\n"
    # The files that git would add.
    told = subprocess.run(
        ["git", "status", "--short", "-uall"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines() == []
    assert not (tmp_path / ".gitignore").exists()


def test_an_own_gitignore_stays(tmp_path: Path) -> None:
    """Also in a folder that is used again."""
    made = tmp_path / "made"
    made.mkdir()
    (made / ".gitignore").write_text("*.key\n")
    assert empty_folder(made) == made
    write_new(made / "a.key", b"secret", 0o600)
    assert (made / ".gitignore").read_text() == "*.key\n"


@pytest.mark.parametrize("path", COMPOSED, ids=lambda path: path.parent.name)
def test_one_service_builds_each_image(path: Path) -> None:
    """Builds of one image at once fail where the engine has containerd's store; who builds none pulls no own image."""
    services = yaml.safe_load(path.read_text(encoding="utf-8"))["services"]
    built = Counter(service["image"] for service in services.values() if "build" in service)
    assert set(built.values()) <= {1}
    for service in services.values():
        own = service.get("image") in built
        assert service.get("pull_policy") == ("if_not_present" if "build" in service else "never" if own else None)
