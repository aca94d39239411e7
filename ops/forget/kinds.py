"""Every kind of file in a party's state folder: how it forgets a record, or the reason why it has none.

A file that has to forget is rewritten whole, or not at all, so that the same command goes on after a kill.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from treetap.errors import BadInput, DataError
from treetap.models import keyed_ids, trained_ids
from treetap.models.arrays import read_arrays
from treetap.models.durable import sync_folder, write_whole
from treetap.models.kept import CONTINUATION
from treetap.models.store import JOB, MANIFEST, manifest_content, plain_manifest, read_job
from treetap.ops.forget.tables import forget_rows
from treetap.party.config import PartyConfig
from treetap.party.growth.continuation import forgetting
from treetap.party.prediction.query_counts import QueryCounts
from treetap.wire.own_rows import OwnRows


@dataclass
class Case:
    """Records that a party forgets.

    Attributes:
        party: whose state folder it is.
        ids: of the records.
        dry: True where files are only looked at.
        unknown: files that cannot say which records they hold.
    """

    party: PartyConfig
    ids: frozenset[str]
    dry: bool
    unknown: list[Path] = field(default_factory=list)


class Row(NamedTuple):
    """A kind of file.

    Attributes:
        pattern: their places in the state folder; `*` stands for a part of one name.
        what: their content, for people.
        forget: takes the records out of one, and returns how many it had; None: it holds none.
        why: the reason for which it holds none, or, with `forget`, what else goes with the records.
    """

    pattern: str
    what: str
    forget: Callable[[Case, Path], int] | None
    why: str = ""


def _own_rows(case: Case, path: Path) -> int:
    own = OwnRows.read(path)
    gone = own.holds(case.ids)
    if gone.any() and not case.dry:
        own.without(gone).write(path)
    return int(gone.sum())


def _queries(case: Case, path: Path) -> int:
    counts = QueryCounts(case.party.state, path.stem)
    return counts.forget(case.ids, only_count=case.dry)


def _draw(case: Case, path: Path) -> int:
    try:
        arrays = read_arrays(io.BytesIO(path.read_bytes()))
    except ValueError:
        raise DataError(f"{path}: is damaged; bring a back-up of it back, or remove it") from None
    if keyed_ids.IDS not in arrays:
        case.unknown.append(path)
        return 0
    had = int(keyed_ids.among(arrays, case.ids).sum())
    if had and not case.dry:
        path.unlink()
        sync_folder(path.parent)
    return had


def _scores(case: Case, path: Path) -> int:
    """Write the manifest first: after a kill its digest is that of what this writes again."""
    folder = path.parent
    manifest, content = plain_manifest(folder), path.read_bytes()
    try:
        kept = forgetting(content, case.ids)
    except ValueError:
        raise DataError(f"{path}: is damaged; bring a back-up of it back") from None
    if kept is None:
        case.unknown.append(path)
        return 0
    after, had = kept
    noted, digest = manifest["files"].get(CONTINUATION), hashlib.sha256(after).hexdigest()
    if noted not in (hashlib.sha256(content).hexdigest(), digest):
        raise DataError(
            f"{path}: is not the file that was published; run an earlier treetap forget that was cut off to its end, "
            "with the same ids, or bring a back-up of the file back"
        )
    if had and not case.dry:
        _write_manifest(folder, manifest | {"files": manifest["files"] | {CONTINUATION: digest}})
        write_whole(path, after)
    return had


def _trained(case: Case, path: Path) -> int:
    manifest = plain_manifest(path.parent)
    if trained_ids.TRAINED_IDS not in manifest:
        return 0
    entry, had = trained_ids.without(manifest[trained_ids.TRAINED_IDS], case.ids)
    if had and not case.dry:
        _write_manifest(path.parent, manifest | {trained_ids.TRAINED_IDS: entry})
    return had


def _write_manifest(folder: Path, manifest: dict[str, object]) -> None:
    write_whole(folder / MANIFEST, manifest_content(manifest, str(read_job(folder).get("submission"))))


def _predictions(case: Case, path: Path) -> int:
    return forget_rows(path, case.ids, dry=case.dry)


def _preview(case: Case, path: Path) -> int:
    return forget_rows(path, case.ids, first=1, dry=case.dry)


def _unfinished(case: Case, path: Path) -> int:
    job = path.relative_to(case.party.state).parts[1]
    raise BadInput(
        f"{case.party.name}: job {job} is unfinished, and its files hold records by their places: end it first "
        f"(treetap resume {job}, or treetap cancel {job}), then forget"
    )


_MADE_OF_ALL = "is made of all records of a training, and names none"
#: Every kind, in the order in which files forget; the first that fits counts.
KINDS = (
    Row("jobs/*/*", "an unfinished job", _unfinished),
    Row("jobs/*/model/*", "a model that is being published", _unfinished),
    Row("transcripts/*/*.own", "the link of aligned records to rows of the table", _own_rows),
    Row("transcripts/*/*.tap", "messages of a job", None, "has places of records, and ids where clients asked by id"),
    Row("queries/*.jsonl", "counts of a partner's queries", _queries, "their limit counts from none"),
    Row("noisy_labels/*.npz", "a draw of noisy labels", _draw, "it goes whole: another draw for that table is charged"),
    Row(f"models/*/{CONTINUATION}", "scores from which a training continues", _scores),
    Row(f"models/*/{MANIFEST}", "hashes of the ids of a training", _trained, "the model may score them again"),
    Row(f"models/*/{JOB}", "digests of a job and of whole tables", None, "has digests of whole tables"),
    Row("models/*/*", "a model", None, _MADE_OF_ALL),
    Row("predictions/*.evaluation.json", "metrics", None, "has metrics over all records"),
    Row("predictions/*", "predictions", _predictions),
    Row("previews/*", "rows that a preview found", _preview),
    Row("ledger.jsonl", "charges", None, "has numbers, and digests of whole tables"),
    Row("approvals/*.json", "decisions about jobs", None, "has descriptions of jobs"),
    Row("attempts.json", "attempts at jobs", None, "has names and digests of jobs"),
    Row("lock", "nothing", None, "has no content"),
)


def row_of(place: str) -> Row | None:
    """The kind of a file by its place below the state folder; None of a file that no party writes."""
    parts = place.split("/")
    patterns = ((row, row.pattern.split("/")) for row in KINDS)
    return next((row for row, own in patterns if len(own) == len(parts) and all(map(fnmatchcase, parts, own))), None)
