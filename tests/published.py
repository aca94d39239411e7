"""Published models whose files a test writes or changes, with the checksums of what they then hold."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from treetap.models.durable import KEY, write_document
from treetap.models.store import JOB, JOB_SEED, MANIFEST, TREES, manifest_seed


def write_job(folder: Path, submission: str) -> None:
    """Say which submission the files of a folder belong to."""
    write_document(folder / JOB, {"submission": submission}, JOB_SEED)


def write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Write a manifest that belongs to the job beside it."""
    plain = {key: value for key, value in manifest.items() if key != KEY}
    submission = json.loads((folder / JOB).read_text())["submission"]
    write_document(folder / MANIFEST, plain, manifest_seed(submission))


def write_trees(folder: Path, manifest: Mapping[str, Any], trees: Iterable[Mapping[str, Any]]) -> None:
    """Write a shard, and the manifest that says it is what was published."""
    write_files(folder, manifest, {TREES: trees})


def write_files(folder: Path, manifest: Mapping[str, Any], files: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
    """Write the files of a shard by their names, and the manifest that says they are what was published."""
    digests = {}
    for name, lines in files.items():
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        (folder / name).write_bytes(content)
        digests[name] = hashlib.sha256(content).hexdigest()
    write_manifest(folder, {**manifest, "files": digests})
