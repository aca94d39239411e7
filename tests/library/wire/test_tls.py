"""Certificates: what is issued serves both ends, and every fault of one's own files is told in one line."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import os
import shutil
import ssl
import stat
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.sockets import listening
from treetap.commands.certs import authority
from treetap.commands.certs.authority import create_authority, issue
from treetap.errors import BadInput, ConfigError
from treetap.ops.certs.requests import request, revoke, sign_request
from treetap.process.config import Secret
from treetap.wire.callers import Callers
from treetap.wire.certificates import fingerprint, identity, key_pem, read_key
from treetap.wire.ports import ORGANISATION, Address, Identity, Role
from treetap.wire.probe import say_hello
from treetap.wire.tls import CredentialSource, TlsFiles

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    create_authority(tmp_path)
    return tmp_path


def _load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_an_issued_certificate_serves_both_ends_under_its_names(folder: Path) -> None:
    """Name, alternative names, uses, curve and dates are those that the federation relies on."""
    before = datetime.now(UTC)
    files = issue(folder, "clinic-1", Role.PARTY, ["clinic.example.org", "10.0.0.7", "::1"], days=30)
    certificate = _load(files.certificate)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["clinic-1.party.treetap.internal", "clinic.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.0.0.7"), ipaddress.ip_address("::1")]
    uses = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert uses == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    public = certificate.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp256r1"
    first = certificate.not_valid_before_utc - (before - timedelta(minutes=5))
    assert abs(first) < timedelta(seconds=10)
    assert abs(certificate.not_valid_after_utc - before - timedelta(days=30)) < timedelta(seconds=10)
    assert files.check("clinic-1") == files.check(None) == "clinic-1"


@pytest.mark.parametrize("name", ["Trust Ltd", "Größte Bank, AG", ""])
def test_the_authority_states_an_organisation(name: str, folder: Path, tmp_path: Path) -> None:
    """In what it issues and what it signs; a process of another one is the same process."""
    issued = issue(folder, "a", Role.PARTY, organisation=name)
    made = request(tmp_path / "host", "b", Role.PARTY)
    signed, _ = sign_request(made.request, Identity("b", Role.PARTY, name), folder)
    shown = [identity(_load(path)) for path in (issued.certificate, signed)]
    assert [it.organisation for it in shown] == [issued.organisation, name] == [name, name]
    assert shown[0] == Identity("a", Role.PARTY, "another")
    caller = Callers("me", issued).identity(signed.read_bytes())
    assert (caller.organisation, ORGANISATION.get()) == (name, name)


@pytest.mark.parametrize("name", [" ", "x" * 65, "a\nb"])
def test_an_unusable_organisation_is_refused(name: str, folder: Path) -> None:
    """Before anything is written."""
    with pytest.raises(ConfigError, match=r"organisation .*: it must have 1 to 64 printable characters"):
        issue(folder, "a", Role.PARTY, organisation=name)
    assert not (folder / "a.key").exists()


def test_private_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    """ca.key and every party's key have mode 600."""
    files = issue(folder, "a", Role.PARTY)
    for key in (folder / "ca.key", files.key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_nothing_is_overwritten(folder: Path) -> None:
    """A second authority, and a second certificate of one name, are refused and leave the files as they were."""
    files = issue(folder, "a", Role.PARTY)
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(BadInput, match=r"ca\.crt: exists already"):
        create_authority(folder)
    files.certificate.unlink()
    with pytest.raises(BadInput, match=r"a\.key: exists already"):
        issue(folder, "a", Role.PARTY)
    del kept[files.certificate]
    assert {path: path.read_bytes() for path in folder.iterdir()} == kept


@pytest.mark.parametrize("name", ["a", "7", "a-b", "x" * 63])
def test_names_that_fit_are_accepted(folder: Path, name: str) -> None:
    """Shortest and longest names, digits and inner hyphens are fine."""
    assert issue(folder, name, Role.PARTY).check(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a_b", "a.b", "a/../b", "x" * 64, "é", "a\n", "ca"])
def test_names_that_do_not_fit_are_refused(folder: Path, name: str) -> None:
    """A name that cannot be a DNS label, a path component and a common name alike is a ConfigError."""
    with pytest.raises(ConfigError, match="name "):
        issue(folder, name, Role.PARTY)


@pytest.mark.parametrize(
    "host",
    [
        *("", "a b", "-x.org", "a..b", "10.0.0.0/8", "http://a", "x" * 64, "a.b" * 100, "*.example.org"),
        # no certificate gets another name below the domain in which callers compare names
        *("treetap.internal", "b.party.treetap.internal", "B.Party.Treetap.Internal", "x.treetap.internal."),
    ],
)
def test_hosts_that_are_no_hosts_are_refused(folder: Path, host: str) -> None:
    """Neither an address nor a DNS name: ConfigError, and no files."""
    with pytest.raises(ConfigError, match="host "):
        issue(folder, "a", Role.PARTY, [host])
    assert not (folder / "a.key").exists()


def test_a_name_has_one_role(folder: Path) -> None:
    """The authority issues no certificate of another role to a name that it knows; of the same one it does."""
    issue(folder, "bank", Role.PARTY)
    with pytest.raises(ConfigError, match=r"name 'bank': .*jsonl has a certificate of party 'bank', and a name has"):
        issue(folder / "client", "bank", Role.CLIENT, ca_folder=folder)
    request(folder / "asked", "bank", Role.CLIENT)
    with pytest.raises(ConfigError, match="and a name has one role: take another"):
        sign_request(folder / "asked" / "bank.csr", Identity("bank", Role.CLIENT), folder)
    assert not (folder / "asked" / "bank.crt").exists()
    assert issue(folder / "renewed", "bank", Role.PARTY, ca_folder=folder).certificate.exists()


def test_a_process_lends_its_name_to_no_other(folder: Path) -> None:
    """Neither a party's name as another's host, nor a host of another as a party's name, whatever came first."""
    issue(folder, "bank", Role.PARTY, ["bank.example.org", "shop"])
    for name, hosts in (("mallory", ["bank"]), ("mallory", ["a.example.org", "BANK"]), ("mallory", ["mallory"])):
        with pytest.raises(ConfigError, match="a process of the federation has this name"):
            issue(folder, name, Role.CLIENT, hosts)
    with pytest.raises(ConfigError, match="the certificate of party 'bank' has it as a host"):
        issue(folder, "shop", Role.PARTY)
    lines = [json.loads(line) for line in (folder / "issued.jsonl").read_text().splitlines()]
    assert [(line["name"], line["role"], line["hosts"]) for line in lines] == [
        ("bank", "party", ["bank.example.org", "shop"])
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"until": "soon"},
        {"until": "2030-01-01T00:00:00"},
        {"until": 7},
        {"serial": "zz"},
        {"serial": "-1"},
        {"serial": "0"},
        {"serial": "f" * 41},
        {"hosts": "abc"},
        {"hosts": [7]},
        {"name": None},
        "{}",
        "[" * 100_000,
    ],
    ids=lambda change: str(change)[:30],
)
def test_a_damaged_line_of_what_was_issued_is_named(folder: Path, change: dict[str, object] | str) -> None:
    """Whatever is wrong in it, issuing and revoking end in an error with file and line."""
    issue(folder, "bank", Role.PARTY)
    path = folder / "issued.jsonl"
    line = change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change)
    path.write_text(path.read_text() + line + "\n")
    for act in (partial(issue, folder, "b", Role.PARTY), partial(revoke, folder, ["bank"])):
        with pytest.raises(ConfigError, match=r"issued\.jsonl: line 2 is damaged"):
            act()


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    """Issuing for longer than the authority lasts says when that ends."""
    create_authority(tmp_path, days=10)
    with pytest.raises(ConfigError, match=r"the authority ends on \d{4}-\d\d-\d\d"):
        issue(tmp_path, "a", Role.PARTY, days=11)
    with pytest.raises(ConfigError, match="at least one"):
        issue(tmp_path, "a", Role.PARTY, days=0)


def test_the_authority_key_says_what_it_is_opened_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each issue logs one opening of ca.key with its purpose; checking opens none."""
    with caplog.at_level(logging.INFO, "treetap.commands.certs.authority"):
        issue(folder, "a", Role.PARTY).check("a")
    assert [record.getMessage() for record in caplog.records] == [
        f"opening the authority's key {folder / 'ca.key'} to sign the certificate of party 'a'"
    ]


def test_an_authority_may_be_kept_elsewhere(folder: Path, tmp_path: Path) -> None:
    """Party files go to their own folder while the authority's key stays in its."""
    files = issue(tmp_path / "party", "a", Role.PARTY, ca_folder=folder)
    assert files == TlsFiles(folder / "ca.crt", tmp_path / "party" / "a.crt", tmp_path / "party" / "a.key")
    assert files.read() == tuple(path.read_bytes() for path in (files.ca, files.certificate, files.key))
    shutil.copy(files.key, folder / "ca.key")
    with pytest.raises(ConfigError, match=r"ca\.key: opened to sign the certificate of party 'b', but it does"):
        issue(tmp_path / "party", "b", Role.PARTY, ca_folder=folder)


@pytest.mark.parametrize("which", ["ca", "certificate", "key"])
def test_files_that_are_missing_unreadable_or_no_pem_are_named(folder: Path, which: str) -> None:
    """For each of the three files, each of the three faults gives a line that begins with its path."""
    files = issue(folder, "a", Role.PARTY)
    path: Path = getattr(files, which)
    path.unlink()
    _assert_fault(files, None, f"{path}: there is no such file")
    path.write_bytes(b"-----BEGIN NOTHING-----\n")
    _assert_fault(files, None, f"{path}: not a ")
    path.unlink()
    path.mkdir()
    _assert_fault(files, None, f"{path}: cannot be read: ")
    with pytest.raises(ConfigError, match="cannot be read"):
        files.read()


def test_a_key_of_another_certificate_is_told(folder: Path) -> None:
    """The line names the key and the certificate."""
    a, b = issue(folder, "a", Role.PARTY), issue(folder, "b", Role.PARTY)
    mixed = TlsFiles(a.ca, a.certificate, b.key)
    _assert_fault(mixed, "a", f"{b.key}: this key does not belong to the certificate {a.certificate}")


def _encrypt(key: Path, word: bytes) -> None:
    """Put a passphrase on a key file."""
    key.write_bytes(key_pem(read_key(key), word))


def test_a_key_under_a_passphrase_is_told(folder: Path) -> None:
    """A process that starts by itself cannot type a passphrase."""
    files = issue(folder, "a", Role.PARTY)
    _encrypt(files.key, b"word")
    _assert_fault(files, "a", f"{files.key}: the key is protected by a passphrase; say beside key =")


def test_a_key_opens_by_the_passphrase_of_its_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key under a passphrase serves gRPC and `ssl`; a wrong passphrase, or a needless one, is named and not shown."""
    from_command = Secret(command=("echo", "word"))
    plain = issue(folder, "a", Role.PARTY)
    files = replace(plain, passphrase=from_command)
    _assert_fault(files, "a", f"{files.key}: the key has no passphrase")
    content = plain.read()
    _encrypt(files.key, b"word")
    assert files.inspect("a", Role.PARTY) == "a"
    monkeypatch.setattr(Secret, "phrase", None)  # it is asked for once: what signs reads the key anew each time
    assert files.read() == content
    files.load_into(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    monkeypatch.undo()
    line = _assert_fault(replace(files, passphrase=Secret(command=("echo", "canary"))), "a", f"{files.key}: the ")
    assert "does not open this key" in line
    assert "canary" not in line


def test_a_renewed_key_is_opened_by_its_new_passphrase(folder: Path) -> None:
    """A running process takes a new key once the place of the passphrase holds that of the new one."""
    (place := folder / "word").write_bytes(b"first\n")
    files = replace(issue(folder, "a", Role.PARTY), passphrase=Secret(file=place))
    _encrypt(files.key, b"first")
    source = CredentialSource(files)
    first = source.now()
    files.key.unlink()
    files.certificate.unlink()
    plain = issue(folder, "a", Role.PARTY).key.read_bytes()
    _encrypt(files.key, b"second")
    assert source.now() is first
    place.write_bytes(b"second\n")
    os.utime(files.key)  # else it is tried again after a second
    assert source.now().key == plain


def test_dates_are_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expired certificate, one of the future, and an expired authority each name their date."""
    past, future = datetime.now(UTC) - timedelta(minutes=1), datetime.now(UTC) + timedelta(hours=1)
    with monkeypatch.context() as patched:
        patched.setattr(authority, "last_day", lambda days: past)
        expired = issue(folder, "expired", Role.PARTY)
    with monkeypatch.context() as patched:
        patched.setattr(authority, "BACKDATED", -timedelta(hours=1))
        early = issue(folder, "early", Role.PARTY)
    _assert_fault(expired, None, f"{expired.certificate}: the certificate expired on {past:%Y-%m-%d %H:%M} UTC (it is")
    _assert_fault(early, None, f"{early.certificate}: the certificate is not valid before {future:%Y-%m-%d %H:}")
    files = issue(folder, "a", Role.PARTY)
    with monkeypatch.context() as patched:
        patched.setattr(authority, "last_day", lambda days: past)
        (folder / "ca.crt").unlink()
        key = (folder / "ca.key").rename(folder / "kept.key")
        patched.setattr(
            ec, "generate_private_key", lambda curve: serialization.load_pem_private_key(key.read_bytes(), None)
        )
        create_authority(folder)
    _assert_fault(files, None, f"{files.certificate}: the authority's certificate expired on {past:%Y-%m-%d}")


def test_a_foreign_authority_is_told_with_both_fingerprints(folder: Path, tmp_path: Path) -> None:
    """Two authorities of the same name are told apart by the fingerprints that openssl prints."""
    create_authority(tmp_path / "other")
    files = issue(folder, "a", Role.PARTY)
    foreign = TlsFiles(tmp_path / "other" / "ca.crt", files.certificate, files.key)
    line = _assert_fault(foreign, "a", f"{files.certificate}: the certificate (SHA-256 ")
    assert fingerprint(_load(files.certificate)) in line
    assert fingerprint(_load(foreign.ca)) in line


def test_another_name_is_told(folder: Path) -> None:
    """The line has the certificate's name and the one that was expected."""
    files = issue(folder, "a", Role.PARTY)
    _assert_fault(files, "b", f"{files.certificate}: the certificate is that of 'a', not of 'b'")


def test_a_certificate_made_elsewhere_must_serve_both_ends(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate without clientAuth, and one without a role among the alternatives, are faults."""
    with monkeypatch.context() as patched:
        patched.setattr(authority, "BOTH_ENDS", (ExtendedKeyUsageOID.SERVER_AUTH,))
        server_only = issue(folder, "server-only", Role.PARTY)
    _assert_fault(server_only, None, f"{server_only.certificate}: the certificate's extended key usage must allow both")
    with monkeypatch.context() as patched:
        patched.setattr(x509, "DNSName", lambda name: x509.RFC822Name(f"{name}@example.org"))
        nameless = issue(folder, "nameless", Role.PARTY)
    _assert_fault(nameless, None, f"{nameless.certificate}: the certificate of 'nameless' has no role")


def test_a_key_that_others_can_read_is_a_warning(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Mode 644 on a key is said, and stops nothing; mode 600 is silent."""
    files = issue(folder, "a", Role.PARTY)
    assert files.check("a") == "a"
    assert not caplog.records
    files.key.chmod(0o644)
    assert files.check("a") == "a"
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(files.key) in record.getMessage()


def _assert_fault(files: TlsFiles, name: str | None, begins: str) -> str:
    with pytest.raises(ConfigError) as caught:
        files.check(name)
    line = str(caught.value)
    assert line.startswith(begins), line
    assert "\n" not in line
    return line


def _made(
    names: tuple[str, str], keys: tuple[Key, Key], *, ca: bool = False, dns: Sequence[str] = ()
) -> x509.Certificate:
    """A certificate as other tools make it. `names`, `keys`: the issuer's and the subject's."""
    issuer, subject = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in names)
    now, public = datetime.now(UTC), keys[1].public_key()
    enciphers = isinstance(keys[1], rsa.RSAPrivateKey)
    use = x509.KeyUsage(not ca, False, enciphers, False, False, ca, ca, False, False)
    builder = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number(), now, now + timedelta(days=90))
        .add_extension(use, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key()), critical=False)
    )
    if ca:
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    else:
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, dns)]), critical=False)
    return builder.sign(keys[0], hashes.SHA256())


@pytest.mark.real_time
@pytest.mark.parametrize("intermediate", [True, False], ids=["step-ca", "cert-manager"])
async def test_certificates_of_another_authority_serve(intermediate: bool, tmp_path: Path) -> None:
    """Behind an intermediate one, which `ca` has, or of a root, and of either kind of key: over sockets."""
    root, signing = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    above = [_made(("root", "root"), (root, root), ca=True)]
    if intermediate:
        above.insert(0, _made(("root", "signing"), (root, signing), ca=True))
    issuer = ("signing", signing) if intermediate else ("root", root)
    (tmp_path / "ca.crt").write_bytes(b"".join(one.public_bytes(serialization.Encoding.PEM) for one in above))
    rsa_key = rsa.generate_private_key(65537, 2048)
    own: dict[str, Key] = {"bank": rsa_key, "shop": ec.generate_private_key(ec.SECP256R1())}
    files = {}
    for name, key in own.items():
        dns = [f"{name}.party.treetap.internal", f"{name}.example.org"]
        chain = [_made((issuer[0], name), (issuer[1], key), dns=dns), *above[:-1]]
        files[name] = TlsFiles(tmp_path / "ca.crt", tmp_path / f"{name}.crt", tmp_path / f"{name}.key")
        files[name].certificate.write_bytes(b"".join(one.public_bytes(serialization.Encoding.PEM) for one in chain))
        files[name].key.write_bytes(key_pem(key))
        assert files[name].check(name, Role.PARTY) == name

    async with listening(Callers("bank", files["bank"])) as address:
        assert (await asyncio.to_thread(say_hello, Address("bank", address), files["shop"], 5)).serving
