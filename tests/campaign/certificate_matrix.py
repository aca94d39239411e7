"""Pairings of certificates with servers and their methods, over real sockets in one process.

Servers of all kinds (`answering_servers`) look at who calls them, and callers at the servers that they call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import grpc.aio

from tests.campaign.answering_servers import METHODS, OLD, OWN, WATCH, servers
from tests.campaign.certificates import NAMES, Certificates, Kind
from tests.campaign.checks import logged
from treetap import version
from treetap.errors import TreetapError
from treetap.wire import rpc
from treetap.wire.callers import ERROR_KEY
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.probe import say_hello
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, exchange_pb2, jobs_pb2

#: What callers ask of a server that may be a wrong one, and the role that it must have.
CALLS = {"step": Role.PARTY, "deliver": Role.PARTY, "status": Role.COORDINATOR, "hello": Role.PARTY}


class Pairing(NamedTuple):
    """A certificate, the server and the method that it meets, and what must come of it."""

    kind: Kind
    server: str
    method: str
    expected: str


@dataclass
class Met:
    """Outcome of pairings: the number of each expected end, and the pairings that ended otherwise."""

    counts: Counter[str] = field(default_factory=Counter)
    findings: list[str] = field(default_factory=list)

    def add(self, pairing: Pairing, found: str) -> None:
        """Count one."""
        self.counts[pairing.expected] += 1
        if found != pairing.expected:
            self.findings.append(
                f"{pairing.kind} at {pairing.server} {pairing.method}: {found}, not {pairing.expected}"
            )


def expected(kind: Kind, method: str, role: Role | None) -> str:
    """The end that a pairing must have: heard; old, refused for its version; refused; no method; no connection."""
    if kind.at == "tls" or (kind.at == "name" and not method.startswith("/")):  # HTTP ends such connections
        return "no connection"
    if kind.at == "name" or (role is not None and kind.role is not role):
        return "refused"
    if method == WATCH:
        return "no method"
    return "old" if method.startswith(OLD) else "heard"


async def callers(folder: Path) -> Met:
    """Every kind of certificate, none, and plain text, against every method of every server."""
    certificates, met = Certificates(folder), Met()
    kinds = [
        *certificates.kinds(NAMES),
        Kind("no certificate", None, None, "tls"),
        Kind("plain text", None, None, "tls"),
    ]
    async with servers(certificates, folder) as at:
        for kind in kinds:
            for server, methods in METHODS.items():
                pairings = [Pairing(kind, server, name, expected(kind, name, role)) for name, role in methods.items()]
                ask = _over_http if server == "http" else _over_grpc
                ends = await ask(kind, at[server], OWN[server], list(methods), certificates.authority / "ca.crt")
                for pairing, found in zip(pairings, ends, strict=True):
                    met.add(pairing, found)
    return met


async def _over_grpc(kind: Kind, address: str, own: Identity, methods: list[str], ca: Path) -> list[str]:
    named = [("grpc.ssl_target_name_override", own.dns), ("grpc.initial_reconnect_backoff_ms", 100)]
    if kind.defect == "plain text":
        channel = grpc.aio.insecure_channel(address)
    else:
        _, certificate, key = kind.files.read() if kind.files else (b"", None, None)
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key, certificate)
        channel = grpc.aio.secure_channel(address, credentials, options=named)
    async with channel:
        return [await _call(channel, method) for method in methods]


async def _call(channel: grpc.aio.Channel, method: str) -> str:
    try:
        call = channel.unary_stream(method)(b"", metadata=version.told(), timeout=10)
        async for _ in call:
            break
        call.cancel()
    except grpc.aio.AioRpcError as failure:
        error = dict(failure.trailing_metadata() or ()).get(ERROR_KEY)
        if error is None and failure.code() is grpc.StatusCode.UNAVAILABLE:
            return "no connection"
        if error is None and failure.code() is grpc.StatusCode.UNIMPLEMENTED:
            return "no method"
        return {"Refused": "refused", "Incompatible": "old", "NotServed": "heard"}.get(str(error), repr(failure))
    return "heard"


async def _over_http(kind: Kind, address: str, own: Identity, methods: list[str], ca: Path) -> list[str]:
    return [await _request(kind, address, own, method, ca) for method in methods]


async def _request(kind: Kind, address: str, own: Identity, method: str, ca: Path) -> str:
    context = None
    if kind.defect != "plain text":
        context = ssl.create_default_context(cafile=str(ca))
        if kind.files:
            context.load_cert_chain(kind.files.certificate, kind.files.key)
    host, _, port = address.rpartition(":")
    try:
        name = own.dns if context else None
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
        body = b'{"ids": ["x"]}' if method.startswith("POST") else b""
        head = f"{method} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
        status = (await reader.readline()).split()
        writer.close()
    except OSError:
        return "no connection"
    return {b"403": "refused", b"503": "heard", b"200": "heard"}.get(status[1] if status else b"", "no connection")


async def wrong_servers(folder: Path) -> Met:
    """Every kind of certificate at a server, against every call: only the right one gets an answer."""
    certificates, met = Certificates(folder), Met()
    mine = certificates.rightful("label-holder", Role.PARTY)
    for call, wanted in CALLS.items():
        own = Identity("coordinator" if wanted is Role.COORDINATOR else "feature-c", wanted)
        others = [Kind("", role, certificates.rightful(own.name, role)) for role in Role]
        kinds = [*others, *(certificates.defective(own, defect) for defect in _AT_SERVERS)]
        for kind in kinds:
            right = not kind.defect and kind.role is wanted
            pairing = Pairing(kind, "a server", call, "heard" if right else "told nothing")
            assert kind.files is not None
            met.add(pairing, await _told(call, Address(own.name, "", own.role), kind.files, mine))
    return met


#: What is wrong with a server's certificate where its name and role do not show it.
_AT_SERVERS = (
    "no role", "no alternative name", "another's DNS name", "unknown role", "revoked", "expired", "not yet valid",
    "another authority", "self-signed",
)  # fmt: skip


async def _told(call: str, to: Address, theirs: TlsFiles, mine: TlsFiles) -> str:
    """The part of a call that a server with these files receives; the server checks nothing itself."""
    server = grpc.aio.server()
    asked: list[str] = []

    class Everything(grpc.GenericRpcHandler):
        def service(self, details: Any) -> Any:
            asked.append(details.method)

            async def answer(_request: bytes, _context: Any) -> bytes:
                return b""

            if details.method.endswith(("Step", "Status")):

                async def stream(_request: bytes, _context: Any) -> AsyncIterator[bytes]:
                    yield b""

                return grpc.unary_stream_rpc_method_handler(stream)
            return grpc.unary_unary_rpc_method_handler(answer)

    server.add_generic_rpc_handlers((Everything(),))
    _, certificate, key = theirs.read()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(key, certificate)]))
    await server.start()
    to = Address(to.name, f"127.0.0.1:{port}", to.role)
    dialer = rpc.GrpcDialer(mine)
    try:
        if call == "step":
            async for _ in dialer.step(to, control_pb2.StepRequest(job="j")):
                pass
        elif call == "deliver":
            await dialer.deliver(to, exchange_pb2.PeerMessage(job="j").SerializeToString())
        elif call == "status":
            async with dialer.jobs(to) as stub:
                async for _ in stub.Status(jobs_pb2.StatusRequest(), timeout=10):
                    pass
        else:
            await asyncio.to_thread(say_hello, to, mine, 5)
    except (TreetapError, grpc.aio.AioRpcError) as error:
        return "told nothing" if not asked else f"told {asked}, {error}"
    finally:
        await dialer.close()
        await server.stop(None)
    return "heard"


def conduct(folder: Path) -> dict[str, Any]:
    """Both directions; the figures as a file holds them."""
    with logged() as log:
        found = {way: asyncio.run(of(folder / way)) for way, of in (("callers", callers), ("servers", wrong_servers))}
    failing = [finding for met in found.values() for finding in met.findings] + log.faults
    return {
        "cases": sum(met.counts.total() for met in found.values()),
        "kinds": {f"{way}, {end}": count for way, met in found.items() for end, count in met.counts.items()},
        "findings": len(failing),
        "failing": failing,
    }
