"""A party's files: progress of running jobs, shards of published models.

    state/jobs/<job>/     job.json (the job's submission), shard.jsonl (one tree per line), and at the label holder
                          scores.npz and secret.json
    state/models/<job>/   the same shard with manifest.json, put there by one atomic rename when the job is done; at the
                          label holder also names.json, feature names that other parties have sent

Files are readable by the party's own user only. A step that stores syncs its files (fsync) before it returns.
"""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Collection, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from treetap.errors import BadInput, ConfigError, DataError
from treetap.models.durable import append, sync_folder, write_whole
from treetap.models.store import (
    NAMES,
    SHARD_VERSION,
    Names,
    parse_lines,
    read_json,
    read_model,
    read_names,
    sha256_of,
    whole_lines,
)
from treetap.names import NAME

#: Files that only the training needs, deleted when the model is published.
TRANSIENT = ("secret.json", "scores.npz", "alignment.npz")
Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


class Store:
    """The state folder of one party; raises `BadInput` if it cannot be made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.transcripts = root / "transcripts"
        self.predictions = root / "predictions"
        self._jobs = root / "jobs"
        self._models = root / "models"
        try:
            for folder in (self.transcripts, self.predictions, self._jobs, self._models):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for model in self._models.iterdir():  # in case the process was killed between the rename and the clean-up
                _drop(model)
        except OSError as failure:
            raise BadInput(f"state = {str(root)!r}: cannot be used as state folder: {failure.strerror}") from None

    def job(self, name: str) -> JobStore:
        """The files of a job, which may not exist yet."""
        return JobStore(self._jobs / name, self._models / name)

    def model(self, name: str, submission: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """A published model of one submission: its manifest and its trees.

        Raises:
            DataError: it is missing, of another submission or version, or its files have changed since publication.
        """
        folder = self._models / name
        if not NAME.match(name) or not (folder / "manifest.json").is_file():
            raise DataError(f"there is no model {name!r} in {self._models}")
        if read_json(folder / "job.json").get("submission") != submission:
            raise DataError(f"{folder}: this model was trained by another job of that name")
        return read_model(folder)

    def keep_names(self, model: str, received: Names, withheld: Collection[str]) -> None:
        """Label holder: store the last feature names that each party has sent for a published model."""
        path = self._models / model / NAMES
        before = read_names(path.parent)
        names = {party: rows for party, rows in before.items() if party not in withheld} | dict(received)
        if names != before:
            write_whole(path, json.dumps(names, indent=1, sort_keys=True).encode())


class JobStore:
    """One job's files. The folder is made on the first write.

    The shard is read once; then the end of each line is kept in memory, and a tree is appended without reading.
    """

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.model = model
        self._shard = folder / "shard.jsonl"
        self._ends: list[int] = []  # offset in bytes of the end of each whole line
        self._size = -1  # bytes of the shard when last read or written; -1: not read yet

    @property
    def published(self) -> bool:
        """True if the job's model is published."""
        return (self.model / "manifest.json").is_file()

    def claim(self, submission: str) -> None:
        """Make the job's files those of one submission; `ConfigError` if they belong to another.

        Two submissions share a name if the coordinator has lost its journal or if there are two coordinators.
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
        """Store the digest of the job's table; False if the stored trees were grown on a table of another digest."""
        job = self._job()
        if job.get("table", table) != table and (self.published or self._shard.is_file()):
            return False
        if not self.published:
            self._write_job({**job, "table": table})
        return True

    def trees(self) -> list[dict[str, Any]]:
        """The stored trees, without a line that a crash cut off. Reads the whole shard."""
        raw = self._shard.read_bytes() if self._shard.is_file() else b""
        lines = whole_lines(raw)
        found = parse_lines(self._shard, lines)
        self._ends, self._size = list(accumulate(map(len, lines))), len(raw)
        return found

    def count(self) -> int:
        """The number of stored trees. Reads the shard only if it has changed since the last read or write."""
        if self._size != (self._shard.stat().st_size if self._shard.is_file() else 0):
            self.trees()
        return len(self._ends)

    def add_tree(self, tree: dict[str, Any], index: int) -> None:
        """Store `tree` as tree number `index`; drop trees of an interrupted attempt at or after it."""
        line, stored = _line(tree), self.count()
        if stored < index:
            raise DataError(f"{self._shard}: holds {stored} trees, cannot store tree {index}")
        kept = self._ends[index - 1] if index else 0
        whole, self._size = self._size, -1  # if writing fails, the shard is read again
        if 0 < kept == whole:
            append(self._shard, line)
        else:
            self._make_folder()
            before = self._shard.read_bytes()[:kept] if kept else b""
            write_whole(self._shard, before + line)
        self._ends[index:] = [kept + len(line)]
        self._size = kept + len(line)

    def save_arrays(self, name: str, arrays: Arrays) -> None:
        """Store arrays beside the shard, atomically."""
        self._make_folder()
        content = io.BytesIO()
        np.savez(content, allow_pickle=False, **arrays)
        write_whole(self.folder / f"{name}.npz", content.getvalue())

    def load_arrays(self, name: str) -> dict[str, np.ndarray[Any, np.dtype[Any]]] | None:
        """The arrays stored under a name, or None."""
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
        """True if the job has a further file of that name."""
        return (self.folder / name).is_file()

    def publish(self, manifest: dict[str, Any]) -> None:
        """Turn the job's files into a model, then delete those that only the training needed. Idempotent.

        A process killed before the rename can resume; one killed after it leaves files that the next start deletes.
        """
        if self.published:
            return
        self._make_folder()
        if not self._shard.is_file():
            write_whole(self._shard, b"")
        whole = {"version": SHARD_VERSION, "shard": sha256_of(self._shard), **manifest}
        content = json.dumps(whole, indent=1, sort_keys=True, allow_nan=False).encode()
        write_whole(self.folder / "manifest.json", content)
        self.folder.replace(self.model)
        sync_folder(self.model.parent)
        _drop(self.model)

    def discard(self, submission: str) -> None:
        """Delete the files of a submission that will not be finished; files of another submission stay."""
        if self._submission() == submission:
            shutil.rmtree(self.folder, ignore_errors=True)
            shutil.rmtree(self.model, ignore_errors=True)

    def _submission(self) -> str | None:
        """The submission that the files belong to; None if there are no files."""
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
            sync_folder(self.folder.parent)


def _drop(model: Path) -> None:
    for name in TRANSIENT:
        (model / name).unlink(missing_ok=True)


def _line(tree: dict[str, Any]) -> bytes:
    return json.dumps(tree, separators=(",", ":"), allow_nan=False).encode() + b"\n"
