"""Credentials and certificates.

- A process's reading of its TLS files: what it sees as a change, its tries after a failure, and its list.
- Certificates and keys with algorithms that are not known here: reading them gives an answer, not an exception.
"""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding

from tests.certificates import certified
from tests.library.wire.test_revoked import COORDINATOR, PARTY, PEER, Federation
from treetap.commands.certs.authority import create_authority
from treetap.errors import ConfigError, Refused
from treetap.ops.certs.requests import revoke
from treetap.wire import tls
from treetap.wire.certificates import belongs, key_pem, read_certificates, read_key, signed_by
from treetap.wire.ports import Role
from treetap.wire.tls import CredentialSource, TlsFiles

_P256, _UNKNOWN = (bytes.fromhex(f"06082a8648ce3d0301{last}") for last in ("07", "02"))  # object identifiers of curves


class _Clock:
    """The monotonic clock of the readings, in seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """With an empty list everywhere."""
    return Federation(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Stands still unless a test moves it."""
    made = _Clock()
    monkeypatch.setattr(tls, "monotonic", made)
    return made


def _refused(found: CredentialSource, certificate: bytes) -> bool:
    try:
        found.now().caller(certificate, Role.COORDINATOR)
    except Refused:
        return True
    return False


def test_a_list_that_could_not_be_read_is_read_again(
    federation: Federation, clock: _Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though nothing about the file changes: after a second it is tried again, and the log says once that it failed."""
    files = federation.files(PARTY)
    coordinator = federation.files(COORDINATOR).certificate.read_bytes()
    found = CredentialSource(files)
    assert not _refused(found, coordinator)
    revoke(federation.authority, [COORDINATOR])
    federation.deliver(PARTY, "crl.pem")
    tries, read = [], Path.read_bytes

    def failing(path: Path) -> bytes:
        if path == files.revoked:
            tries.append(path)
            raise OSError(errno.EIO, "Input/output error")
        return read(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", failing)
        for _ in range(3):
            assert not _refused(found, coordinator)
        first = len(tries)
        clock.now += tls.AGAIN_S
        assert found.unsettled
        assert len(tries) == 2 * first > 0
    assert not _refused(found, coordinator)
    clock.now += tls.AGAIN_S
    assert _refused(found, coordinator)
    assert not found.unsettled
    said = [each for each in caplog.records if "stay in force" in each.getMessage()]
    assert len(said) == 1


def test_a_file_with_its_old_time_and_length_is_read(federation: Federation) -> None:
    """As a copy that keeps times (`cp -p`, `rsync -t`) over the same file can be: its change is in its ctime."""
    files = federation.files(PARTY)
    assert files.revoked is not None
    found, before = CredentialSource(files), files.revoked.stat()
    while files.revoked.stat().st_ctime_ns == before.st_ctime_ns:
        files.revoked.write_bytes(files.revoked.read_bytes())
        os.utime(files.revoked, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found.now().number == 1


def test_a_reading_across_a_change_is_not_used(
    federation: Federation, clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair that is switched between two reads could be a key and a certificate that do not fit: it is read again."""
    files = federation.files(PARTY)
    found, read = CredentialSource(files), TlsFiles.read
    before = found.now()
    federation.issue(PARTY)

    def switched(one: TlsFiles) -> tuple[bytes, bytes, bytes]:
        ca, certificate, _ = read(one)
        monkeypatch.setattr(TlsFiles, "read", read)
        federation.issue(PARTY)
        return ca, certificate, one.key.read_bytes()

    monkeypatch.setattr(TlsFiles, "read", switched)
    assert found.now() is before
    assert found.now().key == files.key.read_bytes()
    assert found.now().certificate == files.certificate.read_bytes()


def _other_key(federation: Federation) -> None:
    federation.files(PARTY).key.write_bytes(federation.files(COORDINATOR).key.read_bytes())


def _other_authority_without_a_list(federation: Federation) -> None:
    new = federation.folder / "authority-2"
    create_authority(new)
    ca = federation.files(PARTY).ca
    ca.write_bytes(ca.read_bytes() + (new / "ca.crt").read_bytes())


def _half_a_certificate(federation: Federation) -> None:
    certificate = federation.files(PARTY).certificate
    certificate.write_bytes(certificate.read_bytes()[:100])


@pytest.mark.parametrize("spoil", [_other_key, _other_authority_without_a_list, _half_a_certificate])
def test_a_list_applies_while_other_files_cannot_be_used(
    spoil: Callable[[Federation], None], federation: Federation, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The list of the authorities in force applies; the other files stay as they were until they fit again."""
    files = federation.files(PARTY)
    whole = {path: path.read_bytes() for path in (files.ca, files.certificate, files.key)}
    coordinator, peer = (federation.files(name).certificate.read_bytes() for name in (COORDINATOR, PEER))
    found = CredentialSource(files)
    assert not _refused(found, coordinator)
    before = found.now()
    spoil(federation)
    assert not _refused(found, coordinator)
    revoke(federation.authority, [COORDINATOR])
    federation.deliver(PARTY, "crl.pem")
    assert _refused(found, coordinator)
    assert not _refused(found, peer)
    now = found.now()
    assert (now.ca, now.certificate, now.key) == (before.ca, before.certificate, before.key)
    assert now.number == before.number + 1  # so that channels to whom it names are closed
    clock.now += tls.AGAIN_S
    assert found.now() is now
    assert found.unsettled
    assert any("without the other TLS files" in each.getMessage() for each in caplog.records)
    for path, content in whole.items():
        path.write_bytes(content)
    assert not found.unsettled
    assert _refused(found, coordinator)


def test_a_slow_passphrase_takes_a_hundredth_of_the_time(federation: Federation, clock: _Clock) -> None:
    """A command that fails after ten seconds is asked again after a thousand, since this process waits for it."""
    asked = []

    class Slow:
        def phrase(self, field: str) -> bytes:
            asked.append(field)
            clock.now += 10.0
            raise ConfigError(field)

    files = federation.files(PARTY)
    plain, found = files.key.read_bytes(), CredentialSource(files)
    found._files = replace(files, passphrase=Slow())
    files.key.write_bytes(key_pem(read_key(files.key), b"word"))
    for _ in range(3):
        assert found.now().key == plain
        clock.now += 500.0
    assert len(asked) == 2


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """A party's, with a list of revoked certificates."""
    party = certified(tmp_path, "a")["a"]
    return TlsFiles(party.ca, party.certificate, party.key, revoke(tmp_path)[0])


def _of_an_unknown_curve(path: Path) -> x509.Certificate:
    der = read_certificates(path)[0].public_bytes(Encoding.DER)
    return x509.load_der_x509_certificate(der.replace(_P256, _UNKNOWN))


def test_an_authority_of_an_unknown_curve_has_signed_nothing(files: TlsFiles) -> None:
    """Beside the right one it is passed over; alone, the certificate is not of the trusted authority."""
    unknown, real = _of_an_unknown_curve(files.ca), files.ca.read_bytes()
    assert not signed_by(read_certificates(files.certificate)[0], unknown)
    alone = TlsFiles(files.ca, files.certificate, files.key)
    files.ca.write_bytes(unknown.public_bytes(Encoding.PEM) + real)
    assert alone.inspect("a", Role.PARTY) == "a"
    with pytest.raises(ConfigError, match="has no list of revoked certificates of the authority 'CN=treetap CA' that"):
        files.inspect("a", Role.PARTY)
    files.ca.write_bytes(unknown.public_bytes(Encoding.PEM))
    with pytest.raises(ConfigError, match="is not signed by the authority trusted here"):
        alone.inspect("a", Role.PARTY)


def test_a_key_of_an_unknown_curve_is_told(files: TlsFiles) -> None:
    """In a certificate it belongs to no key here, and in a key file it is no private key."""
    certificate, key = _of_an_unknown_curve(files.certificate), read_key(files.key)
    assert belongs(key, read_certificates(files.certificate)[0])
    assert not belongs(key, certificate)
    der = key.private_bytes(Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    head, tail = b"-----BEGIN PRIVATE KEY-----\n", b"-----END PRIVATE KEY-----\n"
    files.key.write_bytes(head + base64.encodebytes(der.replace(_P256, _UNKNOWN)) + tail)
    with pytest.raises(ConfigError, match=r"a\.key: not a private key in PEM form"):
        read_key(files.key)
