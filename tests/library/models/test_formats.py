"""Models on disk: every format that was ever published still loads, and a newer one is refused by its number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from party.runtime.job_store import Store
from treetap.errors import DataError
from treetap.models.store import SHARD_VERSION, read_model
from treetap.trees.ensemble import Tree

MODELS = Path(__file__).parent


def _copy(folder: Path, party: str) -> Path:
    """A party's model of format 1 where its state folder would have it."""
    return Path(shutil.copytree(MODELS / "v1" / party, folder / "models" / "experiment"))


@pytest.mark.parametrize(("party", "role", "splits"), [("bank", "label_holder", 9), ("telco", "feature_party", 8)])
def test_format_1_loads(party: str, role: str, splits: int, tmp_path: Path) -> None:
    """Files as the first release wrote them: manifest, checksum and all trees are read, by name and by folder."""
    folder = _copy(tmp_path, party)
    submission = json.loads((folder / "job.json").read_text())["submission"]
    manifest, trees = Store(tmp_path).model("experiment", submission)
    assert (manifest["version"], manifest["role"], len(trees)) == (1, role, 3)
    assert sum(len(tree.get("own", tree.get("splits"))) for tree in trees) == splits
    assert read_model(folder) == (manifest, trees)
    if role == "label_holder":
        assert [len(Tree.from_dict(tree["tree"]).leaves) for tree in trees] == [6, 7, 7]


def test_every_format_has_its_sample() -> None:
    """Whoever raises the format keeps a model of the one before."""
    assert sorted(path.name for path in MODELS.glob("v[0-9]*")) == [f"v{k}" for k in range(1, SHARD_VERSION + 1)]


def test_a_manifest_without_a_number_is_of_format_1(tmp_path: Path) -> None:
    """The number came later than the format."""
    folder = _copy(tmp_path, "telco")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["version"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert read_model(folder)[0] == manifest


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            SHARD_VERSION + 6,
            f"format {SHARD_VERSION + 6}, written by a newer version .* up to {SHARD_VERSION}: install",
        ),
        ("1", "version '1' is none"),
        (True, "version True is none"),
        (0, "version 0 is none"),
    ],
)
def test_other_numbers_are_refused(number: object, message: str, tmp_path: Path) -> None:
    """A newer format is named with the remedy; what is no number is damage."""
    folder = _copy(tmp_path, "bank")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"version": number}))
    with pytest.raises(DataError, match=message):
        read_model(folder)
