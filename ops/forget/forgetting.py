"""A party forgets records: out of every file of its state folder that has them, and what is not reached by name.

The party is stopped. The ledger has a line of it before any file changes: how many ids, when, and which transcripts go;
nothing by which an id could be tested.

Every kind of file in a party's state folder: how it forgets a record, or the reason why it has none.

A file that has to forget is rewritten whole, or not at all, so that the same command goes on after a kill.

Rows of forgotten records taken out of the tables that a party writes: predictions, explanations, previews.

A file's other rows stay as they are, byte for byte in CSV. Its id columns are the first ones, before those that every
file of its kind has.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from treetap.errors import BadInput, DataError, Malformed
from treetap.models import keyed_ids
from treetap.models.arrays import read_arrays
from treetap.models.durable import remnant, remove_folder, sync_folder, write_document, write_whole, writing_whole
from treetap.models.store import CONTINUATION, JOB, MANIFEST, manifest_seed, plain_manifest, read_job
from treetap.party.config import PartyConfig
from treetap.party.growth.continuation import forgetting
from treetap.party.prediction.query_counts import QueryCounts
from treetap.party.runtime.job_store import TRANSCRIPTS, Store
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.party.serving import decisions
from treetap.tables.normalised import joined_id, normaliser
from treetap.tables.record_ids import Ids
from treetap.tables.written import table_writer
from treetap.wire.own_rows import OwnRows
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2.serving_pb2 import PredictedRecords, PredictRecords

#: The first column behind the ids, in every kind of file.
_BEHIND = ("prediction", "paths", "class", "score")
#: Rows of Parquet that are in memory at a time.
_AT_ONCE = 1 << 16


def forget_rows(path: Path, ids: Collection[str], *, first: int = 0, dry: bool) -> int:
    """Take these records' rows out of a file, durably; returns how many it had. With `dry` nothing is written.

    `first`: the number of columns before the ids.

    Raises:
        DataError: it is no such file, or damaged.
    """
    try:
        of_form = _of_parquet if path.suffix == ".parquet" else _of_csv
        gone = of_form(path, ids, first, None)
        if gone and not dry:
            with writing_whole(path) as file:
                of_form(path, ids, first, file)
    except (pa.ArrowException, csv.Error, IndexError, UnicodeDecodeError) as failure:
        raise DataError(f"{path}: is damaged ({type(failure).__name__}): move it away, or delete it") from None
    return gone


def _columns(path: Path, names: Sequence[str], first: int) -> range:
    """The places of the id columns. Raises DataError where there are none."""
    marks = () if first else _BEHIND  # a preview has nothing behind its ids
    behind = next((place for place, name in enumerate(names) if name in marks), len(names) if first else 0)
    if behind <= first:
        raise DataError(f"{path}: no file of predictions or of a preview has these columns; move it away")
    return range(first, behind)


def _of_parquet(path: Path, ids: Collection[str], first: int, to: BinaryIO | None) -> int:
    gone = 0
    with pq.ParquetFile(path) as source:
        schema = source.schema_arrow
        places = _columns(path, schema.names, first)
        parts = _kept_parts(source, places, ids)
        if to is None:
            return sum(len(part) - len(kept) for part, kept in parts)
        with table_writer(to, schema, "parquet") as write:
            for part, kept in parts:
                gone += len(part) - len(kept)
                write(kept)
    return gone


def _kept_parts(source: pq.ParquetFile, places: range, ids: Collection[str]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Each part of a file, and its rows that stay."""
    for batch in source.iter_batches(_AT_ONCE):
        part = pa.Table.from_batches([batch])
        columns = [Ids.of_column(part.column(place)) for place in places]
        own = columns[0] if len(columns) == 1 else Ids.joined(columns)
        yield part, part.filter(pa.array([text not in ids for text in own], pa.bool_()))


def _of_csv(path: Path, ids: Collection[str], first: int, to: BinaryIO | None) -> int:
    gone, places = 0, range(0)
    for number, (raw, cells) in enumerate(_csv_rows(path)):
        if number == 0:
            places = _columns(path, cells, first)
        texts = [cells[place].strip() for place in places]
        if number and (texts[0] if len(texts) == 1 else joined_id(texts)) in ids:
            gone += 1
        elif to is not None:
            to.write(raw)
    return gone


def _csv_rows(path: Path) -> Iterator[tuple[bytes, list[str]]]:
    """Each row of a CSV file, which may go over several lines, as it is and by cells."""
    raw = b""
    with path.open("rb") as file:
        for line in file:
            raw += line
            if raw.count(b'"') % 2 == 0:
                yield raw, next(csv.reader([raw.decode()]))
                raw = b""
    if raw:
        raise DataError(f"{path}: ends within quotation marks: move it away, or delete it")


@dataclass
class Case:
    """Records that a party forgets.

    Attributes:
        party: whose state folder it is.
        ids: of the records, as they were given and as each table of the party has them.
        dry: True where files are only looked at.
        forms: make of an id the one that a table has.
        unknown: files that cannot say which records they hold.
    """

    party: PartyConfig
    ids: frozenset[str]
    dry: bool
    forms: Sequence[Callable[[str], str]] = ()
    unknown: list[Path] = field(default_factory=list)

    @classmethod
    def of(cls, party: PartyConfig, ids: Ids, *, dry: bool) -> Case:
        """The records of these ids. Raises as `normaliser`."""
        forms = [normaliser(rules) for rules in party.id_rules()]
        made = (form(text) for form in forms for text in ids)
        return cls(party, frozenset((*ids, *filter(None, made))), dry, forms)

    def asked(self, ids: Iterable[str]) -> int:
        """The number of ids, as clients wrote them, that are of these records."""
        return sum(text in self.ids or any(form(text) in self.ids for form in self.forms) for text in ids)


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
    if keyed_ids.TRAINED_IDS not in manifest:
        return 0
    entry, had = keyed_ids.without(manifest[keyed_ids.TRAINED_IDS], case.ids)
    if had and not case.dry:
        _write_manifest(path.parent, manifest | {keyed_ids.TRAINED_IDS: entry})
    return had


def _write_manifest(folder: Path, manifest: dict[str, object]) -> None:
    seed = manifest_seed(str(read_job(folder).get("submission")))
    write_document(folder / MANIFEST, manifest, seed, indented=True)


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
    Row(
        "decisions/*.jsonl",
        "decisions about records that clients asked about",
        lambda case, path: decisions.forget(path, case.ids, dry=case.dry),
        "the hash goes; when, which client and what it was told stay, with a mark",
    ),
    Row("decisions/*", "a key of hashes", None, "has a random key"),
    Row("noisy_labels/*.npz", "a draw of noisy labels", _draw, "it goes whole: another draw for that table is charged"),
    Row(f"models/*/{CONTINUATION}", "scores from which a training continues", _scores),
    Row(f"models/*/{MANIFEST}", "hashes of the ids of a training", _trained, "the model may score them again"),
    Row(f"models/*/{JOB}", "digests of a job and of whole tables", None, "has digests of whole tables"),
    Row("models/*/*", "a model", None, _MADE_OF_ALL),
    Row("predictions/*.evaluation.json", "metrics", None, "has metrics over all records"),
    Row("predictions/*", "predictions", lambda case, path: forget_rows(path, case.ids, dry=case.dry)),
    Row(
        "previews/*",
        "rows that a preview found",
        lambda case, path: forget_rows(path, case.ids, first=1, dry=case.dry),
    ),
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


_OF_JOBS = (Kind.TRAINING, Kind.PREDICTION, Kind.PREVIEW)


@dataclass
class Forgotten:
    """The outcome.

    Attributes:
        party: its name.
        ids: the number of ids asked for.
        dry: True where nothing was changed.
        files: place in the state folder → kind, records that it had, and what else goes with them.
        removed: jobs whose transcripts were removed, since clients asked in them for these records by id.
        not_reached: place or name → the reason.
    """

    party: str
    ids: int
    dry: bool
    files: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    not_reached: dict[str, str] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """The outcome as JSON types."""
        names = ("file", "kind", "records", "also")
        files = [dict(zip(names, (place, *row), strict=True)) for place, row in self.files.items()]
        reasons = [{"what": what, "why": why} for what, why in self.not_reached.items()]
        return {
            **{"party": self.party, "ids": self.ids, "dry_run": self.dry, "forgotten": files},
            **{"transcripts_removed": self.removed, "not_reached": reasons},
        }


def forget(party: PartyConfig, ids: Ids, *, dry: bool, transcripts: bool) -> Forgotten:
    """Forget records with these ids; the caller holds the state folder for itself.

    `dry`: look only. `transcripts`: remove whole transcripts in which clients asked for one of them by id.

    Raises:
        BadInput: there is no id, a job is unfinished, or ids cannot be made those of a table (`normaliser`).
        DataError: a file is damaged; nothing has changed then.
    """
    if not len(ids):
        raise BadInput("--ids: the file has no id")
    if not dry:
        Store(party.state)  # which deletes what a crash has left
    case, outcome = Case.of(party, ids, dry=dry), Forgotten(party.name, len(ids), dry)
    look = replace(case, dry=True, unknown=[])
    places = list(_places(party.state))
    for place in () if dry else places:  # before anything changes: all can be read, and no job is unfinished
        if (row := row_of(place)) is not None and row.forget is not None:
            row.forget(look, party.state / place)
    asked = dict(_asked(case))
    outcome.removed = sorted(asked) if transcripts else []
    if not dry:
        of_no_job = Occasion(table="", parties=(), coordinator="", job="", attempt=0)
        note = Charge(Kind.FORGOTTEN, of_no_job, len(ids), {"transcripts": outcome.removed})
        ledger_of(party.state).enter(note)
        for job in outcome.removed:
            remove_folder(party.state / TRANSCRIPTS / job)
    gone = {party.state / TRANSCRIPTS / job for job in outcome.removed}
    for row in KINDS:
        for place in places:
            file = party.state / place
            if row.forget is None or row_of(place) is not row or gone.intersection(file.parents):
                continue
            if had := row.forget(case, file):
                outcome.files[place] = (row.what, had, row.why)
    outcome.not_reached.update(_not_reached(case, places, outcome, asked))
    return outcome


def _places(state: Path) -> Iterator[str]:
    """The places of all files below a state folder, in order, without leftovers of a crash, which a start deletes."""
    for path in sorted(state.rglob("*")):
        place = path.relative_to(state)
        if (path.is_file() or path.is_symlink()) and not any(map(remnant, (place, *place.parents))):
            yield place.as_posix()


def _asked(case: Case) -> Iterator[tuple[str, int]]:
    """Job → how often its transcript has one of the ids, in clients' requests and in answers to them."""
    folder = case.party.state / TRANSCRIPTS
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if remnant(path) or not any(path.glob("*.tap")):
            continue
        count = 0
        try:
            for record in TranscriptReader(path):
                if record.message_type == PredictRecords.DESCRIPTOR.full_name:
                    count += case.asked(PredictRecords.FromString(record.message).ids)
                elif record.message_type == PredictedRecords.DESCRIPTOR.full_name:
                    answered = PredictedRecords.FromString(record.message).predictions
                    count += case.asked(one.id for one in answered)
        except Malformed as damage:
            raise DataError(f"{damage}: move {path} away, or bring a back-up of it back") from None
        if count:
            yield path.name, count


def _not_reached(case: Case, places: list[str], outcome: Forgotten, asked: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Name or place → the reason why it still has, or may have, something of these records."""
    party = case.party
    models = sorted({place.split("/")[1] for place in places if place.startswith("models/")})
    if models:
        yield (
            f"models {', '.join(models)}",
            "what was trained from these records stays in trees and weights, and job.json has the digest of the whole "
            "table, by which one who has all the rest of it can test a guess: train again without them (treetap forget "
            "--retrain, at an operator)",
        )
    recorded = {place.split("/")[1] for place in places if place.startswith("transcripts/")}
    for job in sorted(recorded - {*outcome.removed}):
        why = (
            "messages name places in the common order; where alignment = sorted-ids, that is the order of ids, and a "
            "digest of all ids is there, by which one who has the rest of them can test a guess"
        )
        if job in asked:
            why += f"; clients asked by id: {asked[job]} times; remove it with --remove-transcripts"
        yield f"transcripts/{job}", why
    if ledger_of(party.state).charges(Kind.NOISY_LABELS):
        yield (
            "ledger.jsonl",
            "has a digest of each labelled table that noise was drawn for: one who has all the rest of it can test a "
            "guess",
        )
    for place in (path.relative_to(party.state).as_posix() for path in case.unknown):
        yield place, "was written by an earlier release, and does not say which records it has: delete it to be sure"
    for place in places:
        if row_of(place) is None:
            yield place, "is no file that a party writes: look yourself"
    for name in party.table_names():
        yield f"table {name}", "is your own source: delete the records there too, or the next job has them again"
    if party.data is not None:
        yield f"data = {party.data}", "files of ids that predictions read are your own"
    yield from _partners(case, outcome)
    yield "back-ups, logs and freed disk blocks", "are outside: restore no older state, or forget once more after it"


def _partners(case: Case, outcome: Forgotten) -> Iterator[tuple[str, str]]:
    """Partner → jobs with it by the ledger, and of how many this party's own rows had these records."""
    with_them = {place.split("/")[1] for place in outcome.files if place.startswith("transcripts/")}
    with_them.update(outcome.removed)
    jobs: defaultdict[str, set[str]] = defaultdict(set)
    for charge in ledger_of(case.party.state).charges(*_OF_JOBS):
        for partner in charge.occasion.partners:
            jobs[partner].add(charge.occasion.job)
    sure = Counter({partner: len(own & with_them) for partner, own in jobs.items()})
    for partner, own in sorted(jobs.items()):
        known = f"; transcripts say of {sure[partner]} that they had these records" if sure[partner] else ""
        yield f"partner {partner}", f"keeps what it was sent in {len(own)} jobs{known}: ask it to forget too"
