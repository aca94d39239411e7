"""What an authority has issued: `issued.jsonl` in its folder, a line per certificate. No secret is in it."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from treetap.errors import BadInput, ConfigError
from treetap.wire.roles import Identity
from treetap.wire.tls import fingerprint

FILE = "issued.jsonl"


@dataclass(frozen=True)
class Issued:
    """One certificate: its serial number in hexadecimal digits, whose it is, its hosts, and when it ends."""

    serial: str
    name: str
    role: str
    hosts: tuple[str, ...]
    until: str
    sha256: str

    @staticmethod
    def of(certificate: x509.Certificate, process: Identity, hosts: Sequence[str]) -> Issued:
        """The line of a certificate."""
        until = certificate.not_valid_after_utc.isoformat()
        return Issued(
            f"{certificate.serial_number:x}", process.name, process.role, tuple(hosts), until, fingerprint(certificate)
        )

    def ended(self, now: datetime) -> bool:
        """True if the certificate is out of its dates."""
        return datetime.fromisoformat(self.until) < now


def note(folder: Path, one: Issued) -> None:
    """Add a line. Raises BadInput where that is not possible: what is not noted could not be revoked by its name."""
    path = folder / FILE
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
            os.fsync(file.fileno())
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
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            found.append(Issued(**{**row, "hosts": tuple(row["hosts"])}))
        except (ValueError, TypeError, KeyError):
            raise ConfigError(f"{path}: line {number} is damaged; restore the file, or remove the line") from None
    return found
