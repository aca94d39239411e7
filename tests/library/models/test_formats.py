"""Models on disk: those of today's format load, and those of every other one are refused by its number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.published import write_job, write_manifest
from treetap.commands.model.view import describe
from treetap.errors import DataError
from treetap.models.store import (
    MODEL_FORMAT,
    read_history,
    read_job,
    read_leakage,
    read_manifest,
    read_model,
    read_weights,
    sha256_of,
)
from treetap.party.runtime.job_store import Store
from treetap.trees.ensemble import Tree

MODELS = Path(__file__).parent


def _copy(folder: Path, party: str) -> Path:
    """A party's model where its state folder would have it."""
    return Path(shutil.copytree(MODELS / f"v{MODEL_FORMAT}" / party, folder / "models" / "experiment"))


def _change(folder: Path, **fields: object) -> None:
    """Write fields into a model's manifest, with the checksum that then fits; None takes a field out."""
    manifest = json.loads((folder / "manifest.json").read_text()) | fields
    write_manifest(folder, {key: each for key, each in manifest.items() if each is not None or key not in fields})


@pytest.mark.parametrize(
    ("party", "role", "splits"),
    [("bank", "label_holder", 9), ("telco", "feature_party", 6)],
)
def test_a_model_loads(party: str, role: str, splits: int, tmp_path: Path) -> None:
    """Files as this release wrote them: manifest, digests and all trees are read, by name and by folder."""
    folder = _copy(tmp_path, party)
    submission = json.loads((folder / "job.json").read_text())["submission"]
    manifest, trees = read_model(Store(tmp_path).model("experiment", submission))
    assert (manifest["version"], manifest["role"], len(trees)) == (MODEL_FORMAT, role, 3)
    assert sum(len(tree.get("own", tree.get("splits"))) for tree in trees) == splits
    assert read_model(folder) == (manifest, trees)
    leaves = [Tree.from_dict(tree["tree"]).leaves if role == "label_holder" else tree["leaves"] for tree in trees]
    assert [len(each) for each in leaves] == [6, 6, 6]


def test_a_file_is_found_by_its_kind(tmp_path: Path) -> None:
    """A changed file and a missing one are named."""
    folder = _copy(tmp_path, "bank")
    path = folder / "trees.jsonl"
    assert read_model(folder)[0] == read_manifest(folder)
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(DataError, match=rf"{path}: is not the file that was published"):
        read_model(folder)
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}: is not the file that was published"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("field", "content", "said"),
    [
        *[
            ("files", content, "files has no digest of every file of the model")
            for content in (None, {}, ["trees.jsonl"], {"trees.jsonl": None}, 7)
        ],
        ("job_digest", None, "job_digest is missing; bring a back-up"),
        *[("version", number, f"version {number!r} is none; bring a back-up") for number in ("1", True, 0, None, 1.5)],
    ],
)
def test_a_manifest_that_is_none_is_damaged(field: str, content: object, said: str, tmp_path: Path) -> None:
    """Whoever sealed it: the field is named."""
    folder = _copy(tmp_path, "bank")
    _change(folder, **{field: content})
    with pytest.raises(DataError, match=rf"manifest\.json: {said}"):
        read_model(folder)


def test_a_model_of_another_kind_has_no_trees(tmp_path: Path) -> None:
    """Files of any kind are checked; who asks for trees where there are none reads which kinds there are."""
    folder = _copy(tmp_path, "telco")
    (folder / "trees.jsonl").rename(folder / "weights.npz")
    digest = sha256_of(folder / "weights.npz")
    _change(folder, files={"weights.npz": digest})
    assert list(read_manifest(folder)["files"]) == ["weights.npz"]
    with pytest.raises(DataError, match=r"manifest\.json: the model has weights\.npz, but no trees\.jsonl"):
        read_model(folder)
    with pytest.raises(DataError, match=r"weights\.npz: is damaged; bring a back-up"):
        read_weights(folder)  # its content is that of trees
    with pytest.raises(DataError, match=r"manifest\.json: the model has trees\.jsonl, but no weights\.npz"):
        read_weights(_copy(tmp_path / "other", "telco"))
    _change(folder, files={"weights.npz": digest, "more.npz": digest})
    with pytest.raises(DataError, match=r"more\.npz: is not the file that was published"):
        read_manifest(folder)


@pytest.mark.parametrize("number", [1, MODEL_FORMAT - 1, MODEL_FORMAT + 1, MODEL_FORMAT + 6])
@pytest.mark.parametrize("checked", [True, False], ids=["with checksums", "without"])
def test_every_other_format_is_refused_by_its_number(number: int, checked: bool, tmp_path: Path) -> None:
    """Lower or higher, by every reader: the error names the folder, both numbers and the remedy."""
    folder = _copy(tmp_path, "bank")
    _change(folder, version=number)
    if not checked:
        for path in (folder / "job.json", folder / "manifest.json"):
            content = json.loads(path.read_text())
            path.write_text(json.dumps({key: each for key, each in content.items() if key != "sha256"}))
    said = (
        f"{folder}: is a model of format {number}, and this release reads format {MODEL_FORMAT} alone: train it again, "
        "or install the release that wrote it"
    )
    for read in (read_model, read_manifest, read_job, read_weights, read_history, read_leakage, describe):
        with pytest.raises(DataError) as refusal:
            read(folder)
        assert str(refusal.value) == said


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("name", ["manifest.json", "job.json", "trees.jsonl"])
def test_no_byte_can_change_unnoticed(name: str, tmp_path: Path) -> None:
    """Every byte of every file of a model of this format, changed in three ways, is an error, or means the same."""
    folder = _copy(tmp_path, "telco")
    store, path = Store(tmp_path), folder / name
    submission = json.loads((folder / "job.json").read_text())["submission"]
    published, whole = store.model("experiment", submission), path.read_bytes()
    told = 0
    for place in range(len(whole)):
        for bit in (1, 4, 32):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ bit]) + whole[place + 1 :])
            try:
                assert store.model("experiment", submission) == published
            except DataError:
                told += 1
    assert told > 2.9 * len(whole)


def test_files_of_another_model_are_told(tmp_path: Path) -> None:
    """A manifest and a shard that fit each other, but not the job beside them."""
    one, other = _copy(tmp_path / "one", "bank"), _copy(tmp_path / "other", "bank")
    write_job(other, "another submission")
    write_manifest(other, json.loads((other / "manifest.json").read_text()))
    read_model(other)
    (one / "manifest.json").write_bytes((other / "manifest.json").read_bytes())
    with pytest.raises(DataError, match=r"manifest\.json: is damaged; bring a back-up"):
        read_model(one)
