"""The coordinator's jobs: accepted, run, watched, cancelled, resumed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence

from google.protobuf.message import Message

from coordinator import protocols, retention, setup
from coordinator.alignment import align
from coordinator.failover import LEAVE_S, accounts, conduct
from coordinator.prediction import opening_of
from coordinator.runtime.job_record import CANCELLED, attempts, for_a_list, packed
from coordinator.runtime.journal import Journal
from coordinator.runtime.metrics import CoordinatorMetrics
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from coordinator.runtime.submission import new_submission
from treetap import logs
from treetap.errors import BadInput, ConfigError, Conflict, Incompatible, Interrupted, TreetapError, UnknownJob
from treetap.names import NAME
from treetap.protocols.job_spec import check_spec
from treetap.wire.byte_counts import ByteCounts
from treetap.wire.ports import Address, Dialer
from treetap.wire.timeouts import Timeouts
from treetap.wire.v2 import control_pb2, jobs_pb2, setup_pb2

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
    ) -> None:
        self._metrics = metrics or CoordinatorMetrics(name)
        self._name = name
        self._parties = {party: Address(party, location) for party, location in parties.items()}
        self._dialer, self._journal, self._silence = dialer, journal, silence_s
        self._running: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, Progress] = {}
        self._closing = False

    def count(self) -> None:
        """Have the metrics count the jobs of the journal, before any of them runs.

        From then on a job is counted in the state that `_state` gives.
        """
        for status in self._journal.listed():
            self._metrics.job(status.state)

    def submit(self, request: jobs_pb2.SubmitRequest) -> str:
        """Accept a training job; `ConfigError` where no federation could do it."""
        check_spec(request.spec)
        self._check_parties([request.spec.label_holder, *request.spec.feature_parties])
        job = self._new_name(request.job, "job")
        return self._accept(job, "train", request.spec, new_submission())

    def predict(self, request: jobs_pb2.PredictRequest) -> str:
        """Accept a prediction with a model that this coordinator trained."""
        if not self._journal.has(request.model):
            raise UnknownJob(
                f"there is no model {request.model!r}: a model has the name of the training job that made it, which "
                "treetap status lists"
            )
        model = self._journal.submitted(request.model)
        if model.kind != "train":
            raise UnknownJob(f"there is no model {request.model!r}: the job of that name is no training")
        if (state := self._state(request.model).state) != "finished":
            raise UnknownJob(f"there is no model {request.model!r}: its training is {state}")
        submission = new_submission()
        opening = opening_of(request, model.spec, model.submission, submission)
        kind = "serve" if opening.serve else "predict"
        job = self._new_name(request.job, f"{kind}-{request.model}"[:50])
        return self._accept(job, kind, opening, submission)

    def serve_on(self) -> None:
        """Resume every job that served when the coordinator stopped: its clients wait for it without an operator.

        One that cannot be resumed, such as on a full disk, is logged and keeps no other from it.
        """
        for job in sorted(set(self._journal.cut_off("serve")) - set(self._running)):
            try:
                if outdated := self._journal.submitted(job).outdated:
                    log.warning("no longer served: %s", outdated)
                else:
                    self._start(job, "interrupted")
            except TreetapError as failure:
                log.error("job %s is not served: %s; then: treetap resume %s", job, failure, job)

    def resume(self, job: str) -> str:
        """Resume a job that was interrupted or failed.

        Raises:
            Conflict: the job is finished, cancelled or running.
            Incompatible: the job was begun in another version of the protocol.
        """
        state = self._state(job).state
        if state in ("finished", "cancelled", "running"):
            raise Conflict(f"job {job} is {state}: there is nothing to resume")
        if outdated := self._journal.submitted(job).outdated:
            raise Incompatible(outdated)
        return self._start(job, state)

    async def cancel(self, job: str) -> jobs_pb2.JobStatus:
        """Stop a job and have every party discard its progress. A model that a party has published stays with it.

        A repeated cancel reaches the parties that did not answer before. The job's cost so far stays in the journal.

        Raises:
            Conflict: the job is finished, or about to finish.
            Incompatible: a later release began the job; nothing is changed.
        """
        submitted = self._journal.submitted(job)
        if submitted.later:
            raise Incompatible(submitted.outdated)
        status = self._state(job)
        before = status.state
        if status.state == "finished":
            raise Conflict(f"job {job} is finished: its model stays with the parties")
        if status.state == "running" and status.phase in LATE_PHASES:
            raise Conflict(f"job {job} is publishing its model: it will be finished in a moment")
        if status.state != "cancelled":
            self._journal.write(job, "cancelled")  # before any waiting: no operator may resume it from here on
        if before != "running":  # else `_forget` counts it
            self._metrics.job("cancelled", before)
        task = self._running.get(job)
        if task is not None:
            if status.phase == "serve":
                await self._progress[job].settle(SETTLE_S)
            await _stop(task)
        unheard = await self._leave(job, self._attempts(job), discard=True)
        why = CANCELLED
        if unheard:
            names = ", ".join(unheard)
            why += f"; {names} did not confirm it and may still hold files: treetap cancel {job} repeats it"
        found = self._state(job)
        if found.state == "cancelled":
            found.error = why
        return found

    def status(self, job: str) -> list[jobs_pb2.JobStatus]:
        """One job, or all in the order of their submission, these without costs and phases."""
        if job:
            return [self._state(job)]
        return [self._list_entry(each) for each in self._journal.listed()]

    def prune(self, names: Sequence[str], days: float, *, dry_run: bool) -> list[str]:
        """Have the journal forget these jobs, or those that ended more than `days` ago; see `coordinator.retention`."""
        if names:
            found = retention.named(self._journal, self._running, names)
        else:
            found = retention.old(self._journal, self._running, days)
        names = [status.job for status in found]
        if not dry_run:
            self._journal.remove(names)
            for status in found:
                self._metrics.forget(status.state)
        return names

    async def watch(self, job: str) -> AsyncIterator[jobs_pb2.JobStatus]:
        """The status whenever it changes, at most five times a second, until the job no longer runs."""
        while True:
            # A copy: the live status may change to its end while it is sent, and the watcher would miss it.
            status = jobs_pb2.JobStatus()
            status.CopyFrom(self._state(job))
            if self._closing and status.kind == "serve" and status.state != "cancelled":
                return  # the job has not ended: it resumes when the coordinator is back
            yield status
            if status.state != "running":
                return
            if job not in self._running:
                continue
            progress = self._progress[job]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await progress.changed()
            await asyncio.sleep(0.2)

    async def close(self) -> None:
        """Stop all running jobs; each can be resumed from the journal."""
        self._closing = True
        await asyncio.gather(*(_stop(task) for task in list(self._running.values())))

    async def wait(self, job: str) -> jobs_pb2.JobStatus:
        """Wait until the job no longer runs; returns its status."""
        task = self._running.get(job)
        if task is not None:
            await asyncio.wait({task})
        return self._state(job)

    def _again(self, job: str, progress: Progress) -> None:
        """Begin a new attempt of a running job."""
        progress.status.attempt = self._next_attempt(job)
        logs.begin(job=job, attempt=progress.status.attempt)

    def _next_attempt(self, job: str) -> int:
        attempt = self._attempts(job) + 1
        self._journal.write(job, "attempt", number=attempt)
        return attempt

    def _accept(self, job: str, kind: str, message: Message, submission: str) -> str:
        """Write the submission to the journal, then begin; until an attempt begins, the job counts as interrupted."""
        self._journal.write_submitted(job, kind, message, submission)
        self._metrics.job("interrupted")
        return self._start(job, "interrupted")

    def _start(self, job: str, before: str) -> str:
        """Begin an attempt; `before`: the job's state so far."""
        attempt = self._next_attempt(job)
        kind = self._journal.submitted(job).kind
        status = jobs_pb2.JobStatus(job=job, kind=kind, state="running", attempt=attempt)
        self._progress[job] = Progress(status)
        task = asyncio.ensure_future(self._run(job, kind, attempt, self._progress[job]))
        task.add_done_callback(lambda ended: self._forget(job, ended))  # also if it is cancelled before it begins
        self._running[job] = task
        self._metrics.job("running", before)
        return job

    async def _run(self, job: str, kind: str, attempt: int, progress: Progress) -> None:
        """Run one attempt to its end; every failure becomes a state and a message."""
        body = self._train if kind == "train" else self._predict
        logs.begin(job=job, attempt=attempt)
        log.info("job %s (%s), attempt %d: begins", job, kind, attempt)
        try:
            await body(job, attempt, progress)
        except asyncio.CancelledError:
            if self._journal.cancelled(job):
                progress.end("cancelled", CANCELLED)
                self._write_end(job, progress)
            else:
                progress.end("interrupted", "the coordinator stopped")
            raise
        except (Interrupted, UnknownJob) as error:  # a person must mend an incompatibility
            mend, bad = f"{error}; then: treetap resume {job}", isinstance(error, Incompatible)
            await self._give_up(job, progress, "interrupted", mend, bad_input=bad)
        except BadInput as error:
            if attempt == 1:
                await self._give_up(job, progress, "failed", str(error), bad_input=True)
            else:  # keep the trees that earlier attempts stored
                mend = f"{error}; mend it, then: treetap resume {job}"
                await self._give_up(job, progress, "interrupted", mend, bad_input=True)
        except TreetapError as error:
            await self._give_up(job, progress, "failed", f"{type(error).__name__}: {error}")
        except Exception as error:
            log.exception("job %s", job)
            await self._give_up(job, progress, "failed", f"defect in the coordinator: {error!r}")
        finally:
            self._forget(job, asyncio.current_task())

    def _forget(self, job: str, task: asyncio.Task[None] | None) -> None:
        """Release the state of a running job; from here on its status comes from the journal."""
        if self._running.get(job) is task:
            del self._running[job], self._progress[job]
            self._metrics.job(self._state(job).state, "running")

    async def _train(self, job: str, attempt: int, progress: Progress) -> None:
        submitted = self._journal.submitted(job)
        spec = submitted.spec
        byte_counts = ByteCounts(self._name, self._metrics)
        roster = self._roster(job, attempt, [spec.label_holder, *spec.feature_parties], byte_counts, progress)
        progress.phase("prepare")
        found = await setup.prepare(roster, spec, submitted.submission)
        model = found.model
        if spec.label_holder not in found.published:
            if not found.aligned:
                progress.phase("align")
                await align(roster, roster.names, spec.alignment)
            course = protocols.training(spec)
            plan = await course.plan(roster, spec, found, progress)
            progress.grown(plan.first)
            if not found.published:
                await course.train(roster, spec, plan, progress)
            progress.phase("publish")
            model = await setup.publish(roster, spec)
        progress.published(model)
        await self._finish(roster, job, progress, byte_counts)

    async def _predict(self, job: str, _attempt: int, progress: Progress) -> None:
        opening = self._journal.submitted(job).opening
        byte_counts = ByteCounts(self._name, self._metrics)
        waits = opening.away_deadline_s or None

        def begin(members: Sequence[str]) -> Roster:
            return self._roster(job, progress.status.attempt, members, byte_counts, progress, waits)

        roster, written = await conduct(opening, progress, begin, lambda: self._again(job, progress))
        progress.status.predictions = written.path
        progress.status.explanations, progress.status.attributions = written.explanations, written.attributions
        progress.status.withheld.extend(written.withheld)
        await self._finish(roster, job, progress, byte_counts, patient=opening.away_policy == "degrade")

    async def _finish(
        self, roster: Roster, job: str, progress: Progress, byte_counts: ByteCounts, *, patient: bool = False
    ) -> None:
        """Collect the job's cost, have the parties leave, write the end; `patient`: skip parties that do not answer."""
        progress.accounts(await accounts(roster, all_of_them=not patient))
        own = setup_pb2.Accounted(traffic=byte_counts.rows())
        progress.status.accounts.append(jobs_pb2.PartyAccount(party=self._name, account=own))
        progress.end("finished")
        self._write_end(job, progress)

    async def _give_up(self, job: str, progress: Progress, state: str, error: str, *, bad_input: bool = False) -> None:
        """Have the parties leave the job and write its end; bad input discards its files, interruption keeps them."""
        log.warning("job %s %s: %s", job, state, error)
        await self._leave(job, progress.status.attempt, discard=state == "failed" and bad_input)
        progress.end(state, error, bad_input=bad_input)
        self._write_end(job, progress)

    def _write_end(self, job: str, progress: Progress) -> None:
        """Write the job's end to the journal; if the disk refuses it, the job counts as interrupted."""
        attempt = progress.status.attempt
        log.info("job %s, attempt %d: %s", job, attempt, progress.status.state)
        try:
            self._journal.write(job, "ended", attempt=attempt, status=packed(progress.status))
        except Interrupted as failure:
            log.error("job %s: %s", job, failure)

    async def _leave(self, job: str, attempt: int, *, discard: bool) -> list[str]:
        """Have the parties leave the job; returns those that did not confirm it in time."""
        submitted = self._journal.submitted(job)
        members = [
            party for party in submitted.members if party in self._parties
        ]  # the configuration may have lost one
        roster = self._roster(job, attempt, members, ByteCounts(self._name, self._metrics), None)
        return await roster.leave(LEAVE_S, discard=discard)

    def _roster(
        self,
        job: str,
        attempt: int,
        members: Sequence[str],
        byte_counts: ByteCounts,
        progress: Progress | None,
        waits_s: float | None = None,
    ) -> Roster:
        """The roster of an attempt; no party is waited for longer than `waits_s`."""
        self._check_parties(members)
        on_progress, on_loss = (
            (ignore_progress, ignore_loss) if progress is None else (progress.on_progress, progress.on_loss)
        )
        parties = {name: self._parties[name] for name in members}
        timeouts = Timeouts(self._silence if waits_s is None else min(self._silence, waits_s))
        return Roster(
            job,
            attempt,
            self._journal.submitted(job).submission,
            parties,
            self._dialer,
            timeouts,
            byte_counts,
            self._metrics,
            on_progress,
            on_loss,
        )

    def _check_parties(self, names: Sequence[str]) -> None:
        unknown = [name for name in names if name not in self._parties]
        if unknown:
            known = ", ".join(self._parties)
            raise ConfigError(f"the coordinator knows no party {unknown[0]!r} (its [parties] are: {known})")

    def _new_name(self, asked: str, prefix: str) -> str:
        job = asked or f"{prefix}-{secrets.token_hex(4)}"
        if not NAME.match(job):
            raise ConfigError(
                f"{job!r} is not a name for a job: lower-case letters, digits and inner hyphens, at most 63"
            )
        if self._journal.has(job):
            raise ConfigError(f"there is a job {job!r} already; choose another name")
        return job

    def _attempts(self, job: str) -> int:
        return attempts(self._journal.read(job))

    def _list_entry(self, found: jobs_pb2.JobStatus) -> jobs_pb2.JobStatus:
        """The live status of a running job, else that of the journal."""
        return for_a_list(self._progress[found.job].status) if found.job in self._running else found

    def _state(self, job: str) -> jobs_pb2.JobStatus:
        """The live status of a running job, else the status in the journal."""
        if job in self._running:
            return self._progress[job].status
        if not self._journal.has(job):
            raise UnknownJob(f"there is no job {job!r}")
        return self._journal.status(job)


def ignore_progress(_party: str, _progress: control_pb2.Progress) -> None:
    """Ignore progress: no operator watches a job that the parties leave."""


def ignore_loss(_party: str) -> None:
    """Ignore a party that does not answer: `Roster.leave` returns it."""


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
