"""The server name in a TLS ClientHello (RFC 8446, 4.1.2; RFC 6066, 3), read from the first bytes of a connection.

The bytes come from anybody. OpenSSL reads them, as it does at whoever the caller is led to, up to the name: there this
handshake ends, and what OpenSSL refuses before is refused here.
"""

from __future__ import annotations

import re
import ssl
import sys

from treetap.errors import Malformed

#: Most bytes of a ClientHello, with the headers of its records: hellos with post-quantum key shares have some 2,000.
MOST_BYTES = 16_384
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")


#: Names that hellos have shown, until `feed` takes them.
_shown: dict[ssl.SSLObject, str | None] = {}


def _end_there(server: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int:
    _shown[server] = name
    return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


_CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_CONTEXT.sni_callback = _end_there


class ClientHello:
    """A ClientHello that is coming in.

    Attributes:
        content: all bytes so far, as they came, those after the hello included.
    """

    def __init__(self) -> None:
        self.content = bytearray()
        self._incoming = ssl.MemoryBIO()
        self._server = _CONTEXT.wrap_bio(self._incoming, ssl.MemoryBIO(), server_side=True)

    def feed(self, more: bytes) -> str | None:
        """The server name in small letters, once the hello is complete; None before. Nothing is fed after that.

        Raises:
            Malformed: this is no ClientHello with one server name, or it is longer than `MOST_BYTES`.
        """
        self.content += more
        self._incoming.write(more)
        printing, sys.unraisablehook = sys.unraisablehook, lambda _: None  # anybody could fill the log with no ASCII
        try:
            self._server.do_handshake()
        except ssl.SSLWantReadError:
            if len(self.content) < MOST_BYTES:
                return None
            raise Malformed(f"a ClientHello of more than {MOST_BYTES} bytes") from None
        except ssl.SSLError as fault:
            name, why = _shown.pop(self._server, None), fault.reason
            del self._server, self._incoming
        finally:
            sys.unraisablehook = printing
        if name is None or _NAME.fullmatch(name) is None:
            raise Malformed(f"no ClientHello with the name of a host ({why})")
        return name.lower()
