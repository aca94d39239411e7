"""Signatures with the key of a process's certificate, and their verification.

Certificates expire, what they signed does not: a signature is verified against an authority as of its time. So is a
revocation: a signature made before it is valid. A thief of a key can write any time, so that a signer's own time is
believed only where what is signed is new by itself, such as a nonce.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from treetap.errors import ConfigError, Malformed
from treetap.wire.certificates import UNREADABLE, NoIdentity, date, fingerprint, identity, read_certificates, signed_by
from treetap.wire.revoked import Revoked
from treetap.wire.roles import Role
from treetap.wire.tls import TlsFiles
from treetap.wire.v2.types_pb2 import Signed

_DIGEST = hashes.SHA256()
#: Seconds by which a signer's clock may be ahead of ours.
AHEAD_S = 300.0
#: Days for which a statement holds that names no end, and the most for which one holds.
STATEMENT_DAYS, MOST_STATEMENT_DAYS = 7.0, 366.0
NANOS_A_DAY = 86_400 * 10**9


def sign(files: TlsFiles, statement: bytes, what: str) -> tuple[bytes, bytes]:
    """A process's certificate (DER) and a signature of its key; the files are read anew, since they are replaced.

    `what`: what is not signed without a usable key, for the ConfigError.
    """
    certificate, key = files.pair()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        signature = key.sign(statement, ec.ECDSA(_DIGEST))
    elif isinstance(key, rsa.RSAPrivateKey):
        signature = key.sign(statement, padding.PKCS1v15(), _DIGEST)
    else:
        raise ConfigError(f"{files.key}: neither an elliptic-curve nor an RSA key: it signs no {what}")
    return certificate.public_bytes(serialization.Encoding.DER), signature


def holder_of(content: bytes, role: Role) -> tuple[x509.Certificate, str]:
    """The certificate (DER) beside a signature, and the process of that role which it names; else Malformed."""
    try:
        certificate = x509.load_der_x509_certificate(content)
        signer = identity(certificate, role)
    except NoIdentity as fault:
        raise Malformed(f"its signature is no {role}'s: {fault}") from None
    except UNREADABLE:
        raise Malformed("its certificate cannot be read: the signature was changed") from None
    if signer.role is not role:
        raise Malformed(f"its signature is that of {signer}, not of {role.one}")
    return certificate, signer.name


def fits(certificate: x509.Certificate, signature: bytes, statement: bytes) -> bool:
    """True if the signature of these bytes was made by the holder of the certificate's key."""
    try:
        public = certificate.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(signature, statement, ec.ECDSA(_DIGEST))
            return True
        if isinstance(public, rsa.RSAPublicKey):
            public.verify(signature, statement, padding.PKCS1v15(), _DIGEST)
            return True
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        pass
    return False


def time_fault(
    certificate: x509.Certificate,
    moment: datetime,
    authorities: Sequence[x509.Certificate] | None,
    since: datetime | None,
) -> str | None:
    """The reason why a signature of that moment does not count; None if it does. `since`: of a revocation."""
    when = f"at the time of the signature, {date(moment)}"
    if not _valid(certificate, moment):
        return f"its certificate was not valid {when}"
    if authorities is None:
        return None
    signers = [authority for authority in authorities if signed_by(certificate, authority)]
    if not signers:
        return (
            f"its certificate ({fingerprint(certificate)}) was not issued by the given authority: the"
            " signature was changed, or the authority is another federation's"
        )
    if not any(_valid(signer, moment) for signer in signers):
        return f"the authority was not valid {when}"
    if since is not None and since < moment.replace(microsecond=0):  # lists have whole seconds
        return f"its certificate was revoked on {date(since)}, before the signature ({date(moment)})"
    return None


def revoked_since(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate] | None, lists: Revoked | None
) -> datetime | None:
    """Since when a certificate is revoked by its signer; None if it is not, as far as is known."""
    if lists is None:
        return None
    signer = next((authority for authority in authorities or () if signed_by(certificate, authority)), None)
    return None if signer is None else lists.since(certificate, signer)


def moment_of(unix_nanos: int) -> datetime:
    """A time in nanoseconds since 1970. Malformed for one that no calendar has."""
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=unix_nanos // 1000)
    except OverflowError:
        raise Malformed("the time of its signature is none") from None


def signed(files: TlsFiles, statement: bytes, what: str, unix_nanos: int, until_nanos: int = 0) -> Signed:
    """A signature of a statement, of its time and of the end that it names, 0: none; raises as `sign` does."""
    made = Signed(unix_nanos=unix_nanos, until_nanos=until_nanos)
    made.certificate, made.signature = sign(files, _timed(statement, made), what)
    return made


def end_of(made: Signed) -> datetime:
    """The end of a statement by its time: the one that it names, a year after it at most; else a week after it."""
    week, most = (made.unix_nanos + int(days * NANOS_A_DAY) for days in (STATEMENT_DAYS, MOST_STATEMENT_DAYS))
    return moment_of(min(made.until_nanos, most) if made.until_nanos else week)


def verified(files: TlsFiles, made: Signed, statement: bytes, role: Role, *, new: bool = False) -> tuple[str, str]:
    """The name of the process of that role that made a signature, and its certificate's fingerprint.

    `new`: it is seen for the first time, so that its certificate must count now, too: a thief of a key that was revoked
    may have written an earlier time.

    Raises:
        Malformed: the signature does not count, by the authority of `files`; the message says why.
        ConfigError: these files cannot be used.
    """
    certificate, name = holder_of(made.certificate, role)
    if not fits(certificate, made.signature, _timed(statement, made)):
        raise Malformed(f"the signature of {name!r} is of something else, or was changed")
    moment, authorities = moment_of(made.unix_nanos), read_certificates(files.ca)
    if made.unix_nanos > time.time_ns() + int(AHEAD_S * 1e9):
        raise Malformed(f"the signature of {name!r} is of a time to come, {date(moment)}; set the clocks")
    since = revoked_since(certificate, authorities, files.revocations(authorities))
    for at in (moment, datetime.now(UTC)) if new else (moment,):
        if fault := time_fault(certificate, at, authorities, since):
            raise Malformed(f"the signature of {name!r}: {fault}")
    return name, fingerprint(certificate)


def _timed(statement: bytes, made: Signed) -> bytes:
    """The bytes that are signed: the statement, its time and, if it names one, its end (8 bytes each, big-endian)."""
    times = (made.unix_nanos, made.until_nanos) if made.until_nanos else (made.unix_nanos,)
    return statement + b"".join(nanos.to_bytes(8, "big", signed=True) for nanos in times)


def _valid(certificate: x509.Certificate, moment: datetime) -> bool:
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
