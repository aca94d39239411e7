"""A request for renewal: a request for a certificate with a new key, signed with the key of the one in use.

The old key vouches for the new one, so that the authority compares no fingerprint with a person. Every renewal makes a
new key: a key that leaked unnoticed ends with its certificate, and the switch of both is one rename
(:mod:`treetap.commands.certs.installing`), so that keeping the key would save nothing.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from google.protobuf.message import DecodeError
from pydantic import ConfigDict

from treetap.commands.certs.authority import process, refuse_existing
from treetap.commands.certs.requests import hosts_of, new_request, read_request
from treetap.commands.typed import typed
from treetap.errors import BadInput, ConfigError, DataError
from treetap.models.checksums import parse_json
from treetap.models.durable import write_whole
from treetap.process.config import TlsConfig
from treetap.process.secret import regular_content
from treetap.strict import Strict, load
from treetap.wire.certificates import (
    UNREADABLE,
    NoIdentity,
    date,
    fingerprint,
    identity,
    key_pem,
    open_key,
    read_certificates,
)
from treetap.wire.roles import Identity
from treetap.wire.signatures import signed
from treetap.wire.tls import TlsFiles
from treetap.wire.v2.types_pb2 import Signed

#: Endings of a request's file, and of the key that waits for its certificate.
REQUEST, NEXT_KEY = ".renewal", ".next.key"
#: Most bytes of a request: two certificates' worth, many times over.
MOST_BYTES = 64 * 1024
_FORMAT = "treetap renewal 1"
_FIELDS = {"format", "ends", "request", "signed"}


@dataclass(frozen=True)
class Renewal:
    """A request for renewal as the authority reads it.

    `old`: the certificate in use; `asked`: the request with the new key; `made`: the old key's signature, with its
    time, of `statement`.
    """

    old: x509.Certificate
    asked: x509.CertificateSigningRequest
    made: Signed
    statement: bytes


class _File(Strict):
    """A process's file, as far as its `[tls]`."""

    model_config = ConfigDict(extra="ignore")
    tls: TlsConfig


class Made(NamedTuple):
    """The files of a new request, and the last moment of the certificate in use."""

    key: Path
    request: Path
    ends: datetime


def in_use(
    certificate: Path | None, key: Path | None = None, ca: Path | None = None, config: Path | None = None
) -> TlsFiles:
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
    own = load(config, _File).tls.below(config.absolute().parent)
    files = own.model_copy(update={"signing": None}).files()  # the key of connections asks, never a token
    return replace(files, passphrase=files.passphrase or typed(files.key))


def renew(files: TlsFiles, out: Path | None = None, hosts: Sequence[str] | None = None) -> Made:
    """Make a process's next key beside the one in use, mode 600, and the request for its certificate.

    The next key is under the passphrase of the one in use, if that has one.

    Args:
        files: the certificate and the key in use; the authority's certificate is not read.
        out: folder of the request; by default that of the certificate. The key stays beside the one in use.
        hosts: names for other TLS clients; None: those of the certificate in use.

    Raises:
        BadInput: a file exists already, or cannot be written.
        ConfigError: the two files do not fit each other, or the certificate names no process or has ended.
    """
    old, _ = files.pair()
    holder = _holder(files.certificate, old)
    if old.not_valid_after_utc < datetime.now(UTC):
        raise ConfigError(
            f"{files.certificate}: the certificate expired on {date(old.not_valid_after_utc)}: it cannot be renewed; "
            f"make an ordinary request: treetap certs request {holder.name} --role {holder.role} --out FOLDER"
        )
    stem = files.certificate.stem
    key_path = files.key.with_name(stem + NEXT_KEY)
    request_path = (out or files.certificate.parent) / (stem + REQUEST)
    refuse_existing(key_path, request_path)
    key, asked = new_request(holder, sorted(hosts_of(old)) if hosts is None else hosts)
    text = asked.public_bytes(serialization.Encoding.PEM).decode()
    ends = old.not_valid_after_utc.isoformat()
    made = signed(files, _statement(old, ends, text), "request for renewal", time.time_ns())
    content = {
        "format": _FORMAT,
        "ends": ends,
        "request": text,
        "signed": base64.b64encode(made.SerializeToString(deterministic=True)).decode(),
    }
    try:
        request_path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(key_path, key_pem(key, open_key(files.key, files.passphrase).phrase))
        write_whole(request_path, json.dumps(content, indent=1).encode() + b"\n", 0o644)
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be written: {error.strerror}") from None
    return Made(key_path, request_path, old.not_valid_after_utc)


def read_renewal(path: Path) -> Renewal:
    """The content of a request's file, of any origin: its parts have their forms, and no signature but the new key's
    has been verified.

    Raises:
        BadInput: it is no regular file, too long, or no request for renewal.
    """
    content = _bounded(path)
    try:
        document = parse_json(content)
        if not isinstance(document, dict) or set(document) != _FIELDS or document["format"] != _FORMAT:
            raise ValueError
        ends, text, signature = (str(document[field]) for field in ("ends", "request", "signed"))
        request = text.encode()
        made = Signed.FromString(base64.b64decode(signature, validate=True))
        old = x509.load_der_x509_certificate(made.certificate)
    except (*UNREADABLE, DecodeError):
        raise DataError(f"{path}: not a request for renewal, or damaged: treetap certs renew makes one") from None
    if ends != old.not_valid_after_utc.isoformat():
        raise DataError(f"{path}: it says that its certificate ends on {ends!r}, which is not so: it was changed")
    return Renewal(old, read_request(path, request), made, _statement(old, ends, text))


def _holder(path: Path, certificate: x509.Certificate) -> Identity:
    """The process of a certificate in use. Raises ConfigError."""
    try:
        holder = identity(certificate)
    except NoIdentity as fault:
        raise ConfigError(f"{path}: {fault}") from None
    return process(holder.name, holder.role)


def _statement(old: x509.Certificate, ends: str, request: str) -> bytes:
    """The bytes that the old key signs with their time: no other signature of it is of bytes that begin so."""
    content = {"certificate": fingerprint(old), "ends": ends, "request": request}
    return b"treetap renewal\n" + json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _bounded(path: Path) -> bytes:
    """A regular file's content; a link is not followed. Raises DataError."""
    try:
        content = regular_content(path, MOST_BYTES, follow=False)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if content is None:
        raise DataError(f"{path}: is no regular file")
    if len(content) > MOST_BYTES:
        raise DataError(f"{path}: has more than {MOST_BYTES} bytes, too many for a request for renewal")
    return content


def current(path: Path) -> tuple[x509.Certificate, Identity]:
    """The first certificate of a file, and its process. Raises ConfigError."""
    certificate = read_certificates(path)[0]
    return certificate, _holder(path, certificate)
