"""A job that is checked before it begins: opened as a job is, by the same policy, with nothing kept of it.

    1. Everything that this party's policy and file have against the job, in one error.
    2. Only if that is nothing, the step `prepare` of this party's role, which reads the table: a coordinator learns of
       a table what it would learn by a job that the policy lets in, and no more.

The role works on a store of its own, which is deleted. Nothing is recorded, aligned, drawn or charged; the log says
that a job was checked, and for whom.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

from party.opening import Check, Opener, checks_of_training
from party.protocols import role_for_training
from party.runtime.context import StepContext
from party.runtime.transcript_recorder import Recorder
from party.setup.labelled_table import Untried
from party.setup.membership import check_members
from treetap.errors import BadInput, Refused, TreetapError
from treetap.protocols.agreement import job_digest
from treetap.protocols.job_spec import check_spec
from treetap.protocols.messages import members_of
from treetap.protocols.registry import training, training_name
from treetap.wire.frame import content_of, filled
from treetap.wire.v2 import control_pb2, setup_pb2

log = logging.getLogger(__name__)


async def check_job(opener: Opener, caller: str, request: control_pb2.StepRequest) -> setup_pb2.CheckedJob:
    """Check a job as its opening would.

    Raises:
        Refused: this party is not one of the job's, or its policy forbids the job.
        BadInput: the job is not valid, or this party's table does not fit. The message has all that speaks against it.
    """
    asked = request.setup.check_job
    job = setup_pb2.Prepare(spec=asked.spec, peers=asked.peers)
    try:
        _check_policy(opener, caller, request.job, job)
        context = replace(
            opener.context(caller, request, [], job_digest(request.job, job), b""),
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


def _check_policy(opener: Opener, caller: str, name: str, job: setup_pb2.Prepare) -> None:
    """Raise one error with all that the policy and the file have against a job."""
    config, members = opener.config, members_of(job.spec, caller)
    if config.name not in members.parties:
        raise Refused(f"{config.name} is not a party of job {name}")
    check_spec(job.spec)
    opens_sums = training(training_name(job.spec)).opens_sums
    addresses: list[Check] = [
        partial(config.policy.check_address, config.name, peer.name, peer.address)
        for peer in job.peers
        if peer.name != config.name
    ]
    # the rest as if the policy named the parties of the job: what it lets go to those that it names
    openers = [party for party in opens_sums(members) if party != config.name]
    peers = [party for party in members.parties if party not in (config.name, *openers)]
    named = config.under(config.policy.model_copy(update={"label_holders": openers, "peers": peers}))
    faults: list[BadInput | Refused] = []
    admitted: Check = partial(check_members, config, members, opens_sums)
    for check in (*addresses, admitted, *checks_of_training(named, job.spec, members)):
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
    role = None
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
        if role is not None:
            await role.close()
        shutil.rmtree(folder, ignore_errors=True)
