"""A passphrase typed at the terminal: asked for once, by commands alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from treetap.commands import typed
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.jobs.client import read
from treetap.errors import ConfigError
from treetap.wire.certificates import read_key
from treetap.wire.roles import Role


def test_an_operator_types_the_passphrase_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key under a passphrase whose place the file does not name opens at a terminal, and nowhere else."""
    create_authority(tmp_path)
    files = issue(tmp_path, "operator", Role.OPERATOR)
    locked = read_key(files.key).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))
    files.key.write_bytes(locked)
    tls = '[tls]\nca = "ca.crt"\ncertificate = "operator.crt"\nkey = "operator.key"\n'
    (tmp_path / "operator.toml").write_text(f'coordinator = "127.0.0.1:1"\n{tls}')
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return "word"

    monkeypatch.setattr(typed, "getpass", answer)
    config = read(tmp_path / "operator.toml")
    with pytest.raises(ConfigError, match="is protected by a passphrase"):
        config.transport().check("operator", Role.OPERATOR)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    for _ in range(2):  # each call of a command makes its credentials anew
        assert config.transport().check("operator", Role.OPERATOR) == "operator"
    assert asked == [f"{files.key}: its passphrase: "]
