"""Passphrases in commands: typed at the terminal once, and kept on the keys that they make."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.certificates import certified
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.certs.cli import certs
from treetap.commands.certs.requests import install, request, sign_request
from treetap.commands.jobs.client import OperatorConfig
from treetap.errors import BadInput, ConfigError
from treetap.process import config as process_config
from treetap.process.config import Secret
from treetap.wire.certificates import key_pem, read_key
from treetap.wire.ports import Identity, Role


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
