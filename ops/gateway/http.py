"""`treetap gateway`: the HTTP endpoint for clients. JSON requests go to the party, errors become statuses.

Calls of a gateway to its party: each for one client, by name, with a deadline.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from aiohttp import hdrs, web
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from pydantic import ValidationError

from treetap import errors, logs
from treetap.errors import Incompatible, NotServed, Refused, TreetapError, Unreachable, cannot, one_line
from treetap.metrics import ProcessMetrics
from treetap.names import NAME, host_of
from treetap.ops.gateway.config import GatewayConfig
from treetap.ops.gateway.http_connections import (
    Bodies,
    Handler,
    HttpListener,
    Waiting,
    awaits_requests,
    certificate_of,
    problem,
    respond,
)
from treetap.ops.gateway.http_json import (
    SLOWEST_S,
    STATUS,
    HealthReply,
    document,
    faults_of_request,
    model_reply,
    predict_reply,
)
from treetap.process.lifecycle import serve_until_stopped
from treetap.process.limits import collect_rarely, raise_descriptors
from treetap.wire.callers import BEHALF_KEY, Callers
from treetap.wire.certificates import dns_names, ip_addresses
from treetap.wire.ports import Address, Role
from treetap.wire.probe import SERVING
from treetap.wire.rpc import GrpcDialer
from treetap.wire.tls import NAME_KEY, CredentialSource, Secured, Transport
from treetap.wire.v2 import serving_pb2, serving_pb2_grpc

#: Seconds that a prediction may take: no party lets a client wait longer than 600.
LONGEST_S = 610.0
#: Seconds that a party may take to describe a model, and to say whether it serves one.
SOON_S = 10.0
#: Seconds after which a connection without a call is given up, before the party does so.
GIVE_UP_S = 50.0


class PartyCalls:
    """Asks one party.

    Args:
        transport: the gateway's own credentials.
        to: the party's address for clients.
    """

    def __init__(self, transport: Transport, to: Address) -> None:
        self._to, self._dialer = to, GrpcDialer(transport, give_up_s=GIVE_UP_S)

    async def predict(
        self, client: str, request: serving_pb2.PredictRecords, within_s: float | None = None
    ) -> serving_pb2.PredictedRecords:
        """Predictions for a client, within `within_s` seconds or what the party allows.

        Raises:
            BadInput, Refused, UnknownJob: the party's answer.
            NotServed, Overloaded, Silent: the client may ask again; also where the party is not reached.
        """
        async with self._asking(client) as stub:
            return await stub.Predict(request, timeout=min(LONGEST_S, within_s or LONGEST_S))

    async def describe(self, client: str, model: str) -> serving_pb2.ModelDescription:
        """The description of a served model for a client. Raises as `predict` does."""
        async with self._asking(client) as stub:
            return await stub.Describe(serving_pb2.DescribeModel(model=model), timeout=SOON_S)

    async def serves(self) -> bool:
        """True if the party is reached and serves a model."""
        try:
            async with self._dialer.calling(self._to) as channel:
                asked = health_pb2.HealthCheckRequest(service=SERVING)
                answer = await health_pb2_grpc.HealthStub(channel).Check(asked, timeout=SOON_S)
        except TreetapError as fault:
            log.warning("%s does not say whether it serves: %s", self._to.name, fault)
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    async def close(self) -> None:
        await self._dialer.close()

    @asynccontextmanager
    async def _asking(self, client: str) -> AsyncIterator[serving_pb2_grpc.ServingAsyncStub]:
        """The stub for one call; why the party is not reached is for the log alone."""
        try:
            async with self._dialer.calling(self._to, (BEHALF_KEY, client)) as channel:
                stub: Any = serving_pb2_grpc.ServingStub(channel)
                yield stub
        except (Unreachable, Incompatible) as fault:
            log.warning("%s is not reached: %s", self._to.name, fault)
            raise NotServed(f"{self._to.name} cannot be asked now; ask again later") from None


log = logging.getLogger(__name__)
_NEAR = ("localhost", "127.0.0.1", "::1")
#: Error → status. A subclass stands before its base classes.
STATUSES: list[tuple[type[errors.TreetapError], int]] = [
    (errors.BadInput, 400),
    (errors.Refused, 403),
    (errors.UnknownJob, 404),
    (errors.Overloaded, 429),
    (errors.NotServed, 503),
    (errors.Silent, 504),
]


class HttpScoring:
    """The endpoint's routes.

    Args:
        party: answers.
        config: the gateway's.
        secured: its TLS, whose certificate has names under which it is called; None without.
        answered: is told the status of every answer to a request.

    Attributes:
        callers: recognises certificates; None: a header names the client.
    """

    def __init__(
        self, party: PartyCalls, config: GatewayConfig, secured: Secured | None, answered: Callable[[int], None]
    ) -> None:
        files = config.secured
        self._party, self._answered = party, answered
        self._names = partial(own_names, config.listen, None if secured is None else secured.credentials, config.hosts)
        self.callers = None if files is None else Callers(config.name, files)
        self._bodies = Bodies(config.most_ids)
        self._document = document(self._bodies.form, secured=files is not None)
        self.application = web.Application(
            middlewares=[awaits_requests, self._problems, self._known, self._asked_by_name]
        )
        self.application.add_routes(
            [
                web.post("/v1/predict", self.predict),
                web.get("/v1/model", self.model),
                web.get("/healthz", self.health),
                web.get("/openapi.json", self.openapi),
            ]
        )

    async def predict(self, request: web.Request) -> web.Response:
        """Predict records; if a request with a single record gets no prediction, the status of the response says so."""
        client = self._client(request)
        if request.content_type != "application/json":
            return problem(415, "the body must be application/json")
        if hdrs.CONTENT_ENCODING in request.headers:
            return problem(415, "the body must not be compressed")
        try:
            form = await self._bodies.read(client, request)
        except TimeoutError:
            return problem(408, f"the body did not come within {SLOWEST_S:g} s")
        except ValidationError as failure:
            return problem(422, faults_of_request(failure))
        answer = await self._party.predict(client, form.message(), form.deadline_s)
        if len(answer.predictions) == 1 and (fault := _fault(answer.predictions[0])):
            return fault
        return respond(200, predict_reply(answer, form.named, reasons=form.reasons > 0))

    async def model(self, request: web.Request) -> web.Response:
        """The description of a served model."""
        description = await self._party.describe(self._client(request), request.query.get("model", ""))
        return respond(200, model_reply(description))

    async def health(self, request: web.Request) -> web.Response:
        """Status 200 while predictions are served, else 503; open to every holder of a certificate with a role."""
        del request
        return (
            respond(200, HealthReply(status="serving"))
            if await self._party.serves()
            else respond(503, HealthReply(status="idle"))
        )

    async def openapi(self, request: web.Request) -> web.Response:
        """The OpenAPI document of the endpoint; open as `health` is."""
        del request
        return respond(200, json.dumps(self._document))

    def _client(self, request: web.Request) -> str:
        """The name of the client that calls."""
        if self.callers is not None:
            return self.callers.shown(certificate_of(request), Role.CLIENT)
        names = request.headers.getall(NAME_KEY, [])
        if len(names) != 1:
            raise Refused(f"the caller does not name itself in header {NAME_KEY}")
        if not NAME.match(names[0]):
            raise Refused(f"{names[0]!r} in header {NAME_KEY} is no name of a client")
        logs.note(peer=names[0])
        return names[0]

    @web.middleware
    async def _problems(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn errors into statuses; an unexpected one is logged, and the response names its type without its text."""
        with logs.within():
            try:
                answer = await handler(request)
            except errors.TreetapError as error:
                log.warning("refused: %s: %s", type(error).__name__, error)
                status = next((status for kind, status in STATUSES if isinstance(error, kind)), 500)
                answer = problem(status, one_line(str(error)))
            except web.HTTPException as error:
                answer = problem(error.status, error.reason, dict(error.headers))
            except Exception as error:
                log.exception("a defect")
                answer = problem(500, f"a defect ({type(error).__name__}): the log has the details")
            self._answered(answer.status)
            return answer

    @web.middleware
    async def _known(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a caller whose certificate is revoked by now, before the request is read, and end the connection."""
        if self.callers is not None:
            try:
                self.callers.shown(certificate_of(request))
            except Refused as fault:
                log.warning("refused: %s", fault)
                refusal = problem(403, str(fault))
                refusal.force_close()
                return refusal
        return await handler(request)

    @web.middleware
    async def _asked_by_name(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse requests for other hosts than this gateway's: 421, and 400 where there is none or more than one.

        A foreign name shows a request that was led here, such as by DNS rebinding, in which a page in a client's
        browser has its own name resolve to this host's address.
        """
        hosts = request.headers.getall("Host", [])
        if len(hosts) != 1:
            raise web.HTTPBadRequest(reason="a request names one Host")
        if host_of(hosts[0]) not in self._names():
            raise web.HTTPMisdirectedRequest(reason="this Host is not served here (hosts = ...)")
        return await handler(request)


def _fault(prediction: serving_pb2.RecordPrediction) -> web.Response | None:
    """The response for a record without a prediction; None if it has one."""
    record = STATUS[prediction.status]
    if record == "unknown_id":
        return problem(404, "the label holder's table has no such id", record=record)
    if record == "not_common":
        return problem(422, "not all parties hold the record of this id", record=record)
    if record == "invalid":
        return problem(422, prediction.fault, record=record)
    if record == "queries_spent":
        said = f"{prediction.party} answers no more queries of this record"
        return problem(403, said, record=record, party=prediction.party)
    return None


def own_names(listen: str, source: CredentialSource | None, more: Iterable[str]) -> frozenset[str]:
    """The hosts that a request may name now: `more`, that of `listen`, and the certificate's; else loopback's."""
    certified = _NEAR if source is None else _certified(source.now().certificate)
    names = [listen.rpartition(":")[0].strip("[]"), *more, *certified]
    return frozenset(name.lower() for name in names)


@lru_cache(maxsize=1)  # every request asks, and it seldom changes
def _certified(certificate: bytes) -> tuple[str, ...]:
    shown = x509.load_pem_x509_certificate(certificate)
    return (*dns_names(shown), *ip_addresses(shown))


def run(path: Path, *, until_stdin_closes: bool) -> None:
    """Serve; returns after SIGTERM, SIGINT or, if asked, when standard input closes."""
    config = GatewayConfig.from_file(path)
    config.transport().check(config.name, Role.GATEWAY)
    raise_descriptors()
    asyncio.run(_serve(config, until_stdin_closes))


async def _serve(config: GatewayConfig, until_stdin_closes: bool) -> None:
    metrics = ProcessMetrics("gateway", config.name)
    measured = metrics.serve(config.metrics)
    metrics.certificates(config.transport())
    collect_rarely()
    async with listening(config, metrics) as address:
        where = {"name": config.name, "address": address, **({"metrics": measured} if measured else {})}
        await serve_until_stopped("gateway", where, until_stdin_closes=until_stdin_closes)


@asynccontextmanager
async def listening(config: GatewayConfig, metrics: ProcessMetrics) -> AsyncIterator[str]:
    """Answer clients while the block runs; yields the address, `host:port` (port 0: a free one).

    Raises `BadInput` if it cannot listen.
    """
    listen, files = config.listen, config.secured
    if files is None:
        log.warning("listen %s: no encryption, and any process on this host can pose as any client", listen)
    party, secured = PartyCalls(config.transport(), config.asked), None if files is None else Secured("HTTP", files)
    requests = metrics.counter("treetap_gateway_requests_total", "Requests, by their answer's status.", "status")
    made = HttpScoring(party, config, secured, lambda status: requests.labels(str(status)).inc())
    runner = web.AppRunner(made.application, access_log=None, handler_cancellation=True, shutdown_timeout=2.0)
    await runner.setup()
    host, _, port = listen.rpartition(":")
    context, limits = None if secured is None else secured.context, Waiting(config.handshakes, config.proxies)
    listener = HttpListener(runner, host.strip("[]"), int(port), context, made.callers, limits)
    try:
        with cannot("listen there", f"listen = {listen!r}"):
            await listener.start()
        yield f"{host}:{listener.port}"
    finally:
        await runner.cleanup()
        await party.close()
