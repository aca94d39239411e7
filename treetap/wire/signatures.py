"""Signatures with the key of a process's certificate, and their verification.

Certificates expire, what they signed does not: a signature is verified against an authority as of its time. So is a
revocation: a signature made before it is valid. A thief of a key can write any time, so that a signer's own time is
believed only where what is signed is new by itself, such as a nonce.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from treetap.errors import ConfigError, Malformed
from treetap.wire.certificates import (
    UNREADABLE,
    NoIdentity,
    Revoked,
    date,
    fingerprint,
    identity,
    read_certificates,
    signed_by,
)
from treetap.wire.ports import Role
from treetap.wire.tls import Insecure, TlsFiles, Transport
from treetap.wire.v2.transcript_pb2 import TranscriptHead, TranscriptRecord
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


_PURPOSE = b"treetap transcript head\n"  # no other signature of the same key is of bytes that begin so


def head_of(signer: Transport, record: TranscriptRecord, job_digest: bytes) -> TranscriptHead:
    """The content of a head with this number, predecessor, time and job; ConfigError without a usable key.

    In plain text a party has no key: the head has no signature.
    """
    if isinstance(signer, Insecure):
        return TranscriptHead(job_digest=job_digest)
    certificate, signature = sign(signer, statement(record, job_digest), "transcript")
    return TranscriptHead(certificate=certificate, signature=signature, job_digest=job_digest)


def statement(record: TranscriptRecord, job_digest: bytes) -> bytes:
    """The bytes that a head signs: purpose, number and time (8, big-endian), digests of its predecessor and the job."""
    numbers = record.sequence.to_bytes(8, "big") + record.unix_nanos.to_bytes(8, "big", signed=True)
    return _PURPOSE + numbers + record.previous + job_digest


@dataclass(frozen=True)
class Anchor:
    """Result of checking a transcript's heads.

    `state`: `signed`, all of it; `partly`, up to a record; `unsigned`; `plain-text`, of a federation without
    certificates; `empty`. `up_to`: number of the last signed record.
    `signer`, `fingerprint`: of the certificate of the last signature. `verified`: it is of the given authority.
    `listed`: it was looked up in a list of revoked certificates. `revoked`: since when it is, after the signature.
    `job_digest`: of the job, in the last head that has one, signed if any is.
    """

    state: Literal["signed", "partly", "unsigned", "plain-text", "empty"]
    up_to: int | None = None
    signer: str = ""
    fingerprint: str = ""
    verified: bool = False
    listed: bool = False
    revoked: str = ""
    job_digest: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {**vars(self), "says": str(self)}

    def __str__(self) -> str:
        unsigned = {
            "empty": "no record",
            "plain-text": "not signed: the federation was in plain text",
            "unsigned": "not signed: the party's process was killed, is at work, or could not sign",
        }
        job = f"; job digest {self.job_digest[:16]}" if self.job_digest else ""
        if self.state in unsigned:
            return unsigned[self.state] + job
        known = "of the given authority" if self.verified else "not verified: no authority was given, see --ca"
        if self.listed:
            known += f", revoked on {self.revoked}, after the signature" if self.revoked else ", not revoked"
        reach = "to the end" if self.state == "signed" else f"up to record {self.up_to}"
        signed = f"signed {reach} by {self.signer!r} (certificate {self.fingerprint}, {known})"
        rest = ", the rest unsigned: the party's process was killed, is at work, or could not sign"
        return signed + (rest if self.state == "partly" else "") + job


class Heads:
    """Follows the records of one transcript, in order, and verifies its heads.

    Args:
        authorities: the federation's; None: signatures are verified against the certificates beside them alone.
        revoked: what these have revoked; None: it is not looked up.
    """

    def __init__(self, authorities: Sequence[x509.Certificate] | None, revoked: Revoked | None = None) -> None:
        self._authorities, self._lists = authorities, revoked
        self._last: int | None = None
        self._signed: int | None = None
        self._certificate: x509.Certificate | None = None
        self._since: datetime | None = None
        self._signer = ""
        self._plain, self._job_digest = False, ""

    def record(self, sequence: int) -> None:
        """A record that is no head."""
        self._last = sequence

    def head(self, record: TranscriptRecord) -> None:
        """A head. Raises Malformed for one whose signature does not fit what is before it."""
        if self._last is None or record.message_type != TranscriptHead.DESCRIPTOR.full_name:
            raise Malformed("a head that cannot be there: it was inserted or changed")
        head = TranscriptHead.FromString(record.message)
        if not (head.certificate or head.signature):
            self._plain = True
            if self._certificate is None:  # else anyone could put one behind what is signed
                self._job_digest = head.job_digest.hex() or self._job_digest
            return
        certificate, signer = holder_of(head.certificate, Role.PARTY)
        if self._signer not in ("", signer):
            raise Malformed(f"it is signed by {signer!r}, those before it by {self._signer!r}")
        if not fits(certificate, head.signature, statement(record, head.job_digest)):
            raise Malformed("its signature does not fit the records before it: records or the signature were changed")
        moment = moment_of(record.unix_nanos)
        since = revoked_since(certificate, self._authorities, self._lists)
        if fault := time_fault(certificate, moment, self._authorities, since):
            raise Malformed(fault)
        self._job_digest = head.job_digest.hex() or (self._job_digest if self._certificate is not None else "")
        self._certificate, self._signer, self._signed, self._since = certificate, signer, self._last, since

    def anchor(self) -> Anchor:
        """The result of the heads so far."""
        if self._last is None:
            return Anchor("empty")
        if self._certificate is None:
            return Anchor("plain-text" if self._plain else "unsigned", job_digest=self._job_digest)
        return Anchor(
            "signed" if self._signed == self._last else "partly",
            self._signed,
            self._signer,
            fingerprint(self._certificate),
            self._authorities is not None,
            self._lists is not None,
            "" if self._since is None else date(self._since),
            self._job_digest,
        )
