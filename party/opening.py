"""Opens sessions: checks a job against the party's policy and makes the role and the tools for one attempt at it."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from treetap.errors import BadInput, Refused, TreetapError, naming
from treetap.party.approvals.job_checks import (
    Check,
    check_permitted_prediction,
    check_permitted_preview,
    check_training,
    checks_of_training,
)
from treetap.party.approvals.ledger import Approvals
from treetap.party.approvals.openings import admit, would_wait
from treetap.party.config import PartyConfig, check_members
from treetap.party.protocols import role_for_prediction, role_for_training
from treetap.party.runtime.attempts import SUBMISSIONS, Attempts, Session
from treetap.party.runtime.context import Offload, Outbox, Role, Scratch, StepContext, Untried
from treetap.party.runtime.job_ledger import JobLedger
from treetap.party.runtime.job_store import Store
from treetap.party.runtime.ledger import Kind as Charged
from treetap.party.runtime.ledger import Occasion, ledger_of
from treetap.party.runtime.mailbox import Mailbox, expected_of
from treetap.party.runtime.metrics import CostAccount, PartyMetrics
from treetap.party.runtime.transcript_recorder import Recorder, Recorders
from treetap.party.runtime.workers import PartyWorkers
from treetap.party.serving.registry import ServedModels
from treetap.protocols.agreement import attempt_digest, job_digest
from treetap.protocols.alignment import check_preview, members_of_preview, rows_of_preview
from treetap.protocols.job_spec import check_spec, continued_from, rows_of_training, tables_of
from treetap.protocols.key_options import LATTICE, KeyKind
from treetap.protocols.messages import Members, MessageRow, members_of
from treetap.protocols.prediction import rows_of_prediction
from treetap.protocols.registry import prediction_name, training, training_name
from treetap.wire.frame import Opening, content_of, filled
from treetap.wire.ports import Address, Dialer, Timeouts
from treetap.wire.v2 import alignment_pb2, control_pb2, prediction_pb2, setup_pb2

log = logging.getLogger(__name__)


@dataclass
class Opener:
    """Makes a session from the step that opens a job: a row of `KINDS`."""

    config: PartyConfig
    workers: PartyWorkers
    dialer: Dialer
    recorders: Recorders
    offload: Offload
    metrics: PartyMetrics
    store: Store
    attempts: Attempts
    served_models: ServedModels
    approvals: Approvals
    sessions: Mapping[str, Session]

    def users_of(self, model: str) -> list[str]:
        """The jobs under way that predict with a model, serve it, or train on from it."""
        opened = {job: session.request for job, session in self.sessions.items()}
        return [
            job
            for job, by in opened.items()
            if model in (by.prediction.open_model.model, continued_from(by.setup.prepare.spec))
        ]

    def session(self, caller: str, request: control_pb2.StepRequest, kind: str, content: bytes) -> Session:
        """The session that a request for the step `kind`, of the SHA-256 `content`, opens.

        Raises:
            Refused: this party is not one of the job's, or its policy forbids the job.
            BadInput: the job is not valid, another one than at an attempt before, or this party's table does not fit;
                or this party's people have refused it.
            Pending: they have not approved it yet.
            OutOfOrder: the attempt is over.
        """
        kind_of_job, name = KINDS[kind], self.config.name
        opening = kind_of_job.content(request)
        with naming(name):
            members, digest, ledger = self.admitted(caller, request, kind)
            submission = SUBMISSIONS[kind](request)
            peers = [Address(peer.name, peer.address) for peer in opening.peers]
            context = self.context(ledger, peers, digest, attempt_digest(digest, opening))
            role = kind_of_job.role(self, context, opening)
        if context.shards is not None and not kind_of_job.sums_words(opening, name):
            log.warning(
                "job %s is computed by the processes of %s: a cluster sums the words of scheme = %r alone",
                request.job,
                name,
                LATTICE,
            )
        context.costs.begin(request.job, request.attempt, request.trace.hex())
        context.mailbox.expect(expected_of(kind_of_job.rows(opening), name, role.sizes))
        owed = [] if kind_of_job.charges_itself else [kind_of_job.charged]
        others = frozenset(members.processes) - {name}
        return Session(context, role, caller, others, content, submission, request, owed)

    def admitted(self, caller: str, request: control_pb2.StepRequest, kind: str) -> tuple[Members, bytes, JobLedger]:
        """The members, the digest and the ledger of a job that this party's policy and its people let in.

        Raises as `session` does, but for what depends on the table; of a request that only asks, on attempts.
        """
        kind_of_job, config, name = KINDS[kind], self.config, self.config.name
        opening = kind_of_job.content(request)
        members = kind_of_job.members(opening, caller)
        if name not in members.processes:
            raise Refused(f"{name} is not a party of job {request.job}")
        for peer in opening.peers:
            if peer.name != name:
                config.policy.people.check_address(name, peer.name, peer.address)
        kind_of_job.check(config, opening, members)
        submission, digest = SUBMISSIONS[kind](request), job_digest(request.job, opening)
        if request.asks_only:
            self.attempts.check_same(request.job, submission, digest.hex())
        else:
            self.attempts.check(request.job, submission, request.attempt, digest.hex())
        others = tuple(party for party in members.parties if party != name)
        ledger = self.ledger(Occasion(kind_of_job.tables(opening)[0], others, caller, request.job, request.attempt))
        kind_of_job.check_partners(ledger, opening)
        forgotten = None if self.attempts.has_opened(request.job, submission) else self.attempts.forgotten(caller)
        admit(self.approvals, config, request.job, opening, digest, members, kind_of_job.rows(opening), forgotten)
        return members, digest, ledger

    def ledger(self, occasion: Occasion) -> JobLedger:
        """The ledger of this party for one attempt."""
        return JobLedger(ledger_of(self.config.state), occasion, self.config.name, self.config.policy)

    def context(self, ledger: JobLedger, peers: list[Address], digest: bytes, compared: bytes) -> StepContext:
        """The tools for one attempt. `digest`: of the job; `compared`: of the attempt, as peers must have it."""
        costs = CostAccount(self.config.name, self.workers.usage(), self.metrics)
        job, attempt = ledger.occasion.job, ledger.occasion.attempt
        recorder = self.recorders.of(job)
        engine, shards = self.workers.lease()
        by_name = {peer.name: peer for peer in peers}
        return StepContext(
            party=self.config.name,
            coordinator=ledger.occasion.coordinator,
            job=job,
            attempt=attempt,
            digest=digest,
            mailbox=Mailbox(self.config.silence_s, self.config.state, self.metrics.waiting),
            outbox=Outbox(
                job,
                attempt,
                compared,
                by_name,
                self.dialer,
                costs,
                recorder,
                self.config.policy,
                Timeouts(self.config.silence_s),
            ),
            costs=costs,
            metrics=self.metrics,
            recorder=recorder,
            engine=engine,
            shards=shards,
            store=self.store.job(job),
            ledger=ledger,
            scratch=Scratch(self.config.state),
            progress=control_pb2.Progress(),
            policy=self.config.policy,
            offload=self.offload,
        )


@dataclass(frozen=True)
class Kind:
    """A kind of job, by the step that opens it, as functions of its opening.

    Attributes:
        charged: the kind of the charge of an attempt.
        content: the opening in a request.
        members: all parties, those that are away included; of the opening and the coordinator.
        protocol: its name; empty of a preview.
        tables: the names of those that each party uses, the records' own first; empty for one that is not used.
        rows: the rows of all messages, of an opening that `check` has passed.
        check: raises unless the job is valid and the policy permits every message that this party would send.
        role: this party's role in a job that `check` has passed.
        charges_itself: the role enters the charge, not the session.
        sums_words: True if a party sums words of a lattice.
    """

    charged: Charged
    content: Callable[[control_pb2.StepRequest], Any]
    members: Callable[[Any, str], Members]
    protocol: Callable[[Any], str]
    tables: Callable[[Any], Sequence[str]]
    rows: Callable[[Any], list[MessageRow]]
    check: Callable[[PartyConfig, Any, Members], None]
    role: Callable[[Opener, StepContext, Any], Role]
    charges_itself: bool = False
    sums_words: Callable[[Any, str], bool] = lambda _opening, _party: False

    def check_partners(self, ledger: JobLedger, opening: Opening) -> None:
        """Raise `Refused` if the limits on a partner forbid the job."""
        ledger.check_opening(self.charged, self.protocol(opening), [name for name in self.tables(opening) if name])


def _training_role(opener: Opener, context: StepContext, opening: setup_pb2.Prepare) -> Role:
    role, spec = role_for_training(opener.config, context, opening.spec), opening.spec
    replaces = [spec.replaces, spec.replaced_submission] if spec.replaces else []
    context.store.claim(opening.submission, context.digest.hex(), replaces)  # last: a refused job leaves no file
    return role


def _preview_members(opening: alignment_pb2.OpenPreview, coordinator: str) -> Members:
    check_preview(opening)
    return members_of_preview(opening, coordinator)


def _preview_role(opener: Opener, context: StepContext, opening: alignment_pb2.OpenPreview) -> Role:
    from treetap.party.alignment.preview import Preview

    return Preview(opener.config, context, opening)


def _prediction_role(opener: Opener, context: StepContext, opening: prediction_pb2.OpenModel) -> Role:
    from treetap.party.prediction.opened_model import PredictionJob

    job = PredictionJob(opener.config, opener.store, context, opening, opener.served_models, opener.users_of)
    return role_for_prediction(job)


#: Step that opens a job → its kind.
KINDS: Mapping[str, Kind] = {
    "prepare": Kind(
        Charged.TRAINING,
        content=lambda request: request.setup.prepare,
        members=lambda opening, coordinator: members_of(opening.spec, coordinator),
        protocol=lambda opening: training_name(opening.spec),
        tables=lambda opening: tables_of(opening.spec),
        rows=lambda opening: rows_of_training(opening.spec),
        check=check_training,
        role=_training_role,
        sums_words=lambda opening, party: KeyKind.of(opening.spec).on_lattice and party != opening.spec.aggregator,
    ),
    "open_model": Kind(
        Charged.PREDICTION,
        content=lambda request: request.prediction.open_model,
        members=members_of,
        protocol=prediction_name,
        tables=lambda opening: (opening.table,),
        rows=rows_of_prediction,
        check=check_permitted_prediction,
        role=_prediction_role,
    ),
    "open_preview": Kind(
        Charged.PREVIEW,
        content=lambda request: request.alignment.open_preview,
        members=_preview_members,
        protocol=lambda _: "",
        tables=lambda opening: (opening.table,),
        rows=rows_of_preview,
        check=check_permitted_preview,
        role=_preview_role,
        charges_itself=True,
    ),
}


async def check_job(opener: Opener, caller: str, request: control_pb2.StepRequest) -> setup_pb2.CheckedJob:
    """Check a job as its opening would, and keep nothing of it.

    1. Everything that this party's policy and file have against the job, in one error.
    2. Only if that is nothing, and neither people nor an operator's signature, which no check has, are to let the job
       in, the step `prepare` of this party's role, which reads the table: a coordinator learns of a table what it would
       learn by a job that opens, and no more.

    The role works on a store of its own, which is deleted. Nothing is recorded, aligned, drawn or charged; the log says
    that a job was checked, and for whom.

    Raises:
        Refused: this party is not one of the job's, or its policy forbids the job.
        BadInput: the job is not valid, or this party's table does not fit. The message has all that speaks against it.
    """
    asked = request.setup.check_job
    job = setup_pb2.Prepare(spec=asked.spec, peers=asked.peers)
    try:
        others = tuple(party for party in members_of(job.spec, caller).parties if party != opener.config.name)
        ledger = opener.ledger(Occasion(job.spec.table, others, caller, request.job, request.attempt))
        _check_policy(opener, ledger, job)
        opener.store.job(request.job).check_free()
        if would_wait(opener.approvals, opener.config, request.job, job, members_of(asked.spec, caller)):
            log.info("job %s was checked for %s: it would wait; no table was read", request.job, caller)
            return setup_pb2.CheckedJob(would_wait=True)
        context = replace(
            opener.context(ledger, [], job_digest(request.job, job), b""),
            recorder=Recorder(opener.recorders, request.job, "off"),
            job=f"{request.job} (check)",  # whose workers hold nothing of a job of that name that is under way
            trial=True,
        )
        without_columns = await _prepare(opener, context, job)
    except (BadInput, Refused) as failure:
        log.info("job %s was checked for %s: %s", request.job, caller, failure)
        raise
    log.info("job %s was checked for %s: it could begin", request.job, caller)
    return setup_pb2.CheckedJob(without_columns=without_columns)


def _check_policy(opener: Opener, ledger: JobLedger, job: setup_pb2.Prepare) -> None:
    """Raise one error with all that the policy, the file and the ledger have against a job."""
    config, name = opener.config, ledger.occasion.job
    members = members_of(job.spec, ledger.occasion.coordinator)
    if config.name not in members.processes:
        raise Refused(f"{config.name} is not a party of job {name}")
    check_spec(job.spec)
    opens_sums = training(training_name(job.spec)).opens_sums
    addresses: list[Check] = [
        partial(config.policy.people.check_address, config.name, peer.name, peer.address)
        for peer in job.peers
        if peer.name != config.name
    ]
    # the rest as if the policy named the parties of the job: what it lets go to those that it names
    openers = [party for party in opens_sums(members) if party != config.name]
    peers = [party for party in members.parties if party not in (config.name, *openers)]
    named = config.under(config.policy.with_lines({"people": {"label_holders": openers, "peers": peers}}))
    faults: list[BadInput | Refused] = []
    admitted: Check = partial(check_members, config, members, opens_sums)
    of_partners: Check = partial(KINDS["prepare"].check_partners, ledger, job)
    for check in (*addresses, admitted, of_partners, *checks_of_training(named, job, members)):
        try:
            check()
        except (BadInput, Refused) as fault:
            faults.append(fault)
    if faults:
        kind: type[TreetapError] = Refused if all(isinstance(fault, Refused) for fault in faults) else BadInput
        several = len(faults) > 1  # an error that leaves this party is one line
        raise kind(
            "\n".join(f"({number}) {fault}" if several else str(fault) for number, fault in enumerate(faults, 1))
        )


async def _prepare(opener: Opener, context: StepContext, job: setup_pb2.Prepare) -> bool:
    """Do the first step of the party's role, on a store that is deleted; True if its table names no columns."""
    folder = Path(tempfile.mkdtemp(prefix=".check-", suffix=".gone", dir=opener.config.state))  # swept after a crash
    context.store = opener.store.trial(folder)
    try:
        role = role_for_training(opener.config, context, job.spec)
        step = control_pb2.StepRequest(job=context.job, attempt=context.attempt)
        done = await role.steps["prepare"](filled(step, "prepare", job))
        return bool(content_of(done, "prepared").without_columns)  # type: ignore[attr-defined] # of the step's result
    except Untried:
        return False
    finally:
        await context.mailbox.close()
        context.scratch.close()
        await context.held.aclose()
        shutil.rmtree(folder, ignore_errors=True)
