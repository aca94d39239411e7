"""Requests for certificates: a process's key stays on its host, and the authority signs what it has agreed to."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from pydantic import ConfigDict

from treetap.commands.certs.authority import general_names, process, refuse_existing, sign, write_new
from treetap.commands.certs.authority_key import SigningKey
from treetap.commands.typed import typed_once
from treetap.errors import ConfigError
from treetap.process.config import SigningConfig
from treetap.strict import Strict, load
from treetap.wire.certificates import UNREADABLE, common_names, extension, key_pem, read_file, spki
from treetap.wire.roles import Identity, Role, reserved
from treetap.wire.tls import DOCUMENTS

_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_LEAST_RSA_BITS = 2048


class _Tls(Strict):
    """`[tls]` of a process's file, as far as a request for its second certificate needs it."""

    model_config = ConfigDict(extra="ignore")
    signing: SigningConfig


class _Signs(Strict):
    """Such a file."""

    model_config = ConfigDict(extra="ignore")
    tls: _Tls


@dataclass(frozen=True)
class Request:
    """A request's files, of which the key may be a URI, and the fingerprint of its key, which both sides compare."""

    key: Path | str
    request: Path
    fingerprint: str


def request(folder: Path, name: str, role: Role, hosts: Sequence[str] = ()) -> Request:
    """Make a process's key and its request for a certificate in ``folder``: NAME.key, mode 600, and NAME.csr.

    Raises BadInput if a file exists already, ConfigError for an unusable name or host.
    """
    identity = process(name, role)
    made = folder / f"{name}.key", folder / f"{name}.csr"
    refuse_existing(*made, folder / f"{name}.crt")
    key, asked = new_request(identity, hosts)
    write_new(made[0], key_pem(key), 0o600)
    write_new(made[1], asked.public_bytes(serialization.Encoding.PEM), 0o644)
    return Request(*made, _fingerprint(asked))


def new_request(
    identity: Identity, hosts: Sequence[str]
) -> tuple[ec.EllipticCurvePrivateKey, x509.CertificateSigningRequest]:
    """A new key, and its request for a certificate of this name, role and hosts. Raises ConfigError for a bad host."""
    alternatives = general_names(hosts)
    key = ec.generate_private_key(ec.SECP256R1())
    return key, _asked(key, identity, alternatives)


def _asked(
    key: SigningKey, identity: Identity, hosts: Sequence[x509.GeneralName] = (), *, documents: bool = False
) -> x509.CertificateSigningRequest:
    alternatives = x509.SubjectAlternativeName([x509.DNSName(identity.dns), *hosts])
    builder = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)]))
        .add_extension(alternatives, critical=False)
    )
    if documents:
        builder = builder.add_extension(x509.ExtendedKeyUsage([DOCUMENTS]), critical=False)
    return builder.sign(key, hashes.SHA256())


def request_signing(folder: Path, name: str, role: Role, file: Path) -> Request:
    """Make a request for the certificate of the key in the token that `[tls.signing]` of a process's file names.

    NAME.csr goes to ``folder``; the token makes the key unless it has one. Raises as `request` does.
    """
    identity, path = process(name, role), folder / f"{name}.csr"
    refuse_existing(path, folder / f"{name}.crt")
    signing = load(file, _Signs).tls.signing.below(file.absolute().parent)
    key = signing.token(f"{file}: [tls.signing]", typed_once(file)).key_pair()
    asked = _asked(key, identity, documents=True)
    write_new(path, asked.public_bytes(serialization.Encoding.PEM), 0o644)
    return Request(signing.uri, path, _fingerprint(asked))


def sign_request(
    path: Path,
    identity: Identity,
    ca_folder: Path,
    out: Path | None = None,
    hosts: Sequence[str] = (),
    days: int = 365,
    fingerprint: str | None = None,
) -> tuple[Path, str]:
    """Sign the request of a process whose name, role and hosts the authority states; NAME.crt goes to ``out``.

    Args:
        path: the request.
        identity: whose it must be; nothing in the request is taken on trust.
        ca_folder: the authority.
        out: folder of the certificate; by default that of the request.
        hosts: those that the request may ask for; all of them are in the certificate.
        days: until it expires.
        fingerprint: that of the key, as the process's host printed it; None: not compared here.

    Returns:
        The certificate's path, and the fingerprint of the key.

    Raises:
        BadInput: the certificate exists already.
        ConfigError: a damaged request, or one for another process, host or key.
    """
    identity = process(identity.name, identity.role)
    asked = read_request(path, read_file(path))
    digest = _fingerprint(asked)
    if fingerprint is not None and _digits(fingerprint) != _digits(digest):
        raise ConfigError(f"{path}: its key has fingerprint {digest}, not {fingerprint}: it is another request")
    if fault := fault_of(asked, identity, hosts):
        raise ConfigError(f"{path}: {fault}")
    signed_path = (out or path.parent) / f"{identity.name}.crt"
    refuse_existing(signed_path)
    public = asked.public_key()
    assert isinstance(public, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))  # see fault_of
    uses = extension(asked, x509.ExtendedKeyUsage)  # a request may ask for less than connections, and for no more
    signed = sign(ca_folder, identity, public, hosts, days, documents=uses is not None and list(uses) == [DOCUMENTS])
    write_new(signed_path, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    return signed_path, digest


def read_request(path: Path, content: bytes) -> x509.CertificateSigningRequest:
    """The request in the content (PEM) of a file; raises ConfigError unless its own key has signed it."""
    try:
        asked = x509.load_pem_x509_csr(content)
        valid = asked.is_signature_valid
    except UNREADABLE:
        raise ConfigError(f"{path}: not a request for a certificate in PEM form") from None
    if not valid:
        raise ConfigError(f"{path}: the request is not signed with its own key: it is damaged, or made by another")
    return asked


def hosts_of(asked: x509.CertificateSigningRequest | x509.Certificate) -> set[str]:
    """The hosts beside the name of the role, each in one spelling. Raises ValueError for names that cannot be read."""
    try:
        shown = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    except UNREADABLE:
        raise ValueError("names that cannot be read") from None
    names = [*shown.get_values_for_type(x509.DNSName), *map(str, shown.get_values_for_type(x509.IPAddress))]
    return {_same(name) for name in names if not reserved(name)}


def fault_of(asked: x509.CertificateSigningRequest, identity: Identity, hosts: Sequence[str]) -> str | None:
    """The first thing in a request that the authority has not agreed to; None if there is none."""
    names = common_names(asked)
    if names != [identity.name]:
        return f"it is for {', '.join(map(repr, names)) or 'no process'}, not for {identity.name!r}"
    try:
        shown = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns, wanted = shown.get_values_for_type(x509.DNSName), hosts_of(asked)
    except (x509.ExtensionNotFound, *UNREADABLE):
        return f"it asks for no role: make it with treetap certs request {identity.name} --role {identity.role}"
    roles = [name for name in dns if reserved(name)]
    if roles != [identity.dns]:
        return f"it asks for {', '.join(map(repr, roles)) or 'no role'}, not for {identity.dns!r}"
    if more := sorted(wanted - {_same(host) for host in hosts}):
        return f"it asks for host {more[0]!r}: add --host {more[0]} if that host is this process's"
    return _key_fault(asked)


def _key_fault(asked: x509.CertificateSigningRequest) -> str | None:
    """A key that TLS would not take, or that is short."""
    public = asked.public_key()
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, _CURVES):
        return None
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= _LEAST_RSA_BITS:
        return None
    return f"its key must be of curve P-256, P-384 or P-521, or RSA of {_LEAST_RSA_BITS} bits or more"


def _same(host: str) -> str:
    """A host in one spelling."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host.lower()


def _fingerprint(asked: x509.CertificateSigningRequest) -> str:
    """SHA-256 of the public key (SubjectPublicKeyInfo)."""
    digest = hashes.Hash(hashes.SHA256())
    digest.update(spki(asked.public_key()))
    return digest.finalize().hex(":").upper()


def _digits(fingerprint: str) -> str:
    return fingerprint.replace(":", "").replace(" ", "").upper()
