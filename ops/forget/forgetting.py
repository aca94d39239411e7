"""A party forgets records: out of every file of its state folder that has them, and what is not reached by name.

The party is stopped. The ledger has a line of it before any file changes: how many ids, when, and which transcripts go;
nothing by which an id could be tested.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from treetap.errors import BadInput, DataError, Malformed
from treetap.models.durable import remnant, remove_folder
from treetap.ops.forget.kinds import KINDS, Case, row_of
from treetap.party.config import PartyConfig
from treetap.party.runtime.job_store import TRANSCRIPTS, Store
from treetap.party.runtime.ledger import Charge, Kind, Occasion, ledger_of
from treetap.tables.record_ids import Ids
from treetap.wire.transcript import TranscriptReader
from treetap.wire.v2.serving_pb2 import PredictedRecords, PredictRecords

_ASKED = {message.DESCRIPTOR.full_name: message for message in (PredictRecords, PredictedRecords)}
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
        BadInput: there is no id, or a job is unfinished.
        DataError: a file is damaged; nothing has changed then.
    """
    if not len(ids):
        raise BadInput("--ids: the file has no id")
    if not dry:
        Store(party.state)  # which deletes what a crash has left
    case, outcome = Case(party, frozenset(ids), dry), Forgotten(party.name, len(ids), dry)
    look = Case(party, case.ids, True)
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
                    count += len(case.ids.intersection(PredictRecords.FromString(record.message).ids))
                elif record.message_type == PredictedRecords.DESCRIPTOR.full_name:
                    answered = PredictedRecords.FromString(record.message).predictions
                    count += sum(one.id in case.ids for one in answered)
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
            "table, by which one who has all the rest of it can test a guess: train again without them",
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
