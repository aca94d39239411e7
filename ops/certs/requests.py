"""Requests for certificates, which leave a key on its host, and new pairs in the place of those in use.

The authority signs what it has agreed to. A new certificate and its key take the place of those in use both at once,
also if the machine fails in between. Two files cannot be renamed at once, but one link can, as Kubernetes does it with
volumes of secrets:

    bank.crt → bank.pair/bank.crt      bank.pair → bank.pair-0123456789abcdef
    bank.key → bank.pair/bank.key      bank.pair-0123456789abcdef/bank.crt, bank.key

The first time the files in use move behind such a link, which changes no content. From then on replacing the one link
`bank.pair` switches both. Whenever a process reads them, also after a crash, the key is that of the certificate.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from pydantic import ConfigDict

from treetap.commands.certs.authority import (
    BACKDATED,
    ISSUED,
    authority_id,
    general_names,
    last_day,
    open_authority,
    process,
    read_issued,
    refuse_existing,
    sign,
    subject_of,
    write_new,
)
from treetap.errors import BadInput, ConfigError, cannot
from treetap.models.durable import sync_folder, write_whole
from treetap.names import address_of
from treetap.process.config import TlsConfig, typed
from treetap.strict import Strict
from treetap.wire.certificates import (
    UNREADABLE,
    NoIdentity,
    belongs,
    common_names,
    dns_names,
    extension,
    identity,
    ip_addresses,
    key_pem,
    read_certificates,
    read_file,
    read_key,
    spki,
)
from treetap.wire.ports import Identity, Role, reserved
from treetap.wire.tls import BOTH_ENDS, TlsFiles, certificate_fault

_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)
_LEAST_RSA_BITS = 2048


@dataclass(frozen=True)
class Request:
    """A request's files, and the fingerprint of its key, which both sides compare."""

    key: Path
    request: Path
    fingerprint: str


def request(folder: Path, name: str, role: Role, hosts: Sequence[str] = ()) -> Request:
    """Make a process's key and its request for a certificate in ``folder``: NAME.key, mode 600, and NAME.csr.

    Raises BadInput if a file exists already, ConfigError for an unusable name or host.
    """
    identity = process(name, role)
    made = folder / f"{name}.key", folder / f"{name}.csr"
    refuse_existing(*made, folder / f"{name}.crt")
    alternatives = x509.SubjectAlternativeName([x509.DNSName(identity.dns), *general_names(hosts)])
    key = ec.generate_private_key(ec.SECP256R1())
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject_of(identity))
        .add_extension(alternatives, critical=False)
        .sign(key, hashes.SHA256())
    )
    write_new(made[0], key_pem(key), 0o600)
    write_new(made[1], asked.public_bytes(serialization.Encoding.PEM), 0o644)
    return Request(*made, _fingerprint(asked))


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
        identity: whose it must be, and of which organisation; nothing in the request is taken on trust.
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
    identity = process(identity.name, identity.role, identity.organisation)
    try:
        asked = x509.load_pem_x509_csr(read_file(path))
        valid = asked.is_signature_valid
    except UNREADABLE:
        raise ConfigError(f"{path}: not a request for a certificate in PEM form") from None
    if not valid:
        raise ConfigError(f"{path}: the request is not signed with its own key: it is damaged, or made by another")
    digest = _fingerprint(asked)
    if fingerprint is not None and _digits(fingerprint) != _digits(digest):
        raise ConfigError(f"{path}: its key has fingerprint {digest}, not {fingerprint}: it is another request")
    if fault := _fault(asked, identity, hosts):
        raise ConfigError(f"{path}: {fault}")
    public = asked.public_key()
    if not (
        (isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, _CURVES))
        or (isinstance(public, rsa.RSAPublicKey) and public.key_size >= _LEAST_RSA_BITS)
    ):  # TLS would not take it, or it is short
        bits = _LEAST_RSA_BITS
        raise ConfigError(f"{path}: its key must be of curve P-256, P-384 or P-521, or RSA of {bits} bits or more")
    signed_path = (out or path.parent) / f"{identity.name}.crt"
    refuse_existing(signed_path)
    signed = sign(ca_folder, identity, public, hosts, days)
    write_new(signed_path, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    return signed_path, digest


def _fault(asked: x509.CertificateSigningRequest, identity: Identity, hosts: Sequence[str]) -> str | None:
    """The first thing in a request that the authority has not agreed to; None if there is none."""
    again = f"make it with treetap certs request {identity.name} --role {identity.role}"
    names = common_names(asked)
    if names != [identity.name]:
        return f"it is for {', '.join(map(repr, names)) or 'no process'}, not for {identity.name!r}"
    try:
        dns, addresses, uses = dns_names(asked), ip_addresses(asked), extension(asked, x509.ExtendedKeyUsage)
    except UNREADABLE:
        return f"what it asks for cannot be read: {again}"
    roles = [name for name in dns if reserved(name)]
    if roles != [identity.dns]:
        return f"it asks for {', '.join(map(repr, roles)) or 'no role'}, not for {identity.dns!r}: {again}"
    wanted = {_same(name) for name in (*dns, *addresses) if not reserved(name)}
    if more := sorted(wanted - {_same(host) for host in hosts}):
        return f"it asks for host {more[0]!r}: add --host {more[0]} if that host is this process's"
    if uses is not None and not {*uses} & {*BOTH_ENDS}:
        return f"it asks for other uses than connections: {again}"
    return None


def _same(host: str) -> str:
    """A host in one spelling."""
    return str(address_of(host) or host.lower())


def _fingerprint(asked: x509.CertificateSigningRequest) -> str:
    """SHA-256 of the public key (SubjectPublicKeyInfo)."""
    return sha256(spki(asked.public_key())).digest().hex(":").upper()


def _digits(fingerprint: str) -> str:
    return fingerprint.replace(":", "").replace(" ", "").upper()


FILE = "crl.pem"


def revoke(ca_folder: Path, whats: Sequence[str] = (), days: int = 365) -> tuple[Path, list[str], datetime]:
    """Revoke certificates and write the list anew; without any, the same list with a later date.

    Args:
        ca_folder: the authority.
        whats: names, each for all certificates of that process which have not ended, or files of certificates.
        days: for how long the list holds.

    Returns:
        The list's path, the serial numbers that are new in it, and the moment until which it holds.

    Raises:
        BadInput: the list cannot be written.
        ConfigError: the authority has issued nothing of that name, or the list or the authority is damaged.
    """
    now, until = datetime.now(UTC), last_day(days)
    path = ca_folder / FILE
    serials = {serial for what in whats for serial in _serials(ca_folder, what, now)}
    purpose = f"revoke {', '.join(whats)}" if whats else "renew the list of revoked certificates"
    authority, key = open_authority(ca_folder, purpose)
    until = min(until, authority.not_valid_after_utc)
    before = _before(path, authority)
    number = None if before is None else extension(before, x509.CRLNumber)
    entries = {entry.serial_number: entry.revocation_date_utc for entry in before or ()}
    new = sorted(serials - entries.keys())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - BACKDATED)
        .next_update(until)
        .add_extension(x509.CRLNumber(1 if number is None else number.crl_number + 1), critical=False)
        .add_extension(authority_id(authority, key), critical=False)
    )
    for serial, moment in {**entries, **dict.fromkeys(new, now)}.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(moment).build()
        builder = builder.add_revoked_certificate(entry)
    signed = builder.sign(key, hashes.SHA256())
    with cannot("be written", path):
        write_whole(path, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    return path, [f"{serial:x}" for serial in new], until


def _serials(ca_folder: Path, what: str, now: datetime) -> set[int]:
    """The serial numbers of a process's certificates, or of the certificate in a file."""
    authority = read_certificates(ca_folder / "ca.crt")[0]
    if "/" in what or what.endswith((".crt", ".pem")):
        certificate = read_certificates(Path(what))[0]
        if certificate.issuer != authority.subject:
            raise ConfigError(f"{what}: another authority has signed this certificate: revoke it there")
        return {certificate.serial_number}
    known = [certificate for certificate in read_issued(ca_folder) if certificate.name == what]
    if not known:
        raise ConfigError(
            f"{what}: {ca_folder / ISSUED} has no certificate of this name; name the certificate's file instead"
        )
    valid = {certificate.serial for certificate in known if certificate.until >= now}
    if not valid:
        raise ConfigError(f"{what}: all its certificates have ended, the last on {known[-1].until.isoformat()}")
    return valid


def _before(path: Path, authority: x509.Certificate) -> x509.CertificateRevocationList | None:
    """The list so far; None where there is none. A damaged one is an error: it is not overwritten."""
    if not path.exists():
        return None
    try:
        revoked = x509.load_pem_x509_crl(read_file(path))
        if revoked.is_signature_valid(authority.public_key()):  # type: ignore[arg-type]
            return revoked
    except (ValueError, TypeError):
        pass
    raise ConfigError(
        f"{path}: is no list of this authority, or damaged; restore it: without it no certificate is revoked"
    )


class _File(Strict):
    """A process's file, as far as its `[tls]`."""

    model_config = ConfigDict(extra="ignore")
    tls: TlsConfig


def in_use(certificate: Path | None, key: Path | None, ca: Path | None, config: Path | None) -> TlsFiles:
    """The files in use: of `[tls]` in a process's file, or a certificate and those beside it.

    A passphrase comes from the place that the file names, else from the terminal.

    Raises:
        BadInput: both or none of them are given, or `key` or `ca` beside the process's file.
        ConfigError: that file cannot be used.
    """
    if (certificate is None) == (config is None):
        raise BadInput("name either the certificate in use, NAME.crt, or with --config the file of its process")
    if certificate is not None:
        key = key or certificate.with_suffix(".key")
        return TlsFiles(ca or certificate.parent / "ca.crt", certificate, key, passphrase=typed(key))
    assert config is not None
    if key or ca:
        raise BadInput(f"--key and --ca go with NAME.crt: [tls] of {config} names both")
    files = _File.from_file(config).tls.files()
    return replace(files, passphrase=files.passphrase or typed(files.key))


def install(new: Path, files: TlsFiles, next_key: Path | None = None) -> bool:
    """Put a new certificate and its key in the place of those in use; running processes read them again.

    The files of the pair in use, the new key and its request are deleted. The new files have the owners and modes
    of those that they replace.

    Args:
        new: the certificate that the authority has signed.
        files: the authority's certificate, and the pair in use, which lies in one folder.
        next_key: the new key, with its request beside it; None: the one beside the certificate, as it is requested.

    Returns:
        True; False if the certificate is in place already.

    Raises:
        BadInput: the disk refuses a file.
        ConfigError: the new files do not fit each other, the process, or the authority; nothing has changed.
    """
    place = _Place.of(files)
    held, _ = files.pair()  # fit each other
    certificate, key_path = read_certificates(new)[0], next_key or new.with_suffix(".key")
    fresh = certificate != held
    if fresh:
        if not belongs(read_key(key_path, files.passphrase), certificate):
            raise ConfigError(f"{key_path}: this key does not belong to the certificate {new}")
        try:
            holder = identity(held)
        except NoIdentity as fault:
            raise ConfigError(f"{files.certificate}: {fault}") from None
        if unfit := certificate_fault(certificate, read_certificates(files.ca), holder.name, holder.role):
            raise ConfigError(f"{new}: {unfit}")
    try:
        place.adopt(held)
        if fresh:
            place.switch(place.stage(certificate, read_file(new), read_file(key_path)))
        copied = key_path.exists() and not key_path.samefile(files.key) and read_file(key_path) == read_file(files.key)
        place.clean(*([key_path, key_path.with_suffix(".csr")] if copied else []))
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be changed: {error.strerror}; install as its owner or root") from None
    return fresh


@dataclass(frozen=True)
class _Place:
    """The folder of a pair, and the names in it."""

    folder: Path
    certificate: str
    key: str

    @staticmethod
    def of(files: TlsFiles) -> _Place:
        """The place of the files in use. Raises ConfigError where they cannot be switched at once."""
        folder = files.key.parent
        if folder.resolve() != files.certificate.parent.resolve() or files.key.name == files.certificate.name:
            raise ConfigError(
                f"{files.key}: key and certificate must be two files of one folder to be switched at once: move them "
                "into one, and name them in [tls]"
            )
        place = _Place(folder, files.certificate.name, files.key.name)
        for name in (place.key, place.certificate):
            path = folder / name
            if path.is_symlink() and os.readlink(path) != place.target(name):
                raise ConfigError(f"{path}: is a link that another tool has made: have that tool switch the files")
        return place

    @property
    def link(self) -> Path:
        """The link that leads to the pair in use."""
        return self.folder / f"{Path(self.certificate).stem}.pair"

    def target(self, name: str) -> str:
        """The place to which the link of a file of the pair leads."""
        return f"{self.link.name}/{name}"

    def adopt(self, held: x509.Certificate) -> None:
        """Move the pair in use behind the link, if it is not; its content stays at every moment."""
        plain = [name for name in (self.key, self.certificate) if not (self.folder / name).is_symlink()]
        if not plain:
            return
        contents = [read_file(self.folder / name) for name in (self.certificate, self.key)]
        if not self.link.is_symlink() or [self._behind(self.certificate), self._behind(self.key)] != contents:
            self.switch(self.stage(held, *contents))
        for name in plain:
            _link(self.folder / name, self.target(name))

    def stage(self, certificate: x509.Certificate, certificate_pem: bytes, key_pem: bytes) -> str:
        """A folder of a pair that nothing leads to yet; its name."""
        name = f"{self.link.name}-{certificate.fingerprint(hashes.SHA256()).hex()[:16]}"
        made = self.folder / name
        if self.link.is_symlink() and os.readlink(self.link) == name:
            name, made = f"{name}-again", made.with_name(f"{name}-again")
        if made.exists():  # a crash has left it
            shutil.rmtree(made)
        made.mkdir(mode=0o700)
        for file, content in ((self.certificate, certificate_pem), (self.key, key_pem)):
            write_whole(made / file, content)
            _like(self.folder / file, made / file, without=stat.S_IRWXO if file == self.key else 0)
        _like(self.folder, made)
        sync_folder(self.folder)
        return name

    def switch(self, name: str) -> None:
        """Lead to another pair, in one rename."""
        _link(self.link, name)

    def clean(self, *leftovers: Path) -> None:
        """Delete what is no longer in use."""
        kept = os.readlink(self.link)
        for path in self.folder.iterdir():
            if path.name.startswith(f"{self.link.name}-") and path.name != kept:
                shutil.rmtree(path)
        for path in leftovers:
            path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _behind(self, name: str) -> bytes:
        path = self.link / name
        return path.read_bytes() if path.is_file() else b""


def _like(model: Path, made: Path, without: int = 0) -> None:
    """Give a file the owner and the mode of another, less some bits; its owner can read it in any case."""
    wanted, given = model.stat(), made.stat()
    if (wanted.st_uid, wanted.st_gid) != (given.st_uid, given.st_gid):
        os.chown(made, wanted.st_uid, wanted.st_gid)
    made.chmod(stat.S_IMODE(wanted.st_mode) & ~without | stat.S_IRUSR)


def _link(path: Path, target: str) -> None:
    """Make a link, or replace what is at its place, in one rename."""
    draft = path.with_name(path.name + ".part")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(path)
    sync_folder(path.parent)
