"""A new certificate and its key in the place of those in use, both at once, also if the machine fails in between.

Two files cannot be renamed at once, but one link can, as Kubernetes does it with volumes of secrets:

    bank.crt → bank.pair/bank.crt      bank.pair → bank.pair-0123456789abcdef
    bank.key → bank.pair/bank.key      bank.pair-0123456789abcdef/bank.crt, bank.key

The first time the files in use move behind such a link, which changes no content. From then on replacing the one link
`bank.pair` switches both. Whenever a process reads them, also after a crash, the key is that of the certificate.
"""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from pydantic import ConfigDict

from treetap.errors import BadInput, ConfigError
from treetap.models.durable import sync_folder, write_whole
from treetap.process.config import TlsConfig, typed
from treetap.strict import Strict
from treetap.wire.certificates import NoIdentity, belongs, identity, read_certificates, read_file, read_key
from treetap.wire.tls import TlsFiles, certificate_fault


class _File(Strict):
    """A process's file, as far as its `[tls]`."""

    model_config = ConfigDict(extra="ignore")
    tls: TlsConfig


def in_use(certificate: Path | None, key: Path | None, ca: Path | None, config: Path | None) -> TlsFiles:
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
    files = _File.from_file(config).tls.files()
    return replace(files, passphrase=files.passphrase or typed(files.key))


def install(new: Path, files: TlsFiles, next_key: Path | None = None) -> bool:
    """Put a new certificate and its key in the place of those in use; running processes read them again.

    The files of the pair in use, the new key and its request are deleted. The new files have the owners and modes
    of those that they replace.

    Args:
        new: the certificate that the authority has signed.
        files: the authority's certificate, and the pair in use, which lies in one folder.
        next_key: the new key, with its request beside it; None: the one beside the certificate, as it is requested.

    Returns:
        True; False if the certificate is in place already.

    Raises:
        BadInput: the disk refuses a file.
        ConfigError: the new files do not fit each other, the process, or the authority; nothing has changed.
    """
    place = _Place.of(files)
    held, _ = files.pair()  # fit each other
    certificate, key_path = read_certificates(new)[0], next_key or new.with_suffix(".key")
    fresh = certificate != held
    if fresh:
        if not belongs(read_key(key_path, files.passphrase), certificate):
            raise ConfigError(f"{key_path}: this key does not belong to the certificate {new}")
        try:
            holder = identity(held)
        except NoIdentity as fault:
            raise ConfigError(f"{files.certificate}: {fault}") from None
        if unfit := certificate_fault(certificate, read_certificates(files.ca), holder.name, holder.role):
            raise ConfigError(f"{new}: {unfit}")
    try:
        place.adopt(held)
        if fresh:
            place.switch(place.stage(certificate, read_file(new), read_file(key_path)))
        copied = key_path.exists() and not key_path.samefile(files.key) and read_file(key_path) == read_file(files.key)
        place.clean(*([key_path, key_path.with_suffix(".csr")] if copied else []))
    except OSError as error:
        raise BadInput(f"{error.filename}: cannot be changed: {error.strerror}; install as its owner or root") from None
    return fresh


@dataclass(frozen=True)
class _Place:
    """The folder of a pair, and the names in it."""

    folder: Path
    certificate: str
    key: str

    @staticmethod
    def of(files: TlsFiles) -> _Place:
        """The place of the files in use. Raises ConfigError where they cannot be switched at once."""
        folder = files.key.parent
        if folder.resolve() != files.certificate.parent.resolve() or files.key.name == files.certificate.name:
            raise ConfigError(
                f"{files.key}: key and certificate must be two files of one folder to be switched at once: move them "
                "into one, and name them in [tls]"
            )
        place = _Place(folder, files.certificate.name, files.key.name)
        for name in (place.key, place.certificate):
            path = folder / name
            if path.is_symlink() and os.readlink(path) != place.target(name):
                raise ConfigError(f"{path}: is a link that another tool has made: have that tool switch the files")
        return place

    @property
    def link(self) -> Path:
        """The link that leads to the pair in use."""
        return self.folder / f"{Path(self.certificate).stem}.pair"

    def target(self, name: str) -> str:
        """The place to which the link of a file of the pair leads."""
        return f"{self.link.name}/{name}"

    def adopt(self, held: x509.Certificate) -> None:
        """Move the pair in use behind the link, if it is not; its content stays at every moment."""
        plain = [name for name in (self.key, self.certificate) if not (self.folder / name).is_symlink()]
        if not plain:
            return
        contents = [read_file(self.folder / name) for name in (self.certificate, self.key)]
        if not self.link.is_symlink() or [self._behind(self.certificate), self._behind(self.key)] != contents:
            self.switch(self.stage(held, *contents))
        for name in plain:
            _link(self.folder / name, self.target(name))

    def stage(self, certificate: x509.Certificate, certificate_pem: bytes, key_pem: bytes) -> str:
        """A folder of a pair that nothing leads to yet; its name."""
        name = f"{self.link.name}-{certificate.fingerprint(hashes.SHA256()).hex()[:16]}"
        made = self.folder / name
        if self.link.is_symlink() and os.readlink(self.link) == name:
            name, made = f"{name}-again", made.with_name(f"{name}-again")
        if made.exists():  # a crash has left it
            shutil.rmtree(made)
        made.mkdir(mode=0o700)
        for file, content in ((self.certificate, certificate_pem), (self.key, key_pem)):
            write_whole(made / file, content)
            _like(self.folder / file, made / file, without=stat.S_IRWXO if file == self.key else 0)
        _like(self.folder, made)
        sync_folder(self.folder)
        return name

    def switch(self, name: str) -> None:
        """Lead to another pair, in one rename."""
        _link(self.link, name)

    def clean(self, *leftovers: Path) -> None:
        """Delete what is no longer in use."""
        kept = os.readlink(self.link)
        for path in self.folder.iterdir():
            if path.name.startswith(f"{self.link.name}-") and path.name != kept:
                shutil.rmtree(path)
        for path in leftovers:
            path.unlink(missing_ok=True)
        sync_folder(self.folder)

    def _behind(self, name: str) -> bytes:
        path = self.link / name
        return path.read_bytes() if path.is_file() else b""


def _like(model: Path, made: Path, without: int = 0) -> None:
    """Give a file the owner and the mode of another, less some bits; its owner can read it in any case."""
    wanted, given = model.stat(), made.stat()
    if (wanted.st_uid, wanted.st_gid) != (given.st_uid, given.st_gid):
        os.chown(made, wanted.st_uid, wanted.st_gid)
    made.chmod(stat.S_IMODE(wanted.st_mode) & ~without | stat.S_IRUSR)


def _link(path: Path, target: str) -> None:
    """Make a link, or replace what is at its place, in one rename."""
    draft = path.with_name(path.name + ".part")
    draft.unlink(missing_ok=True)
    draft.symlink_to(target)
    draft.replace(path)
    sync_folder(path.parent)
