"""Federations in virtual time whose parties wait for people: certificates, policies, and what approvers do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.campaign import small_jobs
from tests.certificates import certified
from tests.simulator import Federation
from tests.worlds import PARTIES
from treetap.party.approvals.decisions import Asked
from treetap.party.approvals.ledger import Approvals
from treetap.process.config import TlsConfig
from treetap.wire.tls import TlsFiles

LABEL_HOLDER, B, C = PARTIES
ANN, BEN = "ann", "ben"
#: What a policy says that has people decide.
MANUAL: dict[str, Any] = {"people": {"approval": "manual", "approvers": [ANN, BEN]}}


def certify(folder: Path) -> dict[str, TlsFiles]:
    """An authority, and the files of all parties and two operators."""
    return certified(folder, *PARTIES, "operator", "other-operator", organisation="theirs")


def configured(files: TlsFiles) -> TlsConfig:
    """The files as a party's configuration has them."""
    return TlsConfig(ca=files.ca, certificate=files.certificate, key=files.key)


def begin(
    folder: Path, story: str, certificates: dict[str, TlsFiles], policies: dict[str, dict[str, Any]]
) -> Federation:
    """The federation of a story of `small_jobs` with these lines more in its parties' policies."""
    federation = small_jobs.begin(folder, story)
    for name, files in certificates.items():
        if name in federation.configs:
            config = federation.configs[name]
            changed = config.model_copy(update={"tls": configured(files)})
            again = config.policy.with_lines(policies.get(name, {}))
            federation.configs[name] = changed.under(again)
            federation.restart(name)
    return federation


def approvals(federation: Federation, party: str) -> Approvals:
    """The approvals of a party."""
    return federation.node(party).approvals


async def waiting(federation: Federation, job: str, *parties: str) -> None:
    """Wait until the coordinator says for whose people a job waits."""
    wanted = f"waiting for approval of {', '.join(parties)}"
    await asyncio.sleep(0.1)  # it is submitted
    async with asyncio.timeout(300):
        while (status := federation.jobs.status(job)[0]).error != wanted or status.state != "waiting":
            assert status.state in ("running", "waiting"), status.error
            await asyncio.sleep(0.5)


def the_one(federation: Federation, party: str) -> Asked:
    """The only job that a party was asked for."""
    (asked,) = approvals(federation, party).listed()
    return asked


def approve(federation: Federation, party: str, approver: str = ANN, days: float = 7.0) -> Asked:
    """Approve the only job that a party was asked for."""
    asked = the_one(federation, party)
    return approvals(federation, party).decide(approver, asked.job, asked.digest, days=days)
