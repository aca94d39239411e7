"""Jobs before they begin: submissions as their parties are to get them, and trainings that are only checked.

Of a check every party is asked at once, and all answers are told. No job begins: the journal has no line of it, and no
party keeps anything. A party that refuses, or whose table has a fault, keeps no other from its answer.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable

from google.protobuf.message import Message

from treetap.coordinator.attempt import Parties
from treetap.coordinator.prediction import opening_of, preview_of
from treetap.coordinator.retention import cure
from treetap.coordinator.runtime.job_record import Submitted, to_base64
from treetap.coordinator.runtime.journal import Journal
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import (
    BadInput,
    ConfigError,
    Incompatible,
    Overloaded,
    Refused,
    TreetapError,
    UnknownJob,
    did_you_mean,
)
from treetap.names import NAME
from treetap.process.together import ended
from treetap.protocols.agreement import Request, new_submission
from treetap.protocols.job_spec import (
    check_continuation,
    check_same_parties,
    check_spec,
    continued_from,
    parties_of,
    processes_of,
)
from treetap.wire.v2 import jobs_pb2, prediction_pb2, setup_pb2

#: Most digits of a nonce: those of 64 bits.
LONGEST_NONCE = 20

#: Seconds between two answers to an operator who waits for parties that read their tables.
SIGN_OF_LIFE_S = 2.0


class Submissions:
    """Openings of one coordinator's jobs, and checks of trainings, one at a time.

    `state`: the status of a job, live where it runs.

    Of what no federation could do, `ConfigError` is raised, and `UnknownJob` for a model that is not there.
    """

    def __init__(self, parties: Parties, journal: Journal, state: Callable[[str], jobs_pb2.JobStatus]) -> None:
        self._parties, self._journal, self._state = parties, journal, state
        self._checking = False

    def submitted(self, request: Request) -> tuple[str, Message]:
        """The kind of a job that may begin under its name, and the job as its parties are to get it."""
        if not (request.submission.isdecimal() and len(request.submission) <= LONGEST_NONCE):
            raise ConfigError(  # its operator fixes name and nonce before it signs
                "the job has no nonce of its submission: submit it with the coordinator's release of treetap"
            )
        message: Message
        if isinstance(request, jobs_pb2.SubmitRequest):
            kind, message = "train", self._continued(request.spec)
        elif isinstance(request, jobs_pb2.PredictRequest):
            kind, message = "serve" if request.serve else "predict", self._opening_of(request)
        else:
            kind, message = "align", preview_of(request)
            self._parties.check(request.parties)
        self._check_free(request.job)
        return kind, message

    def draft(self, request: jobs_pb2.DraftRequest) -> jobs_pb2.Drafted:
        """The opening of a job as its parties would get it, for the operator to sign; nothing of it is kept.

        Raises as `submitted` does.
        """
        if request.HasField("train"):
            train = request.train
            prepare = setup_pb2.Prepare(spec=self._continued(train.spec), submission=train.submission)
            return jobs_pb2.Drafted(prepare=prepare)
        if request.HasField("align"):
            return jobs_pb2.Drafted(open_preview=preview_of(request.align))
        return jobs_pb2.Drafted(open_model=self._opening_of(request.predict))

    def check(self, request: jobs_pb2.SubmitRequest) -> AsyncIterator[jobs_pb2.CheckReply]:
        """Have every party check a training job, and keep nothing of it; raises as `submitted`, but for the name.

        Raises:
            Overloaded: another job is being checked.
        """
        spec, taken, job = self._continued(request.spec), None, request.job
        try:
            if job:
                self._check_free(job)
        except ConfigError as fault:
            job, taken = "", fault
        return self._check(job or f"check-{secrets.token_hex(4)}", spec, taken)

    async def _check(
        self, job: str, spec: setup_pb2.JobSpec, taken: TreetapError | None
    ) -> AsyncIterator[jobs_pb2.CheckReply]:
        """The answers to a job under a name that is free. `taken`: the fault of the name that was asked for."""
        if self._checking:
            raise Overloaded("the coordinator has another job checked; ask again")
        self._checking = True
        try:
            if taken is not None:
                yield jobs_pb2.CheckReply(answers=[_fault(self._parties.coordinator, taken)])
            submitted = Submitted(job, "train", new_submission(), to_base64(spec))
            roster = self._parties.roster(job, 1, submitted, submitted.members, self._parties.byte_counts(), None)
            async for answers in _answers(roster, spec):
                yield jobs_pb2.CheckReply(answers=answers)
        finally:
            self._checking = False

    def _continued(self, asked: setup_pb2.JobSpec) -> setup_pb2.JobSpec:
        """A copy of a job that some federation could do, with the submissions of the models that it names."""
        spec = setup_pb2.JobSpec()
        spec.CopyFrom(asked)
        check_spec(spec)
        self._parties.check(processes_of(spec))
        spec.base_submission = ""
        if name := continued_from(spec):
            base = self._trained(name)
            check_continuation(spec, base.protocol, base.spec)
            spec.base_submission = base.submission
        spec.replaced_submission = ""
        if name := spec.replaces:
            replaced = self._trained(name)
            check_same_parties(f"replaces = {name!r}", spec, replaced.spec)
            spec.replaced_submission = replaced.submission
        return spec

    def _check_free(self, job: str) -> None:
        """`ConfigError` for what is no name of a job, or the name of one that keeps it."""
        if not NAME.match(job):
            raise ConfigError(
                f"{job!r} is not a name for a job: lower-case letters, digits and inner hyphens, at most 63"
            )
        if self._journal.has(job) and not (holder := self._state(job)).released:
            raise ConfigError(f"there is a job {job!r} already ({holder.state}); {cure(holder)}")

    def _opening_of(self, request: jobs_pb2.PredictRequest) -> prediction_pb2.OpenModel:
        model = self._trained(request.model)
        return opening_of(request, model.spec, model.submission, request.submission)

    def _trained(self, name: str) -> Submitted:
        """The finished training that made a model; `UnknownJob` if there is none."""
        if not self._journal.has(name):
            finished = (job for job in self._journal.listed() if job.state == "finished")
            models = [job.job for job in finished if job.kind == "train"]
            raise UnknownJob(
                f"there is no model {name!r}: a model has the name of the training job that made it, which "
                f"treetap status lists{did_you_mean(name, models)}"
            )
        model = self._journal.submitted(name)
        if model.kind != "train":
            raise UnknownJob(f"there is no model {name!r}: the job of that name is no training")
        if (state := self._state(name).state) != "finished":
            raise UnknownJob(f"there is no model {name!r}: its training is {state}")
        if model.spec.screen:
            raise UnknownJob(f"there is no model {name!r}: the job of that name was a screening, which makes none")
        return model


async def _answers(roster: Roster, spec: setup_pb2.JobSpec) -> AsyncIterator[list[jobs_pb2.Checked]]:
    """The parties' answers as they come, none meanwhile; then what only all of them together show."""
    body = setup_pb2.CheckJob(spec=spec, peers=roster.peers())
    asked = {asyncio.ensure_future(roster.ask(party, "check_job", body)): party for party in roster.names}
    waiting, bare = set(asked), []
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, timeout=SIGN_OF_LIFE_S, return_when=asyncio.FIRST_COMPLETED)
            answers = []
            for task, party in asked.items():
                if task not in done:
                    continue
                try:
                    checked = answered(party, task.result(), "checked_job")
                    if checked.without_columns:
                        bare.append(party)
                    answers.append(jobs_pb2.Checked(party=party, would_wait=checked.would_wait))
                except TreetapError as fault:
                    answers.append(_fault(party, fault))
            yield answers
    finally:
        await ended(asked)
    if len(bare) == len(parties_of(spec)):
        nothing = f"no party has a feature: columns of table {spec.table!r} names none at {' and '.join(bare)}"
        yield [jobs_pb2.Checked(party=spec.aggregator, error=nothing, bad_input=True)]


def _fault(who: str, fault: TreetapError) -> jobs_pb2.Checked:
    """The answer of a party that has something against the job, or cannot be asked."""
    of_people = isinstance(fault, BadInput | Refused | Incompatible)
    return jobs_pb2.Checked(party=who, error=str(fault), bad_input=of_people)
