"""A gateway's file: where clients ask over HTTP, and the party that it asks for them."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from treetap.names import on_loopback
from treetap.process.config import Process
from treetap.strict import Address, Host, ProcessName, Strict
from treetap.wire import ports
from treetap.wire.tls import Insecure, TlsFiles

Network = Annotated[str, AfterValidator(lambda text: str(ip_network(text)))]  #: an address, or ADDRESS/BITS


class AskedParty(Strict):
    """The party that a gateway asks for its clients."""

    name: ProcessName
    """Its name, which its certificate bears."""
    address: Address
    """HOST:PORT, `listen` of its table `[serve]`."""


class GatewayConfig(Process):
    """The file that `treetap gateway FILE` reads."""

    name: ProcessName = "gateway"
    """Its name, which its certificate bears, with the role `gateway`, and which the party's `[serve] gateway` says."""
    listen: Address
    """HOST:PORT for clients of HTTP and JSON."""
    party: AskedParty
    """The party that answers, `[party]`."""
    plain_http: bool = False
    """HTTP without TLS, on loopback only: the header `treetap-name` names the client, without proof."""
    hosts: list[Host] = []
    """Names under which clients call, beside those in the certificate and in `listen`; a request for another is
    answered with 421.
    """
    handshakes: Annotated[int, Field(ge=1, le=4096)] = 64
    """Most connections of one address without a handshake at once; the oldest makes room for a further one."""
    proxies: list[Network] = []
    """Addresses and networks, such as 10.0.0.0/8, of proxies and balancers, for which `handshakes` does not hold."""
    most_ids: Annotated[int, Field(ge=1, le=10_000)] = 256
    """Most ids in one request: as many as the party takes."""
    metrics: Address | None = None
    """Address at which Prometheus may read metrics, over plain HTTP."""

    @model_validator(mode="after")
    def _near(self) -> GatewayConfig:
        if self.plain_http and not on_loopback(self.listen):
            raise ValueError(
                f"plain_http = true is for loopback only, not for listen {self.listen}: leave it out, and clients need "
                "certificates"
            )
        return self

    def addresses(self) -> dict[str, str]:
        further = {"metrics": self.metrics} if self.metrics else {}
        return {"listen": self.listen, "party.address": self.party.address, **further}

    @property
    def asked(self) -> ports.Address:
        """The party as it is dialled."""
        return ports.Address(self.party.name, self.party.address)

    @property
    def secured(self) -> TlsFiles | None:
        """The files of TLS with clients; None: they ask in the clear."""
        transport = self.transport()
        return None if self.plain_http or isinstance(transport, Insecure) else transport
