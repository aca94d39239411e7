"""ClientHellos: real ones, and ones that are put together field by field."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

#: An extension of GREASE (RFC 8701), which every reader skips.
GREASE = (0x7A7A, b"\x00")


def real(name: str) -> bytes:
    """The first bytes of Python's `ssl` on the way to a server of that name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("a handshake without a server")


def vector(content: bytes, size: int) -> bytes:
    """A field after its length."""
    return len(content).to_bytes(size) + content


def server_name(name: bytes) -> tuple[int, bytes]:
    """The extension that names a server."""
    return 0, vector(b"\x00" + vector(name, 2), 2)


def message(extensions: Sequence[tuple[int, bytes]], session: bytes = bytes(32), suites: bytes = b"\x13\x01") -> bytes:
    """A ClientHello as a handshake message."""
    listed = b"".join(kind.to_bytes(2) + vector(content, 2) for kind, content in extensions)
    body = b"\x03\x03" + bytes(32) + vector(session, 1) + vector(suites, 2) + vector(b"\x00", 1) + vector(listed, 2)
    return b"\x01" + vector(body, 3)


def records(content: bytes, size: int = 16_384) -> bytes:
    """A handshake message in records of at most that many bytes."""
    pieces = (content[first : first + size] for first in range(0, len(content), size))
    return b"".join(b"\x16\x03\x01" + vector(piece, 2) for piece in pieces)
