"""Renewal: the key in use vouches for the next one, the authority refuses every lie, and the switch is one rename."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from grpc_health.v1 import health_pb2
from typer.testing import CliRunner

from tests.certificates import namesake
from tests.library.wire.logs import RECEIVED
from treetap.commands.certs import installing, renewal, renewals
from treetap.commands.certs.authority import create_authority, issue, open_authority, sign
from treetap.commands.certs.cli import certs
from treetap.commands.certs.installing import install
from treetap.commands.certs.renewal import MOST_BYTES, renew
from treetap.commands.certs.renewals import Answer, sign_renewals
from treetap.commands.certs.requests import hosts_of, new_request, request
from treetap.commands.certs.revocation import revoke
from treetap.errors import BadInput, ConfigError
from treetap.models.durable import sync_folder
from treetap.wire import rpc
from treetap.wire.callers import Callers
from treetap.wire.certificates import key_pem, read_certificates
from treetap.wire.credentials import CredentialSource
from treetap.wire.hello import say_hello, serve_health
from treetap.wire.ports import Address
from treetap.wire.roles import Identity, Role
from treetap.wire.signatures import signed, verified
from treetap.wire.signed_heads import Signer
from treetap.wire.tls import TlsFiles
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.types_pb2 import NamedMetric, Signed


class World:
    """An authority, the folders in which files travel to it, and members' hosts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.authority, self.carried = folder, folder / "authority", folder / "carried"
        create_authority(self.authority)
        revoke(self.authority)
        self.carried.mkdir()

    def member(self, name: str = "bank", role: Role = Role.PARTY, hosts: tuple[str, ...] = ()) -> TlsFiles:
        """The files of a member's host."""
        made = issue(self.folder / name, name, role, hosts, ca_folder=self.authority)
        shutil.copy(self.authority / "ca.crt", self.folder / name)
        return TlsFiles(self.folder / name / "ca.crt", made.certificate, made.key)

    def sign(self, *, dry_run: bool = False) -> list[Answer]:
        """The authority's answers to what was carried there."""
        return sign_renewals(self.carried, self.authority, dry_run=dry_run)

    def refusal(self) -> str:
        """The reason why the one request is refused; nothing is signed."""
        issued = (self.authority / "issued.jsonl").read_bytes()
        (answer,) = self.sign()
        assert answer.why
        assert (self.authority / "issued.jsonl").read_bytes() == issued
        assert not list(self.carried.glob("*.crt"))
        return answer.why


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def _public(files: TlsFiles) -> bytes:
    return files.pair()[0].public_bytes(Encoding.DER)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("role", list(Role))
def test_a_certificate_is_renewed_and_switched(role: Role, world: World) -> None:
    """Of any role, with its hosts; the private keys stay on the host, mode 600, and the old one goes."""
    files = world.member("bank", role, ("bank.example.org", "10.0.0.7"))
    before = files.certificate.read_bytes(), files.key.read_bytes()
    command = CliRunner()
    made = command.invoke(certs, ["renew", str(files.certificate), "--out", str(world.carried)])
    assert made.exit_code == 0, made.output
    waiting = world.folder / "bank" / "bank.next.key"
    assert stat.S_IMODE(waiting.stat().st_mode) == 0o600
    assert [path.name for path in world.carried.iterdir()] == ["bank.renewal"]
    assert b"PRIVATE" not in (world.carried / "bank.renewal").read_bytes()
    words = ["sign", "--renewals", str(world.carried), "--ca", str(world.authority)]
    tried = command.invoke(certs, [*words, "--dry-run"])
    assert (tried.exit_code, "would be answered" in tried.output) == (0, True)
    assert not list(world.carried.glob("*.crt"))
    answered = command.invoke(certs, [*words, "--json", "--days", "30"])
    report = json.loads(answered.stdout)
    assert [(row["name"], row["role"], row["again"]) for row in report["signed"]] == [("bank", role, False)]
    assert (report["refused"], report["dry_run"]) == ([], False)
    switched = command.invoke(certs, ["install", str(world.carried / "bank.crt"), str(files.certificate)])
    assert switched.exit_code == 0, switched.output
    assert files.check("bank", role) == "bank"
    assert (files.certificate.read_bytes() != before[0], files.key.read_bytes() != before[1]) == (True, True)
    new, _ = files.pair()
    assert hosts_of(new) == {"bank.example.org", "10.0.0.7"}
    keys = {path.resolve() for path in world.folder.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()}
    assert keys == {files.key.resolve(), world.authority / "ca.key"}
    assert stat.S_IMODE(files.key.stat().st_mode) == 0o600


def test_the_same_request_yields_the_same_certificate(world: World) -> None:
    """Also after the answer was lost; another request of a renewed certificate may be a thief's."""
    files = world.member()
    made = renew(files, world.carried)
    (first,) = world.sign()
    assert first.certificate is not None
    content = first.certificate.read_bytes()
    shutil.copy(made.request, world.carried / "copy.renewal")
    first.certificate.unlink()
    assert [(answer.why, answer.again) for answer in world.sign()] == [("", True)] * 2
    assert [path.read_bytes() for path in sorted(world.carried.glob("*.crt"))] == [content] * 2
    for path in world.carried.iterdir():
        path.unlink()
    made.key.unlink()
    renew(files, world.carried)
    assert "renewed before, by another request" in world.refusal()


def test_requests_of_one_certificate_at_once_are_all_refused(world: World) -> None:
    """The one that is first by name would win; a forgery beside an honest request does not count."""
    files = world.member()
    honest = renew(files, world.carried)
    other = namesake(world.folder / "other", "bank", Role.PARTY, world.authority)
    forged = json.loads(renew(other, world.folder / "other").request.read_text())
    vouched = Signed.FromString(base64.b64decode(forged["signed"]))
    vouched.certificate = read_certificates(files.certificate)[0].public_bytes(Encoding.DER)
    forged["ends"] = read_certificates(files.certificate)[0].not_valid_after_utc.isoformat()
    forged["signed"] = base64.b64encode(vouched.SerializeToString()).decode()
    (world.carried / "a.renewal").write_text(json.dumps(forged))
    assert [answer.why[:26] for answer in world.sign(dry_run=True)] == ["the signature of 'bank' is", ""]
    honest.key.unlink()
    honest.request.rename(world.carried / "first.renewal")
    renew(files, world.carried)
    assert [answer.why[:31] for answer in world.sign()][1:] == ["there are 2 different requests "] * 2


def _forge(world: World, files: TlsFiles, asked: x509.CertificateSigningRequest, by: TlsFiles | None = None) -> None:
    """A request for renewal of what `asked` is for, signed by the key of `by`, with the member's certificate."""
    text, ends = asked.public_bytes(Encoding.PEM).decode(), files.pair()[0].not_valid_after_utc.isoformat()
    old, _ = files.pair()
    made = signed(by or files, renewal._statement(old, ends, text), "request", int(datetime.now(UTC).timestamp() * 1e9))
    made.certificate = old.public_bytes(Encoding.DER)
    vouched = base64.b64encode(made.SerializeToString()).decode()
    content = {"format": "treetap renewal 1", "ends": ends, "request": text, "signed": vouched}
    (world.carried / "bank.renewal").write_text(json.dumps(content))


def _asked(own: Identity, *hosts: str) -> x509.CertificateSigningRequest:
    return new_request(own, hosts)[1]


BANK = Identity("bank", Role.PARTY)


def _another_key(world: World, files: TlsFiles) -> None:
    _forge(world, files, _asked(BANK), by=world.member("shop"))


def _another_name(world: World, files: TlsFiles) -> None:
    _forge(world, files, _asked(Identity("shop", Role.PARTY)))


def _another_role(world: World, files: TlsFiles) -> None:
    _forge(world, files, _asked(Identity("bank", Role.COORDINATOR)))


def _another_host(world: World, files: TlsFiles) -> None:
    _forge(world, files, _asked(BANK, "shop.example.org"))


def _the_old_key(world: World, files: TlsFiles) -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    dns = x509.SubjectAlternativeName([x509.DNSName(BANK.dns)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(name).add_extension(dns, critical=False)
    _forge(world, files, builder.sign(files.pair()[1], hashes.SHA256()))  # type: ignore[arg-type]


def _changed(field: str, value: Callable[[str], str]) -> Callable[[World, TlsFiles], None]:
    def change(world: World, files: TlsFiles) -> None:
        path = renew(files, world.carried).request
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {field: value(content[field])}))

    return change


def _later(text: str, seconds: int) -> str:
    """A signature of another time."""
    made = Signed.FromString(base64.b64decode(text))
    made.unix_nanos += seconds * 10**9
    return base64.b64encode(made.SerializeToString()).decode()


def _revoked(world: World, files: TlsFiles) -> None:
    renew(files, world.carried)
    revoke(world.authority, ["bank"])


def _another_authority(world: World, _files: TlsFiles) -> None:
    create_authority(world.folder / "foreign")
    renew(issue(world.folder / "away", "bank", Role.PARTY, ca_folder=world.folder / "foreign"), world.carried)


def _oversized(world: World, files: TlsFiles) -> None:
    path = renew(files, world.carried).request
    path.write_text(path.read_text() + " " * MOST_BYTES)


def _a_link(world: World, files: TlsFiles) -> None:
    path = renew(files).request
    (world.carried / "bank.renewal").symlink_to(path)


def _a_pipe(world: World, _files: TlsFiles) -> None:
    os.mkfifo(world.carried / "bank.renewal")


def _expired(world: World, _files: TlsFiles) -> None:
    """A certificate that ended a second before the authority looks."""
    authority, key = open_authority(world.authority, "test")
    own = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    first, last = datetime.now(UTC) - timedelta(days=9), datetime.now(UTC) - timedelta(days=1)
    builder = x509.CertificateBuilder(authority.subject, subject, own.public_key(), 7, first, last)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(BANK.dns)]), critical=False)
    away = world.folder / "away"
    away.mkdir()
    files = TlsFiles(world.authority / "ca.crt", away / "bank.crt", away / "bank.key")
    files.certificate.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    files.key.write_bytes(key_pem(own))
    with pytest.raises(ConfigError, match="cannot be renewed; make an ordinary request"):
        renew(files)
    _forge(world, files, _asked(BANK))


def _unreadable(world: World, files: TlsFiles) -> None:
    """A certificate of no authority whose names have a form that cannot be read: a party of EDI."""
    _forge(world, files, _asked(BANK))
    content = json.loads((world.carried / "bank.renewal").read_text())
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    first, last = datetime.now(UTC), datetime.fromisoformat(content["ends"])
    names = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, bytes.fromhex("3002a500"))
    builder = x509.CertificateBuilder(name, name, key.public_key(), 7, first, last).add_extension(names, critical=False)
    made = Signed.FromString(base64.b64decode(content["signed"]))
    made.certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)
    content["signed"] = base64.b64encode(made.SerializeToString()).decode()
    (world.carried / "bank.renewal").write_text(json.dumps(content))


def _other_curve(world: World, files: TlsFiles) -> None:
    """A request whose key is of a curve that the library does not know."""
    curve, other = (bytes.fromhex(f"06082a8648ce3d0301{number}") for number in ("07", "63"))
    content = _asked(BANK).public_bytes(Encoding.DER).replace(curve, other)
    asked = x509.load_der_x509_csr(content)
    with pytest.raises(UnsupportedAlgorithm):
        asked.public_key()
    _forge(world, files, asked)


def _documents(world: World, files: TlsFiles) -> None:
    """A certificate that signs documents only: it serves no connection, and yields none that does."""
    public = files.pair()[1].public_key()
    only = sign(world.authority, BANK, public, (), 9, documents=True)  # type: ignore[arg-type]
    files.certificate.write_bytes(only.public_bytes(Encoding.PEM))
    with pytest.raises(ConfigError, match="must allow both clientAuth and serverAuth"):
        files.inspect("bank", Role.PARTY)
    renew(files, world.carried)


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (_another_key, "only the key of the certificate in use can ask for its renewal"),
        (_another_name, "it is for 'shop', not for 'bank'; the certificate in use is that of party 'bank'"),
        (_another_role, "it asks for 'bank.coordinator.treetap.internal', not for 'bank.party"),
        (_another_host, "(+shop.example.org -bank.example.org): if that is agreed, use --allow-changes"),
        (_the_old_key, "its key is that of the certificate in use"),
        (_changed("ends", lambda _: "2999-01-01T00:00:00+00:00"), "it was changed"),
        (_changed("request", lambda _: _asked(BANK).public_bytes(Encoding.PEM).decode()), "is of something else"),
        (_changed("request", lambda _: "none"), "not a request for a certificate in PEM form"),
        (_changed("request", lambda _: "\ud800"), "not a request for renewal, or damaged"),
        (_unreadable, "names cannot be read"),
        (_other_curve, "not a request for a certificate in PEM form"),
        (_changed("signed", lambda text: _later(text, 1)), "is of something else, or was changed"),
        (_changed("signed", lambda _: "AAAA"), "not a request for renewal, or damaged"),
        (_changed("format", lambda _: "treetap renewal 2"), "not a request for renewal"),
        (_revoked, "is revoked by its authority; it cannot be renewed: ask again by treetap certs request bank"),
        (_expired, "it cannot be renewed: ask again by treetap certs request bank --role party"),
        (_another_authority, "is not signed by the authority trusted here"),
        (_documents, "must allow both clientAuth and serverAuth; it cannot be renewed"),
        (_oversized, f"has more than {MOST_BYTES} bytes"),
        (_a_link, "cannot be read"),
        (_a_pipe, "is no regular file"),
    ],
)
def test_lies_are_refused(lie: Callable[[World, TlsFiles], None], says: str, world: World) -> None:
    """By name, and with the remedy; nothing is signed."""
    lie(world, world.member(hosts=("bank.example.org",)))
    assert says in world.refusal()


def test_a_refusal_is_status_2_and_others_are_signed(world: World) -> None:
    """One request of two; hosts change where that is allowed."""
    renew(world.member("shop"), world.carried)
    renew(world.member(), world.carried, ["10.0.0.9"])
    words = ["sign", "--renewals", str(world.carried), "--ca", str(world.authority)]
    told = CliRunner().invoke(certs, words)
    assert told.exit_code == 2
    assert "(+10.0.0.9)" in "".join(told.stdout.split())
    assert [path.name for path in world.carried.glob("*.crt")] == ["shop.crt"]
    allowed = CliRunner().invoke(certs, [*words, "--allow-changes", "--json"])
    assert [row["changes"] for row in json.loads(allowed.stdout)["signed"]] == [["+10.0.0.9"], []]
    assert allowed.exit_code == 0
    (new,) = read_certificates(world.carried / "bank.crt")
    assert hosts_of(new) == {"10.0.0.9"}


def test_folders_and_options_that_do_not_fit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No request, too many, an answer of another, a damaged list, no list of revoked certificates."""
    with pytest.raises(BadInput, match=r"has no \*\.renewal"):
        world.sign()
    renew(world.member(), world.carried)
    for words in (["--name", "bank"], ["--role", "party"]):
        with pytest.raises(BadInput, match="--renewals goes without"):
            CliRunner().invoke(
                certs,
                ["sign", "--renewals", str(world.carried), "--ca", str(world.authority), *words],
                catch_exceptions=False,
            )
    (world.carried / "bank.crt").write_bytes(b"x")
    assert "exists already" in world.sign()[0].why
    (world.carried / "bank.crt").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(renewals, "MOST_REQUESTS", 0)
        with pytest.raises(BadInput, match="more than 0 requests"):
            world.sign()
    (world.authority / "authority.toml").write_text('passphrase = { file = "gone" }\n')
    with pytest.raises(ConfigError, match=r"ca\.key: the key has no passphrase"):  # once, not for each request
        world.sign()
    (world.authority / "authority.toml").unlink()
    (world.authority / "renewed.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"renewed\.jsonl: line 1 is damaged"):
        world.sign()
    (world.authority / "crl.pem").unlink()
    with pytest.raises(ConfigError, match="cannot be read"):
        world.sign()


def _answered(world: World, files: TlsFiles) -> Path:
    renew(files, world.carried)
    (answer,) = world.sign()
    assert answer.certificate is not None
    return answer.certificate


@pytest.mark.parametrize("renewed_before", [False, True])
def test_a_crash_never_leaves_a_key_of_another_certificate(
    renewed_before: bool, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at each change of the folder, the pair is the old one or the new one, and a repeat ends the switch."""
    files = world.member()
    if renewed_before:
        install(_answered(world, files), files)
        shutil.rmtree(world.carried)
        world.carried.mkdir()
    new = _answered(world, files)
    whole = {path: world.folder / path for path in ("bank", "saved")}
    shutil.copytree(whole["bank"], whole["saved"], symlinks=True)
    pairs, stops = set(), 0
    for last in range(20):
        shutil.rmtree(whole["bank"])
        shutil.copytree(whole["saved"], whole["bank"], symlinks=True)
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
        assert names == ["bank.crt", "bank.key", "bank.pair", "ca.crt"]
    assert (len(pairs), stops >= 3) == (2, True)


def test_what_does_not_fit_is_not_installed(world: World) -> None:
    """Another process's certificate, another key, one of another authority, links of other tools, two folders."""
    files, shop = world.member(), world.member("shop")
    before = files.certificate.read_bytes(), files.key.read_bytes()
    new = _answered(world, files)
    with pytest.raises(ConfigError, match=r"shop\.key: this key does not belong"):
        install(new, files, shop.key)
    with pytest.raises(ConfigError, match="that of party 'shop', and"):
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
    """Over the links, as without `install`; an ordinary request's key is switched as well, and again is nothing."""
    files = world.member()
    install(_answered(world, files), files)
    hand = namesake(world.folder / "hand", "bank", Role.PARTY, world.authority)
    hand.key.replace(files.key)
    hand.certificate.replace(files.certificate)
    asked = request(world.folder / "asked", "bank", Role.PARTY)
    assert isinstance(asked.key, Path)
    words = ["sign", str(asked.request), "--name", "bank", "--role", "party", "--ca", str(world.authority)]
    assert CliRunner().invoke(certs, words).exit_code == 0
    new = asked.key.with_suffix(".crt")
    assert install(new, files, asked.key)
    assert not asked.key.exists()
    assert files.certificate.read_bytes() == new.read_bytes()
    assert not install(new, files)


def test_what_the_old_key_has_signed_still_counts(world: World, tmp_path: Path) -> None:
    """A transcript that both keys signed, a job's signature: each has its certificate, and a later revocation too."""
    files = world.member()
    lists = world.authority / "crl.pem"
    log, signer = tmp_path / "log", Signer(files)

    def write(text: str) -> None:
        writer = TranscriptWriter(log, 10**6, signer=signer)
        writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name=text))
        writer.close()

    write("before")
    old = signed(files, b"statement", "test", int((datetime.now(UTC) - timedelta(seconds=9)).timestamp() * 1e9))
    kept = tmp_path / "kept.crt"
    shutil.copy(files.certificate, kept)
    new = _answered(world, files)
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
    answer = _answered(world, files)
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


def test_a_running_process_goes_by_the_new_pair(world: World) -> None:
    """At its next look, whole; over sockets its partner knows it by its name, before and after."""
    files, partner = world.member(), world.member("shop")
    new = _answered(world, files)
    keys: list[bytes] = []

    async def main() -> None:
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

    asyncio.run(main())
    assert keys[0] != keys[1] == files.key.read_bytes()
    shown = CredentialSource(partner).now().caller
    assert shown(new.read_bytes(), Role.PARTY) == BANK
