"""Certificates of the compose file: the authority is gone before they are announced, and old ones are renewed."""

from __future__ import annotations

import os
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.certificates import role_of
from tests.containers.composed import PARTIES, ROOT
from tests.library.wire.logs import RECEIVED
from treetap.attacks import audit_file
from treetap.commands.certs.authority import create_authority, issue
from treetap.wire.certificates import read_certificates, spki
from treetap.wire.tls import certificate_fault
from treetap.wire.transcript import TranscriptReader
from treetap.wire.transcript_writer import TranscriptWriter
from treetap.wire.v2.types_pb2 import NamedMetric

pytestmark = pytest.mark.second_tier

NAMES = ("coordinator", "operator", *PARTIES)


@pytest.fixture
def script() -> SimpleNamespace:
    """The functions of certs.py."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "compose" / "certs.py")))


@pytest.fixture
def places(script: SimpleNamespace, tmp_path: Path) -> Iterator[Any]:
    """A volume per process."""
    for name in NAMES:
        (tmp_path / "tls" / name).mkdir(parents=True)
    for folder in ("memory", "trusted"):
        (tmp_path / folder).mkdir()
    yield script.Places(
        tmp_path / "tls",
        tmp_path / "memory",
        tmp_path / "trusted",
        tmp_path / "issued",
        owner=os.getuid(),
    )
    for folder in (tmp_path / "tls").iterdir():
        folder.chmod(0o700)


def _issued(script: SimpleNamespace, places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as `up`, to the moment at which the container waits."""
    waited: list[bool] = []

    def wait(_signals: object) -> None:
        assert places.issued.exists()
        assert _keys_of_authorities(places) == []
        waited.append(True)

    monkeypatch.setattr("signal.sigwait", wait)
    monkeypatch.setattr("signal.pthread_sigmask", lambda *_: None)
    before = os.umask(0o022)
    try:
        script.main(["serve"], places)
    finally:
        os.umask(before)
    assert waited


def _keys_of_authorities(places: Any) -> list[Path]:
    """Files anywhere that hold the key of a certificate that is its own signer."""
    files = [path for path in places.tls.parent.rglob("*") if path.is_file()]
    signing = set()
    for path in files:
        if b"BEGIN CERTIFICATE" in path.read_bytes():
            for each in x509.load_pem_x509_certificates(path.read_bytes()):
                if each.issuer == each.subject:
                    signing.add(spki(each.public_key()))
    held = [path for path in files if b"PRIVATE KEY" in path.read_bytes()]
    keys = {path: serialization.load_pem_private_key(path.read_bytes(), None) for path in held}
    return [path for path, key in keys.items() if spki(key.public_key()) in signing]


def _content(places: Any) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in places.tls.rglob("*") if path.is_file()}


def _in_order(places: Any) -> None:
    for name in NAMES:
        files = places.files(name)
        assert files.check(name, role_of(name)) == name
        assert sorted(path.name for path in files.key.parent.iterdir()) == ["ca.crt", f"{name}.crt", f"{name}.key"]
        assert files.key.parent.stat().st_mode & 0o777 == 0o500
        assert files.key.stat().st_mode & 0o777 == 0o400
        assert files.ca.stat().st_mode & 0o777 == files.certificate.stat().st_mode & 0o777 == 0o444


def test_from_nothing(script: SimpleNamespace, places: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process has a certificate of its role, the authority's key is nowhere; the next `up` changes nothing."""
    _issued(script, places, monkeypatch)
    _in_order(places)
    kept = _content(places)
    assert len(kept) == 3 * len(NAMES)
    _issued(script, places, monkeypatch)
    assert _content(places) == kept
    assert [path for path in places.memory.rglob("*") if path.is_file()] == []


def _without_roles(places: Any, authority: Path) -> None:
    """Certificates of another authority, which name no role."""
    create_authority(authority)
    signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    for name in NAMES:
        files = places.files(name)
        issue(files.key.parent, name, role_of(name), ca_folder=authority)
        files.ca.write_bytes((authority / "ca.crt").read_bytes())
        valid = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        builder = x509.CertificateBuilder(
            valid.issuer, valid.subject, valid.public_key(), x509.random_serial_number(),
            valid.not_valid_before_utc, valid.not_valid_after_utc,
        ).add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)  # fmt: skip
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        signed = builder.sign(signer, hashes.SHA256())
        files.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def test_certificates_without_roles(
    script: SimpleNamespace, places: Any, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every one of them is renewed, by a new authority."""
    _without_roles(places, tmp_path_factory.mktemp("authority"))
    _issued(script, places, monkeypatch)
    _in_order(places)
    assert _keys_of_authorities(places) == []


@pytest.mark.parametrize("gone", ["ca.crt", "feature-b.key", "feature-b.crt", ""])
def test_one_volume_that_is_not_in_order(
    gone: str, script: SimpleNamespace, places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is lost, and a certificate that ends soon: a new authority for all, since the old one is gone."""
    _issued(script, places, monkeypatch)
    before = _content(places)
    if gone:
        (places.tls / "feature-b").chmod(0o700)
        (places.tls / "feature-b" / gone).unlink()
    else:
        authority = places.memory / "short"
        create_authority(authority)
        for name in NAMES:
            files = places.files(name)
            files.key.parent.chmod(0o700)
            script.erase(files.key.parent.iterdir())
            issue(files.key.parent, name, role_of(name), days=29 if name == "feature-b" else 365, ca_folder=authority)
            files.ca.write_bytes((authority / "ca.crt").read_bytes())
        before = _content(places)
    _issued(script, places, monkeypatch)
    _in_order(places)
    assert not set(before.values()) & set(_content(places).values())


def test_renewal_lets_running_processes_speak(
    script: SimpleNamespace, places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every moment each process's certificate is one that all others take; at the end the old one is refused."""
    _issued(script, places, monkeypatch)
    old = _content(places)
    pauses: list[float] = []
    seen = {name: [places.files(name).read()] for name in NAMES}

    def look(seconds: float) -> None:
        """Processes read their files at any time between two pauses: any two states of neighbouring rounds meet."""
        pauses.append(seconds)
        for name in NAMES:
            seen[name].append(places.files(name).read())
        for ca, _, _ in (state for states in seen.values() for state in states[-2:]):
            for _, certificate, _ in (state for states in seen.values() for state in states[-2:]):
                shown = x509.load_pem_x509_certificate(certificate)
                assert certificate_fault(shown, x509.load_pem_x509_certificates(ca), None) is None

    script.make(places)
    assert _keys_of_authorities(places) == []
    script.renew(places, look)
    look(0)
    assert pauses == [script.ROUND_S, script.ROUND_S, 0]
    _in_order(places)
    assert not set(old.values()) & set(_content(places).values())
    assert len(read_certificates(places.files("feature-b").ca)) == 1


def _signed(places: Any, folder: Path) -> None:
    """A transcript of feature-b, as it would sign it now."""
    writer = TranscriptWriter(folder, signer=places.files("feature-b"))
    writer.append(RECEIVED, "peer", "step", "job", 1, 2, 3, NamedMetric(name="a"))
    writer.close()


def test_the_audit_has_the_authorities_of_all_times(
    script: SimpleNamespace,
    places: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Signatures under an authority that is gone are verified, also one that the volumes had before the script's."""
    _without_roles(places, tmp_path_factory.mktemp("authority"))
    _issued(script, places, monkeypatch)
    _signed(places, tmp_path / "first")
    monkeypatch.setattr(script.renew, "__defaults__", (lambda _seconds: None,))
    script.main(["renew"], places)
    _signed(places, tmp_path / "second")
    given = places.trusted / "ca.crt"
    assert len(read_certificates(given)) == 3
    assert given.stat().st_mode & 0o777 == 0o444
    for name in ("first", "second"):
        reader = TranscriptReader(tmp_path / name, given)
        assert len(list(reader)) == 1
        assert (reader.anchor.state, reader.anchor.verified) == ("signed", True)
    _issued(script, places, monkeypatch)
    assert len(read_certificates(given)) == 3


def test_a_damaged_list_of_authorities_is_not_written_over(
    script: SimpleNamespace, places: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the file and the remedy: no other has the authorities of before."""
    _issued(script, places, monkeypatch)
    given = places.trusted / "ca.crt"
    given.chmod(0o644)
    given.write_text("damaged")
    with pytest.raises(
        SystemExit, match=r"ca\.crt: not a certificate in PEM form: bring a back-up of it back, or remove"
    ):
        script.publish(places)
    assert given.read_text() == "damaged"


def test_the_audit_is_told_where_they_are() -> None:
    """The volume that `certs` writes is the one that the audit's file names."""
    services = (ROOT / "docker-compose.yml").read_text().partition("\nservices:\n")[2].partition("\nnetworks:\n")[0]
    of_certs, *others, of_audit = re.findall(r"(?ms)^  [a-z-]+:$.*?(?=^  [a-z-]+:$|\Z)", services)
    assert of_certs.startswith("  certs:")
    assert of_audit.startswith("  audit:")
    assert len(others) == 7
    assert "      - trusted:/trusted\n" in of_certs
    assert "      - trusted:/trusted:ro\n" in of_audit
    assert not any("/trusted" in each for each in others)
    assert audit_file.read(ROOT / "examples" / "compose" / "audit").ca == Path("/trusted/ca.crt")
