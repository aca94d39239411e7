"""A passphrase that a person types at the terminal of a command; a process that starts by itself has no terminal."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from functools import lru_cache
from getpass import getpass
from pathlib import Path

from treetap.errors import ConfigError
from treetap.process.secret import MOST_PHRASE
from treetap.wire.certificates import Phrase, is_encrypted
from treetap.wire.tls import Insecure, Transport


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
