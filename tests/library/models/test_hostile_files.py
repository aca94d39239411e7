"""Models, shards, arrays and configuration files that were made to harm their reader: one named error each."""

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
from tests.published import write_manifest, write_trees
from treetap.commands.model.view import describe, export
from treetap.errors import ConfigError, DataError
from treetap.models.arrays import read_arrays
from treetap.models.durable import make_folder, read_json, remove_folder
from treetap.models.line_file import LineFile, checked_line, first
from treetap.models.store import MODEL_FORMAT, read_history
from treetap.party.runtime.job_store import Store
from treetap.strict import read_toml

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


def _no_child(manifest: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    _tree(lines)["leaves"].pop()


def _circle(manifest: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    _tree(lines)["splits"][0]["node"] = 0


def _text_for_a_gain(manifest: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    _tree(lines)["splits"][0]["gain"] = "1"


def _metric(manifest: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    manifest["training_metrics"] = {"auc": {}}


def _path_for_a_name(manifest: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    manifest["job"] = "../../../etc"


def _no_object(manifest: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    lines[0] = []  # type: ignore[call-overload]


@pytest.mark.parametrize("change", [_no_child, _circle, _text_for_a_gain, _metric, _path_for_a_name, _no_object])
def test_a_model_that_is_none_is_refused(change: Callable[[Any, Any], None], tmp_path: Path) -> None:
    """Digests fit, the content does not: showing and exporting it name the model, and nothing is written."""
    folder = tmp_path / "model"
    shutil.copytree(SAMPLE, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    lines = [json.loads(line) for line in (folder / "trees.jsonl").read_text().splitlines()]
    change(manifest, lines)
    write_trees(folder, manifest, lines)
    with pytest.raises(
        DataError,
        match=f"{folder}: is not a model that this command can read|not a stored tree|trees.jsonl: is damaged",
    ):
        describe(folder)
    with pytest.raises(DataError):
        export(folder, tmp_path / "out", names=True)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("line", [{}, {"metrics": None}, {"metrics": [1]}, {"metrics": {"auc": "1"}}, [], None])
def test_a_history_without_metrics_is_named(line: Any, tmp_path: Path) -> None:
    """The writer of a model can seal it anew."""
    folder = tmp_path / "model"
    shutil.copytree(SAMPLE, folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    content = (json.dumps({"round": 0, "trees": 1, "metrics": {"auc": 0.5}}) + f"\n{json.dumps(line)}\n").encode()
    (folder / "history.jsonl").write_bytes(content)
    manifest["files"]["history.jsonl"] = hashlib.sha256(content).hexdigest()
    write_manifest(folder, manifest)
    for read in (describe, read_history):
        with pytest.raises(DataError, match=r"history.jsonl: (has no metrics of every round|is damaged)"):
            read(folder)


@pytest.mark.parametrize("history", [{}, 7, "auc", [{"auc": 0.5}, None], [{"auc": "1"}], [[]]])
def test_a_history_in_a_manifest_that_is_none_is_named(history: Any, tmp_path: Path) -> None:
    """A network's."""
    manifest = json.loads((SAMPLE / "manifest.json").read_text())
    shutil.copytree(SAMPLE, tmp_path / "model")
    write_trees(tmp_path / "model", manifest | {"history": history}, [])
    with pytest.raises(DataError, match=r"manifest.json: has no metrics of every round"):
        read_history(tmp_path / "model")
