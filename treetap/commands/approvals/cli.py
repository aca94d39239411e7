"""The commands of a party's people: jobs, approve and refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treetap import terminal
from treetap.commands.options import Json, answering, print_json
from treetap.errors import BadInput, Interrupted, TreetapError
from treetap.pages.printing import print_words

if TYPE_CHECKING:
    from treetap.commands.approvals.client import PartyCalls
    from treetap.wire.v2 import approvals_pb2

    #: Makes a call to the party and returns its answer.
    Ask = Callable[[Callable[[PartyCalls], Awaitable[Any]]], Any]

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
#: Seconds between two looks for a job that is waited for, and the most in all: a week.
AGAIN_S, MOST_S = 1.0, 604_800


def jobs(
    job: Annotated[str, typer.Argument(help="Name of a job; without it, all, and standing approvals.")] = "",
    approver: ApproverFile = DEFAULT_APPROVER,
    as_json: Json = False,
) -> None:
    """Show the jobs that wait for this party's people, or were decided, and what the party would send."""
    with approving(approver) as ask:
        asked, standing = ask(lambda calls: calls.jobs(job)), [] if job else ask(lambda calls: calls.standing())
    if job and not asked:
        raise BadInput(f"the party was asked for no job {job!r}")
    if as_json:
        print_json({"jobs": [_job(one) for one in asked], "standing": [_standing(kept) for kept in standing]})
        return
    for one in asked:
        if job or one.state == "waiting":
            _show(one)
        else:
            typer.echo(f"{one.job}: {one.state} (digest {one.digest.hex()[:LEAST_DIGITS]})")
    for approval in standing:
        _show_standing(approval, as_json=False)


def approve(
    job: Annotated[str, typer.Argument(help="Name of the job.")] = "",
    days: Annotated[float, typer.Option(help="Days for which the approval holds.")] = 30.0,
    digest: Digest = "",
    wait: Annotated[
        float,
        typer.Option(min=0, max=MOST_S, metavar="SECONDS", help="Wait so long for the party to be asked for the job."),
    ] = 0.0,
    standing: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Let in jobs beforehand, as the file bounds them.")
    ] = None,
    approver: ApproverFile = DEFAULT_APPROVER,
    as_json: Json = False,
) -> None:
    """Approve a job that waits for this party's people, once it has been shown; or, with --standing, jobs to come."""
    if bool(job) == (standing is not None) or (wait and not job):
        raise BadInput("give the name of a job, with --wait or without, or --standing FILE: one of them")
    with approving(approver) as ask:
        if standing is None:
            _decide(ask, job, digest, wait, as_json=as_json, approve=True, days=days)
            return
        try:
            text = standing.read_text(encoding="utf-8")
        except (OSError, ValueError) as failure:
            raise BadInput(f"{standing}: cannot be read: {failure}") from None
        _show_standing(ask(lambda calls: calls.stand(text)), as_json=as_json)


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
    with approving(approver) as ask:
        if job:
            _decide(ask, job, digest, as_json=as_json, why=why)
        elif standing:
            _show_standing(ask(lambda calls: calls.revoke(standing)), as_json=as_json)
        else:
            from treetap.commands.approvals.client import refuse_all

            refused = ask(lambda calls: refuse_all(calls, coordinator, why))
            if not refused:
                raise BadInput(f"--from {coordinator}: no job of this coordinator waits; see: treetap jobs")
            if as_json:
                print_json({"jobs": [_job(one) for one in refused]})
            for one in () if as_json else refused:
                typer.echo(f"{one.job}: {one.state} (digest {one.digest.hex()[:LEAST_DIGITS]})")


@contextmanager
def approving(path: Path) -> Iterator[Ask]:
    """What asks the party; a job that is not there, or is another one, is `BadInput`."""
    with answering():
        from treetap.commands.approvals.client import ApproverConfig, ask

        yield partial(ask, ApproverConfig.from_file(path))


def _decide(ask: Ask, job: str, digest: str, wait: float = 0.0, *, as_json: bool, **how: Any) -> None:
    """Decide about a job, once it has been shown, and print the decisions that were made since."""
    from treetap.commands.approvals.client import decision
    from treetap.wire.v2 import approvals_pb2

    shown = _shown(ask, job, digest, wait, quiet=as_json)
    request = approvals_pb2.DecideRequest(job=job, digest=shown.digest, **how)
    decided = ask(lambda calls: calls.decide(request))
    if as_json:
        print_json(_job(decided))
        return
    said = [decision(verdict) for verdict in decided.decisions[len(shown.decisions) :]]
    print_words(terminal.out, *(said or ["it is approved already, as above: the days stay as they are"]))


def _shown(ask: Ask, job: str, digest: str, wait: float = 0.0, *, quiet: bool) -> approvals_pb2.AskedJob:
    """The job of a name that is to be decided, once it has been printed: the one that waits, or a digest's.

    `wait`: seconds in which the party may still be asked for it; a line on standard error says what is waited for.
    """
    if digest and len(digest) < LEAST_DIGITS:
        raise BadInput(f"--digest: give at least {LEAST_DIGITS} digits of it")
    end, said, of = time.monotonic() + wait, "", f" of digest {digest}" if digest else ""
    asked: list[approvals_pb2.AskedJob] = []
    while True:
        try:
            asked = [it for it in ask(lambda calls: calls.jobs(job)) if it.digest.hex().startswith(digest.lower())]
            failure: TreetapError = BadInput(f"the party was asked for no job {job!r}{of}")
        except Interrupted as away:
            failure = away
        by_state = [[it for it in asked if it.state in states] for states in (("waiting",), ("approved", "open"))]
        if any(by_state) or time.monotonic() >= end:
            break
        if (now := "; ".join([str(failure), *(f"the last of that name is {it.state}" for it in asked[-1:])])) != said:
            print_words(terminal.err, f"waits {wait:g} s: {(said := now)}")
        time.sleep(min(AGAIN_S, max(0.0, end - time.monotonic())))
    if not asked:
        raise failure
    shown, *namesakes = next((some for some in by_state if some), asked[-1:])
    if namesakes:
        digests = ", ".join(one.digest.hex()[:LEAST_DIGITS] for one in (shown, *namesakes))
        raise BadInput(f"{1 + len(namesakes)} jobs of the name {job} are {shown.state}: say --digest, one of {digests}")
    if not quiet:
        _show(shown)
    return shown


def _show(asked: approvals_pb2.AskedJob) -> None:
    from treetap.commands.approvals.client import decision, moment

    said = f"{asked.job}: {asked.state}, asked for on {moment(asked.since)}", f"    digest {asked.digest.hex()}"
    print_words(terminal.out, *said, *asked.words, *map(decision, asked.decisions))


def _show_standing(approval: approvals_pb2.StandingApproval, *, as_json: bool) -> None:
    from treetap.commands.approvals.client import moment

    ended = f", ended by {approval.revoked}" if approval.revoked else ""
    said = (
        f"standing approval {approval.name} by {approval.approver}: {approval.used} of {approval.count} jobs, until "
        f"{moment(approval.until)}{ended}"
    )
    print_json(_standing(approval)) if as_json else print_words(terminal.out, said)


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
