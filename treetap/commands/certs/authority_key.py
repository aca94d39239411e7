"""The authority's private key: `ca.key` in its folder, or in a PKCS#11 token that `authority.toml` there names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes, PublicKeyTypes
from pydantic import model_validator

from treetap.commands.typed import typed, typed_once
from treetap.process.config import TokenConfig
from treetap.process.secret import Secret
from treetap.strict import Strict, load
from treetap.wire.certificates import key_pem, read_key
from treetap.wire.tokens import Token

FILE, KEY = "authority.toml", "ca.key"
SigningKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


class AuthorityFile(Strict):
    """`authority.toml` in the folder of an authority, which needs one only for a passphrase or a token."""

    passphrase: Secret | None = None
    """The place of the passphrase of `ca.key`, as `passphrase = { command = ["pass", "show", "authority"] }`. Write
    this file before `treetap certs init`, which encrypts the key with it; `openssl pkey -aes256` encrypts that of an
    authority that exists. Without it the commands ask at a terminal, where the key has one.
    """
    token: TokenConfig | None = None
    """The authority's key in a token, in place of `ca.key`. Write this file before `treetap certs init`, which makes
    the key there, of curve P-256, unless there is one of this name.
    """

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.passphrase is not None and self.token is not None:
            raise ValueError("passphrase is of ca.key, token is in its place: leave one of them out")
        return self


class NewKey(NamedTuple):
    """A new authority's key. `content`: of `ca.key`, PEM; None of a key in a token."""

    key: SigningKey
    content: bytes | None


def make_key(folder: Path) -> NewKey:
    """A new key of curve P-256, or the token's. Raises ConfigError."""
    config = _read(folder)
    if config.token is not None:
        return NewKey(_token(folder, config.token).key_pair(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    place = config.passphrase
    return NewKey(key, key_pem(key, b"" if place is None else place.phrase(f"{folder / FILE}: passphrase")))


def place_of(folder: Path) -> str:
    """The place of the key, for messages: a file, or a token's URI."""
    config = _read(folder)
    return str(folder / KEY) if config.token is None else config.token.uri


def existing_key(folder: Path, public: PublicKeyTypes) -> PrivateKeyTypes:
    """The key; `public`: that of the authority's certificate. Raises ConfigError."""
    config = _read(folder)
    if config.token is not None:
        return _token(folder, config.token).key(public)
    return read_key(folder / KEY, config.passphrase or typed(folder / KEY))


def _read(folder: Path) -> AuthorityFile:
    """The file with paths from the folder; one without keys where there is none."""
    if not (path := folder / FILE).exists():
        return AuthorityFile()
    config = load(path, AuthorityFile)
    passphrase, token = (None if place is None else place.below(folder) for place in (config.passphrase, config.token))
    return AuthorityFile.model_construct(passphrase=passphrase, token=token)


def _token(folder: Path, config: TokenConfig) -> Token:
    return config.token(f"{folder / FILE}: [token]", typed_once(folder / FILE))
