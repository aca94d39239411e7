"""Secrets that a file names: their places, bounds and faults, none of which shows what was read."""

from __future__ import annotations

import os
import select
import signal
import sys
from pathlib import Path

import pytest

from treetap.errors import ConfigError
from treetap.process import config
from treetap.process.config import CREDENTIALS, Secret
from treetap.strict import Strict, load

FIELD = "party.toml: tls.passphrase"
PHRASE = b"correct horse"


def _command(code: str) -> Secret:
    return Secret(command=(sys.executable, "-SsEc", f"import os, sys, time\n{code}"))


def _fault(place: Secret) -> str:
    with pytest.raises(ConfigError) as caught:
        place.read(FIELD, 64)
    assert str(caught.value).startswith(f"{FIELD}: ")
    return str(caught.value)


def test_each_place_gives_its_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command's output, a file and systemd's credential are read whole; a phrase is their line."""
    (tmp_path / "tls").write_bytes(PHRASE + b"\r\n")
    monkeypatch.setenv(CREDENTIALS, str(tmp_path))
    printed = _command(f"sys.stdout.buffer.write({PHRASE!r} + bytes([13, 10]))")
    for place in (Secret(file=Path("tls")).below(tmp_path), Secret(credential="tls"), printed):
        assert place.read(FIELD, 64) == PHRASE + b"\r\n"
        assert place.phrase(FIELD) == PHRASE


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("print('canary'); sys.exit(3)", "ended with status 3"),
        ("print('canary', file=sys.stderr)", "is empty"),
        ("sys.stdout.write('canary' * 20_000); time.sleep(60)", "prints more than 64 bytes"),
    ],
)
def test_a_commands_fault_is_told_without_its_output(code: str, fault: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither the message nor this process's standard error shows what a command has printed, or its arguments."""
    shown = _fault(_command(code))
    assert fault in shown
    assert "canary" not in shown + "".join(capfd.readouterr())


def test_a_late_command_ends_with_what_it_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that has ended, but left a process that holds its output open, is late, and that process ends."""
    os.mkfifo(alive := tmp_path / "alive")
    watched = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    (ready := select.poll()).register(watched, select.POLLIN)
    times = iter([0.0, 11.0])

    def moment() -> float:
        """Ten seconds have gone once the second process is there."""
        if (now := next(times)) > 0:
            assert ready.poll(30_000)
            assert os.read(watched, 8) == b"here\n"
        return now

    monkeypatch.setattr(config, "monotonic", moment)
    assert "took longer than 10 s" in _fault(Secret(command=("sh", "-c", f"exec 3>{alive}; sleep 60 & echo here >&3")))
    assert ready.poll(30_000)
    assert os.read(watched, 8) == b""  # nothing has it open any more
    os.close(watched)


def test_a_late_command_of_another_user_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """No signal reaches one that sudo runs: the message is that of any late command, and nothing waits for it."""
    ended: list[int] = []

    def forbidden(number: int, _: int) -> None:
        ended.append(number)
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr("treetap.process.config.os.killpg", forbidden)
        patched.setattr(config, "_END_S", 0.0)
        with pytest.raises(ConfigError, match=r"took longer than 0\.01 s"):
            _command("time.sleep(60)").read(FIELD, 64, 0.01)
    (number,) = ended
    os.killpg(number, signal.SIGKILL)
    os.waitpid(number, 0)


def test_faults_of_files_and_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe, a folder, an absent, long or empty file, and a credential outside systemd are faults of the field."""
    (tmp_path / "long").write_bytes(b"x" * 65)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    wanted = {"long": "more than 64", "empty": "is empty", "pipe": "no regular file", "gone": "no such file"}
    for name, fault in wanted.items():
        assert fault in _fault(Secret(file=tmp_path / name))
    monkeypatch.delenv(CREDENTIALS, raising=False)
    assert "LoadCredential=tls" in _fault(Secret(credential="tls"))
    assert "cannot be started" in _fault(Secret(command=(str(tmp_path / "gone"),)))
    (tmp_path / "lines").write_bytes(b"one\ntwo\n")
    with pytest.raises(ConfigError, match="one line"):
        Secret(file=tmp_path / "lines").phrase(FIELD)


class _File(Strict):
    passphrase: Secret


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{ file = "a", credential = "b" }',
        '{ credential = "../b" }',
        "{ command = [] }",
        '{ command = "hunter2" }',
        '"hunter2"',
    ],
)
def test_a_place_is_exactly_one(tmp_path: Path, text: str) -> None:
    """A file that names no place, several, or a path for a credential is refused, and so is a secret itself."""
    (path := tmp_path / "party.toml").write_text(f"passphrase = {text}\n")
    with pytest.raises(ConfigError, match="passphrase") as caught:
        load(path, _File)
    assert "hunter2" not in str(caught.value)
