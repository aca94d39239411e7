"""Every kind of certificate of the campaign's matrix at a relay's registration, and none, and plain text."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from tests.campaign.certificates import NAMES, Certificates, Kind
from tests.relay.rig import RELAY, made_relay
from treetap.wire.ports import Role
from treetap.wire.relay.control import GREETING


def expected(kind: Kind) -> str:
    """The relay's answer: only parties and coordinators register, with a certificate in order."""
    if kind.at == "tls":
        return "no connection"
    return "ready" if kind.at == "" and kind.role in (Role.PARTY, Role.COORDINATOR) else "refused"


async def answer(kind: Kind, at: str) -> str:
    """The first word that the relay says to somebody with such a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if kind.files is not None:
        context.load_cert_chain(kind.files.certificate, kind.files.key)
    host, _, port = at.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=RELAY.dns)
        writer.write(f"{GREETING}\n".encode())
        line = await asyncio.wait_for(reader.readline(), 5)
        writer.close()
    except OSError:
        return "no connection"
    return line.decode().split(" ")[0].strip() or "no connection"


@pytest.mark.real_time
@pytest.mark.timeout(60)
async def test_who_registers(tmp_path: Path) -> None:
    """A defect is found whichever role it is in, and a role without a place at the relay is refused."""
    certificates = Certificates(tmp_path)
    relay = made_relay(certificates.rightful("relay", Role.RELAY))
    at = await relay.start("127.0.0.1:0")
    kinds = [*certificates.kinds(NAMES), Kind("no certificate", None, None, "tls")]
    met = {str(kind): (await answer(kind, at), expected(kind)) for kind in kinds}
    assert {kind: ends for kind, ends in met.items() if ends[0] != ends[1]} == {}
    assert sorted({name.process.name for name in relay.names.values()}) == ["coordinator", "feature-c"]
    assert {end for end, _ in met.values()} == {"ready", "refused", "no connection"}
    await relay.close()
