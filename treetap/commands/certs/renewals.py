"""Requests for renewal at the authority, whose machine may have no network: a folder of files comes, and goes back.

The rules, by the authority's own clock, certificates and list:

- the old certificate is this authority's, in its dates, and not revoked; its key has signed the request;
- name and role are those of the old certificate, and so are its hosts unless a change is allowed;
- the key is a new one, of which the request has a proof;
- a certificate is renewed once. The same request again yields the same certificate, so that an answer that was lost can
  be had again. Another request of a renewed certificate is refused: whoever else has the old key would make one. So
  are two requests of one certificate that come together.

What is refused asks again by an ordinary request, whose fingerprint people compare.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from treetap.commands.certs.authority import process, refuse_unsignable, sign
from treetap.commands.certs.renewal import REQUEST, Renewal, read_renewal
from treetap.commands.certs.requests import fault_of, hosts_of
from treetap.commands.certs.revocation import FILE
from treetap.errors import BadInput, ConfigError, Malformed
from treetap.models.checksums import parse_json
from treetap.models.durable import append, write_whole
from treetap.wire.certificates import NoIdentity, date, identity, read_certificates, read_file, spki
from treetap.wire.revoked import Revoked, read_revoked
from treetap.wire.roles import Identity
from treetap.wire.signatures import verified
from treetap.wire.tls import TlsFiles, certificate_fault

#: The authority's list of what it has renewed: a line for each, with the new certificate.
RENEWED = "renewed.jsonl"
#: Most requests of a folder.
MOST_REQUESTS = 1000


@dataclass(frozen=True)
class Answer:
    """The authority's answer to one request.

    Attributes:
        file: the request's name in its folder.
        name, role: those of the certificate in use; empty for one that cannot be read.
        certificate: the new certificate's file; None: refused, or a dry run.
        ends: its last moment; None where it is refused.
        again: the same request was signed before, and this is its certificate.
        changes: hosts that are added (+) and left out (-).
        why: the reason of a refusal.
    """

    file: str
    name: str = ""
    role: str = ""
    certificate: Path | None = None
    ends: datetime | None = None
    again: bool = False
    changes: tuple[str, ...] = ()
    why: str = ""

    def words(self, *, dry_run: bool) -> str:
        """The answer for a person."""
        if self.why:
            return f"refused: {self.why}"
        more = "; the same request was signed before" if self.again else ""
        more += f"; hosts {' '.join(self.changes)}" if self.changes else ""
        if dry_run or self.ends is None:
            return f"would be answered{more}"
        return f"{self.certificate}, valid until {date(self.ends)}{more}"

    def plain(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            **vars(self),
            "certificate": None if self.certificate is None else str(self.certificate),
            "ends": None if self.ends is None else self.ends.isoformat(),
        }


class _Refusal(Exception):
    """A request that is not signed, and why."""


@dataclass(frozen=True)
class _Before:
    """A renewal in the authority's list: the digest of its request, and the certificate that answered it."""

    request: str
    certificate: x509.Certificate


def sign_renewals(
    folder: Path,
    ca_folder: Path,
    out: Path | None = None,
    days: int = 365,
    *,
    allow_changes: bool = False,
    dry_run: bool = False,
) -> list[Answer]:
    """Answer every request for renewal in a folder; each certificate goes to ``out``, under its request's name.

    Args:
        folder: the requests, `*.renewal`; other files in it are left alone.
        ca_folder: the authority, with its list of revoked certificates.
        out: folder of the certificates; by default that of the requests.
        days: until they expire.
        allow_changes: hosts may be others than those of the certificate in use.
        dry_run: nothing is signed or written.

    Raises:
        BadInput: no requests, or too many.
        ConfigError: the authority, or one of its lists, is damaged or has ended, or its key cannot be had.
    """
    paths, answers = _requests(folder), dict[Path, Answer]()
    authority = _Authority(ca_folder, days, allow_changes=allow_changes)
    vouched: dict[Path, tuple[Renewal, Identity]] = {}
    for path in paths:
        try:
            renewal = read_renewal(path)
            answers[path] = _named(path, renewal)
            vouched[path] = renewal, authority.vouched(renewal)
        except (_Refusal, BadInput) as fault:
            answers[path] = _refused(answers.get(path, Answer(path.name)), path, fault)
    rivals = defaultdict[int, set[str]](set)
    for renewal, _ in vouched.values():
        rivals[renewal.old.serial_number].add(_digest(renewal))
    for path, (renewal, holder) in vouched.items():
        try:
            if (number := len(rivals[renewal.old.serial_number])) > 1:
                raise _Refusal(f"there are {number} different requests of this certificate: one may be a thief's")
            authority.examine(renewal, holder)
            target = (out or folder) / f"{path.stem}.crt"
            answers[path] = authority.answer(answers[path], target, holder, renewal, dry_run=dry_run)
        except _Refusal as fault:
            answers[path] = _refused(answers[path], path, fault)
    return [answers[path] for path in paths]


class _Authority:
    """The authority's files, as they are when it begins; its key is opened for each certificate that it signs."""

    def __init__(self, folder: Path, days: int, *, allow_changes: bool) -> None:
        self._folder, self._days, self._allow_changes = folder, days, allow_changes
        self._own = read_certificates(folder / "ca.crt")[:1]
        self._revoked: Revoked = read_revoked(folder / FILE, self._own)
        self._renewed = read_renewed(folder)

    def vouched(self, renewal: Renewal) -> Identity:
        """The process of a certificate that counts now, and whose key has signed the request. Raises _Refusal."""
        try:
            holder = identity(renewal.old)
        except NoIdentity as fault:
            raise _Refusal(str(fault)) from None
        if fault_now := self._fault(renewal.old):
            raise _Refusal(f"{fault_now}; it cannot be renewed: {_ordinary(holder)}")
        ca = self._folder / "ca.crt"
        files = TlsFiles(ca=ca, certificate=ca, key=ca, revoked=self._folder / FILE)
        try:
            verified(files, renewal.made, renewal.statement, holder.role, new=True)
        except Malformed as fault:
            raise _Refusal(f"{fault}: only the key of the certificate in use can ask for its renewal") from None
        return holder

    def examine(self, renewal: Renewal, holder: Identity) -> None:
        """Return if a request that its certificate's key has signed may be answered.

        Raises:
            _Refusal: it may not; the message says why, and what to do.
        """
        before = self._before(renewal)
        if before is None:
            self._examine_content(renewal, holder)
        elif before.request != _digest(renewal):
            raise _Refusal(
                "this certificate was renewed before, by another request: whoever made one of them may have stolen its "
                f"key; ask {holder}, revoke what it has not asked for, and {_ordinary(holder)}"
            )
        elif fault_now := self._fault(before.certificate):
            raise _Refusal(f"it was answered before, and that answer counts no longer: {fault_now}")

    def _examine_content(self, renewal: Renewal, holder: Identity) -> None:
        """Raise unless the request is for the same process, with a new key."""
        wanted = _hosts(renewal)
        if fault := fault_of(renewal.asked, holder, wanted):
            raise _Refusal(f"{fault}; the certificate in use is that of {holder}")
        if spki(renewal.asked.public_key()) == spki(renewal.old.public_key()):
            raise _Refusal("its key is that of the certificate in use: treetap certs renew makes a new one")
        if (changes := _changes(renewal)) and not self._allow_changes:
            raise _Refusal(
                f"its hosts are others than those of the certificate in use ({' '.join(changes)}): if that is agreed, "
                "use --allow-changes"
            )
        try:
            refuse_unsignable(self._folder, process(holder.name, holder.role), wanted, self._days)
        except ConfigError as fault:
            raise _Refusal(str(fault)) from None

    def answer(self, named: Answer, target: Path, holder: Identity, renewal: Renewal, *, dry_run: bool) -> Answer:
        """Sign an examined request, note it, and write its certificate; the one of before for the same request.

        Raises:
            _Refusal: the certificate's file exists with other content, or cannot be written.
            BadInput: a list of the authority cannot be written.
            ConfigError: the authority's key cannot be had: each further request would ask its place again.
        """
        before = self._before(renewal)
        if target.exists() and (before is None or read_file(target) != before.certificate.public_bytes(Encoding.PEM)):
            raise _Refusal(f"{target}: exists already and is not overwritten; move it away, or use --out")
        if dry_run:
            return replace(named, again=before is not None, changes=_changes(renewal))
        signed = self._signed(holder, renewal) if before is None else before.certificate
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, signed.public_bytes(Encoding.PEM), 0o644)
        except OSError as error:
            raise _Refusal(f"{target}: cannot be written: {error.strerror}; sign again when it can") from None
        ends, again = signed.not_valid_after_utc, before is not None
        return replace(named, certificate=target, ends=ends, again=again, changes=_changes(renewal))

    def _signed(self, holder: Identity, renewal: Renewal) -> x509.Certificate:
        """A new certificate, which the list has before anything leaves: a crash in between signs another one."""
        public = renewal.asked.public_key()
        assert isinstance(public, (ec.EllipticCurvePublicKey, rsa.RSAPublicKey))  # see fault_of
        signed = sign(self._folder, holder, public, _hosts(renewal), self._days)
        digest, serial = _digest(renewal), renewal.old.serial_number
        line = {"old": f"{serial:x}", "request": digest, "certificate": signed.public_bytes(Encoding.PEM).decode()}
        try:
            append(self._folder / RENEWED, json.dumps(line).encode() + b"\n")
        except OSError as error:
            raise BadInput(f"{self._folder / RENEWED}: cannot be written: {error.strerror}") from None
        self._renewed[serial] = _Before(digest, signed)
        return signed

    def _fault(self, certificate: x509.Certificate) -> str | None:
        return certificate_fault(certificate, self._own, None, None, self._revoked)

    def _before(self, renewal: Renewal) -> _Before | None:
        return self._renewed.get(renewal.old.serial_number)


def read_renewed(folder: Path) -> dict[int, _Before]:
    """Renewals by the old certificate's serial number; none before the first. Raises ConfigError for a damaged line."""
    path = folder / RENEWED
    if not path.exists():
        return {}
    renewed = {}
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            row = parse_json(line)
            certificate = x509.load_pem_x509_certificate(row["certificate"].encode())
            renewed[int(row["old"], 16)] = _Before(str(row["request"]), certificate)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(f"{path}: line {number} is damaged; restore the file, or remove the line") from None
    return renewed


def _requests(folder: Path) -> Sequence[Path]:
    """The files of requests, by name."""
    try:
        paths = sorted(islice((path for path in folder.iterdir() if path.suffix == REQUEST), MOST_REQUESTS + 1))
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read: {error.strerror}") from None
    if not paths:
        raise BadInput(f"{folder}: has no *{REQUEST}, which treetap certs renew makes")
    if len(paths) > MOST_REQUESTS:
        raise BadInput(f"{folder}: has more than {MOST_REQUESTS} requests; sign them in parts")
    return paths


def _named(path: Path, renewal: Renewal) -> Answer:
    """An answer with the name and role of the certificate in use, where it has them."""
    try:
        holder = identity(renewal.old)
    except NoIdentity:
        return Answer(path.name)
    return Answer(path.name, holder.name, holder.role)


def _refused(answer: Answer, path: Path, fault: Exception) -> Answer:
    """The refusal of a request, without the file's name, which stands beside it."""
    return replace(answer, why=str(fault).removeprefix(f"{path}: "))


def _hosts(renewal: Renewal) -> list[str]:
    """The hosts of the new certificate."""
    try:
        return sorted(hosts_of(renewal.asked))
    except ValueError:
        raise _Refusal("its names cannot be read") from None


def _changes(renewal: Renewal) -> tuple[str, ...]:
    """Hosts that the certificate in use lacks (+), or has besides (-)."""
    wanted, held = set(_hosts(renewal)), hosts_of(renewal.old)
    return (*(f"+{host}" for host in sorted(wanted - held)), *(f"-{host}" for host in sorted(held - wanted)))


def _ordinary(holder: Identity) -> str:
    return f"ask again by treetap certs request {holder.name} --role {holder.role}"


def _digest(renewal: Renewal) -> str:
    """The digest by which a request is known again, whatever its signature's random part."""
    return hashlib.sha256(renewal.asked.public_bytes(Encoding.DER)).hexdigest()
