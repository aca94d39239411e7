"""Published models on disk, read and checked: their files, and what features keep in them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from treetap.errors import DataError
from treetap.models.durable import document, parse_json, read_document, read_json

if TYPE_CHECKING:
    from treetap.models.arrays import Array


#: Format of a published model, in its manifest: the only one that is read. Raised whenever models of the last one would
#: be misread or lack what is read; a sample of it is kept below tests/library/models.
MODEL_FORMAT = 7

#: The kind of shard that holds trees, one JSON line a tree; its file's name in jobs and models.
TREES = "trees.jsonl"

#: Metrics after each round of a training of trees, one JSON line a round: see `treetap.models.store`.
HISTORY = "history.jsonl"

#: The kind that holds the weights of a network, arrays by name.
WEIGHTS = "weights.npz"

#: Names of the states of a network that trains, files of arrays: after an even and after an odd number of epochs.
STATES = ("epochs-even", "epochs-odd")

#: All kinds of shard files that parties write.
KINDS = (TREES, WEIGHTS)

#: Party → handle of its split → name of the feature.
Names = Mapping[str, Mapping[int, str]]


#: File of the feature names that other parties have sent, beside the label holder's shard.
NAMES = "names.json"
#: File that says which submission of which job a shard belongs to.
JOB = "job.json"
MANIFEST = "manifest.json"
#: The seed of the checksum of `JOB`, and that of `NAMES`.
JOB_SEED, NAMES_SEED = "job", "names"


def manifest_seed(submission: str) -> str:
    """The seed of the checksum of a manifest, which thereby belongs to the job beside it."""
    return f"manifest of {submission}"


def described(job: Mapping[str, Any], digests: Mapping[str, str], manifest: Mapping[str, Any]) -> dict[str, bytes]:
    """The files that describe a published model, by name.

    `job`: its submission and digests. `digests`: of its other files, by name. `manifest`: what they hold.
    """
    whole = {"version": MODEL_FORMAT, "job_digest": str(job.get("digest")), "files": dict(digests), **manifest}
    return {
        JOB: document(job, JOB_SEED),
        MANIFEST: document(whole, manifest_seed(str(job.get("submission"))), indented=True),
    }


def read_names(folder: Path) -> dict[str, dict[int, str]]:
    """The names of a model's features that other parties have sent; none if they were never requested.

    Raises:
        DataError: the file is damaged.
    """
    path = folder / NAMES
    if not path.is_file():
        return {}
    try:
        content = read_document(path, NAMES_SEED)["names"]
        return {
            str(party): {int(handle): str(name) for handle, name in names.items()} for party, names in content.items()
        }
    except (AttributeError, KeyError, ValueError, DataError):
        raise DataError(f"{path}: is damaged; remove it, and have the names sent again by predict --explain") from None


def read_job(folder: Path) -> dict[str, Any]:
    """The submission of the model in a folder, and the digests of its job and its table.

    Raises:
        DataError: it is not there or damaged, or the model is of another format.
    """
    _manifest_of_today(folder)
    return read_document(folder / JOB, JOB_SEED)


def read_manifest(folder: Path) -> dict[str, Any]:
    """A published model's manifest, all files of the model checked; raises as `read_model` does."""
    path = folder / MANIFEST
    manifest = plain_manifest(folder)
    if not isinstance(manifest.get("job_digest"), str):
        raise DataError(f"{path}: job_digest is missing; bring a back-up of the file back")
    digests = manifest.get("files")
    if not isinstance(digests, dict) or not digests or not all(isinstance(value, str) for value in digests.values()):
        raise DataError(f"{path}: files has no digest of every file of the model; bring a back-up of the file back")
    for name, digest in digests.items():
        if sha256_of(folder / name) != digest:
            raise DataError(f"{folder / name}: is not the file that was published; bring a back-up of it back")
    return manifest


def plain_manifest(folder: Path) -> dict[str, Any]:
    """A published model's manifest by its own checksum; its files are not compared with it. Raises as `read_model`."""
    seed = manifest_seed(str(read_job(folder).get("submission")))
    return read_document(folder / MANIFEST, seed, _manifest_of_today(folder))


def read_model(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A published model's manifest and trees.

    Raises:
        DataError: it is not there, of another format, without trees, or its files are not what was published.
    """
    manifest = read_manifest(folder)
    _require(folder, manifest, TREES)
    return manifest, _lines(folder / TREES)


def read_weights(folder: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """A published network's manifest, and its weights by name.

    Raises:
        DataError: as `read_model`, without weights.
    """
    return read_arrays_of(folder, WEIGHTS)


def read_arrays_of(folder: Path, kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """A published model's manifest, and the arrays of one of its files by name; raises as `read_weights` does."""
    from treetap.models.arrays import read_arrays  # a party's store is opened before it needs any

    manifest, path = read_manifest(folder), folder / kind
    _require(folder, manifest, kind)
    try:
        return manifest, read_arrays(io.BytesIO(path.read_bytes()))
    except ValueError:
        raise DataError(f"{path}: is damaged; bring a back-up of it back") from None


def read_kind(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of a file of a published model; none where it has no such file. Raises as `read_model` does."""
    return _lines(folder / kind) if kind in read_manifest(folder)["files"] else []


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = [parse_json(line) for line in path.read_bytes().splitlines()]
    except ValueError:
        lines = [None]
    if not all(isinstance(line, dict) for line in lines):
        raise DataError(f"{path}: is damaged; bring a back-up of it back")
    return lines


def _require(folder: Path, manifest: Mapping[str, Any], kind: str) -> None:
    if kind not in manifest["files"]:
        raise DataError(f"{folder / MANIFEST}: the model has {', '.join(sorted(manifest['files']))}, but no {kind}")


def _manifest_of_today(folder: Path) -> dict[str, Any]:
    """The manifest of a model of `MODEL_FORMAT`, not yet checked; of another format its fields may mean anything."""
    path = folder / MANIFEST
    manifest = read_json(path)
    version = manifest.get("version")
    if type(version) is not int or version < 1:
        raise DataError(f"{path}: version {version!r} is none; bring a back-up of the file back")
    if version != MODEL_FORMAT:
        raise DataError(
            f"{folder}: is a model of format {version}, and this release reads format {MODEL_FORMAT} alone: train it "
            "again, or install the release that wrote it"
        )
    return manifest


def sha256_of(path: Path) -> str | None:
    """The digest of a file in hexadecimal; None where there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


#: What released sets of records say about the label, one JSON line a tree: the label holder's own figures.
LEAKAGE = "leakage.jsonl"

#: The kind that holds the trees of `TREES` with the values of repairs, one JSON line a tree: see
#: `treetap.models.own_split`.
REPAIRED = "repaired.jsonl"

#: Entry of a label holder's manifest: the repair in `REPAIRED` whose values predictions use.
VALUES = "values"
#: Entry of a manifest, of stored trees and of a job's notes: the fewest drawn records of a cell that is summed.
CELLS = "min_cell_records"
#: Entry of a feature party's manifest, and of its job's notes: the fewest drawn records on a side of its splits.
SIDES = "min_side_records"
#: Entry of a feature party's manifest of an additive model: see `treetap.party.growth.rules.placed`, a share by tree.
PLACED = "cells_placed"
#: Entry of a manifest, and of stored trees: the noise on sums, by party in a label holder's.
COLUMN_PRIVACY = "column_privacy"
#: Entry of a manifest: "withheld" if no instance spaces were shown while trees grew, of the base model's trees too.
SPACES = "instance_spaces"
#: Entry of a label holder's manifest: how many records the training had, without those of an eval table.
TRAINED_ON = "records"
#: Entry of a manifest: "left" where the records of the training were all of the label holder.
JOIN = "join"
#: Entry of a manifest, and of a label holder's stored line: the job was a screening, and what was summed in it.
SCREEN = "screen"
#: The report of a screening at its label holder.
REPORT = "screen.json"
#: Entry of a manifest of trees: the reference value of each feature, see `treetap.tables.references`; null: none.
REFERENCES = "references"
#: Entry of a label holder's manifest: true where no entry of an encrypted prediction may count as constant.
HIDES_CONSTANTS = "hides_constants"

#: Of a label holder's boosted model: the raw scores of the records that it was trained on, arrays by name, from which a
#: later training continues.
CONTINUATION = "continuation.npz"

#: The metrics of a model by the labels as they are, where the training had noisy ones; for the label holder alone.
CLEAN_METRICS = "clean_metrics.json"


def read_repaired(folder: Path) -> list[dict[str, Any]]:
    """The lines of a published model's `REPAIRED`; none where it has no such file. Raises as `read_model` does."""
    return read_kind(folder, REPAIRED)


def read_leakage(folder: Path) -> list[dict[str, Any]]:
    """The lines of a published model's `LEAKAGE`; none where it has no such file. Raises as `read_model` does."""
    return read_kind(folder, LEAKAGE)


#: Name of a metric → its value; None where it is no finite number.
Metrics = Mapping[str, float | None]


def read_history(folder: Path) -> list[dict[str, float | None]]:
    """The metrics after each round of a published model; none of a feature party's model.

    Raises:
        DataError: there is no model, or it is damaged.
    """
    manifest = read_manifest(folder)
    if HISTORY in manifest["files"]:
        file, rounds = HISTORY, [line.get("metrics") for line in read_kind(folder, HISTORY)]
    else:
        file, rounds = MANIFEST, manifest.get("history", [])
    if not isinstance(rounds, list) or not all(
        isinstance(row, dict) and all(value is None or type(value) in (int, float) for value in row.values())
        for row in rounds
    ):
        raise DataError(f"{folder / file}: has no metrics of every round; bring a back-up of it back")
    return rounds


def names_in(rounds: Sequence[Mapping[str, object]]) -> list[str]:
    """All names of metrics or of other keys, in the order in which they appear."""
    return list(dict.fromkeys(name for row in rounds for name in row))
