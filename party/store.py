"""A party's disk: progress of running jobs, shards of published models.

    state/jobs/<job>/     job.json (which submission of the job), shard.jsonl (one tree a line), and at the label holder
                          scores.npz and secret.json
    state/models/<job>/   the same shard with manifest.json: appears whole, by one rename, when the job is done; at the
                          label holder also names.json, features that other parties have named

Files are for the party's own user only. Everything is on disk (fsync) before a step that stores is acknowledged.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from treetap.errors import BadInput, ConfigError, DataError
from treetap.names import NAME

#: Format of a published model, in its manifest. Raised when an older treetap could not read what is written; older
#: formats are read for good, and one of each is kept below tests/party/models.
SHARD_VERSION = 1
#: What only the training needs: deleted when the model is there.
TRANSIENT = ("secret.json", "scores.npz", "alignment.npz")
Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]
#: Party → handle of its split → name of the feature.
Names = Mapping[str, Mapping[int, str]]
#: What other parties have told of their features, beside the label holder's shard.
NAMES = "names.json"


def write_whole(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a file so that after a crash either the old or the new content is there, never half."""
    with writing_whole(path, mode) as file:
        file.write(content)


@contextmanager
def writing_whole(path: Path, mode: int = 0o600) -> Iterator[BinaryIO]:
    """The same for content that comes in parts: the file is there when the block ends, unless by an error."""
    temporary = path.with_name(path.name + ".part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Store:
    """The state folder of one party; `BadInput` where it cannot be made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transcripts = root / "transcripts"
        self.predictions = root / "predictions"
        self._jobs = root / "jobs"
        self._models = root / "models"
        try:
            for folder in (self.transcripts, self.predictions, self._jobs, self._models):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for model in self._models.iterdir():  # a kill between a model's appearance and this clean-up
                _drop(model)
        except OSError as failure:
            raise BadInput(f"state = {str(root)!r}: cannot keep anything there: {failure.strerror}") from None

    def job(self, name: str) -> JobStore:
        """The progress of a job, which may be none."""
        return JobStore(self._jobs / name, self._models / name)

    def model(self, name: str, submission: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A published model of one submission: its manifest and its trees.

        Raises:
            DataError: it is not there, of another submission or version, or its files are not what was published.
        """
        folder = self._models / name
        if not NAME.match(name) or not (folder / "manifest.json").is_file():
            raise DataError(f"there is no model {name!r} in {self._models}")
        if read_json(folder / "job.json").get("submission") != submission:
            raise DataError(f"{folder}: this model was trained by another job of that name")
        return read_model(folder)

    def keep_names(self, model: str, told: Names, withheld: Collection[str]) -> None:
        """Label holder: keep the names that parties have told with a published model; the last word of each counts."""
        path = self._models / model / NAMES
        before = read_names(path.parent)
        names = {party: rows for party, rows in before.items() if party not in withheld} | dict(told)
        if names != before:
            write_whole(path, json.dumps(names, indent=1, sort_keys=True).encode())


def read_names(folder: Path) -> dict[str, dict[int, str]]:
    """The names that other parties have told of a model's features; none where nobody was asked.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / NAMES
    if not path.is_file():
        return {}
    try:
        return {
            str(party): {int(handle): str(name) for handle, name in told.items()}
            for party, told in read_json(path).items()
        }
    except (AttributeError, ValueError):
        raise DataError(f"{path}: is damaged; remove it, and have the names told again by predict --explain") from None


def read_model(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A published model's manifest and trees, of this format or an older one; nothing is written.

    Raises:
        DataError: it is not there, of a newer format, or its files are not what was published.
    """
    manifest = read_json(folder / "manifest.json")
    version = manifest.get("version", 1)
    if type(version) is not int or version < 1:
        raise DataError(f"{folder / 'manifest.json'}: version {version!r} is none; bring a back-up of the file back")
    if version > SHARD_VERSION:
        raise DataError(
            f"{folder}: is a model of format {version}, written by a newer version of treetap; this one reads formats "
            f"up to {SHARD_VERSION}: install the version that wrote it, or a later one"
        )
    if manifest.get("shard") != _sha256(folder / "shard.jsonl"):
        raise DataError(f"{folder / 'shard.jsonl'}: is not the file that was published; bring a back-up of it back")
    return manifest, read_lines(folder / "shard.jsonl")


class JobStore:
    """One job's files. The folder is made on the first write."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.model = model
        self._shard = folder / "shard.jsonl"

    @property
    def published(self) -> bool:
        """Whether the job's model is there already."""
        return (self.model / "manifest.json").is_file()

    def claim(self, submission: str) -> None:
        """Make the job's files those of one submission; `ConfigError` where they are another's.

        Submissions share a name when the coordinator has lost its journal, or when there is another coordinator.
        """
        held = self._submission()
        if held is None:
            self._write_job({"submission": submission})
        elif held != submission:
            raise ConfigError(
                f"there are files of another job of this name, in {self.model if self.published else self.folder}; "
                "choose another name for the job, or remove them"
            )

    def bind(self, table: str) -> bool:
        """Note the digest of the table that the job works on; False if it was another one when trees were stored."""
        job = self._job()
        if job.get("table", table) != table and (self.published or self._shard.is_file()):
            return False
        if not self.published:
            self._write_job({**job, "table": table})
        return True

    def trees(self) -> list[dict[str, Any]]:
        """The stored trees; a line that a crash tore does not count."""
        return read_lines(self._shard)

    def add_tree(self, tree: dict[str, Any], index: int) -> None:
        """Make `tree` the tree number `index`, dropping what an interrupted attempt left at or after it."""
        lines = self.trees()[:index]
        if len(lines) != index:
            raise DataError(f"{self._shard}: holds {len(lines)} trees, cannot store tree {index}")
        self._make_folder()
        if self._shard.is_file() and len(lines) == _line_count(self._shard):
            with self._shard.open("ab") as file:
                file.write(_line(tree))
                file.flush()
                os.fsync(file.fileno())
        else:
            write_whole(self._shard, b"".join(_line(each) for each in [*lines, tree]))

    def save_arrays(self, name: str, arrays: Arrays) -> None:
        """Keep arrays beside the shard, whole or not at all."""
        self._make_folder()
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        write_whole(self.folder / f"{name}.npz", content.getvalue())

    def load_arrays(self, name: str) -> dict[str, np.ndarray[Any, np.dtype[Any]]] | None:
        """The arrays kept under a name, or None."""
        path = self.folder / f"{name}.npz"
        if not path.is_file():
            return None
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {key: archive[key] for key in archive.files}
        except (ValueError, EOFError, zipfile.BadZipFile):
            raise DataError(f"{path}: is damaged; bring a back-up of it back, or cancel the job") from None

    def path(self, name: str) -> Path:
        """A further file of the job, its folder made."""
        self._make_folder()
        return self.folder / name

    def has(self, name: str) -> bool:
        """Whether the job has a further file of that name."""
        return (self.folder / name).is_file()

    def publish(self, manifest: dict[str, Any]) -> None:
        """Turn progress into a model, then delete what only the training needed. Done already: nothing happens.

        A kill before the rename leaves all that a resume needs; one after it leaves files that the next start deletes.
        """
        if self.published:
            return
        self._make_folder()
        if not self._shard.is_file():
            write_whole(self._shard, b"")
        whole = {"version": SHARD_VERSION, "shard": _sha256(self._shard), **manifest}
        content = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False).encode()
        write_whole(self.folder / "manifest.json", content)
        self.folder.replace(self.model)
        _sync_folder(self.model.parent)
        _drop(self.model)

    def discard(self, submission: str) -> None:
        """Delete the files of a submission that will not be finished; those of another one stay."""
        if self._submission() == submission:
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.model, ignore_errors=True)

    def _submission(self) -> str | None:
        """Which submission the files are of; None: there are none."""
        found = self._job().get("submission")
        return None if found is None else str(found)

    def _job(self) -> dict[str, Any]:
        for folder in (self.model, self.folder):
            if (folder / "job.json").is_file():
                return read_json(folder / "job.json")
        return {}

    def _write_job(self, content: dict[str, Any]) -> None:
        self._make_folder()
        write_whole(self.folder / "job.json", json.dumps(content).encode())

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True)
            _sync_folder(self.folder.parent)


def _drop(model: Path) -> None:
    for name in TRANSIENT:
        (model / name).unlink(missing_ok=True)


def _line(tree: dict[str, Any]) -> bytes:
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _line_count(path: Path) -> int:
    """Lines as bytes have them; a torn last line counts as one, so that it is rewritten."""
    return len(path.read_bytes().splitlines())


def read_json(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object; `DataError` names one that does not, or is not there."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (ValueError, TypeError):
        raise DataError(f"{path}: is damaged; bring a back-up of it back") from None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a shard; `DataError` names a line that is none."""
    if not path.is_file():
        return []
    raw = path.read_bytes()
    whole = raw[: raw.rfind(b"\n") + 1]
    found = []
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found.append(json.loads(line))
        except ValueError:
            raise DataError(f"{path}: line {number} is damaged; bring a back-up of the file back") from None
    return found


def _sha256(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
