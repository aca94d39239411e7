"""The lines of a control connection, and the first bytes of a data connection.

The process says `GREETING`, the relay answers `ready` or `refused REASON`; then the relay says `open TOKEN` for each
caller, and `ping`, which the process answers with `pong`. A process whose place another registration has taken hears
`replaced`. A data connection begins with `DATA`, the token and a line feed. None of it depends on data; TLS of the
process's certificate and the relay's protects the lines, and a token is of one use.
"""

from __future__ import annotations

import asyncio
import secrets

from treetap.errors import Malformed

GREETING = "treetap-relay 1"
READY, REFUSED, OPEN, PING, PONG, REPLACED = "ready", "refused", "open", "ping", "pong", "replaced"
#: Most bytes of a line.
MOST_LINE = 512
#: The beginning of a data connection, which no TLS record has.
DATA = b"treetap-relay-data "
#: Bits of a token, which is written in hexadecimal digits, and the length of a data connection's first line.
TOKEN_BITS = 128
DATA_LINE = len(DATA) + TOKEN_BITS // 4 + 1
#: Seconds between two pings, and after which an end that has said nothing has gone.
PING_S, SILENT_S = 15.0, 45.0


def new_token() -> str:
    """A token, from the operating system's randomness."""
    return secrets.token_hex(TOKEN_BITS // 8)


def data_line(token: str) -> bytes:
    """The first line of a data connection."""
    return DATA + token.encode("ascii") + b"\n"


def token_of(line: bytes) -> str:
    """The token in the first line of a data connection. Raises Malformed."""
    token = line[len(DATA) : -1]
    if len(line) != DATA_LINE or not line.startswith(DATA) or line[-1:] != b"\n" or not is_token(token.decode("latin")):
        raise Malformed("the first line of a data connection has no token")
    return token.decode("ascii")


def is_token(text: str) -> bool:
    """True for a token's hexadecimal digits."""
    return len(text) == TOKEN_BITS // 4 and set(text) <= set("0123456789abcdef")


async def read_line(reader: asyncio.StreamReader, within_s: float) -> str:
    """The next line, without its end.

    Raises:
        Malformed: it is too long, or no ASCII.
        ConnectionError: the connection has ended.
        TimeoutError: it did not come within `within_s` seconds.
    """
    try:
        async with asyncio.timeout(within_s):
            line = await reader.readuntil(b"\n")
        return line[:-1].decode("ascii")
    except asyncio.IncompleteReadError:
        raise ConnectionResetError("the other side has ended the control connection") from None
    except (asyncio.LimitOverrunError, UnicodeDecodeError):
        raise Malformed("a line of a control connection that is too long, or no text") from None


def say(writer: asyncio.StreamWriter, *words: str) -> None:
    """Write one line; it is cut to what a line may have."""
    line = " ".join(words).encode("ascii", "backslashreplace").replace(b"\n", b" ")
    writer.write(line[: MOST_LINE - 1] + b"\n")
