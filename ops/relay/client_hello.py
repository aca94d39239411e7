"""The server name in a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3), read from the first bytes of a connection.

The bytes come from anybody. They are read once, piece by piece, and what is not a ClientHello to the letter is refused.
"""

from __future__ import annotations

import re

from treetap.errors import Malformed

#: Most bytes of a ClientHello, with the headers of its records: hellos with post-quantum key shares have some 2,000.
MOST_BYTES = 16_384
#: Most records that it may be cut into.
MOST_RECORDS = 64
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0
_RECORD_HEADER, _MESSAGE_HEADER = 5, 4
#: Most bytes of a record's content (RFC 8446, 5.1).
_MOST_RECORD = 16_384
_NAME = re.compile(rb"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


class ClientHello:
    """A ClientHello that is coming in.

    Attributes:
        content: all bytes so far, as they came, those after the hello included.
    """

    def __init__(self) -> None:
        self.content = bytearray()
        self._message = bytearray()
        self._at = self._records = 0

    def feed(self, more: bytes) -> str | None:
        """The server name in small letters, once the hello is complete; None before.

        Raises:
            Malformed: this is no ClientHello with one server name, or it is longer than `MOST_BYTES`.
        """
        self.content += more
        while len(self.content) >= self._at + _RECORD_HEADER:
            kind, major, minor = self.content[self._at : self._at + 3]
            length = int.from_bytes(self.content[self._at + 3 : self._at + _RECORD_HEADER])
            if kind != _HANDSHAKE or major != 3 or minor > 4 or not 0 < length <= _MOST_RECORD:
                raise Malformed("the connection does not begin with a TLS handshake")
            end = self._at + _RECORD_HEADER + length
            if end > MOST_BYTES or self._records == MOST_RECORDS:
                raise Malformed(f"a ClientHello of more than {MOST_BYTES} bytes or {MOST_RECORDS} records")
            if len(self.content) < end:
                return None
            self._message += self.content[self._at + _RECORD_HEADER : end]
            self._at, self._records = end, self._records + 1
            if (name := self._complete()) is not None:
                return name
        return None

    def _complete(self) -> str | None:
        """The server name of the message, if all of it has come."""
        if self._message[0] != _CLIENT_HELLO:
            raise Malformed("the first handshake message is not a ClientHello")
        if len(self._message) < _MESSAGE_HEADER:
            return None
        length = int.from_bytes(self._message[1:_MESSAGE_HEADER])
        if length > MOST_BYTES:
            raise Malformed(f"a ClientHello of more than {MOST_BYTES} bytes")
        if len(self._message) < _MESSAGE_HEADER + length:
            return None
        if len(self._message) > _MESSAGE_HEADER + length:
            raise Malformed("a record has bytes after the ClientHello")
        return _server_name(bytes(self._message[_MESSAGE_HEADER:]))


class _Fields:
    """Fields of a structure of TLS, one after the other; `Malformed` where it ends too soon."""

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def __bool__(self) -> bool:
        return self._at < len(self._content)

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        if len(self._content) < self._at + size:
            raise Malformed("a ClientHello whose lengths do not fit")
        self._at += size
        return self._content[self._at - size : self._at]

    def vector(self, size: int) -> bytes:
        """A field after its length, which has `size` bytes."""
        return self.take(int.from_bytes(self.take(size)))

    def end(self) -> None:
        """Refuse bytes after the last field."""
        if self:
            raise Malformed("a ClientHello whose lengths do not fit")


def _server_name(body: bytes) -> str:
    """The one host name in a ClientHello's body, in small letters."""
    hello = _Fields(body)
    hello.take(2 + 32)  # legacy version, random
    session, suites, compressions = hello.vector(1), hello.vector(2), hello.vector(1)
    if len(session) > 32 or not suites or len(suites) % 2 or not compressions:
        raise Malformed("a ClientHello whose lengths do not fit")
    extensions = _Fields(hello.vector(2))
    hello.end()
    seen = dict[bytes, bytes]()
    while extensions:
        kind = extensions.take(2)  # unknown ones are skipped, as those of GREASE (RFC 8701)
        if kind in seen:
            raise Malformed("a ClientHello with an extension twice")
        seen[kind] = extensions.vector(2)
    shown = seen.get(_SERVER_NAME.to_bytes(2))
    if shown is None:
        raise Malformed("a ClientHello without a server name")
    names = _Fields(shown)
    listed = _Fields(names.vector(2))
    names.end()
    if listed.take(1)[0] != _HOST_NAME:
        raise Malformed("a ClientHello whose server name is no host name")
    name = listed.vector(2)
    listed.end()  # a second name could be read as the first by others
    if _NAME.fullmatch(name) is None:
        raise Malformed("a ClientHello whose server name is no host name")
    return name.decode("ascii").lower()
