"""A secret that a file names instead of containing it, or that a person types at the terminal of a command.

Neither arguments nor the environment hold one: other processes of a host can read those. No message shows a secret, nor
any byte of what was read in its place.

A process that starts by itself has no terminal.
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
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, StringConstraints, model_validator

from treetap.errors import ConfigError
from treetap.strict import Strict, unshown
from treetap.wire.certificates import Phrase, is_encrypted
from treetap.wire.tls import Insecure, Transport

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

    def below(self, base: Path) -> Secret:
        """The same with relative paths taken from a folder: that of the file, and that of a program with a '/'."""
        if self.file is not None:
            return Secret(file=base / self.file)
        if self.command is not None and "/" in self.command[0]:
            return Secret(command=(str(base / self.command[0]), *self.command[1:]))
        return self

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
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            content = file.read(limit + 1) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else None
    except FileNotFoundError:
        raise ConfigError(f"{where}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read: {error.strerror}") from None
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
