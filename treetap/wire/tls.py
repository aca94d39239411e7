"""Certificates of a federation: a private authority, one certificate a process, and checks before dialling.

A party is known by the common name of its certificate. gRPC compares the name with the certificate's
alternative names, so the name is always among them too. A failed handshake reaches a gRPC client as a bare
UNAVAILABLE: hence :meth:`TlsFiles.check`, which reports faults of a process's own files beforehand, in one line,
and :mod:`treetap.wire.probe`, which diagnoses the other side afterwards.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from treetap.errors import BadInput, ConfigError

log = logging.getLogger(__name__)

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # of a DNS name
_BACKDATED = timedelta(minutes=5)  # clocks of two hosts differ
_Extension = TypeVar("_Extension", bound=x509.ExtensionType)
_SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_ROLES = (ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH)


@dataclass(frozen=True)
class TlsFiles:
    """Paths of one process's files for mutual TLS: the authority's certificate, its own, and its key (PEM)."""

    ca: Path
    certificate: Path
    key: Path

    def check(self, expected_name: str | None) -> str:
        """:meth:`inspect`, and a warning in the log if others can read the key."""
        name = self.inspect(expected_name)
        if warning := self.open_key():
            log.warning("%s", warning)
        return name

    def open_key(self) -> str | None:
        """The warning about a key file that others on this host can read; None if its owner alone can."""
        if self.key.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            return f"{self.key}: others on this host can read this private key; run chmod 600 on it"
        return None

    def inspect(self, expected_name: str | None) -> str:
        """Common name of the certificate, once the three files are known to work together now.

        ``expected_name`` is the name that the certificate must carry, or None for any. Raises ConfigError with one
        line that names the file: missing, unreadable, no key of this certificate, out of its dates, signed
        by another authority, other name, no use for both ends.
        """
        authorities = _certificates(self.ca)
        certificate = _certificates(self.certificate)[0]
        public = _key(self.key).public_key()
        if _spki(public) != _spki(certificate.public_key()):
            raise ConfigError(f"{self.key}: this key does not belong to the certificate {self.certificate}")
        if fault := certificate_fault(certificate, authorities, expected_name):
            raise ConfigError(f"{self.certificate}: {fault}")
        return common_name(certificate)

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Contents of (ca, certificate, key), PEM. Raises ConfigError for a file that cannot be read."""
        return _read(self.ca), _read(self.certificate), _read(self.key)


def create_authority(folder: Path, common_name: str = "treetap CA", days: int = 3650) -> None:
    """Make a certificate authority in ``folder``: ca.crt, and ca.key readable by its owner only.

    Raises BadInput if either file exists, ConfigError for an unusable name or number of days.
    """
    certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
    _refuse_existing(certificate_path, key_path)
    if not 0 < len(common_name) <= 64:
        raise ConfigError(f"authority name {common_name!r}: it must have 1 to 64 characters")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(name, name, key.public_key(), _last_day(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    _write(key_path, _pem(key), 0o600)
    _write(certificate_path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)


def issue(
    folder: Path, name: str, hosts: Sequence[str] = (), days: int = 365, ca_folder: Path | None = None
) -> TlsFiles:
    """Make ``name``'s certificate and key in ``folder``, signed by the authority in ``ca_folder`` (or ``folder``).

    ``hosts`` are further DNS names and IP addresses under which the process is reached. The certificate serves
    both ends of a connection. Raises BadInput if a file exists already, ConfigError for an unusable name, host
    or number of days, and for an authority that cannot be read or ends before the certificate would.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"party name {name!r}: it must be 1 to 63 of a-z, 0-9 and '-', with no '-' at either end")
    if name == "ca":
        raise ConfigError("party name 'ca': the authority's own files have this name")
    files = TlsFiles((ca_folder or folder) / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
    _refuse_existing(files.certificate, files.key)
    alternatives: list[x509.GeneralName] = [x509.DNSName(name)]
    alternatives += [_general_name(host) for host in dict.fromkeys(hosts) if host != name]
    authority, authority_key = _open_authority(ca_folder or folder, f"sign the certificate of {name!r}")
    last = _last_day(days)
    if last > authority.not_valid_after_utc:
        raise ConfigError(
            f"{files.ca}: the authority ends on {_date(authority.not_valid_after_utc)}, "
            f"before a certificate of {days} days would; ask for fewer days or make a new authority"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        _builder(subject, authority.subject, key.public_key(), last)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_ROLES), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_authority_id(authority, authority_key), critical=False)
    )
    signed = builder.sign(authority_key, hashes.SHA256())
    _write(files.key, _pem(key), 0o600)
    _write(files.certificate, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    return files


def certificate_fault(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate], expected_name: str | None
) -> str | None:
    """The reason why a process that trusts ``authorities`` would refuse ``certificate`` now; None if it would not."""
    if fault := _out_of_dates(certificate, "the certificate"):
        return fault
    signer = next((authority for authority in authorities if _signed_by(certificate, authority)), None)
    if signer is None:
        trusted = " or ".join(f"SHA-256 {fingerprint(each)}, key {_key_id(each)}" for each in authorities)
        return (
            f"the certificate (SHA-256 {fingerprint(certificate)}) is not signed by the authority "
            f"trusted here ({trusted}) but by another (key {_signer_id(certificate)}); "
            "issue it with the authority that all parties trust"
        )
    if fault := _out_of_dates(signer, "the authority's certificate"):
        return fault
    return _name_fault(certificate, expected_name)


def common_name(certificate: x509.Certificate) -> str:
    """The certificate's common name; empty if it has none."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of the certificate as ``openssl x509 -fingerprint -sha256`` prints it."""
    return certificate.fingerprint(hashes.SHA256()).hex(":").upper()


def _key_id(authority: x509.Certificate) -> str:
    """The authority's key as its certificates name it: subjectKeyIdentifier, in hexadecimal digits."""
    own = _extension(authority, x509.SubjectKeyIdentifier)
    return (own or x509.SubjectKeyIdentifier.from_public_key(authority.public_key())).digest.hex(":").upper()


def _signer_id(certificate: x509.Certificate) -> str:
    """The key of the signer: a certificate contains no more of its authority."""
    named = _extension(certificate, x509.AuthorityKeyIdentifier)
    return named.key_identifier.hex(":").upper() if named and named.key_identifier else "unknown"


def load_authorities(path: Path) -> list[x509.Certificate]:
    """The trusted authorities of a PEM file, at least one. Raises ConfigError."""
    return _certificates(path)


def _open_authority(folder: Path, purpose: str) -> tuple[x509.Certificate, _SigningKey]:
    """The authority's certificate and key. The log names each opening of the key and its purpose."""
    certificate_path, key_path = folder / "ca.crt", folder / "ca.key"
    certificate = _certificates(certificate_path)[0]
    log.info("opening the authority's key %s to %s", key_path, purpose)
    key = _key(key_path)
    if _spki(key.public_key()) != _spki(certificate.public_key()):
        raise ConfigError(f"{key_path}: opened to {purpose}, but it does not belong to {certificate_path}")
    if not isinstance(key, _SigningKey):
        raise ConfigError(f"{key_path}: opened to {purpose}, but it is neither an elliptic-curve nor an RSA key")
    return certificate, key


def _authority_id(authority: x509.Certificate, key: _SigningKey) -> x509.AuthorityKeyIdentifier:
    own = _extension(authority, x509.SubjectKeyIdentifier)
    if own is None:  # an authority made elsewhere
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, last: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - _BACKDATED)
        .not_valid_after(last)
    )


def _last_day(days: int) -> datetime:
    if days < 1:
        raise ConfigError(f"a certificate for {days} days: it must be at least one")
    try:
        return datetime.now(UTC) + timedelta(days=days)
    except OverflowError:
        raise ConfigError(f"a certificate for {days} days: too many") from None


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):
            raise ConfigError(f"host {host!r}: neither an IP address nor a DNS name") from None
        return x509.DNSName(host)


def _name_fault(certificate: x509.Certificate, expected_name: str | None) -> str | None:
    name = common_name(certificate)
    if expected_name is not None and name != expected_name:
        return f"the certificate is that of {name!r}, not of {expected_name!r}; correct the name, address or files"
    names = _extension(certificate, x509.SubjectAlternativeName)
    if names is None or name not in names.get_values_for_type(x509.DNSName):
        return f"the certificate's alternative names lack its own name: add DNS:{name}"
    roles = _extension(certificate, x509.ExtendedKeyUsage)
    if roles is not None and not set(_ROLES) <= set(roles):
        return "the certificate's extended key usage must allow both clientAuth and serverAuth"
    return None


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _out_of_dates(certificate: x509.Certificate, what: str) -> str | None:
    now = datetime.now(UTC)
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        return f"{what} expired on {_date(last)} (it is {_date(now)} now); issue a new one, or set this host's clock"
    if now < first:
        return f"{what} is not valid before {_date(first)} (it is {_date(now)} now); check this host's clock"
    return None


def _extension(certificate: x509.Certificate, kind: type[_Extension]) -> _Extension | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(_read(path))
    except ValueError:
        raise ConfigError(f"{path}: not a certificate in PEM form") from None


def _key(path: Path) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(_read(path), password=None)
    except TypeError:
        raise ConfigError(f"{path}: the key is protected by a passphrase; store it without one, mode 600") from None
    except ValueError:
        raise ConfigError(f"{path}: not a private key in PEM form") from None


def _spki(public: PublicKeyTypes) -> bytes:
    return public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _refuse_existing(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise BadInput(f"{path}: exists already and is not overwritten; move it away or choose another folder")


def _write(path: Path, content: bytes, mode: int) -> None:
    """Write a new file that has ``mode`` from its first moment on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None


def _date(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
