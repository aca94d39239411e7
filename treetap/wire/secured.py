"""TLS of Python's `ssl` at a server that is not gRPC's: a gateway's HTTP, and a relay's registrations."""

from __future__ import annotations

import logging
import ssl

from treetap.errors import ConfigError
from treetap.wire.credentials import CredentialSource
from treetap.wire.tls import TlsFiles

log = logging.getLogger(__name__)


class Secured:
    """TLS with the process's certificate, for clients with a certificate of the same authority.

    Args:
        what: the server, for the log.
        files: the process's own.
    """

    def __init__(self, what: str, files: TlsFiles) -> None:
        self._what, self._files, self.credentials = what, files, CredentialSource(files)
        self._now, self._context = self.credentials.now(), self._made()

    def context(self) -> ssl.SSLContext:
        """For one more connection, by the files as they are now."""
        now = self.credentials.now()
        if (now.ca, now.certificate, now.key) != (self._now.ca, self._now.certificate, self._now.key):
            try:
                self._now, self._context = now, self._made()
            except (OSError, ConfigError) as fault:  # they change at this moment
                log.warning("%s: changed TLS files cannot be used yet: %s", self._what, fault)
        return self._context

    def _made(self) -> ssl.SSLContext:
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        self._files.load_into(made)
        made.load_verify_locations(self._files.ca)
        made.verify_mode = ssl.CERT_REQUIRED
        return made
