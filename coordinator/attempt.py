"""One attempt at a job, from its beginning to the end that it writes to the journal; the parties that it reaches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from treetap import logs
from treetap.coordinator import preview, protocols, setup
from treetap.coordinator.failover import accounts, conduct
from treetap.coordinator.runtime.job_record import (
    CANCELLED,
    Submitted,
    again_by,
    attempts,
    is_first_try,
    state_after_break,
    to_base64,
)
from treetap.coordinator.runtime.journal import Journal
from treetap.coordinator.runtime.metrics import CoordinatorMetrics
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import LEAVE_S, Roster
from treetap.coordinator.setup import align
from treetap.errors import (
    BadInput,
    ConfigError,
    Incompatible,
    Interrupted,
    Overloaded,
    Pending,
    Refused,
    TreetapError,
    UnknownJob,
)
from treetap.names import did_you_mean
from treetap.usage import measure
from treetap.wire.disclosure import ByteCounts
from treetap.wire.ports import Address, Dialer
from treetap.wire.timeouts import Timeouts
from treetap.wire.v2 import jobs_pb2, setup_pb2

log = logging.getLogger(__name__)


def next_attempt(journal: Journal, job: str) -> int:
    """Write to the journal that a new attempt at the job begins; returns its number."""
    number = attempts(journal.read(job)) + 1
    journal.write(job, "attempt", number=number)
    return number


def note_heard(journal: Journal, job: str, unheard: Sequence[str]) -> None:
    """Write to the journal that all parties have heard of a job's end; else they are told again at the next start."""
    if unheard:
        again = "the coordinator says so again when it starts"
        log.warning("job %s: %s did not confirm that it is over; %s", job, ", ".join(unheard), again)
        return
    try:
        journal.write_left(job)
    except TreetapError as failure:  # such as a full disk
        log.error("job %s: %s", job, failure)


class Parties:
    """Makes the rosters of attempts. `parties`: name → address; `dialer` hides the transport to them."""

    def __init__(
        self, name: str, parties: Mapping[str, str], dialer: Dialer, silence_s: float, metrics: CoordinatorMetrics
    ) -> None:
        self.coordinator = name
        self.addresses = {party: Address(party, location) for party, location in parties.items()}
        self._dialer, self._silence_s, self.metrics = dialer, silence_s, metrics

    def check(self, names: Sequence[str]) -> None:
        """`ConfigError` for a party that the coordinator does not know."""
        unknown = [name for name in names if name not in self.addresses]
        if unknown:
            known, meant = ", ".join(self.addresses), did_you_mean(unknown[0], self.addresses)
            raise ConfigError(f"the coordinator knows no party {unknown[0]!r} (its [parties] are: {known}){meant}")

    def byte_counts(self) -> ByteCounts:
        """The counters of one attempt's bytes."""
        return ByteCounts(self.coordinator, self.metrics.sent)

    def roster(
        self,
        job: str,
        attempt: int,
        submitted: Submitted,
        members: Sequence[str],
        byte_counts: ByteCounts,
        progress: Progress | None,
        waits_s: float | None = None,
    ) -> Roster:
        """The roster of an attempt. `waits_s`: most seconds of waiting for a party; `progress`: None to report none."""
        self.check(members)
        parties = {name: self.addresses[name] for name in members}
        timeouts = Timeouts(self._silence_s if waits_s is None else min(self._silence_s, waits_s))
        return Roster(
            job,
            attempt,
            submitted.submission,
            parties,
            self._dialer,
            timeouts,
            byte_counts,
            self.metrics,
            progress,
            bytes.fromhex(submitted.trace),
        )

    async def leave(
        self, job: str, attempt: int, submitted: Submitted, *, discard: bool, ends: bool = False
    ) -> list[str]:
        """Have a job's parties leave it; returns those that did not confirm it in time, or whose address is unknown."""
        members = [party for party in submitted.members if party in self.addresses]  # the configuration may lack one
        roster = self.roster(job, attempt, submitted, members, self.byte_counts(), None)
        unheard = await roster.leave(LEAVE_S, discard=discard, ends=ends)
        return [party for party in submitted.members if party in unheard or party not in members]


class Attempt:
    """An attempt to train, to predict, or to preview an alignment, with the parties of a job.

    A prediction that goes on without a party, or with one that is back, continues under further numbers: `failover`.
    """

    def __init__(self, job: str, submitted: Submitted, progress: Progress, parties: Parties, journal: Journal) -> None:
        """`progress`: the status of the job, which has the attempt's number; it is changed in place."""
        self._job, self._submitted, self._progress = job, submitted, progress
        self._parties, self._journal = parties, journal
        self._byte_counts = parties.byte_counts()
        self._first = progress.status.attempt if is_first_try(journal.read(job)) else 0
        self._cpu_before = measure().cpu_seconds
        self.put_off = ""  #: why the job has to wait after all: a party has as many others as it takes, or asks people
        self.for_people = False  #: it waits for the latter

    async def run(self) -> None:
        """Run the attempt to its end; every failure becomes a state and a message.

        Raises:
            CancelledError: an operator has cancelled the job, or the coordinator stops.
        """
        job, first, trace = self._job, self._progress.status.attempt, self._submitted.trace
        logs.begin(job=job, trace=trace, attempt=first)
        span = self._parties.metrics.begin(job, first, trace)
        log.info("job %s (%s), attempt %d: begins", job, self._submitted.kind, first)
        try:
            await {"train": self._train, "align": self._preview}.get(self._submitted.kind, self._predict)()
        except asyncio.CancelledError:
            if self._journal.cancelled(job):
                self._progress.end("cancelled", CANCELLED)
                self._write_end()
            elif self._progress.status.state != "finished":
                self._progress.end("interrupted", "the coordinator stopped")
            raise
        except (Overloaded, Pending) as busy:
            log.info("job %s is put off: %s", job, busy)
            number = self._progress.status.attempt
            await self._parties.leave(job, number, self._submitted, discard=False)
            self.put_off, self.for_people = str(busy), isinstance(busy, Pending)
        except (Interrupted, UnknownJob) as error:  # a person must mend an incompatibility
            kind = self._submitted.kind
            mend, bad = f"{error}; then: {again_by(kind, job)}", isinstance(error, Incompatible)
            await self._give_up(state_after_break(kind), mend, bad_input=bad)
        except BadInput as error:
            if self._first_try() or self._submitted.kind == "align":
                await self._give_up("failed", str(error), bad_input=True)
            else:  # keep the trees that earlier attempts stored
                mend = f"{error}; mend it, then: treetap resume {job}"
                await self._give_up("interrupted", mend, bad_input=True)
        except TreetapError as error:
            asked_too_much = isinstance(error, Refused) and self._submitted.kind == "align"
            await self._give_up("failed", f"{type(error).__name__}: {error}", bad_input=asked_too_much)
        except Exception as error:
            log.exception("job %s", job)
            await self._give_up("failed", f"defect in the coordinator: {error!r}")
        finally:
            self._parties.metrics.end(span, "put off" if self.put_off else self._progress.status.state)

    async def _train(self) -> None:
        spec, progress = self._submitted.spec, self._progress
        roster = self._roster([spec.aggregator, *spec.feature_parties], progress)
        progress.phase("prepare")
        stored = await setup.prepare(roster, self._submitted.prepare)
        model = stored.model
        progress.measured_before(stored.history)
        if spec.aggregator not in stored.published:
            if not stored.aligned:
                progress.phase("align")
                await align(roster, roster.names, spec.alignment)
            course = protocols.training(spec)
            plan = await course.plan(roster, spec, stored, progress)
            progress.grown(plan.first)
            if not stored.published:
                await course.train(roster, spec, plan, progress)
            progress.phase("publish")
            model = await setup.publish(roster, spec)
        progress.published(model)
        await self._finish(roster)

    async def _predict(self) -> None:
        opening, status = self._submitted.opening, self._progress.status
        waits_s = opening.away_deadline_s or None

        def begin(members: Sequence[str], progress: Progress | None) -> Roster:
            return self._roster(members, progress, waits_s)

        roster, written = await conduct(opening, self._progress, begin, self._again)
        status.predictions = written.path
        status.explanations, status.attributions = written.explanations, written.attributions
        status.evaluation = written.evaluation
        self._progress.metrics(written.metrics)
        status.withheld.extend(written.withheld)
        await self._finish(roster, patient=opening.away_policy == "degrade")

    async def _preview(self) -> None:
        opening = self._submitted.preview
        roster = self._roster(opening.parties, self._progress)
        await preview.answer(roster, opening, self._progress)
        await self._finish(roster)

    def _again(self) -> None:
        number = self._progress.status.attempt = next_attempt(self._journal, self._job)
        logs.begin(job=self._job, trace=self._submitted.trace, attempt=number)

    def _roster(self, members: Sequence[str], progress: Progress | None, waits_s: float | None = None) -> Roster:
        return self._parties.roster(
            self._job,
            self._progress.status.attempt,
            self._submitted,
            members,
            self._byte_counts,
            progress,
            waits_s,
        )

    async def _finish(self, roster: Roster, *, patient: bool = False) -> None:
        """Collect the job's cost, write the end, have the parties leave; `patient`: skip parties that do not answer.

        A party opens no job again that it has left at its end, so that nobody may have to resume it. One that did not
        hear of it, or took no part in the end, hears of it when the coordinator starts again.
        """
        progress = self._progress
        progress.accounts(await accounts(roster, all_of_them=not patient))
        name, used = self._parties.coordinator, measure()
        own = setup_pb2.Accounted(traffic=self._byte_counts.rows())
        own.peak_rss_mb.add(name=name, amount=used.peak_rss_mb)
        own.cpu_seconds.add(name=name, amount=used.cpu_seconds - self._cpu_before)
        progress.status.accounts.append(jobs_pb2.PartyAccount(party=name, account=own))
        progress.end("finished")
        if self._write_end():
            unheard = await roster.leave(LEAVE_S, ends=True)
            away = [party for party in self._submitted.members if party not in roster.names]
            note_heard(self._journal, self._job, [*unheard, *away])

    async def _give_up(self, state: str, error: str, *, bad_input: bool = False) -> None:
        """Have the parties leave the job and write its end; what keeps nothing has its files discarded.

        Kept is a training that has stored a tree, a prediction that has scored records, and all that was interrupted.
        A job that every party has discarded gives its name back.
        """
        log.warning("job %s %s: %s", self._job, state, error)
        trains = self._submitted.kind == "train"
        begun = self._progress.binding or self._progress.status.scored > 0 or not self._first_try()
        discard = state == "failed" and (bad_input or self._submitted.kind == "align" or not begun)
        number = self._progress.status.attempt
        unheard = await self._parties.leave(self._job, number, self._submitted, discard=discard)
        self._progress.status.released = discard and not unheard and not (trains and begun)
        self._progress.end(state, error, bad_input=bad_input)
        self._write_end()

    def _first_try(self) -> bool:
        """True if no party can hold files of an attempt before this one."""
        return self._progress.status.attempt == self._first

    def _write_end(self) -> bool:
        """Write the job's end to the journal; if the disk refuses it, the job counts as interrupted: False."""
        status = self._progress.status
        log.info("job %s, attempt %d: %s", self._job, status.attempt, status.state)
        try:
            self._journal.write(self._job, "ended", attempt=status.attempt, status=to_base64(status))
        except Interrupted as failure:
            log.error("job %s: %s", self._job, failure)
            return False
        return True
