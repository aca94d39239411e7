"""Configuration that every process has: its name, its certificate or `insecure`, and the places of its secrets.

Neither arguments nor the environment hold one: other processes of a host can read those. No message shows a secret, nor
any byte of what was read in its place.

A secret that no file names is typed at the terminal of a command; a process that starts by itself has none.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from getpass import getpass
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, StringConstraints, field_validator, model_validator

from treetap.errors import ConfigError, cannot, refuse
from treetap.names import on_loopback
from treetap.strict import Address, ProcessName, Strict, unshown
from treetap.wire import ports
from treetap.wire.certificates import Phrase, is_encrypted
from treetap.wire.ports import LEAST_SILENCE_S, Role
from treetap.wire.tls import Insecure, TlsFiles, Transport

#: Seconds for a command to print a secret and to end.
WITHIN_S = 10.0
#: Bytes of a passphrase, and of the end of its line: OpenSSL's limit.
MOST_PHRASE = 1023
#: The variable in which systemd names the folder of a service's credentials.
CREDENTIALS = "CREDENTIALS_DIRECTORY"
#: Seconds for a killed command to be gone.
_END_S = 1.0
_PIECE = 4096
_NAME = r"^[A-Za-z0-9_.@-]{1,255}$"


def _words(value: Any) -> Any:
    """A list as a tuple, which has a hash; other content is not shown, since it may be the secret."""
    if not isinstance(value, list | tuple):
        raise unshown('is a list of the program and its arguments, such as ["pass", "show", "treetap"]')
    return tuple(value)


class Secret(Strict):
    """The place of a secret; exactly one of its keys.

    In TOML: `{ command = ["pass", "show", "treetap"] }`, `{ credential = "tls" }` or `{ file = "/run/secrets/tls" }`.
    """

    command: Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1, max_length=64)] | None = None
    """A program and its arguments: it prints the secret on its standard output within ten seconds and ends with status
    0. No shell reads it; its standard input is empty and its standard error goes nowhere. Arguments are no secret.
    """
    file: Path | None = None
    """A file that contains the secret; mode 600 is advised."""
    credential: Annotated[str, StringConstraints(pattern=_NAME)] | None = None
    """The name of a credential that systemd gives this service: LoadCredential=, or LoadCredentialEncrypted=."""

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        """Refuse the secret itself, without showing it."""
        if not isinstance(value, dict | Secret):
            raise unshown('is a place, not the secret itself: { command = ["..."] }, { file = ".." } or a credential')
        return value

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if sum(place is not None for place in (self.command, self.file, self.credential)) != 1:
            raise ValueError("name one of command, file and credential")
        if self.credential in (".", ".."):
            raise ValueError("credential is a name, not a folder")
        return self

    def below(self, base: Path) -> Self:
        """The same with relative paths taken from a folder: that of the file, and that of a program with a '/'."""
        if self.command is not None and "/" in self.command[0]:
            return self.model_copy(update={"command": (str(base / self.command[0]), *self.command[1:])})
        return super().below(base)

    def read(self, field: str, limit: int, within_s: float = WITHIN_S) -> bytes:
        """The secret, every byte as it is there.

        Args:
            field: for messages, the file and the key that name this place.
            limit: most bytes.
            within_s: the deadline of a command.

        Raises:
            ConfigError: the place cannot be read, holds nothing or more than `limit`, or the command fails or is late.
        """
        where = f"{field}: {self._where()}"
        if self.command is not None:
            content = _printed(self.command, where, limit, within_s)
        else:
            content = _content(self._path(where), where, limit)
        if not content:
            raise ConfigError(f"{where}: is empty; it must hold the secret")
        return content

    def phrase(self, field: str) -> bytes:
        """A passphrase: one line, without its end. Raises ConfigError as `read` does, and for several lines.

        At most `MOST_PHRASE` bytes.
        """
        phrase = self.read(field, MOST_PHRASE).removesuffix(b"\n").removesuffix(b"\r")
        if not phrase or b"\n" in phrase or b"\0" in phrase:
            raise ConfigError(f"{field}: {self._where()}: it must hold one line of text, the secret alone")
        return phrase

    def _where(self) -> str:
        """The place, for messages: of a command its program alone, since someone may have put a secret behind it."""
        if self.command is not None:
            return f"command {self.command[0]!r}"
        return f"file {self.file}" if self.file is not None else f"credential {self.credential!r}"

    def _path(self, where: str) -> Path:
        if self.file is not None:
            return self.file
        if not (folder := os.environ.get(CREDENTIALS)):
            raise ConfigError(
                f"{where}: systemd gives this process no credentials (${CREDENTIALS} is not set); add "
                f"LoadCredential={self.credential}:/path to its unit, or name a file or a command"
            )
        return Path(folder) / str(self.credential)


def _content(path: Path, where: str, limit: int) -> bytes:
    """A regular file's content; a pipe or a device is not waited for."""
    with (
        cannot("be read", where, ConfigError),
        os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file,
    ):
        content = file.read(limit + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    if content is None:
        raise ConfigError(f"{where}: is no regular file; write the secret to one, or use command")
    if len(content) > limit:
        raise ConfigError(f"{where}: has more than {limit} bytes; it must hold the secret alone")
    return content


def _printed(command: tuple[str, ...], where: str, limit: int, within_s: float) -> bytes:
    """A command's output. One that prints too much or takes too long is killed, with what it has started."""
    until = monotonic() + within_s
    late = f"{where}: took longer than {within_s:g} s; it must print the secret and end"
    try:
        process = subprocess.Popen(  # noqa: S603 - the file's own command
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no program has such a name or argument"
        raise ConfigError(f"{where}: cannot be started: {reason}") from None
    assert process.stdout is not None
    with process.stdout as pipe:
        try:
            output = _gathered(pipe.fileno(), limit, until)
            if output is None:
                raise ConfigError(late)
            if len(output) > limit:
                raise ConfigError(f"{where}: prints more than {limit} bytes; it must print the secret alone")
            status = process.wait(max(until - monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            raise ConfigError(late) from None
        finally:
            if process.returncode is None:  # not waited for, so that no other process has its number
                with suppress(PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)
    if status:
        raise ConfigError(f"{where}: ended with status {status}; run it by hand, as this process's user, to see why")
    return output


def _gathered(descriptor: int, limit: int, until: float) -> bytes | None:
    """The bytes from a pipe until its end or beyond the limit; None if neither comes before a moment."""
    ready, output = select.poll(), bytearray()
    ready.register(descriptor, select.POLLIN)
    while len(output) <= limit:
        if not ready.poll(max(until - monotonic(), 0.0) * 1000):
            return None
        if not (piece := os.read(descriptor, _PIECE)):
            break
        output += piece
    return bytes(output)


@dataclass(eq=False)
class Typed:
    """One passphrase, asked for once and then kept in memory."""

    _kept: bytes = field(default=b"", repr=False)

    def phrase(self, field: str) -> bytes:
        """The passphrase. Raises ConfigError for none, and for more than `MOST_PHRASE` bytes."""
        if not self._kept:
            try:
                self._kept = getpass(f"{field}: ").encode()
            except (EOFError, UnicodeError):
                self._kept = b""
            if not 0 < len(self._kept) <= MOST_PHRASE:
                self._kept = b""
                raise ConfigError(f"{field}: 1 to {MOST_PHRASE} bytes must be typed")
        return self._kept


def typed(key: Path) -> Phrase | None:
    """The typed passphrase of a key file, the same each time.

    None if it has none, cannot be read, or there is no terminal.
    """
    return _of(key.absolute()) if is_encrypted(key) and sys.stdin.isatty() else None


@lru_cache(maxsize=8)
def _of(_key: Path) -> Typed:
    return Typed()


def with_typed(transport: Transport) -> Transport:
    """A command's credentials: where its file names no place of a passphrase, and the key has one, a person types it.

    Asked for once, whatever number of calls the command makes.
    """
    if isinstance(transport, Insecure) or transport.passphrase is not None:
        return transport
    return replace(transport, passphrase=typed(transport.key))


#: A key `silence_s`: see `treetap.wire.ports`.
Silence = Annotated[float, Field(ge=LEAST_SILENCE_S, le=3600)]


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
        both = "insecure = true and [tls] exclude each other" if self.insecure else "[tls] is missing"
        far = [f"{field} {address}" for field, address in self.addresses().items() if not on_loopback(address)]
        refuse(
            (
                self.insecure == (self.tls is not None),
                f"{both}: name certificates in [tls], or leave it out and say insecure = true",
            ),
            (
                self.insecure and self.proxy,
                "proxy goes with [tls] only: insecure = true is for this host: leave proxy out",
            ),
            (
                self.insecure and far,
                f"insecure = true is for loopback only, not for {', '.join(far)}: use certificates, [tls]",
            ),
        )
        return self

    def addresses(self) -> dict[str, str]:
        """Field → address at which this process listens or which it calls, as far as its file names them."""
        return {}

    def transport(self) -> Transport:
        """This process's credentials for calls: TLS files, or its name without certificates."""
        if self.tls is None:
            return Insecure(self.name)
        return replace(self.tls.files(), proxied=self.proxy is not None)


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
