"""Opens sessions: checks a job against the party's policy and makes the role and the tools for one attempt at it."""

from __future__ import annotations

from dataclasses import dataclass

from party.config import PartyConfig
from party.defences.checks import check_own
from party.protocols import PredictionJob, role_for_prediction, role_for_training
from party.runtime.attempts import Attempts, Session, submission_of
from party.runtime.context import Offload, Role, Scratch, StepContext
from party.runtime.job_store import Store
from party.runtime.mailbox import Mailbox, expected_of
from party.runtime.metrics import CostAccount, PartyMetrics
from party.runtime.outbox import Outbox
from party.runtime.transcript_recorder import Recorders
from party.runtime.workers import PartyWorkers
from party.serving.registry import ServedModels
from party.setup.membership import check_members
from treetap.errors import BadInput, Refused
from treetap.protocols.agreement import attempt_digest, job_digest
from treetap.protocols.job_spec import check_spec, params_of, rows_of_training, sent_in_training
from treetap.protocols.key_options import KeyKind
from treetap.protocols.libraries import require_library
from treetap.protocols.messages import members_of
from treetap.protocols.prediction import check_prediction, rows_of_prediction, sent_in_prediction
from treetap.protocols.registry import prediction, prediction_name, training, training_name
from treetap.trees.params import TreeParams
from treetap.wire.ports import Address, Dialer
from treetap.wire.timeouts import Timeouts
from treetap.wire.v2 import control_pb2, prediction_pb2, setup_pb2


@dataclass
class Opener:
    """Makes a session from the step that opens a job (`prepare`) or a model (`open_model`)."""

    config: PartyConfig
    workers: PartyWorkers
    dialer: Dialer
    recorders: Recorders
    offload: Offload
    metrics: PartyMetrics
    store: Store
    attempts: Attempts
    served_models: ServedModels

    def session(self, caller: str, request: control_pb2.StepRequest, kind: str, content: bytes) -> Session:
        """The session that a request for the step `kind`, of the SHA-256 `content`, opens.

        Raises:
            Refused: this party is not one of the job's, or its policy forbids the job.
            BadInput: the job is not valid, another one than at an attempt before, or this party's table does not fit.
            OutOfOrder: the attempt is over.
        """
        opening = request.setup.prepare if kind == "prepare" else request.prediction.open_model
        spec = opening.spec if isinstance(opening, setup_pb2.Prepare) else opening
        members = set(members_of(spec, caller).parties)
        if self.config.name not in members:
            raise Refused(f"{self.config.name} is not a party of job {request.job}")
        for peer in opening.peers:
            if peer.name != self.config.name:
                self.config.policy.check_address(self.config.name, peer.name, peer.address)
        try:
            self._check(caller, opening)
            submission, digest = submission_of(request), job_digest(request.job, opening)
            self.attempts.check(request.job, submission, request.attempt, digest.hex())
            peers = [Address(peer.name, peer.address) for peer in opening.peers]
            context = self._context(caller, request, peers, digest, attempt_digest(digest, opening))
            role = self._role(context, opening)
        except BadInput as failure:
            raise failure.at(self.config.name) from None
        rows = rows_of_training(spec) if isinstance(spec, setup_pb2.JobSpec) else rows_of_prediction(spec)
        context.mailbox.expect(expected_of(rows, self.config.name, role.sizes))
        return Session(context, role, caller, frozenset(members - {self.config.name}), content, submission)

    def _role(self, context: StepContext, opening: setup_pb2.Prepare | prediction_pb2.OpenModel) -> Role:
        """The role in a job that `_check` has passed."""
        if isinstance(opening, prediction_pb2.OpenModel):
            return role_for_prediction(PredictionJob(self.config, self.store, context, opening, self.served_models))
        role = role_for_training(self.config, context, opening.spec)
        context.store.claim(opening.submission, context.digest.hex())  # last: a refused job leaves no file
        return role

    def _check(self, caller: str, opening: setup_pb2.Prepare | prediction_pb2.OpenModel) -> None:
        """Raise unless the job is valid and the policy permits every message that this party would send."""
        name, policy = self.config.name, self.config.policy
        if isinstance(opening, prediction_pb2.OpenModel):
            check_prediction(opening)
            check_members(self.config, members_of(opening, caller), prediction(prediction_name(opening)).opens_sums)
            policy.check_job(name, sent_in_prediction(opening, caller))
            require_library(prediction_name(opening), prediction(prediction_name(opening)))
            return
        spec = opening.spec
        check_spec(spec)
        members, protocol = members_of(spec, caller), training(training_name(spec))
        check_members(self.config, members, protocol.opens_sums)
        if protocol.one_role:
            policy.check_parties(name, len(members.parties))
        policy.check_permissions(name, protocol.permissions(spec), label_holder=name == spec.aggregator)
        if protocol.grows_trees:
            policy.check_key(name, KeyKind.of(spec))
            params = params_of(spec)
            if isinstance(params, TreeParams) and (protocol.one_role or name != spec.aggregator):
                policy.check_summed_bits(name, params.summed_bits)
        policy.check_job(name, sent_in_training(spec, caller))
        own, further = self.config.table(spec.table), self.config.table(spec.eval_table)
        check_own(name, self.config.defences, policy, own, further, spec)
        require_library(training_name(spec), protocol)

    def _context(
        self, caller: str, request: control_pb2.StepRequest, peers: list[Address], digest: bytes, compared: bytes
    ) -> StepContext:
        """The tools for one attempt. `digest`: of the job; `compared`: of the attempt, as peers must have it."""
        costs = CostAccount(self.config.name, self.workers.usage(), self.metrics)
        recorder = self.recorders.of(request.job)
        engine, key_engine = self.workers.lease()
        by_name = {peer.name: peer for peer in peers}
        return StepContext(
            party=self.config.name,
            coordinator=caller,
            job=request.job,
            attempt=request.attempt,
            digest=digest,
            mailbox=Mailbox(self.config.silence_s, self.config.state, self.metrics.waiting),
            outbox=Outbox(
                request.job,
                request.attempt,
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
            key_engine=key_engine,
            store=self.store.job(request.job),
            scratch=Scratch(self.config.state),
            progress=control_pb2.Progress(),
            policy=self.config.policy,
            offload=self.offload,
        )
