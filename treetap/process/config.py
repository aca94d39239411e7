"""Configuration that every process has: its name, and its certificate or `insecure`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from treetap.names import on_loopback
from treetap.process.secret import Secret
from treetap.strict import Address, ProcessName, Strict, unshown
from treetap.wire import ports
from treetap.wire.ports import LEAST_SILENCE_S, Role
from treetap.wire.tls import Insecure, TlsFiles, Transport

#: A key `silence_s`: see `treetap.wire.ports`.
Silence = Annotated[float, Field(ge=LEAST_SILENCE_S, le=3600)]
_PATHS = ("ca", "certificate", "key", "revoked")


class TlsConfig(Strict):
    """Paths of the authority's certificate, of this process's own certificate and key, and of the revocation list."""

    ca: Path
    """The authority's certificate, PEM."""
    certificate: Path
    """This process's own certificate, PEM; its common name is the process's name."""
    key: Path
    """The key of that certificate, PEM; mode 600 is advised."""
    passphrase: Secret | None = None
    """The place of the passphrase of `key`: `{ command = ["..."] }`, `{ file = ".." }` or `{ credential = ".." }`.
    It is read at the start and whenever the file `key` changes; this process answers nothing while a command runs.
    Without it `key` must have none.
    """
    revoked: Path | None = None
    """The authority's list of revoked certificates; without it none is refused as revoked."""

    def below(self, base: Path) -> TlsConfig:
        """The same with relative paths taken from a folder."""
        paths = {name: base / path for name in _PATHS if (path := getattr(self, name)) is not None}
        passphrase = None if self.passphrase is None else self.passphrase.below(base)
        return self.model_copy(update={**paths, "passphrase": passphrase})

    def files(self) -> TlsFiles:
        """The same as the wire's type."""
        return TlsFiles(self.ca, self.certificate, self.key, self.revoked, passphrase=self.passphrase)


class TelemetryConfig(Strict):
    """The organisation's own collector, to which a process sends spans of jobs and steps; needs the extra `telemetry`.

    Spans have names, times and bytes by disclosure class, and no content. It is read at the start alone.
    """

    endpoint: str
    """The address at which the collector takes OTLP over HTTP in protobuf, as "https://collector.bank.example:4318/v1/traces";
    http:// on loopback only. It is called directly, and its redirects are not followed.
    """
    ca: Path | None = None
    """The authority that has certified the collector, PEM; needed with https://, and no other is trusted."""
    headers: Secret | None = None
    """The place of lines `name: value`, one for each header of a request, such as a token: a place as that of
    `passphrase` in `[tls]`. It is read at the start, and again once the collector has refused a request (401, 403).
    """
    environment: bool = False
    """Let OpenTelemetry's SDK read its variables, such as OTEL_RESOURCE_ATTRIBUTES and OTEL_TRACES_SAMPLER, which are
    ignored otherwise. Endpoint, headers and trace ids are never taken from them.
    """

    @field_validator("endpoint")
    @classmethod
    def _of_http(cls, value: str) -> str:
        if "@" in value:
            raise unshown("is an address without a user: put what authenticates into headers")
        at = urlsplit(value)
        if at.scheme not in ("http", "https") or not at.hostname or at.query or at.fragment or not value.isascii():
            raise ValueError('is an address such as "https://HOST:4318/v1/traces"')
        _ = at.port  # ValueError unless it is a number of a port
        if at.scheme == "http" and not on_loopback(f"{at.hostname}:0"):
            raise ValueError("http:// is for a collector on loopback: use https:// and ca")
        return value

    @model_validator(mode="after")
    def _one_authority(self) -> Self:
        if (self.ca is None) == self.endpoint.startswith("https:"):
            raise ValueError("ca goes with https://, which needs it: name the collector's authority there alone")
        return self

    def below(self, base: Path) -> TelemetryConfig:
        """The same with relative paths taken from a folder."""
        ca, headers = self.ca and base / self.ca, self.headers and self.headers.below(base)
        return self.model_copy(update={"ca": ca, "headers": headers})


class Process(Strict):
    """The keys of every process's file: its name, and how peers identify it.

    That is a certificate, `[tls]`. `insecure = true` uses none, in plain text and on loopback only: callers' names are
    not verified, which is for trials on a host without other users. `proxy`: "environment" has calls to other hosts go
    through the proxy that the environment names; without it they go directly, whatever is set there.
    """

    name: ProcessName
    """The name of this process in the federation, which its certificate bears."""
    tls: TlsConfig | None = None
    """Certificates, by which peers know each other; needed unless `insecure = true`."""
    insecure: bool = False
    """No certificates: plain text, names without proof. Only on loopback, for a trial on a host without other users;
    every process of a federation needs it, or none.
    """
    proxy: Literal["environment"] | None = None
    """Have calls to other hosts go through the proxy of https_proxy or http_proxy, but for no_proxy; by default they go
    directly.
    """

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.insecure == (self.tls is not None):
            both = "insecure = true and [tls] exclude each other" if self.insecure else "[tls] is missing"
            raise ValueError(f"{both}: name certificates in [tls], or leave it out and say insecure = true")
        if self.insecure and self.proxy:
            raise ValueError("proxy goes with [tls] only: insecure = true is for this host: leave proxy out")
        far = [f"{field} {address}" for field, address in self.addresses().items() if not on_loopback(address)]
        if self.insecure and far:
            raise ValueError(f"insecure = true is for loopback only, not for {', '.join(far)}: use certificates, [tls]")
        return self

    def addresses(self) -> dict[str, str]:
        """Field → address at which this process listens or which it calls, as far as its file names them."""
        return {}

    def transport(self) -> Transport:
        """This process's credentials for calls: TLS files, or its name without certificates."""
        if self.tls is None:
            return Insecure(self.name)
        return replace(self.tls.files(), proxied=self.proxy is not None)

    def tls_below(self, base: Path) -> TlsConfig | None:
        """`[tls]` with relative paths taken from a folder."""
        return None if self.tls is None else self.tls.below(base)


class Relayed(Process):
    """The keys of a process that others may reach through a relay, for want of a way in."""

    relay: Address | None = None
    """HOST:PORT of a relay: this process dials out to it alone, and others reach it there. It needs `[tls]`."""
    relay_name: ProcessName = "relay"
    """The name that the relay's certificate bears."""

    @model_validator(mode="after")
    def _proven(self) -> Self:
        """Refuse a relay without certificates: relayed callers come from loopback, where plain text trusts all."""
        if self.relay is not None and self.insecure:
            raise ValueError("relay goes with [tls] only: insecure = true trusts every caller: leave relay out")
        return self

    @property
    def relay_address(self) -> ports.Address | None:
        """The relay, as it is dialled; None without one."""
        return None if self.relay is None else ports.Address(self.relay_name, self.relay, Role.RELAY)
