"""Certificates and keys are never committed; without them nothing is rendered, and a page says how they are made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kubernetes.manifests import FOLDER, ORGANISATIONS, ROOT, Manifests, build
from tests.needs import kustomize_command

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("kubernetes")]


def secrets_of(manifests: Manifests) -> list[str]:
    """Paths, from the clone, of all files that the overlays put into Secrets."""
    found = []
    for organisation in ORGANISATIONS:
        for each in manifests.of(organisation):
            if each["kind"] == "Secret":
                folder = FOLDER / "overlays" / organisation / each["metadata"]["name"]
                found += [str((folder / name).relative_to(ROOT)) for name in each["data"]]
    return found


def test_no_certificate_is_committed_and_git_ignores_all(manifests: Manifests) -> None:
    """Each file of a Secret is one that git ignores and does not have; the page beside them it has."""
    paths = secrets_of(manifests)
    assert len(paths) == 4 * len(ORGANISATIONS) + 2
    pages = sorted({str(Path(path).with_name("README.md")) for path in paths})
    git = ["git", "-C", str(ROOT)]
    ignored = subprocess.run([*git, "check-ignore", *paths, *pages], capture_output=True, text=True, check=False)
    if ignored.returncode == 128:
        pytest.skip("not a clone")
    assert ignored.stdout.split() == paths
    assert subprocess.run([*git, "ls-files", *paths], capture_output=True, text=True, check=True).stdout == ""
    assert all((ROOT / page).is_file() for page in pages)


def test_without_its_certificate_an_overlay_is_not_rendered(tmp_path: Path) -> None:
    """Kustomize ends with the missing file's name, which lies beside the page that says how it is made."""
    shutil.copytree(FOLDER, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("*.key", "*.crt", "*.pem"))
    ended = build(kustomize_command(), tmp_path / "kubernetes" / "overlays" / "shop", check=False)
    assert ended.returncode != 0
    assert "overlays/shop/tls/" in ended.stderr
    assert "no such file or directory" in ended.stderr
