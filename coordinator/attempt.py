"""One attempt at a job, from its beginning to the end that it writes to the journal; the parties that it reaches.

Predictions without a party that does not answer, and its return (docs/protocol-boosting.md, "When a party is away").

fail      The prediction is interrupted; its error names the party that does not answer.
retry     The coordinator waits for the party, then a new attempt continues with the records that have no score yet.
degrade   As retry, but a party that stays away is left out of the new attempt. Of a served model it is asked again,
          and once it is back a new attempt with it begins (docs/serving.md). It is asked by the step `leave`, which
          needs no session at the party, opens none, and ends one that an attempt before has left there. The service
          of the parties that are present goes on meanwhile.

An attempt always begins from the opening, so that no party keeps half a block and the records are aligned among the
present parties.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from treetap import logs
from treetap.coordinator import prediction, protocols
from treetap.coordinator.prediction import predict
from treetap.coordinator.protocols import align
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
from treetap.coordinator.runtime.roster import LEAVE_S, Roster, answered
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
    did_you_mean,
)
from treetap.process.together import ended
from treetap.protocols.job_spec import parties_of
from treetap.protocols.prediction import AWAY_DEADLINES, degrades_serving
from treetap.usage import measure
from treetap.wire.disclosure import ByteCounts
from treetap.wire.ports import Address, Dialer, Timeouts
from treetap.wire.v2 import jobs_pb2, prediction_pb2, setup_pb2

#: Most attempts of one prediction that may break down in a row.
MOST_ATTEMPTS = 10
#: Seconds that a party which is asked again has for its answer.
ANSWER_S = 3.0


async def conduct(
    opening: prediction_pb2.OpenModel,
    progress: Progress,
    begin: Callable[[Sequence[str], Progress | None], Roster],
    again: Callable[[], None],
) -> tuple[Roster, prediction_pb2.WrittenPredictions]:
    """Conduct a prediction under its policy; returns the roster of its last attempt, and the outcome.

    `begin` makes the roster of an attempt with the given parties, which reports progress; `again` counts a new attempt.
    """
    parties = [opening.recipient, *opening.feature_parties]

    def beside() -> Roster:
        again()
        made = begin([party for party in parties if party not in opening.away], progress)
        made.beside = True
        return made

    returns = Returns(opening, progress, lambda away: begin(away, None))
    failures = 0  # in a row
    while True:
        progress.served = False
        roster = begin([party for party in parties if party not in opening.away], progress)
        del opening.peers[:]
        opening.peers.extend(roster.peers())
        try:
            async with returns.watched():
                written = await predict(roster, opening, progress, beside)
            if written is not None:
                return roster, written
            await roster.leave(LEAVE_S)
            returns.take_back()
        except TreetapError as failure:
            on_trial = returns.broke_down()
            if not on_trial:
                # a job of months may break down more than a few times, if it serves in between
                failures = 0 if progress.served else failures + 1
                # another attempt may succeed without a person's help, but not by another release
                passes = isinstance(failure, Interrupted | UnknownJob) and not isinstance(failure, Incompatible)
                if opening.away_policy == "fail" or failures == MOST_ATTEMPTS or not passes:
                    raise
            await _wait_or_go_without(roster, opening, progress, failure, on_trial)
        again()


async def accounts(roster: Roster, *, all_of_them: bool) -> dict[str, setup_pb2.Accounted]:
    """The cost of the job at each party; without `all_of_them`, of the parties that answer."""
    if all_of_them:
        answers = await roster.ask_all(roster.names, "account", setup_pb2.Account())
        return {party: answered(party, answer, "accounted") for party, answer in answers.items()}
    asked = (roster.ask(party, "account", setup_pb2.Account()) for party in roster.names)
    costs = {}
    for party, answer in zip(roster.names, await asyncio.gather(*asked, return_exceptions=True), strict=True):
        if isinstance(answer, BaseException):
            log.warning("%s: the cost of the job at this party is not known: %s", party, answer)
        else:
            costs[party] = answered(party, answer, "accounted")
    return costs


async def _wait_or_go_without(
    roster: Roster,
    opening: prediction_pb2.OpenModel,
    progress: Progress,
    failure: TreetapError,
    on_trial: Sequence[str],
) -> None:
    """Have every party leave the attempt that broke down; a party that does not confirm it in time is away.

    `on_trial`: parties that count as away also if they confirm it.
    """
    log.warning("%s; parties that do not answer within %g s count as away", failure, opening.away_deadline_s)
    progress.phase("wait")
    lost = await roster.leave(opening.away_deadline_s)
    if lost and (opening.away_policy == "retry" or opening.recipient in lost):
        names = ", ".join(lost)
        raise Interrupted(f"{names} did not answer for {opening.away_deadline_s:g} s ({failure})") from failure
    gone = [party for party in roster.names if party in lost or party in on_trial]
    if gone:
        log.warning("%s: away, the prediction continues without", ", ".join(gone))
        opening.away.extend(gone)
        progress.away(opening.away)


class Returns:
    """The parties that a prediction's opening lists as away; the list is changed in place.

    A party that is back is on trial until an attempt with it has served. If the attempt breaks down before, the party
    counts as away again, and the time until it is asked again doubles.
    """

    def __init__(
        self, opening: prediction_pb2.OpenModel, progress: Progress, begin: Callable[[Sequence[str]], Roster]
    ) -> None:
        """`begin`: makes the roster of the present attempt with the given parties."""
        self._opening, self._progress, self._begin = opening, progress, begin
        self._on_trial: list[str] = []
        self._in_vain = 0  # returns in a row that ended in a breakdown

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Within the block, ask the parties without which a model is served, until one answers: `Progress.back`."""
        self._progress.back = []
        asking = degrades_serving(self._opening) and bool(self._opening.away)
        task = asyncio.ensure_future(self._ask()) if asking else None
        try:
            yield
        finally:
            if task is not None:
                await ended([task])

    def take_back(self) -> None:
        """Have the next attempt begin with the parties that are back, if any are."""
        self._judge()
        self._on_trial += self._progress.back
        away = [party for party in self._opening.away if party not in self._on_trial]
        if self._progress.back:
            log.info("%s: back; a new attempt includes it", ", ".join(self._progress.back))
        self._opening.away[:] = away
        self._progress.away(away)

    def broke_down(self) -> list[str]:
        """The parties on trial in an attempt that has broken down: they count as away again."""
        self._judge()
        parties, self._on_trial = self._on_trial, []
        self._in_vain += bool(parties)
        return parties

    def _judge(self) -> None:
        """End the trial of parties with which an attempt has served."""
        if self._progress.served and self._on_trial:
            self._on_trial, self._in_vain = [], 0

    async def _ask(self) -> None:
        while not self._progress.back:
            await asyncio.sleep(min(self._opening.away_deadline_s * 2.0**self._in_vain, AWAY_DEADLINES[1]))
            away = list(self._opening.away)
            lost = await self._begin(away).leave(ANSWER_S)
            self._progress.back = [party for party in away if party not in lost]


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
        roster = self._roster(self._submitted.members, progress)
        progress.phase("prepare")
        stored = await protocols.prepare(roster, self._submitted.prepare)
        model = stored.model
        progress.measured_before(stored.history)
        if spec.aggregator not in stored.published:
            if not stored.aligned:
                progress.phase("align")
                await align(roster, parties_of(spec), spec)
            course = protocols.training(spec)
            plan = await course.plan(roster, spec, stored, progress)
            progress.grown(plan.first)
            if not stored.published:
                await course.train(roster, spec, plan, progress)
            progress.phase("publish")
            model = await protocols.publish(roster, spec)
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
        await prediction.answer(roster, opening, self._progress)
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
