"""What a party takes from its gateway and from nobody else, and what a gateway says where its party is away."""

from __future__ import annotations

import asyncio
import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tests.certificates import namesake
from treetap.commands.certs.authority import create_authority, issue
from treetap.party.config import PartyConfig
from treetap.party.runtime.metrics import PartyMetrics
from treetap.party.server.services import ScoringServer
from treetap.party.serving.registry import ServedModels
from treetap.process.config import TlsConfig
from treetap.wire.callers import BEHALF_KEY
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import NAME_KEY, TlsFiles
from treetap.wire.v2 import serving_pb2, serving_pb2_grpc

pytest.importorskip("aiohttp", reason="a gateway needs the extra serve")
from tests.serving.gateways import GATEWAY, SERVED, behind_gateway
from treetap.metrics import ProcessMetrics
from treetap.ops.gateway import http
from treetap.ops.gateway.config import GatewayConfig

pytestmark = pytest.mark.real_time

HOLDER = Identity("bank", Role.PARTY)
APP = ((BEHALF_KEY, "app"),)
#: Who calls, in which role, with which metadata → what the party says. No model is served: `NotServed` is for a client.
CALLS: dict[str, tuple[str, Role, tuple[tuple[str, str], ...], str]] = {
    "a client": ("app", Role.CLIENT, (), "serves no model now"),
    "the gateway for a client": (GATEWAY, Role.GATEWAY, APP, "serves no model now"),
    "the gateway for another": (GATEWAY, Role.GATEWAY, ((BEHALF_KEY, "eve"),), "eve is not a client of bank"),
    "the gateway for nobody": (GATEWAY, Role.GATEWAY, (), f"{GATEWAY} does not name one client"),
    "the gateway for two": (GATEWAY, Role.GATEWAY, (*APP, (BEHALF_KEY, "eve")), f"{GATEWAY} does not name one client"),
    "the gateway for no name": (GATEWAY, Role.GATEWAY, ((BEHALF_KEY, "a b"),), f"{GATEWAY} does not name one client"),
    "another gateway": ("other", Role.GATEWAY, APP, "other is not the gateway of bank"),
    "a client for another": ("batch", Role.CLIENT, APP, "batch names another client in metadata"),
    "a client of the gateway's name": (GATEWAY, Role.CLIENT, APP, f"{GATEWAY} names another client in metadata"),
    "a party for a client": ("telco", Role.PARTY, APP, "telco is not a client by its certificate, but a party"),
}


def _party(folder: Path, **more: Any) -> PartyConfig:
    serve = {"clients": ["app", "batch"], **SERVED}
    return PartyConfig.model_validate({"name": "bank", "state": folder / "state", "serve": serve, **more})


async def _said(channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> str:
    """The error of a call for predictions."""
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await serving_pb2_grpc.ServingStub(channel).Predict(  # type: ignore[misc]
            serving_pb2.PredictRecords(ids=["1"]), metadata=metadata, timeout=10
        )
    return failure.value.details() or ""


async def test_the_gateway_alone_names_clients(tmp_path: Path) -> None:
    """By its certificate, for one client a call; and where a party names no gateway, none."""
    certs = tmp_path / "certs"
    create_authority(certs)
    issue(certs, "bank", Role.PARTY, days=2)
    own = TlsConfig(ca=certs / "ca.crt", certificate=certs / "bank.crt", key=certs / "bank.key")
    files: dict[tuple[str, Role], TlsFiles] = {}
    for number, (name, role, _, _) in enumerate(CALLS.values()):
        files.setdefault((name, role), namesake(tmp_path / str(number), name, role, certs))
    for gateway in (GATEWAY, None):
        config = _party(tmp_path, tls=own)
        assert config.serve is not None
        config = config.model_copy(update={"serve": config.serve.model_copy(update={"gateway": gateway})})
        server, models = ScoringServer(), ServedModels(config, PartyMetrics("bank"))
        await server.open(config, models)
        for name, role, metadata, told in CALLS.values():
            ca, certificate, key = files[name, role].read()
            credentials = grpc.ssl_channel_credentials(ca, key, certificate)
            options = [("grpc.ssl_target_name_override", HOLDER.dns)]
            async with grpc.aio.secure_channel(models.address, credentials, options=options) as channel:
                heard = await _said(channel, metadata)
            assert (f"{name} is not the gateway of bank" if role is Role.GATEWAY and gateway is None else told) in heard
        await server.close(0)


async def test_without_certificates_the_gateway_is_who_says_so(tmp_path: Path) -> None:
    """As every name is; a client's name still decides."""
    config = _party(tmp_path, insecure=True)
    server, models = ScoringServer(), ServedModels(config, PartyMetrics("bank"))
    await server.open(config, models)
    async with grpc.aio.insecure_channel(models.address) as channel:
        for name, metadata, told in (
            (GATEWAY, APP, "serves no model now"),
            (GATEWAY, (), f"{GATEWAY} does not name one client"),
            ("app", (), "serves no model now"),
            ("batch", APP, "batch names another client"),
        ):
            assert told in await _said(channel, ((NAME_KEY, name), *metadata))
    await server.close(0)


def _ask(address: str, method: str, path: str, body: str = "", client: str = "app") -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(address, timeout=10)
    try:
        connection.request(method, path, body, {NAME_KEY: client, "Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


async def test_a_party_that_is_away(tmp_path: Path) -> None:
    """Clients may ask again, and hear neither its address nor the cause; when it is there, they are answered by it."""
    config = _party(tmp_path, insecure=True)
    server, models = ScoringServer(), ServedModels(config, PartyMetrics("bank"))
    await server.open(config, models)
    await server.close(0)
    party = {"name": "bank", "address": models.address}
    given = GatewayConfig.model_validate({"listen": "127.0.0.1:0", "insecure": True, "party": party})
    metrics = ProcessMetrics("gateway", GATEWAY)
    async with http.listening(given, metrics) as address:
        for method, path, body in (("GET", "/v1/model", ""), ("POST", "/v1/predict", '{"ids": ["1"]}')):
            status, problem = await asyncio.to_thread(_ask, address, method, path, body)
            assert (status, problem["detail"]) == (503, "bank cannot be asked now; ask again later")
        assert await asyncio.to_thread(_ask, address, "GET", "/healthz") == (503, {"status": "idle"})
        for body in ("{", '{"ids": []}'):
            assert (await asyncio.to_thread(_ask, address, "POST", "/v1/predict", body))[0] == 422
        assert (await asyncio.to_thread(_ask, address, "GET", "/v1/model", "", "no name"))[0] == 403
        counts = {labels["status"]: value for name, labels, value in metrics.samples("treetap_gateway_requests_total")}
        assert counts == {"503": 3.0, "422": 2.0, "403": 1.0}
        assert config.serve is not None
        here = config.serve.model_copy(update={"listen": models.address})
        back, said = ScoringServer(), ""
        await back.open(config.model_copy(update={"serve": here}), models)
        try:
            async with asyncio.timeout(10):
                while said != "bank serves no model now; ask again later":
                    said = (await asyncio.to_thread(_ask, address, "GET", "/v1/model"))[1]["detail"]
        finally:
            await back.close(0)


async def test_a_client_is_one_caller_whichever_way_it_asks(tmp_path: Path) -> None:
    """Its share of calls, its outcomes and the party's refusals go by its own name, not by the gateway's."""
    config = _party(tmp_path, insecure=True)
    models = ServedModels(config, PartyMetrics("bank"))
    async with behind_gateway(config, models) as address:
        for client in ("app", "app", "eve"):
            await asyncio.to_thread(_ask, address, "POST", "/v1/predict", '{"ids": ["1"]}', client)
    counted = {
        (labels["client"], labels["outcome"]): value
        for name, labels, value in models.metrics.samples("treetap_served_requests_total")
        if name.endswith("_total")
    }
    assert counted["app", "not_served"] == 2.0
    assert not any(client == GATEWAY for client, _ in counted)
