"""The private authority of a federation: a folder with `ca.crt`, `ca.key` and a list of its certificates.

The list, `issued.jsonl`, has a line for each certificate and no secret. `authority.toml`, if it is there, names the
place of the key's passphrase.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.x509.oid import NameOID

from treetap.errors import BadInput, ConfigError, cannot, refuse
from treetap.models.durable import append, make_ignored_folder, parse_json
from treetap.names import AUTHORITY_KEY, KINDS, NAME
from treetap.process.config import Secret, typed
from treetap.strict import Strict, load
from treetap.wire.certificates import belongs, date, extension, fingerprint, key_pem, read_certificates, read_key
from treetap.wire.ports import DOMAIN, Identity, Role, reserved
from treetap.wire.tls import BOTH_ENDS, TlsFiles

log = logging.getLogger(__name__)
ISSUED, KEY = "issued.jsonl", AUTHORITY_KEY
BACKDATED = timedelta(minutes=5)  # clocks of two hosts differ
#: Most characters of an organisation's name in a certificate (X.520).
LONGEST_ORGANISATION = 64
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_FILE = "authority.toml"
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")  # of a DNS name


class AuthorityFile(Strict):
    """`authority.toml` in the folder of an authority, which needs one only for a passphrase."""

    passphrase: Secret | None = None
    """The place of the passphrase of `ca.key`, as `passphrase = { command = ["pass", "show", "authority"] }`. Write
    this file before `treetap certs init`, which encrypts the key with it; `openssl pkey -aes256` encrypts that of an
    authority that exists. Without it the commands ask at a terminal, where the key has one.
    """


@dataclass(frozen=True)
class Issued:
    """One certificate: its serial number, its process, its hosts, and its end."""

    serial: int
    name: str
    role: str
    hosts: tuple[str, ...]
    until: datetime
    sha256: str


def note(folder: Path, one: Issued) -> None:
    """Add a line. Raises BadInput if the disk refuses it: without a line no certificate could be revoked by name."""
    path, plain = folder / ISSUED, {**vars(one), "serial": f"{one.serial:x}", "until": one.until.isoformat()}
    with cannot("be written", path):
        append(path, json.dumps(plain).encode() + b"\n")


def read_issued(folder: Path) -> list[Issued]:
    """All lines, oldest first; none before the authority has issued anything. Raises ConfigError for a damaged one."""
    path = folder / ISSUED
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    certificates = []
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
            serial, until, hosts = int(row["serial"], 16), datetime.fromisoformat(row["until"]), row["hosts"]
            texts = [row[field] for field in ("name", "role", "sha256")]
            texts_only = isinstance(hosts, list) and all(isinstance(text, str) for text in [*texts, *hosts])
            if not texts_only or not 0 < serial < 2**159 or until.tzinfo is None:
                raise ValueError
            name, role, sha256 = texts
            certificates.append(Issued(serial, name, role, tuple(hosts), until, sha256))
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"{path}: line {number} is damaged; restore the file, or remove the line") from None
    return certificates


def create_authority(folder: Path, common_name: str = "treetap CA", days: int = 3650) -> None:
    """Make a certificate authority in ``folder``: ca.crt, and ca.key readable by its owner only.

    Raises BadInput if either file exists, ConfigError for an unusable name or number of days.
    """
    certificate_path, key_path = folder / "ca.crt", folder / KEY
    refuse_existing(certificate_path, key_path)
    if not 0 < len(common_name) <= 64:
        raise ConfigError(f"authority name {common_name!r}: it must have 1 to 64 characters")
    key, passphrase = ec.generate_private_key(ec.SECP256R1()), _passphrase(folder)
    phrase = b"" if passphrase is None else passphrase.phrase(f"{folder / _FILE}: passphrase")
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = (
        _builder(name, name, key.public_key(), last_day(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    write_new(key_path, key_pem(key, phrase), 0o600)
    write_new(certificate_path, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), 0o644)


def issue(
    folder: Path,
    name: str,
    role: Role,
    hosts: Sequence[str] = (),
    days: int = 365,
    ca_folder: Path | None = None,
    organisation: str = "",
) -> TlsFiles:
    """Make ``name``'s certificate and key in ``folder``, signed by the authority in ``ca_folder`` (or ``folder``).

    ``hosts`` are DNS names and IP addresses under which other TLS clients reach the process. The certificate serves
    both ends of a connection. ``organisation``: whose the process is; empty: it does not say. Raises BadInput if a file
    exists already, ConfigError for an unusable name, host or number of days, and for an
    authority that cannot be read or ends before the certificate would.
    """
    identity = process(name, role, organisation)
    files = TlsFiles((ca_folder or folder) / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")
    refuse_existing(files.certificate, files.key)
    key = ec.generate_private_key(ec.SECP256R1())
    signed = sign(ca_folder or folder, identity, key.public_key(), hosts, days)
    write_new(files.key, key_pem(key), 0o600)
    write_new(files.certificate, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    return files


def sign(
    ca_folder: Path, process: Identity, public: CertificatePublicKeyTypes, hosts: Sequence[str], days: int
) -> x509.Certificate:
    """The certificate of a process's key, signed by the authority, which notes it before.

    Raises ConfigError for an unusable host or number of days, and for an authority that cannot be read or ends before
    the certificate would.
    """
    alternatives = [x509.DNSName(process.dns), *general_names(hosts)]
    # A name that has another role, and a host that is called as a process is, are refused: where bare names are
    # compared, in a file's lists or by other TLS clients, one certificate would be two.
    known = read_issued(ca_folder)
    if others := [other for other in known if other.name == process.name and other.role != process.role]:
        raise ConfigError(
            f"name {process.name!r}: {ca_folder / ISSUED} has a certificate of {others[0].role} {process.name!r}, "
            "and a name has one role: take another"
        )
    # also its own: a host of that name would be the process for other TLS clients
    names = {process.name} | {other.name for other in known}
    if taken := [host for host in hosts if host.lower() in names]:
        raise ConfigError(
            f"host {taken[0]!r}: a process of the federation has this name; leave it out (callers compare "
            f"{taken[0].lower()}.ROLE.{DOMAIN}), or give the host's full name"
        )
    if lent := [other for other in known if process.name in (host.lower() for host in other.hosts)]:
        raise ConfigError(
            f"name {process.name!r}: the certificate of {lent[0].role} {lent[0].name!r} has it as a host: take another"
        )
    last, ends = last_day(days), read_certificates(ca_folder / "ca.crt")[0].not_valid_after_utc
    if last > ends:  # before its key is opened
        raise ConfigError(
            f"{ca_folder / 'ca.crt'}: the authority ends on {date(ends)}, "
            f"before a certificate of {days} days would; ask for fewer days or make a new authority"
        )
    authority, authority_key = open_authority(ca_folder, f"sign the certificate of {process}")
    subject = subject_of(process)
    builder = (
        _builder(subject, authority.subject, public, last)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(BOTH_ENDS), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(authority_id(authority, authority_key), critical=False)
    )
    signed = builder.sign(authority_key, hashes.SHA256())
    number, until = signed.serial_number, signed.not_valid_after_utc
    note(ca_folder, Issued(number, process.name, process.role, tuple(hosts), until, fingerprint(signed)))
    return signed


def process(name: str, role: Role, organisation: str = "") -> Identity:
    """The identity of a process. Raises ConfigError for an unusable name, of it or of its organisation."""
    refuse(
        (not NAME.match(name), f"name {name!r}: it must be 1 to 63 of a-z, 0-9 and '-', with no '-' at either end"),
        (name == "ca", "name 'ca': the authority's own files have this name"),
        (name in KINDS, f"name {name!r}: in policies it means a kind of receivers; take another"),
        (
            organisation and not (organisation.isprintable() and 0 < len(organisation.strip()) <= LONGEST_ORGANISATION),
            f"organisation {organisation!r}: it must have 1 to {LONGEST_ORGANISATION} printable characters",
        ),
        kind=ConfigError,
    )
    return Identity(name, role, organisation)


def subject_of(process: Identity) -> x509.Name:
    """The subject of a process's certificate: its name, and its organisation if it states one."""
    named = {NameOID.COMMON_NAME: process.name, NameOID.ORGANIZATION_NAME: process.organisation}
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in named.items() if text])


def general_names(hosts: Sequence[str]) -> list[x509.GeneralName]:
    """Hosts as alternative names of a certificate. Raises ConfigError for a text that is none, or is reserved."""
    return [_general_name(host) for host in dict.fromkeys(hosts)]


def open_authority(folder: Path, purpose: str) -> tuple[x509.Certificate, SigningKey]:
    """The authority's certificate and key. The log names each opening of the key and its purpose."""
    certificate_path, path = folder / "ca.crt", folder / KEY
    certificate = read_certificates(certificate_path)[0]
    log.info("opening the authority's key %s to %s", path, purpose)
    key = read_key(path, _passphrase(folder) or typed(path))
    if not belongs(key, certificate):
        raise ConfigError(f"{path}: opened to {purpose}, but it does not belong to {certificate_path}")
    if not isinstance(key, SigningKey):
        raise ConfigError(f"{path}: opened to {purpose}, but it is neither an elliptic-curve nor an RSA key")
    return certificate, key


def _passphrase(folder: Path) -> Secret | None:
    """The place of the key's passphrase; None where no file names one."""
    path = folder / _FILE
    return load(path, AuthorityFile).below(folder).passphrase if path.exists() else None


def authority_id(authority: x509.Certificate, key: SigningKey) -> x509.AuthorityKeyIdentifier:
    """The identifier of the authority's key, for certificates and lists that it signs."""
    own = extension(authority, x509.SubjectKeyIdentifier)
    if own is None:  # an authority made elsewhere
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _builder(
    subject: x509.Name, issuer: x509.Name, public: CertificatePublicKeyTypes, last: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - BACKDATED)
        .not_valid_after(last)
    )


def last_day(days: int) -> datetime:
    """The moment `days` days from now. Raises ConfigError for less than one day, or beyond the calendar."""
    if days < 1:
        raise ConfigError(f"for {days} days: it must be at least one")
    try:
        return datetime.now(UTC) + timedelta(days=days)
    except OverflowError:
        raise ConfigError(f"for {days} days: too many") from None


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
        if reserved(host):
            raise ConfigError(f"host {host!r}: {DOMAIN} is reserved for names of roles; leave it out") from None
        return x509.DNSName(host)


def refuse_existing(*paths: Path) -> None:
    """Raise BadInput if one of the files exists."""
    for path in paths:
        if path.exists():
            raise BadInput(f"{path}: exists already and is not overwritten; move it away or choose another folder")


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a new file that has ``mode`` from its first moment on. Raises BadInput."""
    with cannot("be written", path):
        make_ignored_folder(path.parent, 0o777)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
