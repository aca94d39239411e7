"""A party without its sockets: admits callers, dispatches steps and messages to sessions, ends sessions."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

from treetap import logs
from treetap.errors import (
    Conflict,
    Disputed,
    Interrupted,
    Malformed,
    OutOfOrder,
    Overloaded,
    Refused,
    TreetapError,
    UnknownJob,
)
from treetap.names import NAME
from treetap.native import arithmetic
from treetap.party.config import DealerConfig, PartyConfig
from treetap.party.runtime.attempts import (
    LAST_STEPS,
    SUBMISSIONS,
    UNCHARGED,
    Attempts,
    Session,
    check_latest,
)
from treetap.party.runtime.context import Offload
from treetap.party.runtime.job_store import Store
from treetap.party.runtime.ledger import ledger_of
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.runtime.step_order import Step, describe
from treetap.party.runtime.steps import disk_faults, follow, log_unheard
from treetap.party.runtime.transcript_recorder import Recorders
from treetap.party.runtime.workers import PartyWorkers
from treetap.party.serving.registry import ServedModels
from treetap.process.limits import collect_ended
from treetap.process.together import ended
from treetap.protocols.agreement import check_peer
from treetap.wire.disclosure import bytes_by_class, bytes_by_class_of
from treetap.wire.frame import name_of, result
from treetap.wire.ports import ORGANISATION, Dialer
from treetap.wire.v2 import control_pb2, exchange_pb2, setup_pb2

if TYPE_CHECKING:
    from treetap.party.approvals.desk import Desk
    from treetap.party.approvals.ledger import Approvals
    from treetap.party.approvals.overview import Overview
    from treetap.party.opening import Opener
    from treetap.party.policy import Policy

log = logging.getLogger(__name__)
T = TypeVar("T")
#: Bytes of a trace id.
TRACE_BYTES = 16
#: Seconds without a step after which a session ends: its coordinator has forgotten it.
SESSION_S = 3600


class PartyNode:
    """The steps of a coordinator, and the messages of peers, independent of the transport."""

    def __init__(
        self,
        config: PartyConfig,
        workers: PartyWorkers,
        dialer: Dialer,
        recorders: Recorders,
        offload: Offload,
        metrics: PartyMetrics | None = None,
    ) -> None:
        self._metrics = metrics or PartyMetrics(config.name)
        self.config = config
        self._workers = workers
        self._dialer, self._offload = dialer, offload
        self._recorders = recorders
        self._store = Store(config.state)
        self._attempts = Attempts(ledger_of(config.state))
        decisions = None
        if config.serve is not None and config.serve.decision_days:
            from treetap.party.serving.decisions import DecisionLog  # most parties keep none

            decisions = DecisionLog(config.name, config.state, config.serve.decision_days, offload)
        self.served_models = ServedModels(config, self._metrics, decisions)  #: answers clients of served models
        self._sessions: dict[str, Session] = {}
        self._before: dict[str, Session] = {}  # of served models: of the attempt before, which serves until it is left
        # No opening or leaving of a job may run between the old session's end and the new one.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.tasks: set[asyncio.Task[Any]] = set()  #: work that outlives its caller
        self._checking = False  # a job

    @cached_property
    def _opener(self) -> Opener:
        """What opens jobs. It comes with the libraries that read tables, which a party needs for its first job."""
        from treetap.party.opening import Opener

        return Opener(
            self.config,
            self._workers,
            self._dialer,
            self._recorders,
            self._offload,
            self._metrics,
            self._store,
            self._attempts,
            self.served_models,
            self.approvals,
            self._sessions,
        )

    @cached_property
    def approvals(self) -> Approvals:
        """What this party's people have decided, read when a job opens or an approver asks; `DataError` if damaged."""
        from treetap.party.approvals.ledger import approvals_of

        return approvals_of(self.config)

    @cached_property
    def desk(self) -> Desk:
        """The service of this party's approvers."""
        from treetap.party.approvals.desk import Desk

        return Desk(self.config.name, self.approvals, lambda: self.config.policy)

    @cached_property
    def overview(self) -> Overview:
        """The service that shows this party to its approvers."""
        from treetap.party.approvals.overview import Overview

        shown = self.approvals, self._sessions, self._metrics, self._offload
        return Overview(lambda: self.config, *shown)

    def go_by(self, config: PartyConfig) -> None:
        """Open jobs by another configuration from now on: those under way keep theirs.

        A model that this party serves to its clients begins anew.

        Its name, addresses, credentials, state and workers are those of this process.
        """
        self.config = self._opener.config = config
        self._recorders.mode = config.policy.people.record
        self.served_models.go_by(config)

    def watch_limits(self) -> None:
        """Keep the metrics of limits and approvals up to date until the party closes."""
        from treetap.party.approvals.watched import Watched  # most parties have no metrics

        watched = Watched(self._metrics, lambda: self.config, lambda: self.approvals)
        self._own(watched.follow(self._offload), "metrics of limits")

    async def step(self, caller: str, request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        """Do one step; yields progress, then the result."""
        kind, policy = name_of(request), self.config.policy
        session = self._session(request.job, request.attempt)
        if session is not None and session.coordinator == caller and kind not in (*SUBMISSIONS, "check_job"):
            policy = session.context.policy  # a job under way keeps the one that it began with
        if caller not in policy.people.coordinators:
            raise Refused(
                f"{caller} is not a coordinator that {self.config.name} obeys (policy: coordinators under [people])"
            )
        _check_head(request.job, request.trace)
        logs.note(job=request.job, trace=request.trace.hex(), attempt=request.attempt, step=kind, peer=caller)
        if not kind:
            raise Malformed("a step without content; is the coordinator of another version?")
        name = self.config.name
        # None needs a session: the attempt may be over, or unknown to this process; a check or a question begins none.
        if kind in ("leave", "check_job") or (kind in SUBMISSIONS and request.asks_only):
            alone = {"leave": self._leave_recorded, "check_job": self._check}.get(kind, self._ask)
            work = alone(caller, request)
            async for event in self._without_session(policy, caller, self._own(work, f"job {request.job}: {kind}")):
                yield event
            return
        if kind in SUBMISSIONS:
            with self._metrics.opening():
                opening = self._own(self._open(caller, request, kind), f"job {request.job}: {kind}")
                async for event in follow(name, opening):
                    self._permitted(policy, caller, event)
                    yield event
                session = opening.result()
        else:
            session = self._find(caller, request)
            with disk_faults(name, "ledger"):
                session.charge()
        policy = session.context.policy
        logs.note(trace=session.trace)
        # Asked beside the steps, at any time after the opening.
        if kind == "account":
            account = control_pb2.StepEvent(result=self._account(session, caller, request))
            self._permitted(policy, caller, account)
            yield account
            return
        conduct = session.role.steps.get(kind)
        if conduct is None:
            raise OutOfOrder(f"{name} does not do {kind} in job {request.job}")
        # A repeat of a step gets the answer of the first call: the book keeps it.
        costs, step = session.context.costs, (kind, request.round, request.stage)
        with costs.clock(kind, f"job {request.job}: {describe(step)}"):
            try:
                task = session.book.start(step, request, lambda: self._done(policy, session, conduct, request))
            except Interrupted as ended:
                raise ended.at(name) from None
            self._record(caller, request)
            session.pace.begins(kind, request.round)
            async for event in follow(name, task, session.progress):
                costs.byte_counts.sent(caller, kind, self._permitted(policy, caller, event))
                yield event
            done = control_pb2.StepEvent(result=task.result())
            done.result.bytes, done.result.arithmetic = costs.byte_counts.bytes_sent, arithmetic.in_use()
            costs.byte_counts.sent(caller, kind, self._permitted(policy, caller, done))
            yield done
        self._expect_more(session)

    async def deliver(
        self, caller: str, message: exchange_pb2.PeerMessage, content: bytes | None = None
    ) -> exchange_pb2.Receipt:
        """Receive one message. `content`: its bytes as they came; None: as protobuf writes them."""
        _check_head(message.job)
        session = self._session(message.job, message.attempt)
        logs.note(job=message.job, attempt=message.attempt, step=name_of(message), peer=caller)
        if session is None or caller not in session.members:
            raise self._unknown(message.job)
        logs.note(trace=session.trace)
        session.check_attempt(message.attempt)
        check_peer(message.job, self.config.name, caller, session.context.outbox.job_digest, message.job_digest)
        if not name_of(message):
            raise Malformed(f"a message of {caller} without content; is {caller} of another version?")
        session.organisations[caller] = ORGANISATION.get()
        if caller == (spec := session.request.setup.prepare.spec).dealer:
            own = {self.config.name: self.config.transport().organisation}  # by the certificate as it is now
            from treetap.party.approvals.job_checks import check_dealer  # as `_opener`

            check_dealer(self.config.name, spec, {**session.organisations, **own})
        if await session.context.mailbox.file(caller, message, content):
            self._record(caller, message, content)
        return exchange_pb2.Receipt()

    async def close(self) -> None:
        """End all sessions; what is on disk stays."""
        for session in [*self._sessions.values(), *self._before.values()]:
            await self._end(session)
        await ended(self.tasks)
        self._recorders.close_all()

    async def _done(
        self, policy: Policy, session: Session, conduct: Step, request: control_pb2.StepRequest
    ) -> control_pb2.StepResult:
        """The result of a step; one that the policy keeps from the coordinator ends the attempt, as a failure does."""
        kind = name_of(request)
        try:
            answer = await conduct(request)
        except TreetapError as error:  # the error of an opening tells as much as its answer
            session.charge()
            if isinstance(error, Disputed):
                # At the label holder: note that a check of a peer's numbers ends the attempt, before anybody hears of
                # it.
                from treetap.party.approvals.openings import dispute  # of few jobs

                opening, context = session.request.setup.prepare, session.context
                if opening.spec.aggregator == self.config.name:
                    with disk_faults(self.config.name, "approvals"):
                        dispute(self.approvals, context.job, opening, context.digest, session.coordinator, str(error))
            raise
        if kind in LAST_STEPS:
            with disk_faults(self.config.name, kind):
                self.approvals.end(session.coordinator, session.context.job, session.submission)
        told = self._permitted(policy, session.coordinator, control_pb2.StepEvent(result=answer))
        if not told.keys() <= UNCHARGED:
            session.charge()
        return answer

    def _permitted(self, policy: Policy, caller: str, event: control_pb2.StepEvent) -> Mapping[str, int]:
        """The bytes of an event by class; `Refused` unless the policy lets each class go to the coordinator."""
        classes = bytes_by_class(event)
        policy.check_emits(self.config.name, caller, classes)
        return classes

    def _own(self, work: Coroutine[Any, Any, T], what: str) -> asyncio.Task[T]:
        """Start work that goes on after its caller has gone."""
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        log_unheard(task, what)
        return task

    async def _open(self, caller: str, request: control_pb2.StepRequest, kind: str) -> Session:
        """Open a session for a new attempt; a repeated opening returns the session that it opened."""
        submission = SUBMISSIONS[kind](request)
        async with self._one_at_a_time(request.job), self._transcript_closed_without_session(request.job):
            opening = hashlib.sha256(request.SerializeToString(deterministic=True)).digest()
            current = self._sessions.get(request.job)
            serves = kind == "open_model" and request.prediction.open_model.serve
            beside = request.beside and serves and current is not None and current.serves
            if current is not None:
                current.check_same(caller, submission)
                if request.attempt == current.context.attempt:
                    if opening != current.opening:
                        raise Conflict(f"{kind} of job {request.job} came again with other content")
                    return current
                check_latest(request.job, request.attempt, current.context.attempt)
                await self._end_before(request.job)
                if not beside:
                    await self._end(current)
            if not serves:
                self._check_room()
            with disk_faults(self.config.name, kind):
                session = self._opener.session(caller, request, kind, opening)
                session.serves, digest = serves, session.context.digest
                self._attempts.opened(request.job, submission, request.attempt, digest.hex(), caller)
            if current is not None and beside:
                self._before[request.job] = current
            self._sessions[request.job] = session
            self._recorders.keep_open(request.job, digest)
            self._expect_more(session)
            log.info("job %s, attempt %d: %s for %s", request.job, request.attempt, kind, caller)
            if before := self._attempts.others(request.job, submission):
                log.warning("job %s: earlier submissions under this name: %d", request.job, before)
            return session

    async def _without_session(
        self, policy: Policy, caller: str, work: asyncio.Task[control_pb2.StepResult]
    ) -> AsyncIterator[control_pb2.StepEvent]:
        """The events of a step that no session does."""
        async for event in follow(self.config.name, work):
            self._permitted(policy, caller, event)
            yield event
        done = control_pb2.StepEvent(result=work.result())
        self._permitted(policy, caller, done)
        yield done

    async def _ask(self, caller: str, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Return if a job may open by this party's policy and its people; no session opens and no table is read."""
        kind = name_of(request)
        with disk_faults(self.config.name, kind):
            self._opener.admitted(caller, request, kind)
        return result(setup_pb2.Done())

    async def _check(self, caller: str, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Check a job and keep nothing of it; one at a time, and none while this party has no room for a job."""
        if (current := self._sessions.get(request.job)) is not None:
            current.check_same(caller, "")
        self._check_room()
        if self._checking:
            raise Overloaded(f"{self.config.name} is checking another job; ask again")
        from treetap.party.opening import check_job  # as `_opener`

        self._checking = True
        try:
            with disk_faults(self.config.name, "check_job"):
                return result(await check_job(self._opener, caller, request))
        finally:
            self._checking = False
            collect_ended()  # the table that it has read

    def _check_room(self) -> None:
        """`Overloaded` if as many jobs are under way as this party takes; served models do not count."""
        most = self.config.most_jobs
        if sum(not session.serves for session in self._sessions.values()) >= most:
            raise Overloaded(f"{self.config.name} has {most} jobs under way (most_jobs = {most} in its file)")

    def _session(self, job: str, attempt: int) -> Session | None:
        """The session of an attempt that serves beside a later one; else the job's."""
        before = self._before.get(job)
        return before if before is not None and before.context.attempt == attempt else self._sessions.get(job)

    def _find(self, caller: str, request: control_pb2.StepRequest) -> Session:
        session = self._session(request.job, request.attempt)
        if session is None or session.coordinator != caller:
            raise self._unknown(request.job)
        session.check_attempt(request.attempt)
        self.approvals.check_goes_on(self.config.policy, session.context.digest.hex(), serves=session.serves)
        return session

    def _unknown(self, job: str) -> UnknownJob:
        """The error of a job that is not here, or is another caller's: the caller cannot tell which."""
        return UnknownJob(f"{self.config.name} holds no job {job!r}; was it restarted? resume the job")

    def _account(self, session: Session, caller: str, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """The costs of an attempt, which are asked for last."""
        self._expect_more(session)
        self._record(caller, request)
        return result(session.context.costs.account(self._workers.usage()))

    def _record(
        self, caller: str, message: control_pb2.StepRequest | exchange_pb2.PeerMessage, content: bytes | None = None
    ) -> None:
        """Record an admitted step or message, if a transcript is kept; count it for approvers, metrics and spans."""
        if self.config.policy.people.approvers or self.config.metrics or self._metrics.spans:
            sizes = bytes_by_class(message) if content is None else bytes_by_class_of(content, type(message))
            for name, size in sizes.items():
                self._metrics.came_in(caller, name).inc(size)
            if self._metrics.spans and (session := self._sessions.get(message.job)) is not None:
                session.context.costs.received.update(sizes)
        with disk_faults(self.config.name, name_of(message)):
            try:
                self._recorders.of(message.job).received(caller, message)
            except Interrupted as failure:
                raise failure.at(self.config.name) from None

    async def _leave_recorded(self, caller: str, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        async with self._transcript_closed_without_session(request.job):
            await self._leave(caller, request)
            self._record(caller, request)
        return result(setup_pb2.Done())

    @asynccontextmanager
    async def _transcript_closed_without_session(self, job: str) -> AsyncIterator[None]:
        """After the block, however it ends, a job's transcript is closed unless a session of the job is here."""
        try:
            yield
        finally:
            if job not in self._sessions:
                self._recorders.close(job)

    async def _leave(self, caller: str, request: control_pb2.StepRequest) -> None:
        """End the session, if there is one of this submission; else the job was left before, which is no error.

        A late copy, which comes after a later attempt has begun, has no effect but on an attempt that serves beside it.
        """
        leave = request.setup.leave
        async with self._one_at_a_time(request.job):
            if self._attempts.later_begun(request.job, leave.submission, request.attempt):
                before = self._before.get(request.job)
                if before is not None and before.context.attempt == request.attempt:
                    before.check_same(caller, leave.submission)
                    await self._end_before(request.job)
                return
            session = self._sessions.get(request.job)
            if leave.alone and session is not None and session.context.attempt != request.attempt:
                session = None
            with disk_faults(self.config.name, "leave"):
                if session is not None and session.submission == leave.submission:
                    session.check_coordinator(caller)
                else:
                    session = None
                if leave.discard or leave.ends:
                    self.approvals.end(caller, request.job, leave.submission)
                # a dealer has no model, and its marks serve until the job ends
                gone = leave.discard or (leave.ends and isinstance(self.config, DealerConfig))
                if session is not None:
                    before = self._before.pop(request.job, None) if leave.alone else None
                    await self._end_before(request.job)
                    await self._end(session, leave.submission if gone else None)
                    if before is not None:
                        self._sessions[request.job] = before
                elif gone:
                    self._store.job(request.job).discard(leave.submission)
                if leave.discard:
                    self.served_models.forget(request.job)
                    self.approvals.withdraw(caller, request.job, leave.submission)
                self._attempts.left(
                    request.job,
                    leave.submission,
                    request.attempt,
                    ended=leave.ends,
                    discarded=leave.discard,
                    coordinator=caller,
                )

    def _one_at_a_time(self, job: str) -> asyncio.Lock:
        """The lock of a job, which exists as long as an opening or a leaving of it holds or awaits it."""
        return self._opening.setdefault(job, asyncio.Lock())

    async def _end(self, session: Session, discard: str | None = None) -> None:
        if session.expiry is not None:
            session.expiry.cancel()
        job, attempt = session.context.job, session.context.attempt
        for held in (self._sessions, self._before):
            if held.get(job) is session:
                del held[job]
                log.info("job %s, attempt %d: left", job, attempt)
        self.served_models.leave(job, attempt)  # first: clients wait for answers
        await session.close(discard)
        collect_ended()

    async def _end_before(self, job: str) -> None:
        """End the attempt that serves beside a later one, if there is one."""
        if (before := self._before.get(job)) is not None:
            await self._end(before)

    def _expect_more(self, session: Session) -> None:
        """Restart the timer that ends a session without steps; a resumed job continues from the disk."""
        if session.expiry is not None:
            session.expiry.cancel()
        session.expiry = asyncio.get_running_loop().call_later(SESSION_S, self._expire, session)

    def _expire(self, session: Session) -> None:
        if session.book.busy:
            self._expect_more(session)
        else:
            log.warning("job %s: no step for %d s, the session ends", session.context.job, SESSION_S)
            self._own(self._end_unasked(session), f"job {session.context.job}: the end of its session")

    async def _end_unasked(self, session: Session) -> None:
        """End an expired session and close its transcript, as the step `leave` does; its attempt is over, too."""
        job, attempt = session.context.job, session.context.attempt
        async with self._transcript_closed_without_session(job), self._one_at_a_time(job):
            await self._end(session)
            if not self._attempts.later_begun(job, session.submission, attempt):
                with disk_faults(self.config.name, "leave"):
                    self._attempts.left(job, session.submission, attempt)


def _check_head(job: str, trace: bytes = b"") -> None:
    """`Malformed` for a text that is no name; it may be of megabytes, so that no error and no log line repeats it."""
    if not NAME.match(job):
        raise Malformed("not a name of a job: names have lower-case letters, digits and inner hyphens, at most 63")
    if len(trace) not in (0, TRACE_BYTES):
        raise Malformed(f"a trace id has {TRACE_BYTES} bytes, not {len(trace)}")
