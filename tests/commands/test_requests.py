"""Requests for certificates, and pairs that replace others.

- Requests for certificates: the key stays where it was made, and the authority signs only what it states itself.
- Renewal: a request of the same name, whose fingerprint is compared again, and a switch that is one rename.

Passphrases in commands: typed at the terminal once, and kept on the keys that they make.
"""

from __future__ import annotations

import asyncio
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from tests.certificates import certified, namesake
from tests.library.wire.logs import RECEIVED
from tests.sockets import listening
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.jobs.client import OperatorConfig
from treetap.errors import BadInput, ConfigError
from treetap.models.durable import sync_folder
from treetap.ops.certs import requests
from treetap.ops.certs.cli import certs
from treetap.ops.certs.requests import install, request, revoke, sign_request
from treetap.process import config as process_config
from treetap.process.config import Secret
from treetap.wire.callers import Callers
from treetap.wire.certificates import key_pem, read_certificates, read_key
from treetap.wire.ports import Address, Identity, Role
from treetap.wire.probe import say_hello
from treetap.wire.signatures import signed, verified
from treetap.wire.tls import CredentialSource, TlsFiles
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.types_pb2 import NamedMetric

BANK = Identity("bank", Role.PARTY)


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """An authority, which no host shares a folder with."""
    create_authority(tmp_path / "authority")
    return tmp_path / "authority"


def _request(
    folder: Path, names: Sequence[str], dns: Sequence[str] | None, key: object = None, uses: Sequence[str] = ()
) -> Path:
    """A request made with other tools."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    if dns is not None:
        hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in dns])
        builder = builder.add_extension(hosts, critical=False)
    if uses:
        of = x509.ExtendedKeyUsage([x509.ObjectIdentifier(use) for use in uses])
        builder = builder.add_extension(of, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    path = folder / "bank.csr"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))  # type: ignore[arg-type]
    return path


def test_a_key_never_leaves_its_host(authority: Path, tmp_path: Path) -> None:
    """`request` and `sign` make a process's certificate, and the authority never sees its key."""
    host, desk = tmp_path / "host", tmp_path / "desk"
    command = CliRunner()
    words = ["request", "bank", "--role", "party", "--host", "bank.example.org", "--host", "10.0.0.7"]
    made = command.invoke(certs, [*words, "--out", str(host)])
    assert made.exit_code == 0
    fingerprint = made.stdout.partition("SHA-256 of the key: ")[2][:95]
    assert sorted(path.name for path in host.iterdir()) == [".gitignore", "bank.csr", "bank.key"]
    assert stat.S_IMODE((host / "bank.key").stat().st_mode) == 0o600
    desk.mkdir()
    (host / "bank.csr").rename(desk / "bank.csr")
    words = ["sign", str(desk / "bank.csr"), "--name", "bank", "--role", "party", "--ca", str(authority)]
    words += ["--host", "BANK.example.org", "--host", "10.0.0.7", "--fingerprint", fingerprint, "--days", "30"]
    signed = command.invoke(certs, words)
    assert signed.exit_code == 0, signed.exception
    assert fingerprint in signed.stdout
    assert sorted(path.name for path in desk.iterdir()) == ["bank.crt", "bank.csr"]
    files = TlsFiles(authority / "ca.crt", desk / "bank.crt", host / "bank.key")
    assert files.check("bank", Role.PARTY) == "bank"
    held = [path for path in tmp_path.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert sorted(held) == [authority / "ca.key", host / "bank.key"]


def test_nothing_of_a_key_in_use_is_overwritten(authority: Path, tmp_path: Path) -> None:
    """A second request beside a key or a certificate, and a second certificate, are refused."""
    made = request(tmp_path, "bank", Role.PARTY)
    with pytest.raises(BadInput, match=r"bank\.key: exists already"):
        request(tmp_path, "bank", Role.PARTY)
    sign_request(made.request, BANK, authority)
    with pytest.raises(BadInput, match=r"bank\.crt: exists already"):
        sign_request(made.request, BANK, authority)
    made.key.unlink()
    made.request.unlink()
    with pytest.raises(BadInput, match=r"bank\.crt: exists already"):
        request(tmp_path, "bank", Role.PARTY)


@pytest.mark.parametrize(
    ("names", "dns", "says"),
    [
        (["coordinator"], ["coordinator.coordinator.treetap.internal"], "it is for 'coordinator', not for 'bank'"),
        (["bank", "coordinator"], ["bank.party.treetap.internal"], "it is for 'bank', 'coordinator'"),
        ([], ["bank.party.treetap.internal"], "it is for no process"),
        (["bank"], None, "it asks for no role"),
        (["bank"], ["bank"], "it asks for no role, not for 'bank.party.treetap.internal'"),
        (["bank"], ["bank.coordinator.treetap.internal"], "not for 'bank.party.treetap.internal'"),
        (["bank"], ["bank.party.treetap.internal", "*.party.treetap.internal"], "it asks for 'bank.party"),
        (["bank"], ["bank.party.treetap.internal", "shop.example.org"], "add --host shop.example.org"),
    ],
)
def test_a_request_gets_no_more_than_the_authority_states(
    names: list[str], dns: list[str] | None, says: str, authority: Path, tmp_path: Path
) -> None:
    """Another name, another role, a name of another's role and a host that was not agreed to are errors."""
    with pytest.raises(ConfigError, match=r"bank\.csr: ") as refused:
        sign_request(_request(tmp_path, names, dns), BANK, authority)
    assert says in str(refused.value)
    assert not (tmp_path / "bank.crt").exists()


def test_a_signed_request_makes_no_authority(authority: Path, tmp_path: Path) -> None:
    """Whatever else a request asks for is not in the certificate."""
    path, _ = sign_request(_request(tmp_path, ["bank"], [BANK.dns]), BANK, authority)
    signed = x509.load_pem_x509_certificate(path.read_bytes())
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_a_request_for_documents_gets_no_certificate_for_connections(authority: Path, tmp_path: Path) -> None:
    """Earlier versions made one for keys in tokens; a request for one end of connections gets both, as others do."""
    with pytest.raises(ConfigError, match="it asks for other uses than connections"):
        sign_request(_request(tmp_path, ["bank"], [BANK.dns], uses=["1.3.6.1.5.5.7.3.36"]), BANK, authority)
    assert sign_request(_request(tmp_path, ["bank"], [BANK.dns], uses=["1.3.6.1.5.5.7.3.1"]), BANK, authority)


def test_what_cannot_be_read_is_refused(authority: Path, tmp_path: Path) -> None:
    """Names of a form that the library does not know, a party of EDI, and a key of a curve that it does not know."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    names = x509.UnrecognizedExtension(x509.SubjectAlternativeName.oid, bytes.fromhex("3002a500"))
    builder = x509.CertificateSigningRequestBuilder(name).add_extension(names, critical=False)
    (path := tmp_path / "bank.csr").write_bytes(
        builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    )
    with pytest.raises(ConfigError, match="what it asks for cannot be read"):
        sign_request(path, BANK, authority)
    curve, other = (bytes.fromhex(f"06082a8648ce3d0301{number}") for number in ("07", "63"))
    asked = x509.load_pem_x509_csr(_request(tmp_path, ["bank"], [BANK.dns]).read_bytes())
    content = asked.public_bytes(serialization.Encoding.DER).replace(curve, other)
    path.write_bytes(x509.load_der_x509_csr(content).public_bytes(serialization.Encoding.PEM))
    with pytest.raises(ConfigError, match="not a request for a certificate in PEM form"):
        sign_request(path, BANK, authority)


@pytest.mark.parametrize(
    "key", [lambda: ec.generate_private_key(ec.SECP192R1()), lambda: rsa.generate_private_key(65537, 1024)]
)
def test_weak_keys_are_refused(key: Callable[[], object], authority: Path, tmp_path: Path) -> None:
    """A key that TLS would refuse, or that is short, gets no certificate."""
    with pytest.raises(ConfigError, match="its key must be of curve P-256"):
        sign_request(_request(tmp_path, ["bank"], [BANK.dns], key()), BANK, authority)


def test_a_request_on_its_way_is_compared(authority: Path, tmp_path: Path) -> None:
    """A request that was put in the place of another, and a damaged one, are errors."""
    asked = request(tmp_path / "host", "bank", Role.PARTY)
    other = request(tmp_path / "other", "bank", Role.PARTY)
    with pytest.raises(ConfigError, match="it is another request"):
        sign_request(other.request, BANK, authority, fingerprint=asked.fingerprint)
    assert sign_request(asked.request, BANK, authority, fingerprint=asked.fingerprint.replace(":", "").lower())
    der = bytearray(x509.load_pem_x509_csr(other.request.read_bytes()).public_bytes(serialization.Encoding.DER))
    der[-1] ^= 1
    damaged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    other.request.write_bytes(damaged)
    with pytest.raises(ConfigError, match="not signed with its own key"):
        sign_request(other.request, BANK, authority)
    other.request.write_bytes(b"x")
    with pytest.raises(ConfigError, match="not a request for a certificate"):
        sign_request(other.request, BANK, authority)


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
            patch.setattr(requests, "sync_folder", stop)
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
    async with listening(callers) as address:
        for switch in (False, True):
            if switch:
                install(new, files)
            assert (await asyncio.to_thread(say_hello, Address("bank", address), partner, 5)).serving
            assert callers.credentials is not None
            keys.append(callers.credentials.now().key)
            assert not callers.credentials.unsettled
    assert keys[0] != keys[1] == files.key.read_bytes()
    shown = CredentialSource(partner).now().caller
    assert shown(new.read_bytes(), Role.PARTY) == BANK


def test_an_operator_types_the_passphrase_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key under a passphrase whose place the file does not name opens at a terminal, and nowhere else."""
    files = certified(tmp_path, "operator")["operator"]
    files.key.write_bytes(key_pem(read_key(files.key), b"word"))
    tls = '[tls]\nca = "ca.crt"\ncertificate = "operator.crt"\nkey = "operator.key"\n'
    (tmp_path / "operator.toml").write_text(f'coordinator = "127.0.0.1:1"\n{tls}')
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "word"

    monkeypatch.setattr(process_config, "getpass", answer)
    config = OperatorConfig.from_file(tmp_path / "operator.toml")
    with pytest.raises(ConfigError, match="is protected by a passphrase"):
        config.transport().check("operator", Role.OPERATOR)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for _ in range(2):  # each call of a command makes its credentials anew
        assert config.transport().check("operator", Role.OPERATOR) == "operator"
    assert asked == [f"{files.key}: its passphrase: "]


def test_a_next_key_in_plain_is_refused(tmp_path: Path) -> None:
    """Where the one in use has a passphrase; under the same one it is installed as it is."""
    files = replace(certified(tmp_path, "bank")["bank"], passphrase=Secret(command=("echo", "word")))
    files.key.write_bytes(key_pem(read_key(files.key), b"word"))
    made = request(tmp_path / "next", "bank", Role.PARTY)
    new, _ = sign_request(made.request, Identity("bank", Role.PARTY), tmp_path)
    with pytest.raises(ConfigError, match="the key has no passphrase; encrypt it"):
        install(new, files)
    made.key.write_bytes(key_pem(read_key(made.key), b"word"))
    assert install(new, files)
    assert files.inspect("bank", Role.PARTY) == "bank"


def test_install_takes_files_and_passphrase_from_the_file_of_a_process(tmp_path: Path) -> None:
    """Without a terminal, as from a timer: it names its pair and the command that prints the word."""
    create_authority(tmp_path)
    files = issue(tmp_path / "tls", "bank", Role.PARTY, ca_folder=tmp_path)
    files.key.write_bytes(key_pem(read_key(files.key), b"word"))
    tls = 'ca = "ca.crt"\ncertificate = "tls/bank.crt"\nkey = "tls/bank.key"\n'
    tls += 'passphrase = { command = ["echo", "word"] }\n'
    (own := tmp_path / "bank.toml").write_text(f'name = "bank"\nlisten = "127.0.0.1:1"\n[tls]\n{tls}')
    made = request(tmp_path / "next", "bank", Role.PARTY)
    made.key.write_bytes(key_pem(read_key(made.key), b"word"))
    new, _ = sign_request(made.request, Identity("bank", Role.PARTY), tmp_path)
    for words in ([], [str(files.certificate), "--config", str(own)], ["--config", str(own), "--key", "other.key"]):
        with pytest.raises(BadInput, match=r"name either|--key and --ca go with"):
            CliRunner().invoke(certs, ["install", str(new), *words], catch_exceptions=False)
    CliRunner().invoke(certs, ["install", str(new), "--config", str(own)], catch_exceptions=False)
    opened = replace(files, passphrase=Secret(command=("echo", "word")))
    assert (opened.inspect("bank", Role.PARTY), files.certificate.read_bytes()) == ("bank", new.read_bytes())
