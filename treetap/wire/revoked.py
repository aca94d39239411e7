"""Lists of revoked certificates (CRL), one of each trusted authority, in one PEM file."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from treetap.errors import ConfigError
from treetap.wire.certificates import date, spki

log = logging.getLogger(__name__)
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
        lists = [x509.load_pem_x509_crl(part) for part in _LIST.findall(path.read_bytes())]
    except OSError as error:
        raise ConfigError(f"{path}: the list of revoked certificates cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{path}: not a list of revoked certificates in PEM form: {REMEDY}") from None
    newest = [(_newest(path, lists, authority), authority.public_key()) for authority in authorities]
    serials = {
        spki(public): {entry.serial_number: entry.revocation_date_utc for entry in newest_list}
        for newest_list, public in newest
    }
    return Revoked(path, serials, min(_until(path, newest_list) for newest_list, _ in newest))


def now() -> datetime:
    """This host's clock."""
    return datetime.now(UTC)


def _newest(
    path: Path, lists: Sequence[x509.CertificateRevocationList], authority: x509.Certificate
) -> x509.CertificateRevocationList:
    own = [candidate for candidate in lists if _signed(candidate, authority)]
    if not own:
        name = authority.subject.rfc4514_string()
        raise ConfigError(f"{path}: has no list of revoked certificates of the authority {name!r} that is trusted here")
    return max(own, key=lambda signed: signed.last_update_utc)


def _signed(revocations: x509.CertificateRevocationList, authority: x509.Certificate) -> bool:
    try:
        public = authority.public_key()
        return revocations.issuer == authority.subject and revocations.is_signature_valid(public)  # type: ignore[arg-type]
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def _until(path: Path, revocations: x509.CertificateRevocationList) -> datetime:
    if revocations.next_update_utc is None:
        raise ConfigError(f"{path}: the list of revoked certificates does not say until when it holds: {REMEDY}")
    return revocations.next_update_utc
