"""A process's TLS files as they are now: read again, without a restart, when one of them has changed."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic

from cryptography import x509

from treetap.errors import ConfigError, Refused
from treetap.wire import certificates as lists
from treetap.wire.certificates import UNREADABLE, NoIdentity, identity, read_certificates
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import TlsFiles, certificate_fault

log = logging.getLogger(__name__)
#: Callers whose certificates are kept with what was found of them.
_KEPT = 256
#: Seconds between two tries to read files that could not be used, while they look the same.
AGAIN_S = 1.0
#: Most of this process's time that such tries take.
_SHARE = 0.01
_Stamp = tuple[int, int, int, int] | None
_Seen = tuple[_Stamp, ...]


#: A try that did not succeed: how the files looked, when to try again (seconds of the monotonic clock), and why.
_Failed = tuple[_Seen, float, str]


@dataclass(frozen=True)
class Credentials:
    """One reading of the files. `number` counts readings; the three contents are PEM, as gRPC takes them.

    `_known` are callers that were looked at, by certificate, and until when they need not be again.
    """

    number: int
    ca: bytes
    certificate: bytes
    key: bytes
    own: Identity
    authorities: tuple[x509.Certificate, ...]
    revoked: lists.Revoked | None
    _known: dict[bytes, tuple[Identity, datetime]] = field(default_factory=dict)

    def caller(self, certificate: bytes, needed: Role | None) -> Identity:
        """Identity in a certificate (PEM or DER). `needed`: the role that the remedy in an error names, None for any.

        Raises:
            Refused: it names no process, is out of its dates, revoked, or not of an authority that is trusted now.
        """
        known, until = self._known.get(certificate, (None, None))
        if known is not None and until is not None and lists.now() < until:
            return known
        known, until = self._examine(certificate, needed)
        if len(self._known) >= _KEPT:
            self._known.clear()
        self._known[certificate] = known, until
        return known

    def _examine(self, certificate: bytes, needed: Role | None) -> tuple[Identity, datetime]:
        """The caller, and until when it need not be looked at again."""
        try:
            pem = certificate.startswith(b"-----")
            read = x509.load_pem_x509_certificate if pem else x509.load_der_x509_certificate
            shown = read(certificate)
            caller = identity(shown, needed)
        except NoIdentity as fault:
            raise Refused(str(fault)) from None
        except UNREADABLE:
            raise Refused("the caller's certificate cannot be read") from None
        if reason := certificate_fault(shown, self.authorities, None, None, self.revoked):
            raise Refused(f"{caller}: {reason}")
        ends = [shown.not_valid_after_utc, *(authority.not_valid_after_utc for authority in self.authorities)]
        return caller, min([*ends, *([self.revoked.until] if self.revoked else [])])


class CredentialSource:
    """The files of one process. Unusable ones are ignored, with a warning: the last usable ones stay in force.

    One thing is taken from files that do not fit each other: what the authorities in force have revoked.

    A try that failed is repeated, at most once every `AGAIN_S` while the files look the same: a share that is away for
    a moment, or an error of the disk, leaves no trace in them.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._paths = [os.fspath(path) for path in (files.ca, files.certificate, files.key, files.revoked) if path]
        self._lock = threading.Lock()
        self._seen = self._look()
        self._now = _read(files, 0)
        self._failed: _Failed | None = None

    def now(self) -> Credentials:
        """The last reading that can be used; from any thread."""
        with self._lock:
            seen, failed = self._look(), self._failed
            if failed is None and seen == self._seen:
                return self._now
            if failed is not None and seen == failed[0] and monotonic() < failed[1]:
                return self._now
            begun = monotonic()
            try:
                now = _read(self._files, self._now.number + 1, self._now.own)
                if self._look() != seen:  # a key and a certificate of two readings may not belong together
                    raise ConfigError("they change at this moment")
                self._now = now
            except ConfigError as fault:
                ended = monotonic()
                again = ended + max(AGAIN_S, (ended - begun) / _SHARE)  # a command for a passphrase may be slow
                self._failed = seen, again, str(fault)
                if failed is None or failed[2] != str(fault):
                    log.warning("changed TLS files cannot be used, those read before stay in force: %s", fault)
                self._revoke()
            else:
                self._seen, self._failed = seen, None
                log.info("TLS files have changed and are read again")
                own = x509.load_pem_x509_certificate(self._now.certificate)
                if refused := certificate_fault(own, self._now.authorities, None, None, self._now.revoked):
                    log.warning(
                        "%s: other processes will refuse this certificate: %s", self._files.certificate, refused
                    )
            return self._now

    @property
    def unsettled(self) -> bool:
        """True if the files are others than those in force, since they cannot be used: they may be about to change."""
        self.now()
        return self._failed is not None

    def _revoke(self) -> None:
        """Go by the list of revoked certificates alone, where it can be used with the authorities in force."""
        now = self._now
        try:
            revoked = self._files.revocations(now.authorities)
        except ConfigError:
            return  # the reading's own fault is in the log
        if revoked is None or revoked == now.revoked:
            return
        self._now = replace(now, number=now.number + 1, revoked=revoked, _known={})
        log.warning("%s is in force, without the other TLS files: those that it names are revoked", revoked.path)

    def _look(self) -> _Seen:
        return tuple(map(_stamp, self._paths))


def _read(files: TlsFiles, number: int, own: Identity | None = None) -> Credentials:
    """Raises ConfigError: files that do not fit each other, or a certificate of another process than `own`."""
    authorities = tuple(read_certificates(files.ca))
    certificate, _ = files.pair()
    try:
        itself = identity(certificate)
    except NoIdentity as fault:
        raise ConfigError(f"{files.certificate}: {fault}") from None
    if own is not None and itself != own:
        raise ConfigError(f"{files.certificate}: the certificate is that of {itself}, and this process is {own}")
    return Credentials(number, *files.read(), itself, authorities, files.revocations(authorities))


def _stamp(path: str) -> _Stamp:
    """Values that change when a file is replaced, written, or becomes readable; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size


class Secured:
    """TLS of Python's `ssl` at a server that is not gRPC's: a gateway's HTTP, and a relay's registrations.

    With the process's certificate, for clients with a certificate of the same authority.

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
