"""Requests for certificates: the key stays where it was made, and the authority signs only what it states itself."""

from __future__ import annotations

import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from treetap.commands.certs.authority import create_authority
from treetap.commands.certs.cli import certs
from treetap.commands.certs.requests import request, sign_request
from treetap.errors import BadInput, ConfigError
from treetap.wire.ports import Identity, Role
from treetap.wire.tls import TlsFiles

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
