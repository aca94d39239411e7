"""Certificates of the federation in containers, by an authority that lives in memory and for a moment.

    certs.py serve   certificates for all processes unless all are in order, then keep running: a container that ends
                     would end `up --exit-code-from job`
    certs.py renew   a new authority, and new certificates for all processes, which take them without a restart

Each process's certificate goes to a volume that only that process mounts besides this one. The authority's key is in a
tmpfs, and is erased before any certificate leaves it: no other certificate can be issued for this federation later.

One more volume has the certificates of all its authorities, present and past, to verify signatures of their time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding

from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import ConfigError
from treetap.wire.certificates import read_certificates
from treetap.wire.ports import Role
from treetap.wire.tls import TlsFiles

#: The user of the image.
OWNER = 10001
#: A certificate that ends within this time is not in order.
SOON = timedelta(days=30)
#: Seconds in which every running process has read files that have changed.
ROUND_S = 10.0
OTHERS = {"coordinator": Role.COORDINATOR, "operator": Role.OPERATOR}


@dataclass(frozen=True)
class Places:
    """Folders: `tls` has one per process, `memory` is a tmpfs, in `trusted` the audit finds the certificates of all
    authorities.
    """

    tls: Path = Path("/tls")
    memory: Path = Path("/authority")
    trusted: Path = Path("/trusted")
    issued: Path = Path("/tmp/issued")  # noqa: S108 - a tmpfs of this container
    owner: int = OWNER

    def names(self) -> list[str]:
        """The processes."""
        return sorted(folder.name for folder in self.tls.iterdir())

    def files(self, name: str) -> TlsFiles:
        """A process's files."""
        folder = self.tls / name
        return TlsFiles(folder / "ca.crt", folder / f"{name}.crt", folder / f"{name}.key")


def in_order(places: Places) -> bool:
    """True if every process has a certificate of its name and role, of one authority, that does not end soon."""
    soon = datetime.now(UTC) + SOON
    try:
        for name in places.names():
            files = places.files(name)
            files.inspect(name, _role(name))
            if any(each.not_valid_after_utc < soon for each in read_certificates(files.certificate)):
                return False
    except ConfigError as fault:
        print(f"certs: {fault}", file=sys.stderr)
        return False
    return len({places.files(name).ca.read_bytes() for name in places.names()}) == 1


def make(places: Places) -> None:
    """Certificates of a new authority for all processes, in memory; the authority's key is erased at the end."""
    erase(places.memory.rglob("*"))
    authority = places.memory / "ca"
    try:
        create_authority(authority)
        for name in places.names():
            issue(places.memory / name, name, _role(name), ca_folder=authority)
    finally:
        erase([authority / "ca.key"])


def give(places: Places) -> None:
    """Put them in the place of what the processes have."""
    authority = (places.memory / "ca" / "ca.crt").read_bytes()
    for name in places.names():
        erase(places.files(name).key.parent.iterdir())
        _write(places, places.files(name).ca, authority)
        _give_own(places, name)
    erase(places.memory.rglob("*"))


def renew(places: Places, pause: Callable[[float], None] = time.sleep) -> None:
    """Put them in the place of what running processes have: both authorities are trusted in between."""
    new = (places.memory / "ca" / "ca.crt").read_bytes()
    for name in places.names():
        _write(places, places.files(name).ca, new + places.files(name).ca.read_bytes())
    pause(ROUND_S)
    for name in places.names():
        _give_own(places, name)
    pause(ROUND_S)
    for name in places.names():
        _write(places, places.files(name).ca, new)
    erase(places.memory.rglob("*"))


def publish(places: Places) -> None:
    """Add the authority that processes trust to those of before: what was signed under these is verified by them."""
    path = places.trusted / "ca.crt"
    try:
        before = read_certificates(path) if path.is_file() and path.stat().st_size else []
    except ConfigError as damage:  # is not written over: no other file has the authorities of before
        sys.exit(
            f"certs.py: {damage}: bring a back-up of it back, or remove it and what was signed before is unverified"
        )
    known = {found.public_bytes(Encoding.PEM): None for found in before}
    for name in places.names():
        with suppress(ConfigError):  # none yet, or damaged and about to be renewed
            known |= {found.public_bytes(Encoding.PEM): None for found in read_certificates(places.files(name).ca)}
    _write(places, path, b"".join(known))


def erase(paths: Iterable[Path]) -> None:
    """Overwrite files and delete them."""
    for path in list(paths):
        if path.is_file():
            with path.open("r+b") as file:
                file.write(bytes(path.stat().st_size))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()


def _role(name: str) -> Role:
    return OTHERS.get(name, Role.PARTY)


def _give_own(places: Places, name: str) -> None:
    files = places.files(name)
    for path, mode in ((files.key, 0o400), (files.certificate, 0o444)):
        _write(places, path, (places.memory / name / path.name).read_bytes(), mode)
    os.chown(files.key.parent, places.owner, places.owner)
    files.key.parent.chmod(0o500)


def _write(places: Places, path: Path, content: bytes, mode: int = 0o444) -> None:
    """A file of a process is there whole, for its user only, from its first moment on."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chown(draft, places.owner, places.owner)
    draft.chmod(mode)
    draft.replace(path)


def main(words: list[str], places: Places) -> None:
    """The command."""
    os.umask(0o077)
    ends = {signal.SIGTERM, signal.SIGINT}
    if words == ["renew"]:
        make(places)
        renew(places)
        publish(places)
    elif words == ["serve"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, ends)
        publish(places)
        if not in_order(places):
            make(places)
            give(places)
            publish(places)
        places.issued.touch()
        signal.sigwait(ends)
    else:
        print("certs.py: say serve, or renew", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:], Places())
