"""The coordinator's jobs: accepted, run, watched, cancelled, resumed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

from treetap.coordinator import retention
from treetap.coordinator.attempt import Attempt, Parties, next_attempt, note_heard
from treetap.coordinator.config import APPROVAL_DAYS, MOST_JOBS, WAITING_S
from treetap.coordinator.retention import Statuses
from treetap.coordinator.runtime.job_record import (
    CANCELLED,
    again_by,
    attempts,
    attempts_before,
    awaits_approval,
    state_after_break,
    to_base64,
)
from treetap.coordinator.runtime.journal import Journal
from treetap.coordinator.runtime.metrics import CoordinatorMetrics
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.submissions import Submissions
from treetap.coordinator.waiting import DAY_S, LONGEST_PAUSE_S, Place, Questions, Waiting
from treetap.errors import Conflict, Interrupted, TreetapError
from treetap.process.limits import collect_ended
from treetap.protocols.agreement import Request
from treetap.wire.ports import Dialer
from treetap.wire.status_parts import UNDER_WAY
from treetap.wire.v2 import jobs_pb2

log = logging.getLogger(__name__)
#: Phases in which a job can no longer be cancelled: it is about to finish.
LATE_PHASES = ("publish", "write")
#: Seconds that a cancelled serving job may take to report its last figures.
SETTLE_S = 3.0
#: Most attempts, a second apart, to cancel a job's task.
MOST_STOPS = 10


class Jobs:
    """All jobs of one coordinator. `dialer` hides the transport to the parties."""

    def __init__(
        self,
        name: str,
        parties: Mapping[str, str],
        dialer: Dialer,
        journal: Journal,
        silence_s: float,
        metrics: CoordinatorMetrics | None = None,
        most_jobs: int = MOST_JOBS,
        waiting_s: float = WAITING_S,
        approval_days: float = APPROVAL_DAYS,
    ) -> None:
        """`most_jobs`: jobs under way at once, but served models; `waiting_s`: the longest that others wait.

        `approval_days`: the longest that a job waits for people.
        """
        self._metrics = metrics or CoordinatorMetrics(name)
        self._parties = Parties(name, parties, dialer, silence_s, self._metrics)
        self._journal = journal
        self._running: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, Progress] = {}
        self._closing = False
        self._most, self._waiting_s, self._approval_days = most_jobs, waiting_s, approval_days
        self._questions = Questions(self._parties)
        self._counted: dict[str, str] = {}  # job under way that counts → its operator
        self._waiting = Waiting()
        self._trying: asyncio.TimerHandle | None = None
        self._freeing: set[asyncio.Task[Any]] = set()
        own = self._running, self._progress, self._waiting
        self._statuses = Statuses(journal, *own, lambda: self._most, lambda: self._closing)
        self.submissions = Submissions(self._parties, journal, self._statuses.of)

    def count(self) -> None:
        """Have the metrics count the jobs of the journal, before any of them runs.

        From then on a job is counted in the state that `Statuses.of` gives.
        """
        for status in self._journal.listed():
            self._metrics.job(status.state)

    def submit(self, request: Request, operator: str = "") -> str:
        """Accept a job of an operator: a training, a prediction with a model of this coordinator, or a preview.

        Write the submission to the journal, then begin; until an attempt begins, the job counts as interrupted. It
        takes the place of a job of that name which every party has discarded, and counts attempts on.

        Raises:
            ConfigError: no federation could do it.
            UnknownJob: there is no model to continue from, or to predict with.
        """
        kind, message = self.submissions.submitted(request)
        job, signed = request.job, request.signed if request.HasField("signed") else None
        taken = self._journal.has(job)
        before = attempts(self._journal.read(job)) if taken else 0
        self._journal.write_submitted(job, kind, message, request.submission, signed, attempts_before=before)
        if taken:
            log.warning("job %s takes the name of one that failed; attempts under it so far: %d", job, before)
            self._metrics.forget("failed")
        self._metrics.job("interrupted")
        return self._begin(job, "interrupted", operator)

    def go_on(self) -> None:
        """Go on where the coordinator stopped: jobs that served, and those that waited, as far as it is their turn.

        Parties are told to leave the others, which an operator has to resume: they would count as under way there. They
        are told once more of jobs that are over, where not all have confirmed it.
        """
        self.serve_on()
        for job, operator, since in self._journal.waiting():
            if job not in self._waiting:
                approval = awaits_approval(self._journal.read(job))
                self._queue(job, operator, waited_s=max(0.0, time.time() - since), approval=approval)
        for job in set(self._journal.cut_off("train", "predict", "align")) - set(self._running):
            submitted, number = self._journal.submitted(job), attempts(self._journal.read(job))
            self._free(self._parties.leave(job, number, submitted, discard=False))
        self._free(self._end_untold(self._journal.untold()))
        self._admit()

    def _free(self, leaving: Coroutine[Any, Any, object]) -> None:
        """Have parties leave jobs beside all else."""
        task = asyncio.ensure_future(leaving)
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _end_untold(self, jobs: Sequence[str]) -> None:
        """Tell parties of ends, one job after the other."""
        for job in jobs:
            try:
                await self._end(job)
            except TreetapError as failure:  # such as one that an operator has pruned meanwhile
                log.error("job %s: %s", job, failure)

    async def _end(self, job: str) -> list[str]:
        """Have the parties leave a job that is over, and keep it if it is finished; returns who did not confirm it."""
        submitted, number = self._journal.submitted(job), attempts(self._journal.read(job))
        discard = self._statuses.of(job).state != "finished"
        unheard = await self._parties.leave(job, number, submitted, discard=discard, ends=True)
        note_heard(self._journal, job, unheard)
        return unheard

    def serve_on(self) -> None:
        """Resume every job that served when the coordinator stopped: its clients wait for it without an operator.

        One that cannot be resumed, such as on a full disk, is logged and keeps no other from it.
        """
        for job in sorted(set(self._journal.cut_off("serve")) - set(self._running)):
            try:
                self._start(job, "interrupted")
            except TreetapError as failure:
                log.error("job %s is not served: %s; then: treetap resume %s", job, failure, job)

    def resume(self, job: str, operator: str = "") -> str:
        """Resume a job that was interrupted or failed.

        Raises:
            Conflict: the job is finished, cancelled, running or waiting.
            DataError: its file is damaged, or of another version of the protocol.
        """
        state = self._statuses.of(job).state
        if state in ("finished", "cancelled", *UNDER_WAY):
            raise Conflict(f"job {job} is {state}: there is nothing to resume")
        if (kind := self._journal.submitted(job).kind) == "align":
            raise Conflict(f"job {job} is a preview, which is not resumed: ask again by {again_by(kind, job)}")
        return self._begin(job, state, operator)

    async def cancel(self, job: str) -> jobs_pb2.JobStatus:
        """Stop a job and have every party discard its progress. A model that a party has published stays with it.

        A repeated cancel reaches the parties that did not answer before. The job's cost so far stays in the journal.

        Raises:
            Conflict: the job is finished, or about to finish.
            DataError: its file is damaged, or of another version of the protocol; nothing is changed.
        """
        submitted = self._journal.submitted(job)
        status = self._statuses.of(job)
        before = status.state
        if status.state == "finished":
            raise Conflict(f"job {job} is finished: its model stays with the parties")
        if status.state == "running" and status.phase in LATE_PHASES:
            raise Conflict(f"job {job} is publishing its model: it will be finished in a moment")
        if status.state != "cancelled":
            self._journal.write(job, "cancelled")  # before any waiting: no operator may resume it from here on
        if before != "running":  # else `_forget` counts it
            self._metrics.job("cancelled", before)
        self._waiting.remove(job)
        self._questions.end(job)
        events = self._journal.read(job)
        heard = attempts(events) != attempts_before(events)
        if before == "waiting" and not heard and submitted.signed is None:  # nobody could have a party open it
            note_heard(self._journal, job, [])
            return self._statuses.of(job)
        task = self._running.get(job)
        if task is not None:
            if status.phase == "serve":
                await self._progress[job].settle(SETTLE_S)
            await _stop(task)
        why = CANCELLED
        if unheard := await self._end(job):
            names = ", ".join(unheard)
            why += f"; {names} did not confirm it and may still hold files: treetap cancel {job} repeats it"
        after = self._statuses.of(job)
        if after.state == "cancelled":
            after.error = why
        return after

    def status(self, job: str) -> list[jobs_pb2.JobStatus]:
        """One job, or all in the order of their submission, these without costs and phases."""
        return [self._statuses.of(job)] if job else self._statuses.listed()

    def prune(self, names: Sequence[str], days: float, *, dry_run: bool) -> list[str]:
        """Have the journal forget these jobs, or those ended `days` ago: see `treetap.coordinator.retention`."""
        if names:
            over = retention.named(self._journal, self._running, names)
        else:
            over = retention.old(self._journal, self._running, days)
        names = [status.job for status in over]
        if not dry_run:
            self._journal.remove(names)
            for status in over:
                self._metrics.forget(status.state)
        return names

    def watch(self, job: str) -> AsyncIterator[jobs_pb2.JobStatus]:
        """The status whenever it changes, see `Statuses.watch`."""
        return self._statuses.watch(job)

    async def close(self) -> None:
        """Stop all running jobs; each can be resumed from the journal, and those that wait go on to do so."""
        self._closing = True
        self._waiting.close()
        if self._trying is not None:
            self._trying.cancel()
        for leaving in self._freeing:
            leaving.cancel()
        await self._questions.close()
        await asyncio.gather(*(_stop(task) for task in list(self._running.values())))

    async def wait(self, job: str) -> jobs_pb2.JobStatus:
        """Wait until the job neither waits nor runs; returns its status."""
        return await self._statuses.wait(job)

    def _begin(self, job: str, before: str, operator: str) -> str:
        """Begin an attempt, or have the job wait for its turn; serving does not count. `before`: its state so far."""
        if self._journal.submitted(job).kind == "serve":
            return self._start(job, before)
        if len(self._counted) < self._most and not len(self._waiting):
            self._counted[job] = operator
            return self._start(job, before)
        self._wait(job, before, operator)
        self._admit()
        return job

    def _wait(
        self, job: str, before: str, operator: str, why: str = "", *, put_off: bool = False, approval: bool = False
    ) -> None:
        self._journal.write_waiting(job, operator, put_off=put_off, approval=approval)
        self._metrics.job("waiting", before)
        self._queue(job, operator, why=why, approval=approval)

    def _queue(self, job: str, operator: str, *, waited_s: float = 0.0, why: str = "", approval: bool = False) -> None:
        """Put a job that waits, as the journal says, behind the others; one that waits for people: aside."""
        left = max(0.0, (self._approval_days * DAY_S if approval else self._waiting_s) - waited_s)
        expiry = asyncio.get_running_loop().call_later(left, self._expire, job)
        why = why or ("waiting for approval" if approval else "")
        self._waiting.add(Place(job, operator, expiry, why, approval=approval))
        log.info("job %s waits: %s", job, self._waiting.sentence(job, self._most))
        if approval:
            submitted, attempt = self._journal.submitted(job), attempts(self._journal.read(job))
            tell = partial(self._waiting.tell, job)
            self._questions.begin(job, submitted, attempt, tell, partial(self._decided, job))

    def _decided(self, job: str) -> None:
        """Let a job go on of which no party's people are to decide any more; a served model waits for no turn."""
        if self._closing or job not in self._waiting:
            return
        self._waiting.decided(job)
        if self._journal.submitted(job).kind != "serve":
            self._admit()
            return
        try:
            self._start(job, "waiting")
        except TreetapError as failure:  # such as a full disk; the journal says that it waits
            log.error("job %s is not served: %s", job, failure)
            return
        self._waiting.remove(job, turn=True)

    def _admit(self) -> None:
        """Begin the jobs whose turn it is."""
        while not self._closing and len(self._counted) < self._most:
            if (place := self._waiting.next(self._counted.values())) is None:
                break
            self._counted[place.job] = place.operator
            try:
                self._start(place.job, "waiting")
            except TreetapError as failure:  # such as a full disk; the journal says that it waits
                log.error("job %s does not begin: %s", place.job, failure)
                del self._counted[place.job]
                place.again_at = asyncio.get_running_loop().time() + LONGEST_PAUSE_S
                place.why = f"does not begin: {failure}"
                continue
            self._waiting.remove(place.job, turn=True)
        if self._trying is not None:
            self._trying.cancel()
            self._trying = None
        if not self._closing and (pause := self._waiting.pause_s()) is not None:
            self._trying = asyncio.get_running_loop().call_later(pause + 0.01, self._admit)

    def _expire(self, job: str) -> None:
        """End a job that has waited for too long; it can be resumed."""
        status = self._statuses.of(job)
        status.state, again = state_after_break(status.kind), again_by(status.kind, job)
        waited = f"{self._waiting_s:g} s for its turn"
        if self._waiting.for_people(job):
            waited = f"{self._approval_days:g} days for people"
        status.error = f"has waited {waited}: {status.error}; then: {again}"
        try:
            self._journal.write(job, "ended", attempt=status.attempt, status=to_base64(status))
        except TreetapError as failure:
            log.error("job %s waits on: %s", job, failure)
            return
        log.warning("job %s %s", job, status.error)
        self._waiting.remove(job)
        self._questions.end(job)
        self._metrics.job(status.state, "waiting")

    def _start(self, job: str, before: str) -> str:
        """Begin an attempt; `before`: the job's state so far."""
        number = next_attempt(self._journal, job)
        submitted = self._journal.submitted(job)
        status = submitted.status(number)
        status.state = "running"
        progress = self._progress[job] = Progress(status)
        attempt = Attempt(job, submitted, progress, self._parties, self._journal)
        task = asyncio.ensure_future(self._run(job, attempt))
        task.add_done_callback(lambda ended: self._forget(job, ended))  # also if it is cancelled before it begins
        self._running[job] = task
        self._metrics.job("running", before)
        return job

    async def _run(self, job: str, attempt: Attempt) -> None:
        operator = self._counted.get(job, "")
        try:
            await attempt.run()
        finally:
            self._forget(job, asyncio.current_task(), attempt.put_off, operator, approval=attempt.for_people)

    def _forget(
        self,
        job: str,
        task: asyncio.Task[None] | None,
        put_off: str = "",
        operator: str = "",
        *,
        approval: bool = False,
    ) -> None:
        """Release the state of a running job; from here on its status comes from the journal.

        `put_off`: the reason why it has to wait after all; else the next ones may begin.
        """
        if self._running.get(job) is not task:
            return
        begun = self._progress.pop(job).binding
        del self._running[job]
        collect_ended()
        self._counted.pop(job, None)
        state = self._statuses.of(job).state
        self._metrics.job(state, "running")
        if put_off and state != "cancelled" and not self._closing:
            try:
                self._wait(job, state, operator, put_off, put_off=not begun, approval=approval)
            except TreetapError as failure:
                log.error("job %s stays interrupted: %s", job, failure)
        else:
            self._waiting.hurry()
        self._admit()


async def _stop(task: asyncio.Task[None]) -> None:
    """Cancel a job's task until it has ended: some libraries lose a cancellation.

    Raises:
        Interrupted: the task still runs.
    """
    for _ in range(MOST_STOPS):
        task.cancel()
        if (await asyncio.wait({task}, timeout=1.0))[0]:
            return
    raise Interrupted(f"the job does not stop after {MOST_STOPS} cancellations: restart the coordinator")
