"""An approver's side of `approvals.proto`: what waits at a party, and decisions about it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from google.protobuf.message import Message

from treetap.commands.ending import run
from treetap.process.config import Process
from treetap.strict import Address as AddressText
from treetap.strict import Name, load
from treetap.wire import rpc
from treetap.wire.ports import Address
from treetap.wire.roles import Role
from treetap.wire.timeouts import Timeouts
from treetap.wire.v2 import approvals_pb2
from treetap.wire.visible_message import visible_message

M = TypeVar("M", bound=Message)
#: Most jobs that a party lists; it keeps no more.
MOST = 4096


class ApproverConfig(Process):
    """`approver.toml`: the party to call, and the approver's own name and certificate."""

    party: AddressText
    """The party's address, `listen` in its file."""
    party_name: Name
    """The name that the party's certificate must bear."""
    name: Name
    """The approver's own name, as in its certificate and among `approvers` of the party's policy."""

    def addresses(self) -> dict[str, str]:
        return {"party": self.party}


def read(path: Path) -> ApproverConfig:
    """Read the file; relative paths in it are relative to its folder."""
    config = load(path, ApproverConfig)
    return config.model_copy(update={"tls": config.tls_below(path.absolute().parent)})


class Approver:
    """Synchronous calls to a party; errors are those of `treetap.errors`. Texts of answers are made visible."""

    def __init__(self, config: ApproverConfig) -> None:
        self._transport = config.transport()
        self._transport.check(config.name, Role.APPROVER)
        self._to = Address(config.party_name, config.party)

    def jobs(self, name: str = "") -> list[approvals_pb2.AskedJob]:
        """The jobs of a name, or all that the party keeps, the newest last."""
        asked = approvals_pb2.AskedJobs(name=name)
        return run(self._all(lambda stub: stub.List(asked, timeout=rpc.ASK_DEADLINE)))

    def standing(self, name: str = "") -> list[approvals_pb2.StandingApproval]:
        """The standing approval of a name, or all."""
        asked = approvals_pb2.AskedJobs(name=name)
        return run(self._all(lambda stub: stub.ListStanding(asked, timeout=rpc.ASK_DEADLINE)))

    def approve(self, job: str, digest: bytes, days: float) -> approvals_pb2.AskedJob:
        """Approve the job of this digest."""
        decision = approvals_pb2.DecideRequest(job=job, digest=digest, approve=True, days=days)
        return run(self._ask(lambda stub: stub.Decide(decision, timeout=rpc.ASK_DEADLINE)))

    def refuse(self, job: str, digest: bytes, why: str) -> approvals_pb2.AskedJob:
        """Refuse it; the coordinator hears why."""
        decision = approvals_pb2.DecideRequest(job=job, digest=digest, why=why)
        return run(self._ask(lambda stub: stub.Decide(decision, timeout=rpc.ASK_DEADLINE)))

    def stand(self, text: str) -> approvals_pb2.StandingApproval:
        """Have the party keep a standing approval, TOML."""
        request = approvals_pb2.StandRequest(text=text)
        return run(self._ask(lambda stub: stub.Stand(request, timeout=rpc.ASK_DEADLINE)))

    def revoke(self, name: str) -> approvals_pb2.StandingApproval:
        """End a standing approval."""
        request = approvals_pb2.RevokeRequest(name=name)
        return run(self._ask(lambda stub: stub.Revoke(request, timeout=rpc.ASK_DEADLINE)))

    async def _ask(self, call: Callable[[rpc.ApprovalsStub], Awaitable[M]]) -> M:
        dialer = rpc.GrpcDialer(self._transport, Timeouts())
        try:
            async with dialer.approvals(self._to) as stub:
                return visible_message(await call(stub))
        finally:
            await dialer.close()

    async def _all(self, call: Callable[[rpc.ApprovalsStub], AsyncIterable[M]]) -> list[M]:
        dialer, answers = rpc.GrpcDialer(self._transport, Timeouts()), []
        try:
            async with dialer.approvals(self._to) as stub:
                async for answer in call(stub):
                    answers.append(visible_message(answer))
                    if len(answers) == MOST:
                        break
            return answers
        finally:
            await dialer.close()
