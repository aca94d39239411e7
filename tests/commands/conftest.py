"""Certificates of a federation's processes, for all tests of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.certificates import role_of
from treetap.commands.certs.authority import create_authority, issue


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with certificates for two parties, a coordinator and an operator."""
    folder = tmp_path_factory.mktemp("certs")
    create_authority(folder)
    for name in ("bank", "telco", "coordinator", "operator"):
        issue(folder, name, role_of(name), hosts=["127.0.0.1"])
    return folder
