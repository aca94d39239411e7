"""Attempts at jobs: on disk those that this party has seen, in memory the sessions of those under way.

Messages may come late, also after a restart. `state/attempts.json` has, for each submission of a job, the highest
attempt that was opened or left, whether it was left, the digest of the job that the first one opened
(`treetap.protocols.agreement`), when the job ended, after which it never opens again, and whose it is. For each
coordinator the last `MOST` submissions are kept that were opened and may go on, as many that are over, and the same of
those that were only left, whose names a coordinator can make up. Of its ends that are no longer kept the time of the
last one is: a job that an operator signed before it is not opened for that coordinator. The file also has the ledger's
head, of lines that are on disk already: a ledger that lacks one of them is refused (`treetap.party.runtime.ledger`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from treetap.errors import BadInput, ConfigError, DataError, OutOfOrder, Refused, UnknownJob
from treetap.models.durable import write_document
from treetap.native import arithmetic
from treetap.party.runtime.context import Role, StepContext
from treetap.party.runtime.job_store import changed
from treetap.party.runtime.ledger import (
    ATTEMPTS,
    ATTEMPTS_SEED,
    FORGOTTEN,
    LEDGER,
    Attempted,
    Kind,
    Ledger,
    stored_attempts,
)
from treetap.party.runtime.steps import StepCache
from treetap.wire.v2 import control_pb2

log = logging.getLogger(__name__)
#: Most submissions of a coordinator that are remembered, of each of four sorts: opened or not, over or not.
MOST = 1024


class Attempts:
    """Store of the attempts that are over, beside the party's ledger.

    Raises `DataError` if the file or the ledger is damaged or cannot be read, or the ledger lacks lines.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._path = ledger, ledger.path.with_name(ATTEMPTS)
        try:
            #: by job and submission as one text, the last one that changed at the end
            self._known, self._forgotten, head = stored_attempts(self._path.parent)
            lines, _ = ledger.head()
        except OSError as failure:
            file = failure.filename or f"{ledger.path} or {self._path}"
            raise DataError(f"{file}: cannot be read: {failure.strerror}; start this party again when it can") from None
        if head is None and (self._known or lines):
            log.warning(
                "%s: is missing, and does not say how many lines %s had: it counts as whole with %d",
                *(self._path, ledger.path, lines),
            )

    def check_same(self, job: str, submission: str, digest: str) -> None:
        """Raise for a job that has ended, or another than the first attempt of this submission began.

        Raises:
            BadInput: it has ended here.
            ConfigError: it is another one. `digest`: in hexadecimal.
        """
        known = self._of(job, submission)
        if known.ended:
            raise BadInput(f"job {job} has ended here; submit a new job")
        if known.digest and known.digest != digest:
            raise ConfigError(changed(job, known.digest, digest))

    def check(self, job: str, submission: str, attempt: int, digest: str) -> None:
        """Raise for an attempt that must not begin. `digest`: of its job, in hexadecimal.

        Raises:
            OutOfOrder: it is over: this party has left it, or a later one has begun.
            BadInput, ConfigError: as `check_same` says.
            DataError: as `Ledger.charges`.
        """
        self._ledger.head()
        known = self._of(job, submission)
        check_latest(job, attempt, known.number)
        if attempt == known.number and known.left:
            raise OutOfOrder(f"attempt {attempt} of job {job} is over: this party has left it")
        self.check_same(job, submission, digest)

    def opened(self, job: str, submission: str, attempt: int, digest: str, coordinator: str = "") -> None:
        """Note that an attempt begins; `OSError` if the disk refuses it, `DataError` as `Ledger.charges`.

        `coordinator`: whose it is; empty: that is not known, and its end, once forgotten, counts for all.
        """
        self._note(_key(job, submission), Attempted(attempt, left=False, digest=digest, coordinator=coordinator))

    def forgotten(self, coordinator: str) -> float:
        """The last end of a coordinator's job that is not kept any more, seconds since 1970; 0: all are."""
        return max(self._forgotten.get(coordinator, 0.0), self._forgotten.get("", 0.0))

    def has_opened(self, job: str, submission: str) -> bool:
        """True if this party has opened a submission, and not discarded it since."""
        known = self._of(job, submission)
        return bool(known.digest) and not known.discarded

    def others(self, job: str, submission: str) -> int:
        """The number of other submissions under a job's name that this party knows of."""
        own = _key(job, submission)
        same = (held for key, held in self._known.items() if key.rpartition("/")[0] == job and key != own)
        return sum(bool(held.digest) for held in same)

    def later_begun(self, job: str, submission: str, attempt: int) -> bool:
        """True if a later attempt has begun."""
        return attempt < self._of(job, submission).number

    def left(
        self,
        job: str,
        submission: str,
        attempt: int,
        *,
        ended: bool = False,
        discarded: bool = False,
        coordinator: str = "",
    ) -> None:
        """Note that an attempt is over, and with it the job if that has `ended`; raises as `opened`."""
        known = self._of(job, submission)
        end, gone = known.ended or (time.time() if ended else 0.0), known.discarded or discarded
        whose = known.coordinator or coordinator
        state = known._replace(number=attempt, left=True, ended=end, discarded=gone, coordinator=whose)
        self._note(_key(job, submission), state)

    def _of(self, job: str, submission: str) -> Attempted:
        return self._known.get(_key(job, submission), Attempted())

    def _note(self, key: str, state: Attempted) -> None:
        if self._known.get(key) == state:
            return
        known = {other: held for other, held in self._known.items() if other != key} | {key: state}
        alike = [other for other, held in known.items() if _sort(held) == _sort(state)]
        forgotten = dict(self._forgotten)
        if len(alike) > MOST and (end := known.pop(alike[0]).ended):
            forgotten[state.coordinator] = max(forgotten.get(state.coordinator, 0.0), end)
        write_document(self._path, {LEDGER: self._ledger.head(), FORGOTTEN: forgotten, **known}, ATTEMPTS_SEED)
        self._known, self._forgotten = known, forgotten


def check_latest(job: str, attempt: int, latest: int) -> None:
    """`OutOfOrder` if attempt `latest`, a later one, has begun."""
    if attempt < latest:
        raise OutOfOrder(f"attempt {attempt} of job {job} is over: attempt {latest} has begun")


def _sort(held: Attempted) -> tuple[str, bool, bool]:
    """The submissions among which one takes room: others of its sort push none out that may go on."""
    return held.coordinator, bool(held.digest), bool(held.ended or held.discarded)


def _key(job: str, submission: str) -> str:
    return f"{job}/{submission}"


def _now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Pace:
    """The progress of an attempt; times are of the event loop.

    Attributes:
        begun: when it began.
        step: the name of the last step.
        done: the rounds before the last step's: trees, or blocks of records.
    """

    begun: float = field(default_factory=_now)
    step: str = ""
    done: int = 0
    _firsts: dict[str, tuple[int, float]] = field(default_factory=dict)  # step → the first round that had it, and when
    _timed: tuple[int, float, float] = (0, 0.0, 0.0)  # rounds that were timed, their seconds, and until when

    def begins(self, step: str, round: int) -> None:
        """Note a step of a round."""
        self.step, now = step, _now()
        first, since = self._firsts.setdefault(step, (round, now))
        if round > self.done:
            self.done, self._timed = round, (round - first, now - since, now)

    def seconds_left(self, rounds: int, now: float) -> float | None:
        """Seconds until that many rounds are done, by their mean time so far; None before one of them was timed."""
        timed, seconds, until = self._timed
        if not timed or not rounds:
            return None
        return max(0.0, seconds / timed * (rounds - self.done) - (now - until))


@dataclass
class Session:
    """A role with its tools, the parties that may send to it, the submission of its job, and the steps it has done.

    `request`: the one that opened it.
    `owed`: kinds of charges that come before any step but the opening, or before an opening's answer of other classes
    than `UNCHARGED`, or its error: an attempt that is left at once, because another party waits for its people, costs
    nothing.
    """

    context: StepContext
    role: Role
    coordinator: str
    members: frozenset[str]
    opening: bytes
    submission: str
    request: control_pb2.StepRequest
    owed: list[Kind]
    book: StepCache = field(default_factory=StepCache)
    pace: Pace = field(default_factory=Pace)
    expiry: asyncio.TimerHandle | None = None
    serves: bool = False  #: a model, to clients
    organisations: dict[str, str] = field(default_factory=dict)  #: of those that have sent, by their certificates

    @property
    def trace(self) -> str:
        """The trace id that the coordinator chose, in hexadecimal; empty: none."""
        return self.request.trace.hex()

    def check_coordinator(self, caller: str) -> None:
        """`Refused` for a coordinator other than the one that opened the session."""
        if caller != self.coordinator:
            raise Refused(f"job {self.context.job} belongs to coordinator {self.coordinator}, not to {caller}")

    def check_same(self, caller: str, submission: str) -> None:
        """Raise for an opening of another job of this name: `Refused` by whose it is, else `ConfigError`."""
        self.check_coordinator(caller)
        if submission != self.submission:
            raise ConfigError(f"another job of the name {self.context.job!r} is under way here; choose another name")

    def charge(self) -> None:
        """Enter the charges that are owed; raises as `JobLedger.enter` does, and they stay owed."""
        while self.owed:
            self.context.ledger.enter(self.owed[0])
            del self.owed[0]

    def check_attempt(self, attempt: int) -> None:
        """`OutOfOrder` for an attempt before the session's, `UnknownJob` for a later one."""
        job, current = self.context.job, self.context.attempt
        check_latest(job, attempt, current)
        if attempt > current:
            raise UnknownJob(f"attempt {attempt} of job {job} has not been prepared here")

    def progress(self) -> control_pb2.Progress:
        """The progress of the running step."""
        progress = self.context.progress
        progress.bytes, progress.arithmetic = self.context.costs.byte_counts.bytes_sent, arithmetic.in_use()
        return progress

    async def close(self, discard: str | None = None) -> None:
        """Stop running steps and drop all state in memory; on disk, delete the files of submission `discard`.

        The files are deleted before the workers stop, which may be busy for a while.
        """
        await self.book.close()
        self.context.costs.end()
        await self.context.mailbox.close()
        self.context.scratch.close()
        try:
            if discard is not None:
                self.context.store.discard(discard)
        finally:
            await self.context.held.aclose()


#: Classes that tell nothing of records: an opening's answer of these alone is not charged.
UNCHARGED = frozenset({"CONTROL", "TOPOLOGY"})
#: Steps after which a prediction or a preview has its result at this party.
LAST_STEPS = frozenset({"write_predictions", "write_rows", "count_ids", "take_count"})
#: Step that opens a job → the nonce of the submission in it.
SUBMISSIONS: Mapping[str, Callable[[control_pb2.StepRequest], str]] = {
    "prepare": lambda request: request.setup.prepare.submission,
    "open_model": lambda request: request.prediction.open_model.prediction,
    "open_preview": lambda request: request.alignment.open_preview.submission,
}
