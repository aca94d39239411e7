"""The command line as a person meets it: a process, its two streams and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from treetap.commands import cli
from treetap.commands.local_federation import to_toml


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


def start(*words: str | Path, folder: Path | None = None) -> subprocess.Popen[str]:
    """Begin `treetap …` in a folder, without the environment variables that it would read."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TREETAP_")}
    environment |= {"COLUMNS": "200", "TERM": "dumb"}
    command = [sys.executable, "-m", "treetap", *map(str, words)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL, stdout=-1, stderr=-1
    )


def end(process: subprocess.Popen[str], seconds: float = 60.0) -> Outcome:
    """Wait for a command; one that takes longer is ended and fails the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return Outcome(process.returncode, out, err)


def treetap(*words: str | Path, folder: Path | None = None) -> Outcome:
    """Run `treetap …` to its end."""
    return end(start(*words, folder=folder))


def treetap_here(*words: str) -> int:
    """Run `treetap …` in this process, where a test can replace what it uses; the exit status."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["treetap", *words])
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
