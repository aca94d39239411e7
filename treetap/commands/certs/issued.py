"""Record of the certificates that an authority has issued: `issued.jsonl` in its folder, a line for each. No secret."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from treetap.errors import BadInput, ConfigError
from treetap.models.checksums import parse_json
from treetap.models.durable import append
from treetap.wire.certificates import fingerprint
from treetap.wire.roles import Identity

FILE = "issued.jsonl"


@dataclass(frozen=True)
class Issued:
    """One certificate: its serial number, its process, its hosts, and its end."""

    serial: int
    name: str
    role: str
    hosts: tuple[str, ...]
    until: datetime
    sha256: str

    @staticmethod
    def of(certificate: x509.Certificate, process: Identity, hosts: Sequence[str]) -> Issued:
        """The line of a certificate."""
        number, until = certificate.serial_number, certificate.not_valid_after_utc
        return Issued(number, process.name, process.role, tuple(hosts), until, fingerprint(certificate))

    def ended(self, now: datetime) -> bool:
        """True if the certificate is out of its dates."""
        return self.until < now

    def plain(self) -> dict[str, Any]:
        """As JSON types; the serial number in hexadecimal digits."""
        return {**vars(self), "serial": f"{self.serial:x}", "until": self.until.isoformat()}


def note(folder: Path, one: Issued) -> None:
    """Add a line. Raises BadInput if the disk refuses it: without a line no certificate could be revoked by name."""
    path = folder / FILE
    try:
        append(path, json.dumps(one.plain()).encode() + b"\n")
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from None


def read(folder: Path) -> list[Issued]:
    """All lines, oldest first; none before the authority has issued anything. Raises ConfigError for a damaged one."""
    path = folder / FILE
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    certificates = []
    for number, line in enumerate(lines, start=1):
        try:
            certificates.append(_of_plain(parse_json(line)))
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"{path}: line {number} is damaged; restore the file, or remove the line") from None
    return certificates


def _of_plain(row: dict[str, Any]) -> Issued:
    """The inverse of `Issued.plain`. Raises ValueError, TypeError or KeyError for anything else."""
    serial, until, hosts = int(row["serial"], 16), datetime.fromisoformat(row["until"]), row["hosts"]
    texts = [row[field] for field in ("name", "role", "sha256")]
    texts_only = isinstance(hosts, list) and all(isinstance(text, str) for text in [*texts, *hosts])
    if not texts_only or not 0 < serial < 2**159 or until.tzinfo is None:
        raise ValueError
    name, role, sha256 = texts
    return Issued(serial, name, role, tuple(hosts), until, sha256)
