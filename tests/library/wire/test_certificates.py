"""Certificates and keys with algorithms that are not known here: reading them gives an answer, not an exception."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding

from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.requests import revoke
from treetap.errors import ConfigError
from treetap.wire.certificates import belongs, read_certificates, read_key, signed_by
from treetap.wire.ports import Role
from treetap.wire.tls import TlsFiles

_P256, _UNKNOWN = (bytes.fromhex(f"06082a8648ce3d0301{last}") for last in ("07", "02"))  # object identifiers of curves


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    """A party's, with a list of revoked certificates."""
    create_authority(tmp_path)
    party = issue(tmp_path, "a", Role.PARTY)
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
