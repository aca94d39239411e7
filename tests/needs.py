"""Tests of what is an extra, or another program: skipped where it is not installed, with what to install.

With `TREETAP_ALL_SOURCES=1`, as in `.ci/run`, a test of a source of tables fails instead.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

from treetap.protocols.libraries import missing_library
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training


def needs_library_of(protocol: str) -> None:
    """Skip the test if the library of a protocol, training or predicting, is not installed."""
    described = [training(protocol)] if protocol in TRAINING else []
    described += [prediction(protocol)] if protocol in PREDICTION else []
    for each in described:
        if missing := missing_library(protocol, each):
            pytest.skip(missing)


def needs_libraries(*names: str, extra: str) -> None:
    """Skip or fail the test if libraries of a source of tables are not installed."""
    if absent := [name for name in names if find_spec(name) is None]:
        _lack(f"needs {', '.join(absent)}: pip install '.[{extra}]'")


def postgresql_programs() -> Path:
    """The folder of PostgreSQL's programs, of its newest release; the test is skipped or fails without one."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))
    if not folders or shutil.which("initdb", path=folders[-1]) is None:
        _lack("needs PostgreSQL: apt-get install postgresql")
    if os.geteuid() == 0 and shutil.which("runuser") is None:
        _lack("needs runuser, since PostgreSQL refuses to run as root")
    return folders[-1]


def kustomize_command() -> list[str]:
    """The command that renders a folder of Kustomize; the test is skipped or fails without one."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    for program, word in (("kustomize", "build"), ("kubectl", "kustomize")):
        if found := shutil.which(program, path=path):
            return [found, word]
    return _lack("needs kustomize 5, or kubectl 1.27 or later: .venv/bin/python .ci/kubectl.py")


def promtool() -> str:
    """The program that checks what Prometheus reads; the test is skipped or fails without one."""
    return shutil.which("promtool") or _lack("needs promtool: apt-get install prometheus")


def _lack(reason: str) -> NoReturn:
    if os.environ.get("TREETAP_ALL_SOURCES"):
        pytest.fail(reason)
    pytest.skip(reason)
