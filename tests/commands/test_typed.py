"""Passphrases in commands: typed at the terminal once, and kept on the keys that they make."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from treetap.commands import typed
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.installing import install
from treetap.commands.certs.renewal import renew
from treetap.commands.certs.renewals import sign_renewals
from treetap.commands.certs.revocation import revoke
from treetap.commands.jobs.client import read
from treetap.errors import ConfigError
from treetap.process.secret import Secret
from treetap.wire.certificates import key_pem, read_key
from treetap.wire.roles import Role


def test_an_operator_types_the_passphrase_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key under a passphrase whose place the file does not name opens at a terminal, and nowhere else."""
    create_authority(tmp_path)
    files = issue(tmp_path, "operator", Role.OPERATOR)
    files.key.write_bytes(key_pem(read_key(files.key), b"word"))
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


def test_the_next_key_is_under_the_passphrase_of_the_one_in_use(tmp_path: Path) -> None:
    """A renewal leaves no key in plain where the one in use is not, and the pair is installed as it is."""
    create_authority(tmp_path)
    revoke(tmp_path)
    (tmp_path / "requests").mkdir()
    files = replace(issue(tmp_path, "bank", Role.PARTY), passphrase=Secret(command=("echo", "word")))
    files.key.write_bytes(key_pem(read_key(files.key), b"word"))
    made = renew(files, tmp_path / "requests")
    with pytest.raises(ConfigError, match="is protected by a passphrase"):
        read_key(made.key)
    (answer,) = sign_renewals(tmp_path / "requests", tmp_path)
    assert answer.certificate is not None
    assert install(answer.certificate, files)
    assert files.inspect("bank", Role.PARTY) == "bank"
