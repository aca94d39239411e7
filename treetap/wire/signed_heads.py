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
from datetime import datetime
from typing import Any, Literal

from cryptography import x509

from treetap.errors import Malformed
from treetap.wire.certificates import date, fingerprint
from treetap.wire.revoked import Revoked
from treetap.wire.roles import Role
from treetap.wire.signatures import fits, holder_of, moment_of, revoked_since, sign, time_fault
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2.transcript_pb2 import TranscriptHead, TranscriptRecord

log = logging.getLogger(__name__)
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
