"""Renewal: a request of the same name, whose fingerprint is compared again, and a switch that is one rename."""

from __future__ import annotations

import asyncio
import shutil
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from grpc_health.v1 import health_pb2
from typer.testing import CliRunner

from tests.certificates import namesake
from tests.library.wire.logs import RECEIVED
from treetap.commands.certs import installing
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.cli import certs
from treetap.commands.certs.installing import install
from treetap.commands.certs.requests import request, revoke, sign_request
from treetap.errors import ConfigError
from treetap.models.durable import sync_folder
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.certificates import read_certificates
from treetap.wire.credentials import CredentialSource
from treetap.wire.hello import say_hello, serve_health
from treetap.wire.ports import Address
from treetap.wire.roles import Identity, Role
from treetap.wire.signatures import signed, verified
from treetap.wire.tls import TlsFiles
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.types_pb2 import NamedMetric

BANK = Identity("bank", Role.PARTY)


class World:
    """An authority, and members' hosts, each with a folder of the next pair."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority, self.next = folder, folder / "authority", folder / "next"
        create_authority(self.authority)
        revoke(self.authority)

    def member(self, name: str = "bank", role: Role = Role.PARTY) -> TlsFiles:
        """The files of a member's host."""
        made = issue(self.folder / name, name, role, ca_folder=self.authority)
        shutil.copy(self.authority / "ca.crt", self.folder / name)
        return TlsFiles(self.folder / name / "ca.crt", made.certificate, made.key)

    def answered(self) -> Path:
        """The next certificate of party bank, beside its key."""
        made = request(self.next, "bank", Role.PARTY)
        return sign_request(made.request, BANK, self.authority, fingerprint=made.fingerprint)[0]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _public(files: TlsFiles) -> bytes:
    return files.pair()[0].public_bytes(Encoding.DER)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("role", list(Role))
def test_a_certificate_is_renewed_and_switched(role: Role, world: World) -> None:
    """Of any role; the private keys stay on the host, mode 600, and the old one goes."""
    files = world.member("bank", role)
    before = files.certificate.read_bytes(), files.key.read_bytes()
    new = str(world.next / "bank.crt")
    for words in (
        ["request", "bank", "--role", role, "--out", str(world.next)],
        ["sign", str(world.next / "bank.csr"), "--name", "bank", "--role", role, "--ca", str(world.authority)],
        ["install", new, str(files.certificate)],
    ):
        done = CliRunner().invoke(certs, words)
        assert done.exit_code == 0, done.output
    assert files.check("bank", role) == "bank"
    assert (files.certificate.read_bytes() != before[0], files.key.read_bytes() != before[1]) == (True, True)
    assert sorted(path.name for path in world.next.iterdir()) == [".gitignore", "bank.crt"]
    keys = {path.resolve() for path in world.folder.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()}
    assert keys == {files.key.resolve(), world.authority / "ca.key"}
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600


@pytest.mark.parametrize("renewed_before", [False, True])
def test_a_crash_never_leaves_a_key_of_another_certificate(
    renewed_before: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at each change of the folder, the pair is the old one or the new one, and a repeat ends the switch."""
    files = world.member()
    if renewed_before:
        install(world.answered(), files)
        shutil.rmtree(world.next)
    new = world.answered()
    shutil.copytree(world.next, world.folder / "kept")
    whole = {path: world.folder / path for path in ("bank", "saved")}
    shutil.copytree(whole["bank"], whole["saved"], symlinks=True)
    pairs, stops = set(), 0
    for last in range(20):
        shutil.rmtree(whole["bank"])
        shutil.copytree(whole["saved"], whole["bank"], symlinks=True)
        shutil.copytree(world.folder / "kept", world.next, dirs_exist_ok=True)
        left = iter(range(last))

        def stop(folder: Path, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            sync_folder(folder)

        with monkeypatch.context() as patch:
            patch.setattr(installing, "sync_folder", stop)
            try:
                install(new, files)
            except KeyboardInterrupt:
                stops += 1
            else:
                break
        pairs.add(_public(files))  # raises unless they fit
        install(new, files)
        assert files.certificate.read_bytes() == new.read_bytes()
        names = sorted(path.name for path in whole["bank"].iterdir() if not path.name.startswith("bank.pair-"))
        assert names == [".gitignore", "bank.crt", "bank.key", "bank.pair", "ca.crt"]
        assert not new.with_suffix(".key").exists()
    assert (len(pairs), stops >= 3) == (2, True)


def test_what_does_not_fit_is_not_installed(world: World) -> None:
    """Another process's certificate, another key, one of another authority, links of other tools, two folders."""
    files, shop = world.member(), world.member("shop")
    before = files.certificate.read_bytes(), files.key.read_bytes()
    new = world.answered()
    with pytest.raises(ConfigError, match=r"shop\.key: this key does not belong"):
        install(new, files, shop.key)
    with pytest.raises(ConfigError, match="that of 'shop', not of 'bank'"):
        install(shop.certificate, files, shop.key)
    create_authority(world.folder / "foreign")
    foreign = issue(world.folder / "away", "bank", Role.PARTY, ca_folder=world.folder / "foreign")
    with pytest.raises(ConfigError, match="is not signed by the authority"):
        install(foreign.certificate, files, foreign.key)
    apart = TlsFiles(files.ca, files.certificate, shop.key.with_name("bank.key"))
    shutil.copy(files.key, apart.key)
    with pytest.raises(ConfigError, match="two files of one folder"):
        install(new, apart)
    assert (files.certificate.read_bytes(), files.key.read_bytes()) == before
    kept = files.key.rename(files.key.with_name("elsewhere.key"))
    files.key.symlink_to(kept)
    with pytest.raises(ConfigError, match="a link that another tool has made"):
        install(new, files)


def test_a_new_pair_moved_in_by_hand_is_switched_next(world: World) -> None:
    """Over the links, as without `install`; a second time is nothing, and no key that is in use goes."""
    files = world.member()
    install(world.answered(), files)
    shutil.rmtree(world.next)
    hand = namesake(world.folder / "hand", "bank", Role.PARTY, world.authority)
    hand.key.replace(files.key)
    hand.certificate.replace(files.certificate)
    new = world.answered()
    assert install(new, files)
    assert files.certificate.read_bytes() == new.read_bytes()
    other = request(world.folder / "other", "bank", Role.PARTY).key
    assert not install(new, files, other)
    assert not install(files.certificate, files)
    assert (other.exists(), files.check("bank", Role.PARTY)) == (True, "bank")


def test_what_the_old_key_has_signed_still_counts(world: World, tmp_path: Path) -> None:
    """A transcript that both keys signed, a job's signature: each has its certificate, and a later revocation too."""
    files = world.member()
    lists = world.authority / "crl.pem"
    log = tmp_path / "log"

    def write(text: str) -> None:
        writer = TranscriptWriter(log, 10**6, signer=files)
        writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name=text))
        writer.close()

    write("before")
    old = signed(files, b"statement", "test", int((datetime.now(UTC) - timedelta(seconds=9)).timestamp() * 1e9))
    kept = tmp_path / "kept.crt"
    shutil.copy(files.certificate, kept)
    new = world.answered()
    install(new, files)
    write("after")
    revoke(world.authority, [str(kept)])
    reader = TranscriptReader(log, files.ca, lists)
    assert len(list(reader)) == 2
    assert (reader.anchor.state, reader.anchor.verified, reader.anchor.revoked) == ("signed", True, "")
    listed = TlsFiles(files.ca, files.certificate, files.key, lists)
    assert verified(listed, old, b"statement", Role.PARTY)[0] == "bank"


def test_a_signature_while_files_are_switched_is_made(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is read before the switch and the key after it: both are read again."""
    files = world.member()
    answer = world.answered()
    reading, place = read_certificates, "treetap.wire.tls.read_certificates"

    def switched(path: Path) -> list[x509.Certificate]:
        certificates = reading(path)
        monkeypatch.setattr(place, reading)
        assert install(answer, files)
        return certificates

    monkeypatch.setattr(place, switched)
    made = signed(files, b"document", "document", time.time_ns())
    assert made.certificate == _public(files)
    assert verified(files, made, b"document", Role.PARTY)[0] == "bank"


@pytest.mark.real_time
async def test_a_running_process_goes_by_the_new_pair(world: World) -> None:
    """At its next look, whole; over sockets its partner knows it by its name, before and after."""
    files, partner = world.member(), world.member("shop")
    new = world.answered()
    keys: list[bytes] = []

    callers = Callers("bank", files)
    server, credentials = rpc.server(callers)
    status = serve_health(server, callers)
    address = Address("bank", f"127.0.0.1:{rpc.bind(server, credentials, '127.0.0.1:0')}")
    await server.start()
    await status.set("", health_pb2.HealthCheckResponse.SERVING)
    for switch in (False, True):
        if switch:
            install(new, files)
        assert (await asyncio.to_thread(say_hello, address, partner, 5)).serving
        assert callers.credentials is not None
        keys.append(callers.credentials.now().key)
        assert not callers.credentials.unsettled
    await server.stop(None)
    assert keys[0] != keys[1] == files.key.read_bytes()
    shown = CredentialSource(partner).now().caller
    assert shown(new.read_bytes(), Role.PARTY) == BANK
