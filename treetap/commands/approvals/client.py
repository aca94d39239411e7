"""An approver's side of `approvals.proto`: what waits at a party, and decisions about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message
from pydantic import model_validator

from treetap.commands.ending import run
from treetap.errors import BadInput, Conflict, UnknownJob, refuse
from treetap.names import on_loopback
from treetap.process.config import Process, Secret, with_typed
from treetap.strict import Address as AddressText
from treetap.strict import Host, Name, Strict
from treetap.wire import rpc
from treetap.wire.frame import visible_message
from treetap.wire.ports import Address, Role, Timeouts
from treetap.wire.tls import Transport
from treetap.wire.v2 import approvals_pb2
from treetap.wire.v2.approvals_pb2_grpc import ApprovalsStub

if TYPE_CHECKING:
    import grpc.aio

    from treetap.wire.v2 import overview_pb2

M = TypeVar("M", bound=Message)
T = TypeVar("T")
#: Most jobs that a party lists; it keeps no more.
MOST = 4096


class ConsoleConfig(Strict):
    """The keys of `[console]`: where `treetap console` serves its pages."""

    listen: AddressText = "127.0.0.1:8437"
    """The address of the pages; another one than a loopback address needs `certificate` and `key`."""
    certificate: Path | None = None
    """Certificate of the pages for browsers, PEM, such as a company's authority issues; with it they use HTTPS."""
    key: Path | None = None
    """The key of that certificate, PEM."""
    passphrase: Secret | None = None
    """The place of that key's passphrase, as `passphrase` of `[tls]`."""
    hosts: list[Host] = []
    """Names under which browsers ask for the pages, beside that of `listen`; a request for another is refused."""

    @model_validator(mode="after")
    def _secured(self) -> ConsoleConfig:
        refuse(
            ((self.certificate is None) != (self.key is None), "certificate and key go together: name both, or none"),
            (
                self.certificate is None and not on_loopback(self.listen),
                f"listen = {self.listen!r} is no loopback address: name certificate and key, since the token and "
                "all pages would go in plain text",
            ),
        )
        return self


class ApproverConfig(Process):
    """`approver.toml`: the party to call, and the approver's own name and certificate."""

    party: AddressText
    """The party's address, `listen` in its file."""
    party_name: Name
    """The name that the party's certificate must bear."""
    name: Name
    """The approver's own name, as in its certificate and among `approvers` of the party's policy."""
    console: ConsoleConfig = ConsoleConfig()
    """The pages of `treetap console`."""

    def addresses(self) -> dict[str, str]:
        return {"party": self.party}

    def transport(self) -> Transport:
        return with_typed(super().transport())


class PartyCalls:
    """An approver's calls to a party; errors are those of `treetap.errors`. Texts of answers are made visible.

    `within_s`: the deadline of each call.
    """

    def __init__(self, config: ApproverConfig, within_s: float = rpc.ASK_DEADLINE) -> None:
        transport = config.transport()
        transport.check(config.name, Role.APPROVER)
        self._to = Address(config.party_name, config.party)
        self._dialer, self._within_s = rpc.GrpcDialer(transport, Timeouts()), within_s

    async def jobs(self, name: str = "", *, brief: bool = False) -> list[approvals_pb2.AskedJob]:
        """The jobs of a name, or all that the party keeps, the newest last; `brief`: without their documents."""
        return await self._listed("List", approvals_pb2.AskedJobs(name=name, brief=brief))

    async def standing(self, name: str = "") -> list[approvals_pb2.StandingApproval]:
        """The standing approval of a name, or all."""
        return await self._listed("ListStanding", approvals_pb2.AskedJobs(name=name))

    async def _listed(self, call: str, asked: approvals_pb2.AskedJobs) -> list[Any]:
        answers: list[Any] = []
        async with self._dialer.calling(self._to) as channel:
            async for answer in getattr(ApprovalsStub(channel), call)(asked, timeout=self._within_s):
                answers.append(visible_message(answer))
                if len(answers) == MOST:
                    break
        return answers

    async def decide(self, decision: approvals_pb2.DecideRequest) -> approvals_pb2.AskedJob:
        """Approve a job of a digest, or refuse it: the coordinator hears why."""
        return await self._answered(lambda to: ApprovalsStub(to).Decide(decision, timeout=self._within_s))

    async def stand(self, text: str) -> approvals_pb2.StandingApproval:
        """Have the party keep a standing approval, TOML."""
        asked = approvals_pb2.StandRequest(text=text)
        return await self._answered(lambda to: ApprovalsStub(to).Stand(asked, timeout=self._within_s))

    async def revoke(self, name: str) -> approvals_pb2.StandingApproval:
        """End a standing approval."""
        asked = approvals_pb2.RevokeRequest(name=name)
        return await self._answered(lambda to: ApprovalsStub(to).Revoke(asked, timeout=self._within_s))

    async def view(self, name: str, page: int = 0) -> overview_pb2.View:
        """A page of what goes on at the party: see overview.proto."""
        from treetap.wire.v2 import overview_pb2
        from treetap.wire.v2.overview_pb2_grpc import OverviewStub

        asked = overview_pb2.AskedView(view=name, page=page)
        return await self._answered(lambda to: OverviewStub(to).Show(asked, timeout=self._within_s))

    async def _answered(self, call: Callable[[grpc.aio.Channel], Awaitable[M]]) -> M:
        async with self._dialer.calling(self._to) as channel:
            return visible_message(await call(channel))

    async def close(self) -> None:
        """Close the connection."""
        await self._dialer.close()


def ask(config: ApproverConfig, call: Callable[[PartyCalls], Awaitable[T]]) -> T:
    """The answer to a call, from a function that is not asynchronous, over a connection of its own."""

    async def answer() -> T:
        calls = PartyCalls(config)
        try:
            return await call(calls)
        finally:
            await calls.close()

    return run(answer())


async def refuse_all(calls: PartyCalls, coordinator: str, why: str) -> list[approvals_pb2.AskedJob]:
    """Refuse all jobs of a coordinator that wait; it hears why. Returns them.

    A job that has been decided, or withdrawn, since they were listed keeps no other from it.
    """
    decided = []
    for one in await calls.jobs(brief=True):
        if one.state == "waiting" and one.coordinator == coordinator:
            with suppress(UnknownJob, Conflict, BadInput):
                decision = approvals_pb2.DecideRequest(job=one.job, digest=one.digest, why=why)
                decided.append(await calls.decide(decision))
    return decided


def moment(seconds: float) -> str:
    """A moment for a reader; what is none, as a party may send, is so named."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, OSError, ValueError):
        return "no date"


def decision(verdict: approvals_pb2.Verdict, name: Callable[[str], str] = str, text: Callable[[str], str] = str) -> str:
    """A decision in words. `name`, `text`: what is shown of a name, and of a reason."""
    until = f" until {moment(verdict.until)}" if verdict.until > verdict.since else ""
    signed = "countersigned" if verdict.HasField("countersigned") else "not countersigned: plain text"
    why = f": {text(verdict.why)}" if verdict.why else ""
    said, by, way = map(name, (verdict.decision, verdict.approver, verdict.way))
    return f"{said} by {by} ({way}) on {moment(verdict.since)}{until}, {signed}{why}"
