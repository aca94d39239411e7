"""A process's credentials: its certificate files, checked before they are used, and faults of others' certificates.

A certificate names a process and its role (:mod:`treetap.wire.ports`). A failed handshake reaches a gRPC client as a
bare UNAVAILABLE: hence :meth:`TlsFiles.check`, which reports faults of a process's own files beforehand, in one line,
and :mod:`treetap.wire.probe`, which diagnoses the other side afterwards. `treetap certs` makes certificates.

The one exception from mutual TLS, only by explicit configuration, are calls without certificates on loopback
(`Insecure`).

A process's TLS files as they are now: read again, without a restart, when one of them has changed.
"""

from __future__ import annotations

import logging
import math
import os
import ssl
import stat
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from treetap.errors import BadInput, ConfigError, Refused
from treetap.names import on_loopback
from treetap.wire import certificates as lists
from treetap.wire.certificates import (
    UNREADABLE,
    NoIdentity,
    Phrase,
    Revoked,
    belongs,
    common_names,
    date,
    extension,
    fingerprint,
    identity,
    key_pem,
    open_key,
    organisation,
    read_certificates,
    read_file,
    read_key,
    read_lists,
    read_revoked,
    signed_by,
)
from treetap.wire.ports import Identity, Role

log = logging.getLogger(__name__)

#: Every process is both ends of connections.
BOTH_ENDS = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)
#: Metadata key under which a caller gives its name. A server with certificates never looks at it.
NAME_KEY = "treetap-name"
#: The subject of a certificate, or the length of a list of revoked ones; and its last moment, Unix time.
End: TypeAlias = tuple[str, float]


@dataclass(frozen=True)
class TlsFiles:
    """Paths of one process's files for mutual TLS: the authority's certificate, its own, and its key (PEM).

    `revoked`: the list of revoked certificates; None: certificates end at their own last day only. `proxied`: calls go
    through the environment's proxy (`treetap.wire.proxies`). `passphrase`: where that of the key comes from; None: it
    has none.
    """

    ca: Path
    certificate: Path
    key: Path
    revoked: Path | None = None
    proxied: bool = False
    passphrase: Phrase | None = None

    def check(self, expected_name: str | None, role: Role | None = None) -> str:
        """:meth:`inspect`, and a warning if others can read the key."""
        name = self.inspect(expected_name, role)
        if warning := self.open_key():
            log.warning("%s", warning)
        return name

    def open_key(self) -> str | None:
        """The warning about a key file that others on this host can read; None if its owner alone can."""
        if self.key.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            return f"{self.key}: others on this host can read this private key; run chmod 600 on it"
        return None

    def inspect(self, expected_name: str | None, role: Role | None = None) -> str:
        """Name in the certificate, once the three files are known to work together now.

        ``expected_name`` and ``role`` are those that the certificate must carry, or None for any. Raises ConfigError
        with one line that names the file: missing, unreadable, no key of this certificate, out of its dates, signed
        by another authority, revoked, other name or role, no use for both ends.
        """
        certificate, _ = self.pair()
        if fault := self.fault(certificate, expected_name, role):
            raise ConfigError(f"{self.certificate}: {fault}")
        return identity(certificate).name

    @property
    def organisation(self) -> str:
        """The organisation in the certificate; empty without one. Raises ConfigError where it cannot be read."""
        return organisation(read_certificates(self.certificate)[0])

    def pair(self) -> tuple[x509.Certificate, PrivateKeyTypes]:
        """The certificate and its key. Raises ConfigError: one cannot be read, or they do not fit each other."""
        for _ in range(2):  # `treetap certs install` may switch both between the two files
            certificate, key = read_certificates(self.certificate)[0], read_key(self.key, self.passphrase)
            if belongs(key, certificate):
                return certificate, key
        raise ConfigError(f"{self.key}: this key does not belong to the certificate {self.certificate}")

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Contents of (ca, certificate, key), PEM, the key without a passphrase, for gRPC, which takes no other.

        Raises ConfigError for a file that cannot be read.
        """
        ca, certificate = read_file(self.ca), read_file(self.certificate)
        return (
            ca,
            certificate,
            read_file(self.key) if self.passphrase is None else key_pem(read_key(self.key, self.passphrase)),
        )

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have TLS of Python's `ssl` show this certificate. Raises ConfigError, and OSError while the files change."""
        # Without one, OpenSSL would ask at the terminal; an empty one keeps it from that.
        context.load_cert_chain(self.certificate, self.key, open_key(self.key, self.passphrase)[1])

    def revocations(self, authorities: Sequence[x509.Certificate]) -> Revoked | None:
        """Certificates that the authorities have revoked; None without a list. Raises ConfigError for a bad list."""
        return None if self.revoked is None else read_revoked(self.revoked, authorities)

    @property
    def holds(self) -> tuple[str, ...]:
        """The names of what ends: `own`, `authority` (there may be several), and perhaps `revoked`, a list."""
        return ("own", "authority") if self.revoked is None else ("own", "authority", "revoked")

    def ends(self, what: str) -> list[End]:
        """The ends of one of `holds`, from the file as it is. Raises ConfigError."""
        if what == "revoked":
            assert self.revoked is not None, "without a list nothing of it ends"
            listed = read_lists(self.revoked, read_certificates(self.ca))
            return [(f"list of {sum(map(len, listed.serials.values()))} revoked", listed.until.timestamp())]
        certificates = read_certificates(self.certificate)[:1] if what == "own" else read_certificates(self.ca)
        return [(one.subject.rfc4514_string(), one.not_valid_after_utc.timestamp()) for one in certificates]

    def first_end(self, what: str) -> float:
        """The first of these ends: Unix time, NaN if the file cannot be read."""
        try:
            return min(at for _, at in self.ends(what))
        except ConfigError:  # the process's log names it
            return math.nan

    def fault(self, certificate: x509.Certificate, expected_name: str | None, role: Role | None) -> str | None:
        """:func:`certificate_fault` by these files as they are now. Raises ConfigError where they cannot be used."""
        authorities = read_certificates(self.ca)
        return certificate_fault(certificate, authorities, expected_name, role, self.revocations(authorities))


def certificate_fault(
    certificate: x509.Certificate,
    authorities: Sequence[x509.Certificate],
    expected_name: str | None,
    role: Role | None = None,
    revoked: Revoked | None = None,
) -> str | None:
    """The reason why a process that trusts ``authorities`` would refuse ``certificate`` now; None if it would not.

    ``expected_name``, ``role``: what it must name; None for any. ``revoked``: None where there is no list.
    """
    if fault := _out_of_dates(certificate, "the certificate"):
        return fault
    signer = next((authority for authority in authorities if signed_by(certificate, authority)), None)
    if signer is None:
        trusted = " or ".join(f"SHA-256 {fingerprint(issuer)}, key {_key_id(issuer)}" for issuer in authorities)
        named = extension(certificate, x509.AuthorityKeyIdentifier)  # all that a certificate has of its authority
        key = named.key_identifier.hex(":").upper() if named and named.key_identifier else "unknown"
        return (
            f"the certificate (SHA-256 {fingerprint(certificate)}) is not signed by the authority "
            f"trusted here ({trusted}) but by another (key {key}); "
            "issue it with the authority that all parties trust"
        )
    if fault := _out_of_dates(signer, "the authority's certificate"):
        return fault
    if revoked is not None and (fault := revoked.fault(certificate, signer)):
        return fault
    return _content_fault(certificate, expected_name, role)


def _key_id(authority: x509.Certificate) -> str:
    """The authority's key as its certificates name it: subjectKeyIdentifier, in hexadecimal digits."""
    own = extension(authority, x509.SubjectKeyIdentifier)
    return (own or x509.SubjectKeyIdentifier.from_public_key(authority.public_key())).digest.hex(":").upper()


def _content_fault(certificate: x509.Certificate, expected_name: str | None, role: Role | None) -> str | None:
    """The first name or use in a certificate that does not serve."""
    shown = common_names(certificate)
    if expected_name is not None and len(shown) == 1 and shown[0] != expected_name:
        return f"the certificate is that of {shown[0]!r}, not of {expected_name!r}; correct the name, address or files"
    try:
        holder = identity(certificate, role)
    except NoIdentity as fault:
        return str(fault)
    if role is not None and holder.role is not role:
        return (
            f"the certificate is that of {holder}, not of {Identity(holder.name, role)}; correct the address or files"
        )
    if not set(BOTH_ENDS) <= set(extension(certificate, x509.ExtendedKeyUsage) or BOTH_ENDS):
        return "the certificate's extended key usage must allow both clientAuth and serverAuth"
    return None


def _out_of_dates(certificate: x509.Certificate, what: str) -> str | None:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        return f"{what} expired on {date(last)} (it is {date(now)} now); issue a new one, or set this host's clock"
    if now < first:
        return f"{what} is not valid before {date(first)} (it is {date(now)} now); check this host's clock"
    return None


@dataclass(frozen=True)
class Insecure:
    """A process's name, in place of its certificate."""

    name: str

    def check(self, _expected_name: str | None, _role: Role | None = None) -> str:
        """As `TlsFiles.check`: the name. A warning in the log says that nothing was checked."""
        log.warning("insecure = true: no encryption, and any process on this host can use any name")
        return self.name

    @property
    def organisation(self) -> str:
        """The process's name: where nothing is checked each counts as one of its own."""
        return self.name

    def told(self) -> tuple[tuple[str, str], ...]:
        """Metadata that goes with every call."""
        return ((NAME_KEY, self.name),)


#: A process's credentials for calls.
Transport = TlsFiles | Insecure


def check_near(what: str, address: str) -> None:
    """`BadInput` unless the address is on loopback."""
    if not on_loopback(address):
        raise BadInput(f"{what} {address}: insecure = true is for loopback only: use certificates, [tls]")


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
