"""Models, shards, arrays and configuration files that were made to harm their reader: one named error each.

Models on disk: those of today's format load, and those of every other one are refused by its number.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.commands.command import treetap
from tests.published import write_job, write_manifest, write_trees
from treetap.commands.model.view import describe, export
from treetap.errors import ConfigError, DataError
from treetap.models.arrays import read_arrays
from treetap.models.durable import make_folder, read_json, remove_folder
from treetap.models.line_file import LineFile, checked_line, first
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
from treetap.strict import read_toml
from treetap.trees.ensemble import Tree

DEEP = 200_000
#: A label holder's part of a model.
SAMPLE = Path(__file__).parent / f"v{MODEL_FORMAT}" / "bank"


def _npy(header: str, content: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + content


def _npz(path: Path, entries: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return path


def test_arrays_come_back(tmp_path: Path) -> None:
    """Of all kinds, orders and sizes, as numpy wrote them, and open to be changed."""
    arrays = {
        "ints": np.arange(12, dtype=np.int64).reshape(3, 4),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "flags": np.array([True, False]),
        "text": np.array(["a", "bcd"]),
        "one": np.array(7),
        "none": np.zeros((0, 3)),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "arrays.npz", **arrays)
        found = read_arrays(tmp_path / "arrays.npz")
        assert found.keys() == arrays.keys()
        for name, array in arrays.items():
            assert found[name].dtype == array.dtype
            assert np.array_equal(found[name], array)
        found["ints"][0, 0] = 5


@pytest.mark.second_tier(but=4)
@pytest.mark.parametrize(
    "content",
    [
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 4096), }\n", bytes(64)),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }\n", bytes(8)),
        _npy("{'descr': '|V0', 'fortran_order': False, 'shape': (99999999999,), }\n"),
        _npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", bytes(8)),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", bytes(16)),
        _npy("(" * 9000),
        _npy("{" * 9000),
        _npy("nonsense"),
        _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }\n", bytes(8), b"\x03\x00"),
        b"PK nothing",
        b"",
    ],
    ids=range(12),
)
def test_a_header_that_does_not_fit_is_refused(content: bytes, tmp_path: Path) -> None:
    """Terabytes, negative sizes, objects, nonsense: a ValueError, and no memory is taken for what is not there."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    path = _npz(tmp_path / "scores.npz", {"a": content})
    with pytest.raises(ValueError, match=r"."):
        read_arrays(path)
    job = Store(tmp_path / "state").job("job")
    path.rename(job.path("scores.npz"))
    with pytest.raises(DataError, match=r"scores\.npz: is damaged; bring a back-up of it back"):
        job.load_arrays("scores")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # kB


def test_a_bomb_of_arrays_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed zeros beyond half of the memory are not unpacked; nor is an archive cut short or changed."""
    content = io.BytesIO()
    np.save(content, np.zeros(4 << 20))
    path = _npz(tmp_path / "bomb.npz", {"a": content.getvalue()}, zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 1 << 20
    monkeypatch.setattr("treetap.models.arrays.half_of_memory", lambda: 1 << 20)
    with pytest.raises(ValueError, match="larger than half of the memory"):
        read_arrays(path)
    monkeypatch.undo()
    whole = path.read_bytes()
    for changed in (whole[:-30], whole[:2000] + b"xxxx" + whole[2004:]):
        path.write_bytes(changed)
        with pytest.raises(ValueError, match="damaged"):
            read_arrays(path)


def test_deep_nesting_is_damage(tmp_path: Path) -> None:
    """JSON and TOML of any depth: an error that names the file."""
    path = tmp_path / "manifest.json"
    for text in ("[" * DEEP, '{"a":' * DEEP, "[" * DEEP + "]" * DEEP):
        path.write_text(text)
        with pytest.raises(DataError, match=r"manifest\.json: is damaged"):
            read_json(path)
    line, _ = checked_line({"a": 1}, first("seed"))
    body = b'{"a":' + b"[" * DEEP + b"}"
    digest = hashlib.sha256(first("seed").encode() + body).hexdigest()
    path.write_bytes(body[:-1] + line[6:].replace(line[-67:-3], digest.encode()))
    with pytest.raises(DataError, match=r"manifest\.json: is damaged"):
        LineFile(path, lambda: "seed").read()
    job = tmp_path / "job.toml"
    job.write_text("a = " + "[" * DEEP)
    with pytest.raises(ConfigError, match=r"job\.toml: is nested too deeply"):
        read_toml(job)
    outcome = treetap("audit", job)
    assert (outcome.status, outcome.err) == (2, f"treetap: {job}: is nested too deeply\n")


@pytest.mark.parametrize("there", [True, False])
def test_a_link_in_the_place_of_a_folder_is_removed(there: bool, tmp_path: Path) -> None:
    """A draft of a model that is a link: what it leads to stays, and the folder can be made."""
    target = tmp_path / "precious"
    if there:
        target.mkdir()
        (target / "file").write_text("mine")
    draft = tmp_path / "draft"
    for name in ("draft", ".draft.gone"):
        (tmp_path / name).symlink_to(target)
        remove_folder(draft)
        assert sorted(os.listdir(tmp_path)) == (["precious"] if there else [])
    make_folder(draft)
    assert not there or (target / "file").read_text() == "mine"


def _tree(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return next(line["tree"] for line in lines if line["tree"]["splits"])


@pytest.mark.parametrize(
    "change",
    [
        lambda _, lines: _tree(lines)["leaves"].pop(),
        lambda _, lines: _tree(lines)["splits"][0].update(node=0),
        lambda _, lines: _tree(lines)["splits"][0].update(gain="1"),
        lambda manifest, _: manifest.update(training_metrics={"auc": {}}),
        lambda manifest, _: manifest.update(job="../../../etc"),
        lambda _, lines: lines.__setitem__(0, []),
    ],
    ids=["no child", "circle", "text for a gain", "metric", "path for a name", "no object"],
)
def test_a_model_that_is_none_is_refused(change: Callable[[Any, Any], None], tmp_path: Path) -> None:
    """Digests fit, the content does not: showing and exporting it name the model, and nothing is written."""
    folder = tmp_path / "model"
    shutil.copytree(SAMPLE, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    lines = [json.loads(line) for line in (folder / "trees.jsonl").read_text().splitlines()]
    change(manifest, lines)
    write_trees(folder, manifest, lines)
    why = f"{folder}: is not a model that this command can read|not a stored tree|trees.jsonl: is damaged"
    with pytest.raises(DataError, match=why):
        describe(folder)
    with pytest.raises(DataError):
        export(folder, tmp_path / "out", names=True)
    assert not (tmp_path / "out").exists()


LINES = [{}, {"metrics": None}, {"metrics": [1]}, {"metrics": {"auc": "1"}}, [], None]
IN_MANIFEST = [{}, 7, "auc", [{"auc": 0.5}, None], [{"auc": "1"}], [[]]]


@pytest.mark.parametrize(
    ("name", "given"),
    [*(("history.jsonl", line) for line in LINES), *(("manifest.json", history) for history in IN_MANIFEST)],
)
def test_a_history_without_metrics_is_named(name: str, given: Any, tmp_path: Path) -> None:
    """In a file of its own and, of older models, in the manifest: the writer of a model can seal it anew."""
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "model"))
    manifest = json.loads((folder / "manifest.json").read_text())
    if name == "manifest.json":
        write_trees(folder, manifest | {"history": given}, [])
    else:
        content = (json.dumps({"round": 0, "trees": 1, "metrics": {"auc": 0.5}}) + f"\n{json.dumps(given)}\n").encode()
        (folder / name).write_bytes(content)
        manifest["files"][name] = hashlib.sha256(content).hexdigest()
        write_manifest(folder, manifest)
    for read in (read_history, describe) if name == "history.jsonl" else (read_history,):
        with pytest.raises(DataError, match=f"{name}: (has no metrics of every round|is damaged)"):
            read(folder)


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
