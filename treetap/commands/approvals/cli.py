"""The commands of a party's people: jobs, approve and refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap import logs
from treetap.commands.options import Json
from treetap.errors import BadInput, Conflict, Incompatible, UnknownJob

if TYPE_CHECKING:
    from treetap.commands.approvals.client import Approver
    from treetap.wire.v2 import approvals_pb2

ApproverFile = Annotated[
    Path,
    typer.Option("--approver", envvar="TREETAP_APPROVER", help="The party to call, and the certificate to use."),
]
Digest = Annotated[
    str, typer.Option(metavar="HEX", help="The job's digest, or its beginning: another job of that name is left alone.")
]
DEFAULT_APPROVER = Path("approver.toml")
#: Least digits of a digest that a person gives.
LEAST_DIGITS = 12


def jobs(
    job: Annotated[str, typer.Argument(help="Name of a job; without it, all, and standing approvals.")] = "",
    approver: ApproverFile = DEFAULT_APPROVER,
    as_json: Json = False,
) -> None:
    """Show the jobs that wait for this party's people, or were decided, and what the party would send."""
    with approving(approver) as client:
        asked, standing = client.jobs(job), [] if job else client.standing()
    if job and not asked:
        raise BadInput(f"the party was asked for no job {job!r}")
    if as_json:
        _print_json({"jobs": [_job(one) for one in asked], "standing": [_standing(kept) for kept in standing]})
        return
    for one in asked:
        if job or one.state == "waiting":
            _show(one)
        else:
            typer.echo(f"{one.job}: {one.state} (digest {one.digest.hex()[:LEAST_DIGITS]})")
    for approval in standing:
        typer.echo(_standing_line(approval))


def approve(
    job: Annotated[str, typer.Argument(help="Name of the job.")] = "",
    days: Annotated[float, typer.Option(help="Days for which the approval holds.")] = 30.0,
    digest: Digest = "",
    standing: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Let in jobs beforehand, as the file bounds them.")
    ] = None,
    approver: ApproverFile = DEFAULT_APPROVER,
    as_json: Json = False,
) -> None:
    """Approve a job that waits for this party's people, once it has been shown; or, with --standing, jobs to come."""
    if bool(job) == (standing is not None):
        raise BadInput("give the name of a job, or --standing FILE: one of them")
    with approving(approver) as client:
        if standing is not None:
            try:
                text = standing.read_text(encoding="utf-8")
            except (OSError, ValueError) as failure:
                raise BadInput(f"{standing}: cannot be read: {failure}") from None
            made = client.stand(text)
            _print_json(_standing(made)) if as_json else typer.echo(_standing_line(made))
            return
        shown = _shown(client, job, digest, quiet=as_json)
        decided = client.approve(job, shown.digest, days)
    _print_json(_job(decided)) if as_json else _decided(shown, decided)


def refuse(
    job: Annotated[str, typer.Argument(help="Name of the job.")] = "",
    why: Annotated[str, typer.Option(help="The reason, which its operator reads.")] = "",
    digest: Digest = "",
    standing: Annotated[str, typer.Option(metavar="NAME", help="End the standing approval of this name.")] = "",
    coordinator: Annotated[
        str, typer.Option("--from", metavar="COORDINATOR", help="Refuse all jobs of this coordinator that wait.")
    ] = "",
    approver: ApproverFile = DEFAULT_APPROVER,
    as_json: Json = False,
) -> None:
    """Refuse a job that waits for this party's people, which ends it; with --from all of one coordinator that wait.

    With --standing, end a standing approval.

    A job under way goes on: the refusal holds from its next attempt.
    """
    if sum(map(bool, (job, standing, coordinator))) != 1:
        raise BadInput("give the name of a job, --standing NAME, or --from COORDINATOR: one of them")
    with approving(approver) as client:
        if coordinator:
            refused = client.refuse_all(coordinator, why)
            if not refused:
                raise BadInput(f"--from {coordinator}: no job of this coordinator waits; see: treetap jobs")
            if as_json:
                _print_json({"jobs": [_job(one) for one in refused]})
            for one in () if as_json else refused:
                typer.echo(f"{one.job}: {one.state} (digest {one.digest.hex()[:LEAST_DIGITS]})")
            return
        if standing:
            ended = client.revoke(standing)
            _print_json(_standing(ended)) if as_json else typer.echo(_standing_line(ended))
            return
        shown = _shown(client, job, digest, quiet=as_json)
        decided = client.refuse(job, shown.digest, why)
    _print_json(_job(decided)) if as_json else _decided(shown, decided)


@contextmanager
def approving(path: Path) -> Iterator[Approver]:
    """Calls to the party; a job that is not there, or is another one, is `BadInput`."""
    logs.quiet_grpc()
    from treetap.commands.approvals.client import Approver, read

    try:
        yield Approver(read(path))
    except (UnknownJob, Conflict, Incompatible) as error:
        raise BadInput(str(error)) from None


def _shown(client: Approver, job: str, digest: str, *, quiet: bool) -> approvals_pb2.AskedJob:
    """The job of a name that is to be decided, once it has been printed: the one that waits, or a digest's."""
    asked = client.jobs(job)
    if digest:
        if len(digest) < LEAST_DIGITS:
            raise BadInput(f"--digest: give at least {LEAST_DIGITS} digits of it")
        asked = [one for one in asked if one.digest.hex().startswith(digest.lower())]
    if not asked:
        raise BadInput(f"the party was asked for no job {job!r}" + (f" of digest {digest}" if digest else ""))
    by_state = ([one for one in asked if one.state in states] for states in (("waiting",), ("approved", "open")))
    shown, *namesakes = next((some for some in by_state if some), asked[-1:])
    if namesakes:
        digests = ", ".join(one.digest.hex()[:LEAST_DIGITS] for one in (shown, *namesakes))
        raise BadInput(f"{1 + len(namesakes)} jobs of the name {job} are {shown.state}: say --digest, one of {digests}")
    if not quiet:
        _show(shown)
    return shown


def _show(asked: approvals_pb2.AskedJob) -> None:
    typer.echo(f"{asked.job}: {asked.state}, asked for on {_day(asked.since)}, digest {asked.digest.hex()}")
    for sentence in asked.words:
        typer.echo(f"  {sentence}")
    _decisions(asked)


def _decided(shown: approvals_pb2.AskedJob, decided: approvals_pb2.AskedJob) -> None:
    """Print the decisions that were made since a job was shown."""
    _decisions(decided, after=len(shown.decisions))
    if len(decided.decisions) == len(shown.decisions):
        typer.echo("  it is approved already, as above: the days stay as they are")


def _decisions(asked: approvals_pb2.AskedJob, after: int = 0) -> None:
    for verdict in asked.decisions[after:]:
        until = f" until {_day(verdict.until)}" if verdict.until > verdict.since else ""
        signed = "countersigned" if verdict.HasField("countersigned") else "not countersigned: plain text"
        why = f": {verdict.why}" if verdict.why else ""
        typer.echo(
            f"  {verdict.decision} by {verdict.approver} ({verdict.way}) on {_day(verdict.since)}{until}, {signed}{why}"
        )


def _standing_line(approval: approvals_pb2.StandingApproval) -> str:
    ended = f", ended by {approval.revoked}" if approval.revoked else ""
    return (
        f"standing approval {approval.name} by {approval.approver}: {approval.used} of {approval.count} jobs, until "
        f"{_day(approval.until)}{ended}"
    )


def _job(asked: approvals_pb2.AskedJob) -> dict[str, Any]:
    """A job as JSON types."""
    names = ("job", "kind", "coordinator", "operator", "fingerprint", "since", "state")
    plain: dict[str, Any] = {name: getattr(asked, name) for name in names}
    plain |= {"digest": asked.digest.hex(), "words": list(asked.words), "document": _document(asked.document)}
    parts = ("decision", "approver", "way", "since", "until", "why")
    decisions = [
        {name: getattr(verdict, name) for name in parts}
        | ({"signature": verdict.countersigned.signature.hex()} if verdict.HasField("countersigned") else {})
        for verdict in asked.decisions
    ]
    return plain | {"decisions": decisions}


def _document(text: str) -> Any:
    """The document; as text where the party has cut it."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _standing(approval: approvals_pb2.StandingApproval) -> dict[str, Any]:
    names = ("name", "text", "approver", "since", "until", "count", "used", "revoked")
    return {name: getattr(approval, name) for name in names}


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _print_json(content: object) -> None:
    print(json.dumps(content, indent=1), flush=True)  # flushed, so that a failure to write is raised here
