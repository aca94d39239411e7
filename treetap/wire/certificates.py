"""Content of certificates and keys: their files, names, dates, fingerprints, and signers; whom a certificate names."""

from __future__ import annotations

import logging
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import NameOID

from treetap.errors import ConfigError, cannot
from treetap.names import NAME
from treetap.wire.ports import DOMAIN, Identity, Role, reserved

log = logging.getLogger(__name__)

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
#: A certificate, or a request for one.
Named: TypeAlias = x509.Certificate | x509.CertificateSigningRequest
#: Errors of a certificate, or of a request for one, whose parts cannot be read: anyone may have made it.
UNREADABLE = (
    ValueError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


def read_file(path: Path) -> bytes:
    """A file's content. Raises ConfigError."""
    with cannot("be read", path, ConfigError):
        return path.read_bytes()


def read_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates of a PEM file, at least one. Raises ConfigError."""
    try:
        return x509.load_pem_x509_certificates(read_file(path))
    except ValueError:
        raise ConfigError(f"{path}: not a certificate in PEM form") from None


class Phrase(Hashable, Protocol):
    """The place of a passphrase."""

    def phrase(self, field: str) -> bytes:
        """The passphrase; ConfigError, which begins with `field`, where it cannot be had."""


def open_key(path: Path, passphrase: Phrase | None = None) -> tuple[PrivateKeyTypes, bytes]:
    """The private key of a PEM file, and the passphrase under which the file has it; empty for none.

    A passphrase is read once for each content of the file and kept in memory, as the key is: what signs reads keys
    anew each time. Raises ConfigError.
    """
    content = read_file(path)
    try:
        opened = serialization.load_pem_private_key(content, password=None)
    except TypeError:
        if passphrase is None:
            raise ConfigError(
                f"{path}: the key is protected by a passphrase; say beside key = where it comes from, such as "
                'passphrase = { command = ["..."] }, or store the key without one, mode 600'
            ) from None
        return _opened(content, path, passphrase)
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: not a private key in PEM form") from None
    if passphrase is not None:
        raise ConfigError(
            f"{path}: the key has no passphrase; encrypt it (openssl pkey -aes256), or leave passphrase out"
        )
    return opened, b""


def is_encrypted(path: Path) -> bool:
    """True if a file has a private key under a passphrase; False also where it cannot be used at all."""
    try:
        serialization.load_pem_private_key(read_file(path), password=None)
    except TypeError:
        return True
    except (ConfigError, ValueError, UnsupportedAlgorithm):
        pass  # its reader tells the fault
    return False


@lru_cache(maxsize=8)
def _opened(content: bytes, path: Path, passphrase: Phrase) -> tuple[PrivateKeyTypes, bytes]:
    phrase = passphrase.phrase(f"{path}: its passphrase")
    try:
        return serialization.load_pem_private_key(content, phrase), phrase
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ConfigError(f"{path}: the passphrase does not open this key, or the file is damaged") from None


def read_key(path: Path, passphrase: Phrase | None = None) -> PrivateKeyTypes:
    """The private key of a PEM file. Raises ConfigError, also for one under a passphrase that comes from nowhere."""
    return open_key(path, passphrase)[0]


def key_pem(key: PrivateKeyTypes, phrase: bytes = b"") -> bytes:
    """A private key as PEM; `phrase`: the passphrase under which it is, empty for none."""
    locked = serialization.BestAvailableEncryption(phrase) if phrase else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)


def belongs(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    """True if a private key is that of a certificate."""
    try:
        return spki(key.public_key()) == spki(certificate.public_key())
    except (ValueError, UnsupportedAlgorithm):  # no key that is known here
        return False


def signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    """True if an authority has signed a certificate, whatever its dates."""
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def common_name(certificate: x509.Certificate) -> str:
    """The certificate's first common name; empty if it has none."""
    return next(iter(common_names(certificate)), "")


def common_names(certificate: Named) -> list[str]:
    """All common names of a certificate, or of a request for one: one, as treetap makes them."""
    return [str(attribute.value) for attribute in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]


def organisation(certificate: x509.Certificate) -> str:
    """The organisation (O) of a certificate's subject; empty where it names none, or several."""
    named = [str(it.value) for it in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    return named[0] if len(named) == 1 else ""


def dns_names(certificate: Named) -> list[str]:
    """The DNS names among the alternative names of a certificate or a request."""
    shown = extension(certificate, x509.SubjectAlternativeName)
    return shown.get_values_for_type(x509.DNSName) if shown else []


def ip_addresses(certificate: Named) -> list[str]:
    """The IP addresses among the alternative names of a certificate or a request."""
    shown = extension(certificate, x509.SubjectAlternativeName)
    return [str(address) for address in shown.get_values_for_type(x509.IPAddress)] if shown else []


def extension(certificate: Named | x509.CertificateRevocationList, kind: type[_Extension]) -> _Extension | None:
    """An extension of a certificate, request or list, None without one; raises one of `UNREADABLE`."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate as ``openssl x509 -fingerprint -sha256`` prints it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def spki(public: PublicKeyTypes) -> bytes:
    """A public key in the form in which certificates hold it (DER)."""
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def date(moment: datetime) -> str:
    """A moment to the minute, for messages."""
    return moment.strftime("%Y-%m-%d %H:%M UTC")


class NoIdentity(Exception):
    """A certificate that does not name one process in one role; the message is the reason and the remedy."""


def identity(certificate: x509.Certificate, needed: Role | None = None) -> Identity:
    """The process that a certificate names. `needed`: the role that a remedy names, None where any will do.

    Raises:
        NoIdentity: no common name or several, no role or several, another name below `DOMAIN`, or unreadable ones.
    """
    try:
        names, hosts = common_names(certificate), dns_names(certificate)
    except UNREADABLE:
        raise NoIdentity("the certificate's names cannot be read: it was changed, or made by another tool") from None
    # Several common names would let a reader choose whose certificate it is.
    if len(names) != 1 or not NAME.match(names[0]):
        shown = ", ".join(repr(name[:64]) for name in names[:4]) or "none"
        raise NoIdentity(f"the certificate must have one common name, that of the process, and has {shown}")
    (name,) = names
    renewal = (
        f"renew it: treetap certs issue {name} --role {needed or 'ROLE'} --ca FOLDER, or on separate hosts "
        "treetap certs request and sign"
    )
    # Names of hosts may stand beside it; below `DOMAIN` exactly one name, of one role.
    below = [host.lower() for host in hosts if reserved(host)]
    if not below:
        raise NoIdentity(f"the certificate of {name!r} has no role; {renewal}")
    for role in Role:
        if below == [(known := Identity(name, role)).dns]:
            return replace(known, organisation=organisation(certificate))
    shown = ", ".join(repr(host[:80]) for host in below[:4])
    raise NoIdentity(
        f"the certificate of {name!r} has other names below {DOMAIN} than one of its own: {shown}; {renewal}"
    )


_LIST = re.compile(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", re.DOTALL)
REMEDY = "at the authority, treetap certs revoke --ca FOLDER makes a new one"


@dataclass(frozen=True)
class Revoked:
    """Revoked certificates by their authority's key: serial number → time of revocation. `until`: end of the lists."""

    path: Path
    serials: Mapping[bytes, Mapping[int, datetime]]
    until: datetime

    def fault(self, certificate: x509.Certificate, signer: x509.Certificate) -> str | None:
        """The reason why a certificate that `signer` has signed is refused now; None if it is not.

        The caller reads it, who may be remote: the file's place on this host stands in the log only.
        """
        if now() > self.until:
            log.warning("%s: the list of revoked certificates ended on %s", self.path, date(self.until))
            return f"the list of revoked certificates ended on {date(self.until)}: {REMEDY}"
        if self.since(certificate, signer) is not None:
            return f"the certificate (serial number {certificate.serial_number:x}) is revoked by its authority"
        return None

    def since(self, certificate: x509.Certificate, signer: x509.Certificate) -> datetime | None:
        """Time of the revocation of a certificate that `signer` has signed; None if it is not revoked."""
        return self.serials[spki(signer.public_key())].get(certificate.serial_number)


def read_revoked(path: Path, authorities: Sequence[x509.Certificate]) -> Revoked:
    """The newest list of each authority, in force now.

    Raises:
        ConfigError: as `read_lists`, and where a list has ended.
    """
    revoked = read_lists(path, authorities)
    if now() > revoked.until:
        raise ConfigError(f"{path}: the list of revoked certificates ended on {date(revoked.until)}: {REMEDY}")
    return revoked


def read_lists(path: Path, authorities: Sequence[x509.Certificate]) -> Revoked:
    """The newest list of each authority, also where it has ended: it still says what was revoked, and when.

    Raises:
        ConfigError: the file cannot be read, a list is damaged or has no end, or an authority has none.
    """
    try:
        lists = [x509.load_pem_x509_crl(part) for part in _LIST.findall(read_file(path))]
    except ValueError:
        raise ConfigError(f"{path}: not a list of revoked certificates in PEM form: {REMEDY}") from None
    serials, ends = {}, []
    for authority in authorities:
        own = [candidate for candidate in lists if _signed(candidate, authority)]
        if not own:
            name = authority.subject.rfc4514_string()
            raise ConfigError(
                f"{path}: has no list of revoked certificates of the authority {name!r} that is trusted here"
            )
        newest = max(own, key=lambda signed: signed.last_update_utc)
        if newest.next_update_utc is None:
            raise ConfigError(f"{path}: the list of revoked certificates does not say until when it holds: {REMEDY}")
        serials[spki(authority.public_key())] = {entry.serial_number: entry.revocation_date_utc for entry in newest}
        ends.append(newest.next_update_utc)
    return Revoked(path, serials, min(ends))


def now() -> datetime:
    """This host's clock."""
    return datetime.now(UTC)


def _signed(revocations: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        public = authority.public_key()
        return revocations.issuer == authority.subject and revocations.is_signature_valid(public)  # type: ignore[arg-type]
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False
