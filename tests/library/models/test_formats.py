"""Models on disk: every format that was ever published still loads, and a newer one is refused by its number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from party.runtime.job_store import Store
from tests.published import trees_file, write_job, write_manifest
from treetap.errors import DataError
from treetap.models.store import MODEL_FORMAT, read_manifest, read_model, read_weights, sha256_of
from treetap.trees.ensemble import Tree

MODELS = Path(__file__).parent


def _copy(folder: Path, party: str, number: int = MODEL_FORMAT) -> Path:
    """A party's model of a format where its state folder would have it."""
    return Path(shutil.copytree(MODELS / f"v{number}" / party, folder / "models" / "experiment"))


def _change(folder: Path, **fields: object) -> None:
    """Write fields into a model's manifest, with the checksum that then fits if it has one; None takes a field out."""
    manifest = json.loads((folder / "manifest.json").read_text()) | fields
    kept = {field: content for field, content in manifest.items() if content is not None or field not in fields}
    if "sha256" in kept:
        write_manifest(folder, kept)
    else:
        (folder / "manifest.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    ("number", "party", "role", "splits", "leaves"),
    [
        (1, "bank", "label_holder", 9, [6, 7, 7]),
        (1, "telco", "feature_party", 8, [6, 7, 7]),
        (2, "bank", "label_holder", 4, [5, 5, 5]),
        (2, "telco", "feature_party", 8, [5, 5, 5]),
        (3, "bank", "label_holder", 6, [4, 4, 4]),
        (3, "telco", "feature_party", 3, [4, 4, 4]),
        (4, "bank", "label_holder", 5, [1, 4, 2]),
        (4, "telco", "feature_party", 3, [1, 4, 2]),
        (5, "bank", "label_holder", 10, [6, 6, 5]),
        (5, "telco", "feature_party", 4, [6, 6, 5]),
        (6, "bank", "label_holder", 4, [6, 6, 5]),
        (6, "telco", "feature_party", 10, [6, 6, 5]),
    ],
)
def test_every_format_loads(number: int, party: str, role: str, splits: int, leaves: list[int], tmp_path: Path) -> None:
    """Files as a release of that format wrote them: manifest, digests and all trees are read, by name and by folder."""
    folder = _copy(tmp_path, party, number)
    submission = json.loads((folder / "job.json").read_text())["submission"]
    manifest, trees = read_model(Store(tmp_path).model("experiment", submission))
    assert (manifest["version"], manifest["role"], len(trees)) == (number, role, 3)
    assert sum(len(tree.get("own", tree.get("splits"))) for tree in trees) == splits
    assert read_model(folder) == (manifest, trees)
    found = [Tree.from_dict(tree["tree"]).leaves if role == "label_holder" else tree["leaves"] for tree in trees]
    assert [len(each) for each in found] == leaves


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (1, "shard.jsonl"),
        (2, "trees.jsonl"),
        (3, "trees.jsonl"),
        (4, "trees.jsonl"),
        (5, "trees.jsonl"),
        (6, "trees.jsonl"),
    ],
)
def test_a_file_is_found_by_its_kind_in_every_format(number: int, name: str, tmp_path: Path) -> None:
    """A changed file and a missing one are named as the format names them."""
    folder = _copy(tmp_path, "bank", number)
    path = folder / name
    assert read_model(folder)[0] == read_manifest(folder)
    path.write_bytes(path.read_bytes() + b"{}\n")
    with pytest.raises(DataError, match=rf"{path}: is not the file that was published"):
        read_model(folder)
    path.unlink()
    with pytest.raises(DataError, match=rf"{path}: is not the file that was published"):
        read_manifest(folder)


@pytest.mark.parametrize(
    ("number", "field", "content"),
    [
        (1, "shard", None),
        (1, "shard", 7),
        (2, "files", None),
        (2, "files", {}),
        (2, "files", ["trees.jsonl"]),
        (2, "files", {"trees.jsonl": None}),
        (3, "files", None),
        (3, "files", {}),
    ],
)
def test_digests_that_are_not_there_are_told(number: int, field: str, content: object, tmp_path: Path) -> None:
    """A model whose manifest vouches for no file is refused, even where there is no file."""
    folder = _copy(tmp_path, "bank", number)
    trees_file(folder).unlink()
    _change(folder, **{field: content})
    with pytest.raises(DataError, match=rf"manifest\.json: {field} has no digest of every file of the model"):
        read_model(folder)


def test_a_model_of_another_kind_has_no_trees(tmp_path: Path) -> None:
    """Files of any kind are checked; who asks for trees where there are none reads which kinds there are."""
    folder = _copy(tmp_path, "telco")
    trees_file(folder).rename(folder / "weights.npz")
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


def test_every_format_has_its_sample() -> None:
    """Whoever raises the format keeps a model of the one before."""
    assert sorted(path.name for path in MODELS.glob("v[0-9]*")) == [f"v{k}" for k in range(1, MODEL_FORMAT + 1)]


def test_the_digest_of_the_job_is_required(tmp_path: Path) -> None:
    """Of format 6: a model does not come without the job that its parties agreed on."""
    folder = _copy(tmp_path, "bank")
    _change(folder, job_digest=None)
    with pytest.raises(DataError, match=r"manifest\.json: job_digest is missing; bring a back-up"):
        read_model(folder)


def test_a_manifest_without_a_number_is_of_format_1(tmp_path: Path) -> None:
    """The number came later than the format."""
    folder = _copy(tmp_path, "telco", 1)
    manifest = read_model(folder)[0]
    _change(folder, version=None)
    assert manifest == read_model(folder)[0] | {"version": 1}
    assert "version" not in read_model(folder)[0]


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (
            MODEL_FORMAT + 6,
            f"format {MODEL_FORMAT + 6}, written by a newer version .* up to {MODEL_FORMAT}: install",
        ),
        ("1", "version '1' is none"),
        (True, "version True is none"),
        (0, "version 0 is none"),
    ],
)
def test_other_numbers_are_refused(number: object, message: str, tmp_path: Path) -> None:
    """A newer format is named with the remedy; what is no number is damage."""
    folder = _copy(tmp_path, "bank")
    _change(folder, version=number)
    with pytest.raises(DataError, match=message):
        read_model(folder)


def test_an_older_model_loads_with_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It names folder and format, once however often the model is read; a model of this format has none."""
    for number in range(1, MODEL_FORMAT + 1):
        folder = _copy(tmp_path / str(number), "bank", number)
        for _ in range(3):
            read_model(folder)
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == [
        f"{tmp_path / str(number) / 'models' / 'experiment'}: is a model of format {number}" for number in (1, 2)
    ]


@pytest.mark.second_tier(but=2)
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
