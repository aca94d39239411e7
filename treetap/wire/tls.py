"""A process's credentials: its certificate files, checked before they are used, and faults of others' certificates.

A certificate names a process and its role (:mod:`treetap.wire.ports`). A failed handshake reaches a gRPC client as a
bare UNAVAILABLE: hence :meth:`TlsFiles.check`, which reports faults of a process's own files beforehand, in one line,
and :mod:`treetap.wire.probe`, which diagnoses the other side afterwards. `treetap certs` makes certificates.

The one exception from mutual TLS, only by explicit configuration, are calls without certificates on loopback
(`Insecure`).
"""

from __future__ import annotations

import logging
import math
import ssl
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID

from treetap.errors import BadInput, ConfigError
from treetap.names import on_loopback
from treetap.wire.certificates import (
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
        authorities = read_certificates(self.ca)
        certificate, _ = self.pair()
        if fault := certificate_fault(certificate, authorities, expected_name, role, self.revocations(authorities)):
            raise ConfigError(f"{self.certificate}: {fault}")
        return identity(certificate).name

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

    def told(self) -> tuple[tuple[str, str], ...]:
        """Metadata that goes with every call."""
        return ((NAME_KEY, self.name),)


#: A process's credentials for calls.
Transport = TlsFiles | Insecure


def check_near(what: str, address: str) -> None:
    """`BadInput` unless the address is on loopback."""
    if not on_loopback(address):
        raise BadInput(f"{what} {address}: insecure = true is for loopback only: use certificates, [tls]")
