"""The rendered part of docs/threats.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.command import python

pytestmark = pytest.mark.second_tier

DOCS = Path(__file__).parents[3] / "docs"


def test_the_disclosure_table_is_current(tmp_path: Path) -> None:
    """docs/threats.md has the table that the protos give, and a copy with one class changed is told as stale."""
    pytest.importorskip("grpc_tools", reason="comments of the .proto files need grpcio-tools (the dev extra)")
    edited = tmp_path / "threats.md"
    page = (DOCS / "threats.md").read_text(encoding="utf-8")
    edited.write_text(page.replace("| CIPHERTEXT |", "| CONTROL |"), encoding="utf-8")
    for path, status in ((DOCS / "threats.md", 0), (edited, 1)):
        checked = python(DOCS / "render_threats.py", "--check", path)
        assert checked.status == status, checked.err
