"""Servers of all kinds over real sockets in one process: the services of production, which answer everything."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.campaign.certificates import Certificates
from tests.serving.gateways import behind_gateway
from treetap.coordinator import server as jobs_service
from treetap.party.config import PartyConfig, ServeConfig
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.server import services
from treetap.party.serving.registry import ServedModels
from treetap.process.config import TlsConfig
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.ports import Identity, Role
from treetap.wire.probe import serve_health
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import approvals_pb2, control_pb2, exchange_pb2, jobs_pb2, overview_pb2

#: Where the methods of the last version were.
OLD = "/treetap.wire.v1."
#: Of gRPC's health service, and answered by no server.
WATCH = "/grpc.health.v1.Health/Watch"
#: Server → its methods, with the role that each answers; None: every certificate with a role.
METHODS: dict[str, dict[str, Role | None]] = {
    "party": {
        "/treetap.wire.v2.Control/Step": Role.COORDINATOR,
        "/treetap.wire.v2.Exchange/Deliver": Role.PARTY,
        **{
            f"/treetap.wire.v2.Approvals/{name}": Role.APPROVER
            for name in ("List", "Decide", "Stand", "ListStanding", "Revoke")
        },
        "/treetap.wire.v2.Overview/Show": Role.APPROVER,
        "/grpc.health.v1.Health/Check": None,
        WATCH: None,
        f"{OLD}Control/Step": None,
    },
    "coordinator": {
        **{
            f"/treetap.wire.v2.Jobs/{name}": Role.OPERATOR
            for name in ("Draft", "Submit", "Check", "Align", "Predict", "Watch", "Status", "Cancel", "Resume", "Prune")
        },
        "/grpc.health.v1.Health/Check": None,
        WATCH: None,
        f"{OLD}Jobs/Submit": None,
    },
    "serving": {
        "/treetap.wire.v2.Serving/Predict": Role.CLIENT,
        "/treetap.wire.v2.Serving/Describe": Role.CLIENT,
        "/grpc.health.v1.Health/Check": None,
        WATCH: None,
        f"{OLD}Serving/Predict": None,
    },
    "http": {
        "POST /v1/predict": Role.CLIENT,
        "GET /v1/model": Role.CLIENT,
        "GET /healthz": None,
        "GET /openapi.json": None,
    },
}
#: Who each server is.
OWN = {
    "party": Identity("feature-b", Role.PARTY),
    "coordinator": Identity("coordinator", Role.COORDINATOR),
    "serving": Identity("label-holder", Role.PARTY),
    "http": Identity("gateway", Role.GATEWAY),
}


class _Behind:
    """Implementation behind the services: it answers every call."""

    @property
    def submissions(self) -> _Behind:
        return self

    async def step(self, _caller: str, _request: Any) -> AsyncIterator[control_pb2.StepEvent]:
        yield control_pb2.StepEvent()

    async def deliver(self, _caller: str, *_message: Any) -> exchange_pb2.Receipt:
        return exchange_pb2.Receipt()

    def submit(self, _request: Any, _operator: str = "") -> str:
        return "job"

    resume = submit

    def prune(self, _names: Sequence[str], _days: float, *, dry_run: bool) -> list[str]:
        return []

    def status(self, _job: str) -> list[jobs_pb2.JobStatus]:
        return []

    async def watch(self, _job: str) -> AsyncIterator[jobs_pb2.JobStatus]:
        yield jobs_pb2.JobStatus()

    async def check(self, _request: Any) -> AsyncIterator[jobs_pb2.CheckReply]:
        yield jobs_pb2.CheckReply()

    def draft(self, _request: Any) -> jobs_pb2.Drafted:
        return jobs_pb2.Drafted()

    def jobs(self, _caller: str, _request: Any) -> list[approvals_pb2.AskedJob]:
        return []

    standing = jobs

    def decide(self, _caller: str, _request: Any) -> approvals_pb2.AskedJob:
        return approvals_pb2.AskedJob()

    def stand(self, _caller: str, _request: Any) -> approvals_pb2.StandingApproval:
        return approvals_pb2.StandingApproval()

    revoke = stand

    async def show(self, _caller: str, _request: Any) -> overview_pb2.View:
        return overview_pb2.View()

    async def cancel(self, _job: str) -> jobs_pb2.JobStatus:
        return jobs_pb2.JobStatus()


def _party(server: Any, callers: Callers, behind: Any) -> None:
    services.register(server, callers, behind)
    services.register_for_approvers(server, lambda: behind, lambda: behind)


def _tls(files: TlsFiles) -> TlsConfig:
    return TlsConfig(ca=files.ca, certificate=files.certificate, key=files.key, revoked=files.revoked)


@asynccontextmanager
async def servers(certificates: Certificates, folder: Path) -> AsyncIterator[dict[str, str]]:
    """Server → its address, of all four kinds."""
    behind, found = _Behind(), {}
    async with AsyncExitStack() as held:
        for name, register in (
            ("party", lambda server, callers: _party(server, callers, behind)),
            ("coordinator", lambda server, callers: jobs_service.register(server, callers, behind)),
        ):
            files = certificates.rightful(OWN[name].name, OWN[name].role)
            found[name] = await held.enter_async_context(_listening(files, OWN[name].name, register))
        files = certificates.rightful(OWN["serving"].name, Role.PARTY)
        serve = ServeConfig(clients=["app"], listen="127.0.0.1:0", gateway="gateway")
        config = PartyConfig(name=OWN["serving"].name, state=folder / "state", tls=_tls(files), serve=serve)
        models = ServedModels(config, PartyMetrics(config.name))
        own = _tls(certificates.rightful(OWN["http"].name, Role.GATEWAY))
        found["http"] = await held.enter_async_context(behind_gateway(config, models, tls=own))
        found["serving"] = models.address
        yield found


@asynccontextmanager
async def _listening(files: TlsFiles, name: str, register: Callable[..., None]) -> AsyncIterator[str]:
    callers = Callers(name, files, operators=["operator"])
    server, credentials = rpc.server(callers)
    register(server, callers)
    serve_health(server)
    address = rpc.bind(server, credentials, "127.0.0.1:0")
    await server.start()
    try:
        yield address
    finally:
        await server.stop(None)
