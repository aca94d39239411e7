"""Signed heads of a transcript: a party's signature, with its TLS key, for all records up to one.

A head is a record of the chain whose content is a :class:`TranscriptHead`. It signs its own number, the digest of the
record before it and its time, so it signs every record before it. It is verified against an authority as of its time:
certificates expire, transcripts do not. So is its revocation: a signature made before the revocation is valid.

A head shows that what it signs was not changed without the party's key. It proves nothing against the party itself, nor
against a thief of its key, who can write any time into a head.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from treetap.errors import ConfigError, Malformed
from treetap.wire.certificates import NoIdentity, date, fingerprint, identity, signed_by
from treetap.wire.revoked import Revoked
from treetap.wire.roles import Role
from treetap.wire.tls import Insecure, TlsFiles, Transport
from treetap.wire.v2.transcript_pb2 import TranscriptHead, TranscriptRecord

log = logging.getLogger(__name__)
_PURPOSE = b"treetap transcript head\n"  # no other signature of the same key is of bytes that begin so
_DIGEST = hashes.SHA256()


@dataclass(frozen=True)
class Signer:
    """Signs with a process's TLS key, read anew for each head: certificates are renewed while a process runs.

    `files`: None of a federation in plain text, whose parties have no key: its heads have no signature.
    """

    files: TlsFiles | None

    def sign(self, record: TranscriptRecord, job_digest: bytes) -> TranscriptHead:
        """The content of a head with this number, predecessor, time and job; ConfigError without a usable key."""
        if self.files is None:
            return TranscriptHead(job_digest=job_digest)
        certificate, key = self.files.pair()
        if isinstance(key, ec.EllipticCurvePrivateKey):
            signature = key.sign(statement(record, job_digest), ec.ECDSA(_DIGEST))
        elif isinstance(key, rsa.RSAPrivateKey):
            signature = key.sign(statement(record, job_digest), padding.PKCS1v15(), _DIGEST)
        else:
            raise ConfigError(f"{self.files.key}: neither an elliptic-curve nor an RSA key: it signs no transcript")
        content = certificate.public_bytes(serialization.Encoding.DER)
        return TranscriptHead(certificate=content, signature=signature, job_digest=job_digest)


def signer_of(transport: Transport) -> Signer:
    """The signer for a party's transport."""
    return Signer(None if isinstance(transport, Insecure) else transport)


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
        certificate, signer = _certificate(head)
        if self._signer not in ("", signer):
            raise Malformed(f"it is signed by {signer!r}, those before it by {self._signer!r}")
        if not _fits(certificate, head, record):
            raise Malformed("its signature does not fit the records before it: records or the signature were changed")
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=record.unix_nanos // 1000)
        since = _revoked(certificate, self._authorities, self._lists)
        if fault := _fault(certificate, moment, self._authorities, since):
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


def _certificate(head: TranscriptHead) -> tuple[x509.Certificate, str]:
    """The certificate beside a signature, and the party that it names."""
    try:
        certificate = x509.load_der_x509_certificate(head.certificate)
        signer = identity(certificate, Role.PARTY)
    except NoIdentity as fault:
        raise Malformed(f"its signature is no party's: {fault}") from None
    except ValueError:
        raise Malformed("its certificate cannot be read: the signature was changed") from None
    if signer.role is not Role.PARTY:
        raise Malformed(f"its signature is that of {signer}, not of a party")
    return certificate, signer.name


def _fault(
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
            " transcript was changed, or the authority is another federation's"
        )
    if not any(_valid(signer, moment) for signer in signers):
        return f"the authority was not valid {when}"
    if since is not None and since < moment.replace(microsecond=0):  # lists have whole seconds
        return f"its certificate was revoked on {date(since)}, before the signature ({date(moment)})"
    return None


def _revoked(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate] | None, lists: Revoked | None
) -> datetime | None:
    """Since when a certificate is revoked by its signer; None if it is not, as far as is known."""
    if lists is None:
        return None
    signer = next((authority for authority in authorities or () if signed_by(certificate, authority)), None)
    return None if signer is None else lists.since(certificate, signer)


def _fits(certificate: x509.Certificate, head: TranscriptHead, record: TranscriptRecord) -> bool:
    """True if the signature was made for the head by the holder of the certificate's key."""
    signed = statement(record, head.job_digest)
    try:
        public = certificate.public_key()
        if isinstance(public, ec.EllipticCurvePublicKey):
            public.verify(head.signature, signed, ec.ECDSA(_DIGEST))
            return True
        if isinstance(public, rsa.RSAPublicKey):
            public.verify(head.signature, signed, padding.PKCS1v15(), _DIGEST)
            return True
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        pass
    return False


def _valid(certificate: x509.Certificate, moment: datetime) -> bool:
    return certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
