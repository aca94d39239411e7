"""The authority's list of revoked certificates: `crl.pem` in its folder, signed, with a date until which it holds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from treetap.commands.certs.authority import BACKDATED, ISSUED, authority_id, last_day, open_authority, read_issued
from treetap.errors import BadInput, ConfigError
from treetap.models.durable import write_whole
from treetap.wire.certificates import read_certificates, read_file

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
    entries = {entry.serial_number: entry.revocation_date_utc for entry in before or ()}
    new = sorted(serials - entries.keys())
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.subject)
        .last_update(now - BACKDATED)
        .next_update(until)
        .add_extension(x509.CRLNumber(_number(before) + 1), critical=False)
        .add_extension(authority_id(authority, key), critical=False)
    )
    for serial, moment in {**entries, **dict.fromkeys(new, now)}.items():
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(moment).build()
        builder = builder.add_revoked_certificate(entry)
    signed = builder.sign(key, hashes.SHA256())
    try:
        write_whole(path, signed.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None
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
    valid = {certificate.serial for certificate in known if not certificate.ended(now)}
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


def _number(before: x509.CertificateRevocationList | None) -> int:
    if before is None:
        return 0
    try:
        return before.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except x509.ExtensionNotFound:
        return 0
