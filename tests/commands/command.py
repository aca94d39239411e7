"""The command line as a person meets it: a process, its two streams and its exit status."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import prepared
from treetap import terminal
from treetap.commands import cli
from treetap.lab.local_federation import to_toml
from treetap.process.fork_server import FORKS
from treetap.wire.tls import TlsFiles

#: Seconds that a command may take.
ENOUGH_S = 120.0


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def start(*words: str | Path, folder: Path | None = None) -> subprocess.Popen[str]:
    """Begin `treetap …` in a folder, without the environment variables that it would read."""
    command = [sys.executable, "-m", "treetap", *map(str, words)]
    return subprocess.Popen(
        command, cwd=folder, env=_environment(), text=True, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1
    )


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("TREETAP_")}
    return own | prepared.ENVIRONMENT


def end(process: subprocess.Popen[str], seconds: float = ENOUGH_S) -> Outcome:
    """Wait for a command; one that takes longer is ended and fails the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Outcome(process.returncode, out, err)


def treetap(*words: str | Path, folder: Path | None = None) -> Outcome:
    """Run `treetap …` to its end, in a process that is forked (`tests.prepared`)."""
    return _forked(prepared.command, words, folder, _environment(), ENOUGH_S)


def python(*words: str | Path, paths: Sequence[Path] = (), tables: bool = False) -> Outcome:
    """Run `python FILE …` or `python -c CODE …` to its end, in such a process.

    `paths`: folders with modules. `tables`: keep TREETAP_DATA, which else is absent as all variables of treetap.
    """
    environment = _environment() | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    if tables:
        environment["TREETAP_DATA"] = os.environ["TREETAP_DATA"]
    return _forked(prepared.python, words, None, environment, 2 * ENOUGH_S)


def _forked(
    target: Callable[..., None],
    words: Sequence[str | Path],
    folder: Path | None,
    environment: Mapping[str, str],
    seconds: float,
) -> Outcome:
    with tempfile.TemporaryDirectory() as streams:
        out, err = Path(streams, "out"), Path(streams, "err")
        out.touch()
        err.touch()
        about = ([str(word) for word in words], str(folder or Path.cwd()), environment, str(out), str(err))
        process = FORKS.fork(target, about, asking=True)
        ended = process.ended(seconds)
        process.end()
        if not ended:
            raise subprocess.TimeoutExpired(about[0], seconds)
        assert process.exitcode is not None, process.fate
        return Outcome(process.exitcode, out.read_text(), err.read_text())


def treetap_here(*words: str) -> int:
    """Run `treetap …` in this process, where a test can replace what it uses; the exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["treetap", *words])
        patch.setattr(sys, "meta_path", sys.meta_path[:])  # a command may leave pandas out
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


def refused(outcome: Outcome, status: int = 2) -> str:
    """The one message of a command that failed as it should: nothing on standard output, no traceback."""
    assert outcome.status == status, outcome
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("treetap: ")
    assert outcome.err.count("treetap: ") == 1
    return outcome.err.removeprefix("treetap: ")


def write(path: Path, content: Mapping[str, Any] | str) -> Path:
    """A TOML file."""
    path.write_text(content if isinstance(content, str) else to_toml(content), encoding="utf-8")
    return path


def files_in(certs: Path, name: str) -> TlsFiles:
    """The files of a process whose certificate lies beside its authority's."""
    return TlsFiles(certs / "ca.crt", certs / f"{name}.crt", certs / f"{name}.key")


def screen(monkeypatch: pytest.MonkeyPatch, name: str, width: int, **more: Any) -> io.StringIO:
    """What standard output (`out`) or error (`err`) gets as a terminal of that width."""
    text = io.StringIO()
    monkeypatch.setattr(terminal, name, terminal.PlainConsole(file=text, width=width, **more))
    return text
