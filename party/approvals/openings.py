"""A job that opens, as a party's approvals know it: its document, its operator, and the words for its people."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence

from treetap.errors import Malformed, Refused
from treetap.party.approvals.decisions import Asked, Kind
from treetap.party.approvals.ledger import Approvals
from treetap.party.config import PartyConfig
from treetap.party.policy import Policy
from treetap.protocols.agreement import job_document, statement
from treetap.protocols.job_spec import continued_from
from treetap.protocols.messages import Members, MessageRow
from treetap.wire.certificates import date
from treetap.wire.frame import Opening
from treetap.wire.ports import Role
from treetap.wire.signatures import AHEAD_S, end_of, verified
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2 import prediction_pb2, setup_pb2


def admit(
    approvals: Approvals,
    config: PartyConfig,
    job: str,
    opening: Opening,
    digest: bytes,
    members: Members,
    rows: Sequence[MessageRow],
    forgotten: float | None,
) -> None:
    """Return if a job that the policy lets in may open; raises as `operator_of` and `Approvals.admit` do."""
    policy = config.policy
    new = not approvals.knows(digest.hex())
    operator, fingerprint = operator_of(
        config.name, job, opening, digest, config.transport(), policy, new=new, forgotten=forgotten
    )
    if policy.people.approval == "none" and not operator and new:
        return
    asked = Asked(
        job,
        kind_of(opening),
        digest.hex(),
        members.coordinator,
        operator,
        fingerprint,
        base64.b64encode(opening.signed.SerializeToString()).decode() if operator else "",
        document=job_document(job, opening),
    )

    def words() -> tuple[str, ...]:
        from treetap.party.approvals.words import Job, words_of  # for a job that is shown to people

        base = continued_from(opening.spec) if isinstance(opening, setup_pb2.Prepare) else ""
        return words_of(Job(asked, members, rows, base, approvals.approved_before(asked)), config)

    approvals.admit(policy, asked, words)


def dispute(
    approvals: Approvals, job: str, opening: setup_pb2.Prepare, digest: bytes, coordinator: str, why: str
) -> None:
    """Note that an attempt at a training has ended by a check of a peer's numbers; see `Approvals.dispute`."""
    document = job_document(job, opening)
    approvals.dispute(Asked(job, "train", digest.hex(), coordinator, document=document), why)


def would_wait(approvals: Approvals, config: PartyConfig, job: str, opening: Opening, members: Members) -> bool:
    """True if a job that is not signed would wait for one of this party's people, or for an operator's signature."""
    if config.policy.people.operators:
        return True
    asked = Asked(job, kind_of(opening), "", members.coordinator, document=job_document(job, opening))
    return approvals.would_wait(config.policy, asked)


def operator_of(
    party: str,
    job: str,
    opening: Opening,
    digest: bytes,
    transport: Transport,
    policy: Policy,
    *,
    new: bool,
    forgotten: float | None = None,
) -> tuple[str, str]:
    """The operator that signed a job's digest, and the fingerprint of its certificate; both empty: nobody has signed.

    Args:
        new: see `verified`.
        forgotten: of a job that this party has not opened yet: until when it does not know any more which jobs have
            ended, seconds since 1970. None: it has opened the job, and the statement may have ended since.

    Raises:
        Refused: the signature does not count, or is of an operator whom the policy does not name, or is lacking where
            it names some.
    """
    here = f"{party} takes no part in job {job}"
    named = f"{party}'s policy says operators = {json.dumps(policy.people.operators)}"
    if isinstance(transport, Insecure) or not opening.HasField("signed"):
        if policy.people.operators:
            raise Refused(
                f"{here}, which no operator has signed: {named}; submit it with certificates and this release"
            )
        return "", ""
    try:
        operator, fingerprint = verified(transport, opening.signed, statement(digest), Role.OPERATOR, new=new)
    except Malformed as fault:
        raise Refused(f"{here}, whose operator's signature does not count: {fault}") from None
    if forgotten is not None:
        again = f"submit it again (--days: for how long {party} may first open it)"
        if (end := end_of(opening.signed)).timestamp() <= time.time():
            raise Refused(f"{here}, whose operator's signature has ended on {date(end)}: {again}")
        if opening.signed.unix_nanos <= (forgotten + AHEAD_S) * 1e9:
            raise Refused(f"{here}, which may have ended: so many have since its operator signed it; {again}")
    if policy.people.operators and operator not in policy.people.operators:
        raise Refused(
            f"{here}, which {operator} has signed: {named}; if it should, name {operator!r} there and send "
            f"{party} SIGHUP"
        )
    return operator, fingerprint


def kind_of(opening: Opening) -> Kind:
    """The kind of a job by its opening."""
    if isinstance(opening, setup_pb2.Prepare):
        return "train"
    if isinstance(opening, prediction_pb2.OpenModel):
        return "serve" if opening.serve else "predict"
    return "align"
