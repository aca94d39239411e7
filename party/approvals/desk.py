"""Approvers' questions and decisions as messages: only those whom the policy names now are answered."""

from __future__ import annotations

import json
from collections.abc import Callable

from treetap.errors import BadInput
from treetap.party.approvals.decisions import Asked, Standing, Verdict, signature_of
from treetap.party.approvals.ledger import Approvals
from treetap.party.policy import Policy
from treetap.party.runtime.steps import disk_faults
from treetap.wire.v2 import approvals_pb2

#: Most characters of a document that is shown; a job of this size is none that a person reads.
LONGEST_DOCUMENT = 100_000


class Desk:
    """The party's side of approvals.proto. `policy`: returns the policy that holds now."""

    def __init__(self, party: str, approvals: Approvals, policy: Callable[[], Policy]) -> None:
        self._party, self._approvals, self._policy = party, approvals, policy

    def jobs(self, caller: str, request: approvals_pb2.AskedJobs) -> list[approvals_pb2.AskedJob]:
        """The jobs of a name, or all that this party keeps."""
        self._admit(caller)
        return [self._shown(asked, brief=request.brief) for asked in self._approvals.listed(request.name)]

    def decide(self, caller: str, request: approvals_pb2.DecideRequest) -> approvals_pb2.AskedJob:
        """Approve or refuse a job; raises as `Approvals.decide` does."""
        self._admit(caller)
        with disk_faults(self._party, "approvals"):
            decided = self._approvals.decide(
                caller,
                request.job,
                request.digest.hex(),
                days=request.days if request.approve else None,
                why=request.why,
            )
        return self._shown(decided)

    def stand(self, caller: str, request: approvals_pb2.StandRequest) -> approvals_pb2.StandingApproval:
        """Keep a standing approval; raises as `Approvals.stand` does."""
        self._admit(caller)
        if self._policy().people.approval == "none":
            raise BadInput(f'{self._party}\'s policy asks for no approval: write approval = "manual" under [people]')
        with disk_faults(self._party, "approvals"):
            return _standing(self._approvals.stand(caller, request.text))

    def standing(self, caller: str, request: approvals_pb2.AskedJobs) -> list[approvals_pb2.StandingApproval]:
        """The standing approval of a name, or all."""
        self._admit(caller)
        return [_standing(kept) for kept in self._approvals.standing(request.name)]

    def revoke(self, caller: str, request: approvals_pb2.RevokeRequest) -> approvals_pb2.StandingApproval:
        """End a standing approval."""
        self._admit(caller)
        with disk_faults(self._party, "approvals"):
            return _standing(self._approvals.revoke(caller, request.name))

    def _admit(self, caller: str) -> None:
        self._approvals.check_approver(self._policy(), caller)

    def _shown(self, asked: Asked, *, brief: bool = False) -> approvals_pb2.AskedJob:
        state = self._approvals.state(asked)
        words = [*asked.words, *(self._approvals.faults(asked) if state == "waiting" else ())]
        return approvals_pb2.AskedJob(
            job=asked.job,
            digest=bytes.fromhex(asked.digest),
            kind=asked.kind,
            coordinator=asked.coordinator,
            operator=asked.operator,
            fingerprint=asked.fingerprint,
            since=asked.since,
            words=words,
            document="" if brief else json.dumps(asked.document)[:LONGEST_DOCUMENT],
            state=state,
            decisions=map(_verdict, asked.verdicts),
        )


def _verdict(verdict: Verdict) -> approvals_pb2.Verdict:
    return approvals_pb2.Verdict(
        decision=verdict.decision,
        approver=verdict.approver,
        way=verdict.way,
        since=verdict.since,
        until=verdict.until,
        why=verdict.why,
        countersigned=signature_of(verdict.countersigned) if verdict.countersigned else None,
    )


def _standing(standing: Standing) -> approvals_pb2.StandingApproval:
    return approvals_pb2.StandingApproval(
        name=standing.name,
        text=standing.text,
        approver=standing.approver,
        since=standing.since,
        until=standing.until,
        count=standing.count,
        used=len(standing.used),
        revoked=standing.revoked,
        countersigned=signature_of(standing.countersigned) if standing.countersigned else None,
    )
