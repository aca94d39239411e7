"""A job that opens, as a party's approvals know it: its document, its operator, and the words for its people."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from party.approvals.decisions import Asked, Kind
from party.approvals.ledger import Approvals
from party.approvals.operators import operator_of
from party.config import PartyConfig
from treetap.protocols.agreement import Opening, job_document
from treetap.protocols.messages import Members, MessageRow
from treetap.wire.v2 import prediction_pb2, setup_pb2


def admit(
    approvals: Approvals,
    config: PartyConfig,
    job: str,
    opening: Opening,
    digest: bytes,
    members: Members,
    rows: Sequence[MessageRow],
) -> None:
    """Return if a job that the policy lets in may open; raises as `operator_of` and `Approvals.admit` do."""
    policy = config.policy
    operator = operator_of(config.name, job, opening, digest, config.transport(), policy)
    if policy.approval == "none" and not operator.name:
        return
    asked = Asked(
        job,
        kind_of(opening),
        digest.hex(),
        members.coordinator,
        operator.name,
        operator.fingerprint,
        base64.b64encode(opening.signed.SerializeToString()).decode() if operator.name else "",
        document=job_document(job, opening),
    )

    def words() -> tuple[str, ...]:
        from party.approvals.words import Job, words_of  # for a job that is shown to people

        return words_of(Job(asked, members, rows), config)

    approvals.admit(policy, asked, words)


def would_wait(approvals: Approvals, config: PartyConfig, job: str, opening: Opening, members: Members) -> bool:
    """True if a job would wait for one of this party's people."""
    asked = Asked(job, kind_of(opening), "", members.coordinator, document=job_document(job, opening))
    return approvals.would_wait(config.policy, asked)


def kind_of(opening: Opening) -> Kind:
    """The kind of a job by its opening."""
    if isinstance(opening, setup_pb2.Prepare):
        return "train"
    if isinstance(opening, prediction_pb2.OpenModel):
        return "serve" if opening.serve else "predict"
    return "align"
