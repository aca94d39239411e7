"""The trail of a party: an append-only journal of its jobs, whose head its partners hold.

`state/trail.jsonl` has a line for whatever a party's people may have to show later: a job that opened, a decision of an
approver, heads that partners sent, a job's end. A line's checksum covers all lines before it, and the first has 32
random bytes, so that a checksum, the *head*, tells nothing of what it stands for. A line is on disk before a head that
covers it leaves the party. Lines say how many lines the ledger has, and their checksum, so that a ledger which is
brought back alone is found; so are approvals.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from party.runtime.ledger import Ledger, utc
from treetap.errors import DataError
from treetap.models.checksums import whole_lines
from treetap.models.durable import stamp_of
from treetap.models.line_file import Line, LineFile

log = logging.getLogger(__name__)
#: The trail in a party's state folder, and the seed of its checksums.
TRAIL, SEED = "trail.jsonl", "trail"
#: Bytes of the first line's randomness.
SALT_BYTES = 32
#: The remedy where an older state is here.
SAY_WHY = 'stop the party and say why: treetap trail --config FILE --restored "..."'
REMEDY = f"bring the newer state back, or {SAY_WHY}"


class Kind(StrEnum):
    """Kinds of lines."""

    BEGAN = "began"  #: the first line: its randomness, and what there was before
    OPENED = "opened"  #: an attempt at a job
    DECIDED = "decided"  #: a decision of approvers: SHA-256 of the statement that the party countersigned
    FORGOTTEN = "forgotten"  #: a decision that made room for others
    HEADS = "heads"  #: heads that partners sent when a job opened
    ENDED = "ended"  #: a job whose result is there, before this party's last head of it is sent
    LEFT = "left"  #: an attempt that was left, with heads that partners sent at its end
    ERASED = "erased"  #: records that were forgotten: how many, and the transcripts that went with them
    RESTORED = "restored"  #: an older state that was brought back, with the reason


class LedgerHead(NamedTuple):
    """The ledger at a time: its number of lines, and the checksum of the last one."""

    lines: int
    digest: str


@dataclass
class Held:
    """The heads that this party and a partner hold of each other.

    Attributes:
        head: the partner's last head, hexadecimal, and `signed`, its signature as it came, in base64; empty: none. Of
            attempts that overlap, the one that was signed last, which need not have come last.
        stated: this party's last head that the partner has said it holds; empty: none.
    """

    head: str = ""
    signed: str = ""
    stated: str = ""


@dataclass
class _Index:
    """Entries of a trail's lines by what they are looked up by.

    Attributes:
        places: of lines by their checksums.
        began: seconds since 1970 of the first line.
        ledger: the last head of the ledger, and the line that has it.
        opened: by coordinator the seconds since 1970 of its openings.
        decisions: approvals by name: their statements' digests, the last one of which counts; empty: it is forgotten.
        held: by partner.
        restored: the reason for which an older state was brought back last; empty: none was. `restored_at`: its place.
        heard: the partners that have said since that they hold a later head.
    """

    places: dict[str, int] = field(default_factory=dict)
    began: float = 0.0
    ledger: tuple[LedgerHead, Line] | None = None
    opened: dict[str, list[float]] = field(default_factory=dict)
    decisions: dict[str, list[str]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    restored: str = ""
    restored_at: int = 0
    heard: set[str] = field(default_factory=set)

    def add(self, line: Line, digest: str) -> None:
        """Take in the next line."""
        self.places[digest] = len(self.places)
        if not self.began:
            self.began = line["seconds"]
        if (ledger := line.get("ledger")) is not None:
            self.ledger = LedgerHead(*ledger), line
        kind = Kind(line["kind"])
        if kind in (Kind.BEGAN, Kind.RESTORED):
            self.decisions = {name: [made] for name, made in line["approvals"].items()}
        if kind is Kind.OPENED:
            self.opened.setdefault(line["coordinator"], []).append(line["seconds"])
        if kind is Kind.DECIDED:
            self.decisions.setdefault(line["name"], []).append(line["digest"])
        if kind is Kind.FORGOTTEN:
            self.decisions[line["name"]] = []
        if kind is Kind.RESTORED:
            self.restored, self.restored_at, self.heard = line["why"], self.places[digest], set()
        for name, came in line.get("came", {}).items():
            partner = self.held.setdefault(name, Held())
            if not came.get("late"):
                partner.head, partner.signed = came["head"], came["signed"]
            if kind is Kind.HEADS:
                self._hear(name, partner, came["held"])

    def _hear(self, name: str, partner: Held, stated: str) -> None:
        """Take in the head of this trail that a partner holds; jobs at once may bring an earlier one after a later."""
        place = self.places.get(stated, -1)
        if place >= self.places.get(partner.stated, -1):
            partner.stated = stated
        if place >= self.restored_at:
            self.heard.add(name)


class Trail:
    """The trail of a state folder. One process writes it: the party, or a command while the party is stopped.

    `clock`: seconds since 1970; `salt`: random bytes of that number.
    """

    def __init__(
        self,
        party: str,
        state: Path,
        clock: Callable[[], float] = time.time,
        salt: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.party, self.path = party, state / TRAIL
        self._clock, self._salt = clock, salt
        self._file = LineFile(self.path, lambda: SEED)
        self._index = _Index()
        self._stamp: tuple[int, ...] | None = None  # of the file that was read; None: it was not read yet

    @property
    def head(self) -> str:
        """The checksum of the last line, hexadecimal; empty without a trail. Raises `DataError` on damage."""
        return next(reversed(self._read().places), "")

    @property
    def began(self) -> float:
        """Seconds since 1970 of the first line; 0 without a trail."""
        return self._read().began

    def lines(self) -> list[tuple[Line, str]]:
        """All lines, each with its checksum; the party may add some meanwhile. Raises as `head`."""
        self._read()
        return [(line, self._file.digest(number)) for number, line in enumerate(self._file.read(), start=1)]

    def text(self) -> str:
        """All lines as the file has them, with their checksums; raises as `head`."""
        self._read()
        return b"".join(whole_lines(self.path.read_bytes())).decode() if self.path.is_file() else ""

    def has(self, head: str) -> bool:
        """True if a head is of this trail."""
        return head in self._read().places

    def precedes(self, head: str, other: str) -> bool:
        """True if a head is an earlier one than another of this trail, or none."""
        places = self._read().places
        return places.get(head, -1) < places.get(other, -1)

    def held(self, partner: str) -> Held:
        """The heads that this party and a partner hold of each other."""
        return self._read().held.get(partner, Held())

    def openings(self, coordinator: str, within_s: float) -> list[float]:
        """Seconds since 1970 of the jobs that opened for a coordinator in the last `within_s` seconds.

        Times in the future, of a clock that was set back since, are among them.
        """
        since = self._clock() - within_s
        return [seconds for seconds in self._read().opened.get(coordinator, []) if seconds > since]

    def restored(self, partner: str, stated: str = "") -> str:
        """The reason for which an older state was brought back, unless a partner holds a head since; empty: none was.

        `stated`: the head that it now says it holds.
        """
        index = self._read()
        return "" if partner in index.heard or index.places.get(stated, -1) >= index.restored_at else index.restored

    def check_ledger(self, ledger: Ledger) -> None:
        """Raise `DataError` if the ledger is older than this trail says."""
        index = self._read()
        if index.ledger is not None:
            known, line = index.ledger
            if ledger.head(known.lines) != known:
                raise DataError(
                    f"{ledger.path}: is an older state than {TRAIL} knows, which has {known.lines} of its lines on "
                    f"{utc(line['seconds'])}{_with(line)}; {REMEDY}",
                )

    def check(self, ledger: Ledger, approvals: Mapping[str, str]) -> None:
        """Raise `DataError` if the ledger, or an approval, is older than this trail says.

        `approvals`: by name the digest of the statement that counts, see `Approvals.digests`.
        """
        self.check_ledger(ledger)
        for name, made in self._read().decisions.items():
            if made and approvals.get(name) in (None, *(one for one in made if one != made[-1])):
                raise DataError(
                    f"{self.path.parent / 'approvals'}: is an older state than {TRAIL} knows: a decision about "
                    f"{name[:20]} is missing; {REMEDY}",
                )

    def begin(self, ledger: tuple[int, str], approvals: Mapping[str, str]) -> None:
        """Begin the trail if there is none, and note decisions of which a crash kept it from a line."""
        index = self._read()
        if not index.places:
            salt = self._salt(SALT_BYTES).hex()
            self._append(Kind.BEGAN, party=self.party, salt=salt, ledger=ledger, approvals=dict(approvals))
        for name, digest in approvals.items():
            if digest not in self._read().decisions.get(name, []):
                self.note(Kind.DECIDED, name=name, digest=digest)

    def restore(self, ledger: tuple[int, str], approvals: Mapping[str, str], why: str) -> None:
        """Acknowledge that an older state was brought back: from now on this one counts, and partners hear why."""
        self.begin(ledger, approvals)
        self.note(Kind.RESTORED, why=why, ledger=ledger, approvals=dict(approvals))

    def decided(self, name: str, digest: str) -> None:
        """Note what approvers decided, once it is on disk, or, with an empty digest, that it will be forgotten.

        Where the disk refuses a decision's line, `begin` adds it before the next job opens.
        """
        if not digest:
            self.note(Kind.FORGOTTEN, name=name)
            return
        try:
            self.note(Kind.DECIDED, name=name, digest=digest)
        except OSError as failure:
            log.warning("%s: has the decision with the next job only: %s", self.path, failure.strerror)

    def note(self, kind: Kind, **content: Any) -> None:
        """Add a line, durably, to a trail that has begun.

        Raises:
            DataError: the trail is damaged.
            OSError: the disk refuses it.
        """
        if self._read().places:
            self._append(kind, **content)

    def _append(self, kind: Kind, **content: Any) -> None:
        index, line = self._read(), {"kind": str(kind), "seconds": self._clock(), **content}
        self._stamp = None  # where the writing fails, the file is read again
        self._file.put(line, len(index.places))
        index.add(line, self._file.digest(len(index.places) + 1))
        self._stamp = stamp_of(self.path)

    def _read(self) -> _Index:
        stamp = stamp_of(self.path)
        if self._stamp == stamp:
            return self._index
        index = _Index()
        try:
            for number, line in enumerate(self._file.read(), start=1):
                index.add(line, self._file.digest(number))
        except DataError as fault:
            raise DataError(f"{fault}; without one move the file away, and {SAY_WHY}") from None
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DataError(f"{self.path}: is damaged; {REMEDY}") from None
        self._index, self._stamp = index, stamp
        return index


def _with(line: Line) -> str:
    """The job of a line, and its parties, if it has one."""
    if "job" not in line:
        return ""
    parties = f" with {', '.join(line['parties'])}" if "parties" in line else ""
    return f" (job {line['job']}{parties})"
