"""Bytes that are no message, from rightful callers to every method of every server, over real sockets."""

from __future__ import annotations

import asyncio
import random
import ssl
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tests.campaign.answering_servers import METHODS, OWN, servers
from tests.campaign.certificates import NAMES, Certificates
from tests.campaign.checks import logged
from treetap import version
from treetap.wire.callers import ERROR_KEY
from treetap.wire.tls import TlsFiles


def _nested(depth: int) -> bytes:
    """Messages within messages, in the frames' field of that number."""
    made = b""
    for _ in range(depth):
        n = len(made)
        made = b"\x52" + bytes([n & 0x7F | 0x80, n >> 7 & 0x7F | 0x80, n >> 14]) + made
    return made


#: What is sent in place of a message, by name. None of it can be decoded as a message of any method.
UNDECODABLE = {
    "ones": b"\xff" * 8,
    "a number without an end": b"\x08" + b"\xff" * 20,
    "a length beyond the end": b"\x0a\x7f\x61",
    "a tag of no kind": b"\x0f\x00",
    "text that is not UTF-8": b"\x0a\x02\xc3\x28",
    "an end of a group without its beginning": b"\x0c",
    "a megabyte of ones": b"\xff" * 1_000_000,
}
#: Bytes that some methods can decode: the answer is any, but by name.
STRANGE = {"deep nesting": _nested(2_000), "zeros": bytes(1000), "unknown fields": b"\xfa\x3e\x03abc" * 1000}
#: The same over HTTP, with the statuses that fit.
BODIES = {
    "nothing": b"",
    "ones": b"\xff" * 8,
    "half of JSON": b'{"ids": ["a"',
    "deep nesting": b"[" * 100_000,
    "not UTF-8": b'{"ids": ["\xc3\x28"]}',
    "a number of a megabyte": b'{"ids": [' + b"9" * 900_000 + b"]}",
    "NaN": b'{"ids": ["a"], "deadline_s": NaN}',
    "a surrogate": b'{"ids": ["\\ud800"]}',
}


def _noise(seed: int, count: int) -> dict[str, bytes]:
    chance = random.Random(seed)
    return {f"noise {k}": b"\xff" + chance.randbytes(chance.choice((3, 40, 2_000))) for k in range(count)}


async def _asked(folder: Path, noise: int, seed: int) -> tuple[dict[str, int], list[str]]:
    certificates = Certificates(folder)
    counts: dict[str, int] = {"gRPC": 0, "HTTP": 0}
    findings: list[str] = []
    async with servers(certificates, folder) as at:
        bearers = {role: certificates.rightful(name, role) for role, name in NAMES.items()}
        for server, methods in METHODS.items():
            for method, role in methods.items():
                if role is None:
                    continue
                files = bearers[role]
                if server == "http":
                    for name, body in {**BODIES, **_noise(seed, noise)}.items():
                        counts["HTTP"] += 1
                        status = await _posted(files, at[server], method, body)
                        wanted = (400, 415, 422, 413, 503) if method.startswith("POST") else (503, 400)
                        if status not in wanted:
                            findings.append(f"{method}, {name}: status {status}")
                    continue
                credentials = grpc.ssl_channel_credentials(*(_read(files)))
                options = [("grpc.ssl_target_name_override", OWN[server].dns)]
                async with grpc.aio.secure_channel(at[server], credentials, options=options) as channel:
                    for name, raw in {**UNDECODABLE, **_noise(seed, noise), **STRANGE}.items():
                        counts["gRPC"] += 1
                        ended = await _sent(channel, method, raw)
                        fits = ended == ("INVALID_ARGUMENT", "Malformed")
                        if not fits and (name not in STRANGE or ended[1] in ("", "Defect")):
                            findings.append(f"{method}, {name}: {ended}")
    return counts, findings


def _read(files: TlsFiles) -> tuple[bytes, bytes, bytes]:
    ca, certificate, key = files.read()
    return ca, key, certificate


async def _sent(channel: grpc.aio.Channel, method: str, raw: bytes) -> tuple[str, str]:
    """Status and the error's class."""
    try:
        call = channel.unary_stream(method)(raw, metadata=version.told(), timeout=10)
        async for _ in call:
            break
        call.cancel()
    except grpc.aio.AioRpcError as failure:
        return failure.code().name, str(dict(failure.trailing_metadata() or ()).get(ERROR_KEY, ""))
    return "OK", "answered"


async def _posted(files: TlsFiles, address: str, method: str, body: bytes) -> int:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.load_cert_chain(files.certificate, files.key)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=OWN["http"].dns)
    head = f"{method} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    status = (await reader.readline()).split()
    writer.close()
    return int(status[1]) if len(status) > 1 else 0


def conduct(folder: Path, noise: int = 3, seed: int = 0) -> dict[str, Any]:
    """Everything to every method, with some noise from a seed; the figures as a file holds them."""
    with logged() as log:
        counts, findings = asyncio.run(_asked(folder, noise, seed))
    findings += log.faults
    return {
        "cases": sum(counts.values()),
        "kinds": counts,
        "findings": len(findings),
        "failing": findings,
        "seed": seed,
    }
