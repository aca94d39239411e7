"""Verification of a trail against the party's files, and comparison of what a partner holds with it.

Every function yields sentences, one for each thing that does not fit.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from party.approvals.ledger import approvals_of
from party.config import PartyConfig
from party.runtime.job_store import TRANSCRIPTS
from party.runtime.ledger import ledger_of, utc
from party.trail.exchange import head_statement
from party.trail.journal import SEED, Kind, Trail
from treetap.errors import BadInput, DataError, Malformed
from treetap.models.checksums import KEY, bodies_of, parse_json, whole_lines
from treetap.models.line_file import Line
from treetap.wire.own_rows import kept
from treetap.wire.roles import Role
from treetap.wire.signatures import moment_of, verified
from treetap.wire.tap_file import files_of, frames, opened
from treetap.wire.tls import Insecure, Transport
from treetap.wire.transcript import OWN_STEPS
from treetap.wire.v2.transcript_pb2 import OwnAlignment
from treetap.wire.v2.types_pb2 import Signed

#: The kind of a line that has one head that a party holds of another: see `held_of`.
HELD = "held"


def misfits(party: PartyConfig) -> Iterator[str]:
    """Faults of a trail, or of ledger, transcripts and approvals beside it."""
    trail, ledger = Trail(party.name, party.state), ledger_of(party.state)
    try:
        lines = [line for line, _ in trail.lines()]
        if not lines:
            yield f"{trail.path}: there is none: no job has opened here, or it was taken away"
            return
        trail.check(ledger, approvals_of(party).digests())
        for line in _since_restored(lines):
            known = line.get("ledger")
            if known is not None and ledger.head(known[0]) != tuple(known):
                yield f"{ledger.path}: line {known[0]} is not the one of {utc(line['seconds'])}: it was rewritten"
                break
    except DataError as fault:
        yield str(fault)
        return
    for line in lines:
        for peer, came in line.get("came", {}).items():
            if wrong := _signature_fault(party.transport(), came["signed"], peer, party.name, came["head"]):
                yield f"the head of {peer} in the line of {utc(line['seconds'])} (job {line['job']}): {wrong}"
    for job, (records, digest) in _transcripts(_since_restored(lines)).items():
        yield from _of_transcript(party.state / TRANSCRIPTS / job, records, digest)


def _since_restored(lines: list[Line]) -> list[Line]:
    """The lines since people acknowledged an older state, or all: files beside need not fit those before."""
    last = max((place for place, line in enumerate(lines) if line["kind"] == Kind.RESTORED), default=0)
    return lines[last:]


def held_of(lines: list[tuple[Line, str]], party: str, partner: str) -> Iterator[Line]:
    """The heads of one partner that a party's trail has, a line each: what it may show to that partner."""
    for line, _ in lines:
        if partner in line.get("came", {}):
            came = line["came"][partner]
            own = {"kind": HELD, "party": party, "of": partner, "seconds": line["seconds"], "job": line["job"]}
            yield {**own, "head": came["head"], "signed": came["signed"]}


def differences(party: PartyConfig, file: Path) -> Iterator[str]:
    """Places where a partner's export does not fit this party's trail, or the heads of the partner that it has.

    Raises:
        BadInput: it is no export of a trail, or has nothing of this party.
    """
    lines, digests = _read(file)
    partner = str(lines[0].get("party", ""))
    whole = lines[0].get("kind") == Kind.BEGAN
    if partner == party.name:
        raise BadInput(f"{file}: is the export of {partner} itself: compare those of its partners")
    own = Trail(party.name, party.state)
    rows = list(held_of([(line, "") for line in lines], partner, party.name)) if whole else lines
    rows = [row for row in rows if row["of"] == party.name]
    if not partner or not (rows or whole):
        raise BadInput(f"{file}: has no head of {party.name}: have the partner export it with --partner {party.name}")
    for row in rows:
        if own.has(row["head"]):
            continue
        of = f"of {_date(row['signed'])} (job {row['job']}), which {partner} holds"
        if fault := _signature_fault(party.transport(), row["signed"], party.name, partner, row["head"]):
            yield f"{file}: the head {of}, is none of {party.name}: {fault}"
        else:
            yield f"{own.path}: lacks the head {of}: lines were pruned or rewritten, or an older state brought back"
    for row in held_of(own.lines(), party.name, partner) if whole else ():
        if row["head"] not in digests:
            yield (
                f"{file}: lacks the head of {_date(row['signed'])} (job {row['job']}) that {party.name} has from "
                f"{partner}: {partner}'s lines were pruned or rewritten, or the export is older"
            )


def _read(file: Path) -> tuple[list[Line], frozenset[str]]:
    """The lines of an export and their checksums, none of an export for one partner."""
    lines = whole_lines(file.read_bytes())
    digests: list[str] = []
    try:
        if lines and KEY in parse_json(lines[0]):
            lines, digests = bodies_of(file, lines, SEED)
        parsed = [parse_json(line) for line in lines]
        if not parsed or any(line.get("kind") not in (*Kind, HELD) for line in parsed):
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        raise BadInput(f"{file}: is no export of a trail: treetap trail --config FILE --json") from None
    return parsed, frozenset(digests)


def _signature_fault(transport: Transport, text: str, signer: str, to: str, head: str) -> str:
    """The reason why a signature of a head does not count; empty if it does, and in plain text, which has none."""
    if isinstance(transport, Insecure):
        return ""
    try:
        name, _ = verified(transport, _signed(text), head_statement(signer, to, head), Role.PARTY)
    except Malformed as fault:
        return str(fault)
    return "" if name == signer else f"it is signed by {name!r}"


def _signed(text: str) -> Signed:
    try:
        return Signed.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise Malformed("its signature cannot be read") from None


def _date(text: str) -> str:
    """The time of a head's signature."""
    try:
        return utc(moment_of(_signed(text).unix_nanos).timestamp())
    except Malformed:
        return "an unknown time"


def _transcripts(lines: list[Line]) -> Mapping[str, tuple[int, str]]:
    """Job → the last head of its transcript, unless that was removed since to forget records."""
    heads: dict[str, tuple[int, str]] = {}
    for line in lines:
        if line.get("transcript"):
            heads[line["job"]] = tuple(line["transcript"])
        for job in line["transcripts"] if line["kind"] == Kind.ERASED else ():
            heads.pop(job, None)
    return heads


def removed(party: PartyConfig) -> Iterator[str]:
    """A sentence for each transcript that was removed to forget records: when, and by whom."""
    trail = Trail(party.name, party.state)
    for line, _ in trail.lines():
        if line["kind"] == Kind.ERASED and line["transcripts"]:
            yield (
                f"{party.state / TRANSCRIPTS}: {party.name} removed the transcripts of "
                f"{', '.join(line['transcripts'])} on {utc(line['seconds'])} to forget records"
            )


def _of_transcript(folder: Path, records: int, digest: str) -> Iterator[str]:
    """A sentence if a transcript does not have a record of this digest where the trail says."""
    if not folder.is_dir():
        yield f"{folder}: is not there, and the trail has {records} records of it: it was moved away or deleted"
        return
    try:
        for _, path in sorted(files_of(folder).items()):
            with opened(path) as file:
                for frame in frames(path, file):
                    if not frame.whole:
                        continue
                    record, own = frame.open()
                    if record.step == OWN_STEPS[OwnAlignment]:
                        kept(folder, OwnAlignment.FromString(record.message))
                    if record.sequence == records - 1:
                        if own.hex() != digest:
                            yield f"{path}: record {record.sequence} is not the one of the trail: it was rewritten"
                        return
    except (BadInput, DecodeError, Malformed) as fault:
        yield str(fault)
        return
    yield f"{folder}: lacks record {records - 1}, which the trail has: an older state was brought back"


def said(line: Line) -> str:
    """A line of a trail as a sentence."""
    return _SAYS[Kind(line["kind"])](line)


def _opened(line: Line) -> str:
    signed = f", signed by {line['operator']}" if line["operator"] else ""
    return f"{_job(line)} opens for {line['coordinator']} with {_names(line['parties'])}{signed}: {line['digest'][:12]}"


def _left(line: Line) -> str:
    lacking = f", without the last head of {_names(line['missing'])}" if line["missing"] else ""
    return f"{_job(line)} is left{lacking}{_remarks(line['came'])}"


_SAYS: Mapping[Kind, Callable[[Line], str]] = {
    Kind.BEGAN: lambda line: (
        f"the trail begins; the ledger has {line['ledger'][0]} lines, there are {len(line['approvals'])} decisions"
    ),
    Kind.OPENED: _opened,
    Kind.DECIDED: lambda line: f"a decision about {line['name'][:20]}",
    Kind.FORGOTTEN: lambda line: f"the decision about {line['name'][:20]} makes room for others",
    Kind.HEADS: lambda line: f"{_job(line)}: heads of {_names(line['came'])}{_remarks(line['came'])}",
    Kind.ENDED: lambda line: f"{_job(line)}: its result is there",
    Kind.LEFT: _left,
    Kind.ERASED: lambda line: f"treetap forget: {line['records']} ids{_removed(line['transcripts'])}",
    Kind.RESTORED: lambda line: f"an older state was brought back: {line['why']}",
}


def _removed(jobs: list[str]) -> str:
    return f", and the transcripts of {', '.join(jobs)}" if jobs else ""


def _job(line: Line) -> str:
    return f"job {line['job']}, attempt {line['attempt']}"


def _names(names: Any) -> str:
    return ", ".join(names) or "no party"


def _remarks(came: Mapping[str, Line]) -> str:
    """Remarks that came with partners' heads."""
    remarks = [
        f"; {peer} brought an older state back: {row['restored']}" for peer, row in came.items() if "restored" in row
    ]
    remarks += [
        f"; {peer} holds less than before: an older state of it" for peer, row in came.items() if "older" in row
    ]
    return "".join(remarks)
