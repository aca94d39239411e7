"""Revoked certificates, and certificates that change on disk: a process goes by the files as they are."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.certificates import role_of
from tests.sockets import dialling, listening
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import ConfigError, Incompatible, Refused, TreetapError, Unanswered, Unreachable
from treetap.ops.certs.requests import revoke
from treetap.party.server.services import register
from treetap.wire import certificates, rpc
from treetap.wire.callers import Callers
from treetap.wire.certificates import read_certificates, read_revoked
from treetap.wire.ports import Address
from treetap.wire.probe import say_hello
from treetap.wire.tls import TlsFiles
from treetap.wire.v2 import control_pb2, exchange_pb2

pytestmark = pytest.mark.real_time

PARTY, PEER, COORDINATOR = "feature-b", "feature-c", "coordinator"


class Federation:
    """An authority, and a folder per process as on hosts of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority = folder, folder / "authority"
        create_authority(self.authority)
        revoke(self.authority)
        for name in (PARTY, PEER, COORDINATOR):
            self.issue(name)
            self.deliver(name, "ca.crt", "crl.pem")

    def files(self, name: str) -> TlsFiles:
        """A process's files, the list among them."""
        own = self.folder / name
        return TlsFiles(own / "ca.crt", own / "own.crt", own / "own.key", own / "crl.pem")

    def issue(self, name: str, authority: Path | None = None) -> None:
        """Give a process a new certificate and key in the place of those it has."""
        made = issue(
            self.folder / "new" / os.urandom(4).hex(), name, role_of(name), ca_folder=authority or self.authority
        )
        self.files(name).key.parent.mkdir(exist_ok=True)
        made.key.replace(self.files(name).key)
        made.certificate.replace(self.files(name).certificate)

    def deliver(self, name: str, *files: str) -> None:
        """Copy the authority's files to a process."""
        for file in files:
            draft = self.folder / name / f"{file}.new"
            shutil.copy(self.authority / file, draft)
            draft.replace(self.folder / name / file)


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    """With an empty list everywhere."""
    return Federation(tmp_path)


class _Party:
    """Answers every step and message, and keeps the serial numbers of its callers; a held step waits for release."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.held = asyncio.Event()
        self.held.set()

    async def step(self, caller: str, _request: control_pb2.StepRequest) -> AsyncIterator[control_pb2.StepEvent]:
        self.calls.append(caller)
        yield control_pb2.StepEvent()
        await self.held.wait()
        yield control_pb2.StepEvent()

    async def deliver(self, caller: str, *_message: object) -> exchange_pb2.Receipt:
        self.calls.append(caller)
        return exchange_pb2.Receipt()


@asynccontextmanager
async def _serving(files: TlsFiles, name: str = PARTY, port: int = 0) -> AsyncIterator[tuple[_Party, Address]]:
    """A party with these files."""
    party = _Party()
    async with listening(Callers(name, files), partial(register, port=party), port=port) as address:
        yield party, Address(name, address)


async def _step(dialer: rpc.GrpcDialer, to: Address) -> int:
    return len([event async for event in dialer.step(to, control_pb2.StepRequest(job="j"))])


async def _deliver(dialer: rpc.GrpcDialer, to: Address) -> None:
    await dialer.deliver(to, exchange_pb2.PeerMessage(job="j").SerializeToString())


async def test_a_revoked_caller_is_refused_on_its_open_connection(federation: Federation) -> None:
    """Steps, messages and health checks: refused from the first call after the new list; others continue."""

    async with (
        _serving(federation.files(PARTY)) as (party, to),
        dialling(federation.files(COORDINATOR)) as coordinator,
        dialling(federation.files(PEER)) as peer,
    ):
        assert await _step(coordinator, to) == 2
        await _deliver(peer, to)
        party.held.clear()
        running = coordinator.step(to, control_pb2.StepRequest(job="j"))
        await anext(running)
        revoke(federation.authority, [COORDINATOR])
        federation.deliver(PARTY, "crl.pem")
        party.held.set()
        with pytest.raises(Refused, match=r"coordinator 'coordinator': the certificate .* is revoked"):
            await anext(running)
        with pytest.raises(Refused, match=r"coordinator 'coordinator': the certificate .* is revoked"):
            await _step(coordinator, to)
        with pytest.raises(Refused, match="is revoked"):
            await asyncio.to_thread(say_hello, to, federation.files(COORDINATOR), 5)
        await _deliver(peer, to)
        assert party.calls == [COORDINATOR, PEER, COORDINATOR, PEER]


@pytest.mark.parametrize("lost", [False, True], ids=["first connection", "connection lost"])
async def test_a_revoked_server_is_told_nothing(lost: bool, federation: Federation) -> None:
    """It is refused before gRPC connects: with the first call, and after its connection was lost."""
    files = federation.files(PARTY)

    async with dialling(federation.files(PEER)) as dialer:
        port = 0
        if lost:
            async with _serving(files) as (_, to):
                await _deliver(dialer, to)
                port = int(to.location.rpartition(":")[2])
        revoke(federation.authority, [PARTY])
        federation.deliver(PEER, "crl.pem")  # the thief's server does not mind
        async with _serving(files, port=port) as (party, to):
            with pytest.raises(Incompatible, match=r"its certificate is refused: .* is revoked by its authority"):
                await _deliver(dialer, to)
            with pytest.raises(Unreachable, match="is revoked by its authority"):
                await asyncio.to_thread(say_hello, to, federation.files(PEER), 5)
            assert party.calls == []


async def test_a_list_ends_calls_that_are_under_way(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is under way at a server breaks off when the list that names it comes, and its repeat is refused."""
    monkeypatch.setattr(rpc, "LOOK_S", 0.02)

    async with _serving(federation.files(PARTY)) as (party, to), dialling(federation.files(COORDINATOR)) as dialer:
        party.held.clear()
        running = dialer.step(to, control_pb2.StepRequest(job="j"))
        await anext(running)
        revoke(federation.authority, [PARTY])
        federation.deliver(COORDINATOR, "crl.pem")
        async with asyncio.timeout(10):
            with pytest.raises(Unanswered, match="the channel was closed, since TLS files have changed"):
                await anext(running)
            with pytest.raises(Incompatible, match="is revoked"):
                await _step(dialer, to)


async def test_a_call_that_is_given_up_is_cancelled_as_ever(federation: Federation) -> None:
    """A caller that is cancelled, or whose time is over, gets no error of the channel."""
    async with _serving(federation.files(PARTY)) as (party, to), dialling(federation.files(COORDINATOR)) as dialer:
        party.held.clear()
        waiting = asyncio.ensure_future(_step(dialer, to))
        while not party.calls:
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await _step(dialer, to)
        party.held.set()
        assert await _step(dialer, to) == 2


async def test_certificates_change_without_a_restart(federation: Federation) -> None:
    """A server shows its new certificate, a caller its own, to all that connect after that; open calls continue."""
    shown: list[int] = []

    async with _serving(federation.files(PARTY)) as (_, to), dialling(federation.files(PEER)) as dialer:
        await _deliver(dialer, to)
        shown.append(await _serial(to, federation.files(PEER)))
        federation.issue(PARTY)
        await _deliver(dialer, to)
        shown.append(await _serial(to, federation.files(PEER)))
        federation.issue(PEER)
        before = dialer.channels.channel(to)
        await _deliver(dialer, to)
        assert dialer.channels.channel(to) is not before
        assert shown[1] == read_certificates(federation.files(PARTY).certificate)[0].serial_number
    assert len(set(shown)) == 2


async def test_an_authority_changes_without_a_restart(federation: Federation) -> None:
    """New and old together first, then the new one alone: from then on the old one's certificates are refused."""
    new = federation.folder / "authority-2"
    create_authority(new)
    revoke(new)

    async with (
        _serving(federation.files(PARTY)) as (_, to),
        dialling(federation.files(PEER)) as peer,
        dialling(federation.files(COORDINATOR)) as late,
    ):
        await _deliver(peer, to)
        await _step(late, to)
        for file in ("ca.crt", "crl.pem"):
            both = (federation.authority / file).read_bytes() + (new / file).read_bytes()
            (federation.authority / file).write_bytes(both)
        for name in (PARTY, PEER):
            federation.deliver(name, "ca.crt", "crl.pem")
            federation.issue(name, new)
        await _deliver(peer, to)
        federation.authority = new
        for name in (PARTY, PEER):
            federation.deliver(name, "ca.crt", "crl.pem")
        await _deliver(peer, to)
        with pytest.raises(Refused, match="is not signed by the authority trusted here"):
            await _step(late, to)


async def _serial(to: Address, files: TlsFiles) -> int:
    """The serial number of the certificate that a server shows now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.ca)
    context.load_cert_chain(files.certificate, files.key)
    host, _, port = to.location.rpartition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=to.dns)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(shown).serial_number


def _ended(path: Path) -> None:
    path.write_bytes(_list(path.parent.parent / "authority", datetime.now(UTC) - timedelta(seconds=1)))


def _list(authority: Path, until: datetime) -> bytes:
    """An empty list that holds until then."""
    key = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(read_certificates(authority / "ca.crt")[0].subject)
        .last_update(datetime.now(UTC) - timedelta(days=2))
        .next_update(until)
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)  # type: ignore[arg-type]


async def test_a_list_that_has_ended_ends_all_calls(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """When the list in force ends, servers refuse all callers and callers make no calls, until there is a new one."""
    for name in (PARTY, PEER):
        soon = datetime.now(UTC) + timedelta(hours=1)
        (federation.folder / name / "crl.pem").write_bytes(_list(federation.authority, soon))
    eternal = TlsFiles(*[getattr(federation.files(PEER), key) for key in ("ca", "certificate", "key")])

    async with (
        _serving(federation.files(PARTY)) as (party, to),
        dialling(eternal) as carefree,
        dialling(federation.files(PEER)) as careful,
    ):
        await _deliver(carefree, to)
        later = datetime.now(UTC) + timedelta(hours=2)
        monkeypatch.setattr(certificates, "now", lambda: later)
        with pytest.raises(Refused, match=r"the list of revoked certificates ended on .*: at the authority, ") as told:
            await _deliver(carefree, to)
        assert str(federation.folder) not in str(told.value)
        assert f"{federation.files(PARTY).revoked}: the list of revoked certificates ended on" in caplog.text
        with pytest.raises(Incompatible, match="the list of revoked certificates ended on"):
            await _deliver(careful, to)
        federation.deliver(PARTY, "crl.pem")
        federation.deliver(PEER, "crl.pem")
        await _deliver(carefree, to)
        await _deliver(careful, to)
        assert len(party.calls) == 3


async def test_files_that_cannot_be_used_leave_those_before_in_force(
    federation: Federation, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a list, a certificate without its key, another process's certificate: said in the log, and no more."""
    files = federation.files(PARTY)
    assert files.revoked is not None

    async with _serving(files) as (_, to), dialling(federation.files(PEER)) as dialer:
        whole = {path: path.read_bytes() for path in (files.revoked, files.certificate, files.key) if path}
        revoke(federation.authority, [COORDINATOR])
        for path, content in (
            (files.revoked, b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"),
            (files.certificate, federation.files(PEER).certificate.read_bytes()),
        ):
            assert path is not None
            path.write_bytes(content)
            await _deliver(dialer, to)
            path.write_bytes(whole[path])
            await _deliver(dialer, to)
        shutil.copy(federation.files(PEER).key, files.key)
        shutil.copy(federation.files(PEER).certificate, files.certificate)
        await _deliver(dialer, to)
    said = [each.getMessage() for each in caplog.records if "stay in force" in each.getMessage()]
    assert len(set(said)) >= 3
    assert any("not a list of revoked certificates" in line for line in said)
    assert any("this process is party 'feature-b'" in line for line in said)


async def test_a_call_while_files_change_may_be_repeated(federation: Federation) -> None:
    """A second authority is here before its list: a caller hears that a repeat may succeed, as it then does."""
    new = federation.folder / "authority-2"
    create_authority(new)
    revoke(new)
    files = federation.files(PEER)
    assert files.revoked is not None

    async with _serving(federation.files(PARTY)) as (_, to), dialling(files) as dialer:
        dialer.channels.channel(to)
        files.ca.write_bytes(files.ca.read_bytes() + (new / "ca.crt").read_bytes())
        with pytest.raises(Unanswered, match="has no list of revoked certificates of the authority"):
            await _deliver(dialer, to)
        assert files.revoked is not None
        files.revoked.write_bytes(files.revoked.read_bytes() + (new / "crl.pem").read_bytes())
        await _deliver(dialer, to)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (Path.unlink, "there is no such file"),
        (lambda path: path.write_bytes(b"nothing"), "has no list of revoked certificates of the authority"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "has no list of revoked certificates of the"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b"MI", b"AB", 1)), "not a list of revoked"),
        (_ended, "the list of revoked certificates ended on"),
    ],
)
def test_a_list_that_cannot_be_used_at_the_start(
    spoil: Callable[[Path], object], says: str, federation: Federation
) -> None:
    """The error of each is one line that names the file."""
    files = federation.files(PARTY)
    assert files.revoked is not None
    assert files.check(PARTY) == PARTY
    spoil(files.revoked)
    with pytest.raises(ConfigError, match=says) as fault:
        files.check(PARTY)
    assert str(fault.value).startswith(f"{files.revoked}: ")


def test_ones_own_revoked_certificate_is_told_at_the_start(federation: Federation) -> None:
    """And a list of another authority counts for nothing, whatever it is called."""
    other = federation.folder / "other"
    create_authority(other)
    path, _, _ = revoke(other)
    with pytest.raises(ConfigError, match="has no list of revoked certificates of the authority"):
        read_revoked(path, read_certificates(federation.authority / "ca.crt"))
    revoke(federation.authority, [PARTY])
    federation.deliver(PARTY, "crl.pem")
    with pytest.raises(ConfigError, match=r"own\.crt: the certificate \(serial number [0-9a-f]+\) is revoked"):
        federation.files(PARTY).check(PARTY)


def test_what_is_revoked_stays_revoked(federation: Federation) -> None:
    """By name all certificates of a process, by file one; a list is renewed with all it had, and never begun anew."""
    old = federation.files(PARTY).certificate.read_bytes()
    (federation.folder / "old.crt").write_bytes(old)
    federation.issue(PARTY)
    path, first, _ = revoke(federation.authority, [str(federation.folder / "old.crt")])
    assert len(first) == 1
    federation.deliver(PARTY, "crl.pem")
    assert federation.files(PARTY).check(PARTY) == PARTY
    _, second, until = revoke(federation.authority, [PARTY, PEER], days=30)
    assert len(second) == 2
    assert abs(until - datetime.now(UTC) - timedelta(days=30)) < timedelta(seconds=10)
    assert revoke(federation.authority, [PARTY])[1] == []
    assert revoke(federation.authority)[1] == []
    found = x509.load_pem_x509_crl(path.read_bytes())
    assert sorted(f"{each.serial_number:x}" for each in found) == sorted([*first, *second])
    assert found.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number == 5
    for what, says in (("nobody", "has no certificate of this name"), ("absent.crt", "no such file")):
        with pytest.raises(ConfigError, match=says):
            revoke(federation.authority, [what])
    path.write_bytes(b"x")
    with pytest.raises(ConfigError, match="restore it: without it no certificate is revoked"):
        revoke(federation.authority)
    with suppress(TreetapError):
        revoke(federation.authority)
    assert path.read_bytes() == b"x"
