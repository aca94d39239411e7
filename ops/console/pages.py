"""The content of a console's pages: a party's answers as sentences and tables, each text of a bounded length."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from treetap import terminal
from treetap.commands.approvals.client import decision, moment
from treetap.party.runtime.ledger import Kind
from treetap.wire.disclosure import CLASSES
from treetap.wire.v2 import approvals_pb2, overview_pb2

#: Most characters of a sentence or a cell, of a name within one, and of a job's document.
LONGEST, LONGEST_NAME, LONGEST_DOCUMENT = 600, 120, 100_000
DAY_S = 86_400.0
#: Days before its end from which a certificate is marked.
SOON = 30
View: TypeAlias = overview_pb2.View


@dataclass(frozen=True)
class Listing:
    """A table of a page: its rows of a party's answer, and what it says where there is none."""

    title: str
    heads: Sequence[str]
    empty: str
    of: Callable[[View], Iterable[Sequence[str]]]

    def rows(self, view: View) -> list[list[str]]:
        """The cells, each of a bounded length."""
        return [[clipped(cell) for cell in row] for row in self.of(view)]


@dataclass(frozen=True)
class Shown:
    """A page of tables. `about`: a sentence above them; `refreshes`: it can be had to refresh itself."""

    title: str
    about: str
    tables: Sequence[Listing]
    refreshes: bool = False


@dataclass(frozen=True)
class Job:
    """A job as a page shows it. `document`: its lines; `decisions`: sentences; `open`: it can still be decided.

    `cut`: there is more of the document.
    """

    name: str
    sha256: str
    state: str
    facts: list[tuple[str, str]]
    words: list[str]
    document: list[str]
    cut: bool
    decisions: list[str]
    open: bool


def job(asked: approvals_pb2.AskedJob) -> Job:
    """A job that a party was asked for."""
    try:
        whole, cut = json.dumps(json.loads(asked.document), indent=1), False
    except (ValueError, RecursionError):  # the party has cut it
        whole, cut = asked.document, True
    document, cut = clipped(whole, LONGEST_DOCUMENT).split("\n"), cut or len(whole) > LONGEST_DOCUMENT
    signed = f"{clipped(asked.operator)} (certificate {clipped(asked.fingerprint)})" if asked.operator else "nobody"
    return Job(
        name=clipped(asked.job),
        sha256=asked.digest.hex()[:128],
        state=clipped(asked.state),
        facts=[
            ("State", clipped(asked.state)),
            ("Kind", clipped(asked.kind)),
            ("Coordinator", clipped(asked.coordinator)),
            ("Signed by", signed),
            ("Asked for on", moment(asked.since)),
            ("Digest", asked.digest.hex()[:128]),
        ],
        words=[clipped(sentence) for sentence in asked.words],
        document=document,
        cut=cut,
        decisions=[decision(verdict, _name, clipped) for verdict in asked.decisions],
        open=asked.state != "ended",
    )


def standing(approval: approvals_pb2.StandingApproval) -> tuple[str, str, bool]:
    """Name of a standing approval, a sentence about it, and if it can still be ended."""
    ended = f", ended by {clipped(approval.revoked)}" if approval.revoked else ""
    name, by = clipped(approval.name), clipped(approval.approver)
    said = f"by {by}: {approval.used} of {approval.count} jobs, until {moment(approval.until)}{ended}"
    return name, said, not approval.revoked


def clipped(text: str, most: int = LONGEST) -> str:
    """The beginning of a text, and how much was left out."""
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} characters more)"


def _name(text: str) -> str:
    """A name beside others in a cell."""
    return clipped(text, LONGEST_NAME)


def duration(seconds: float) -> str:
    """A number of seconds in words."""
    if not math.isfinite(seconds):
        return "not known"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def figure(number: float) -> str:
    """A number in decimal digits: counts as a whole, others to six digits."""
    if number == round(number, 0) and abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:.6g}"


def _bytes(one: overview_pb2.ExchangedBytes) -> tuple[str, ...]:
    known = CLASSES.get(one.disclosure)
    kind, tells = ("", "not known here") if known is None else (_READABLE.get(known.kind, known.kind), known.tells)
    return one.peer, one.disclosure, kind, tells, terminal.size(one.bytes)


_READABLE: Mapping[str, str] = {
    "open": "yes: about records",
    "sealed": "no: sealed",
    "plain": "yes: to run jobs",
}
#: Kind of a charge → the unit of its amount; of others it is a number of times.
_AMOUNTS: Mapping[str, str] = {
    Kind.RECORDS: "records",
    Kind.NOISY_LABELS: "ε",
    Kind.CLEAN_LABELS: "labels",
    Kind.NOISED_SUMS: "ρ",
    Kind.NOISED_WEIGHTS: "ε",
    Kind.FORGOTTEN: "ids",
}
_EXCHANGED = ("Partner", "Class", "Readable", "What its reader learns", "Bytes")


def _left(days: float) -> str:
    if not math.isfinite(days):
        return "not known"
    return f"{days:.0f}" if days > SOON else f"{days:.0f}: renew it" if days > 0 else "ended"


#: View of overview.proto → its page.
VIEWS: Mapping[str, Shown] = {
    "running": Shown(
        "Running",
        "Time left is estimated from the trees so far; stopping early may end a job before.",
        [
            Listing(
                "Jobs under way",
                ("Job", "Kind", "Table", "With", "Step", "Done", "Time left", "Begun", "Sent"),
                "No job is under way. One that was let in is here with its step and the time left.",
                lambda view: [
                    (
                        f"{_name(one.job)}, attempt {one.attempt}",
                        f"{_name(one.kind)} ({_name(one.protocol)})",
                        one.table,
                        ", ".join(map(_name, (*one.parties, one.coordinator))),
                        one.step,
                        f"{one.done} of {one.rounds} trees" if one.rounds else f"{one.done}",
                        duration(one.seconds_left) if one.HasField("seconds_left") else "not known yet",
                        f"{duration(one.seconds)} ago",
                        terminal.size(one.bytes_sent),
                    )
                    for one in view.running
                ],
            )
        ],
        refreshes=True,
    ),
    "exchanged": Shown(
        "Exchanged",
        "Bytes by disclosure class and partner since the party was started.",
        [
            Listing(
                "What left",
                _EXCHANGED,
                "Nothing was sent. Bytes to each partner are here once a job runs, by what they tell.",
                lambda view: [_bytes(one) for one in view.exchanged if one.sent],
            ),
            Listing(
                "What came in",
                _EXCHANGED,
                "Nothing came in while the policy named approvers. What partners send is here, by what it tells.",
                lambda view: [_bytes(one) for one in view.exchanged if not one.sent],
            ),
        ],
    ),
    "limits": Shown(
        "Limits",
        "What the policy lets be spent, and measures of what others can read of this party's data in jobs under way.",
        [
            Listing(
                "Limits and leakage",
                ("Of", "Limit", "Used", "Most", "Left"),
                "Nothing was charged, and no limit is set: the loosest setting. What the policy's [labels], [columns] "
                "and [partners.NAME] bound is here, with what is left.",
                lambda view: [
                    (
                        one.of,
                        one.limit,
                        f"{figure(one.spent)} {_name(one.unit)}",
                        figure(one.most) if one.HasField("most") else "no limit",
                        figure(max(one.most - one.spent, 0)) if one.HasField("most") else "–",
                    )
                    for one in view.limits
                ],
            )
        ],
    ),
    "ledger": Shown(
        "Ledger",
        "What this party's data were charged for, over all jobs.",
        [
            Listing(
                "Charges, the newest first",
                ("At", "Kind", "Amount", "Table", "With", "Job, attempt"),
                "The ledger is empty. Each training and prediction is charged here, with who took part.",
                lambda view: [
                    (
                        moment(one.at),
                        one.kind,
                        f"{figure(one.amount)} {_AMOUNTS.get(one.kind, '')}".rstrip(),
                        one.table,
                        ", ".join(map(_name, one.partners)),
                        f"{_name(one.job)}, {one.attempt}" if one.job else "",
                    )
                    for one in view.ledger
                ],
            )
        ],
    ),
    "models": Shown(
        "Models",
        "Shards of models in the party's state; their files are not checked here.",
        [
            Listing(
                "Published models",
                ("Model", "Protocol", "Role here", "Trees", "Published", "Fault"),
                "No model is published. The party's part of each is here once its training has ended.",
                lambda view: [
                    (
                        *(one.model, one.protocol, one.role.replace("_", " ")),
                        *(str(one.trees), moment(one.published), one.fault or "–"),
                    )
                    for one in view.models
                ],
            )
        ],
    ),
    "certificates": Shown(
        "Certificates",
        "Those of the party's own file.",
        [
            Listing(
                "Certificates",
                ("Whose", "Name", "Ends", "Days left"),
                "The party has none: insecure = true. Those of its [tls] would be here, with the days left.",
                lambda view: [
                    (
                        *(one.what, one.subject, moment(one.ends) if one.ends else "–"),
                        one.fault or _left((one.ends - view.at) / DAY_S),
                    )
                    for one in view.certificates
                ],
            )
        ],
    ),
    "transcripts": Shown(
        "Audits",
        "Transcripts that the party keeps, and audit reports beside them.",
        [
            Listing(
                "Transcripts",
                ("Job", "Size", "Changed", "Reports beside it"),
                "No transcript is kept. With record in the policy's [people] each job leaves one here, for audits.",
                lambda view: [
                    (one.job, terminal.size(one.bytes), moment(one.changed), ", ".join(map(_name, one.reports)) or "–")
                    for one in view.transcripts
                ],
            )
        ],
    ),
}
