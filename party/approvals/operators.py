"""The operator's signature of a job: verified by this party's authority, and by the names of its policy."""

from __future__ import annotations

import json
from typing import NamedTuple

from party.policy import Policy
from treetap.errors import Malformed, Refused
from treetap.protocols.agreement import Opening
from treetap.protocols.drafts import statement
from treetap.wire.roles import Role
from treetap.wire.signatures import verified
from treetap.wire.tls import Insecure, Transport


class Operator(NamedTuple):
    """An operator whose signature of a job counts here; both empty: the job is not signed."""

    name: str = ""
    fingerprint: str = ""


def operator_of(
    party: str, job: str, opening: Opening, digest: bytes, transport: Transport, policy: Policy
) -> Operator:
    """The operator that signed a job's digest; in plain text nobody has.

    Raises:
        Refused: the signature does not count, or is of an operator whom the policy does not name, or is lacking where
            it names some.
    """
    here = f"{party} takes no part in job {job}"
    named = f"{party}'s policy says operators = {json.dumps(policy.operators)}"
    if isinstance(transport, Insecure) or not opening.HasField("signed"):
        if policy.operators:
            raise Refused(
                f"{here}, which no operator has signed: {named}; submit it with certificates and this release"
            )
        return Operator()
    try:
        operator = Operator(*verified(transport, opening.signed, statement(digest), Role.OPERATOR))
    except Malformed as fault:
        raise Refused(f"{here}, whose operator's signature does not count: {fault}") from None
    if policy.operators and operator.name not in policy.operators:
        raise Refused(
            f"{here}, which {operator.name} has signed: {named}; if it should, name {operator.name!r} there and send "
            f"{party} SIGHUP"
        )
    return operator
