"""The picture of the roles of PIVODL's parties."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_has_the_roles_that_are_drawn(tmp_path: Path) -> None:
    """The picture is what draws and tree give, and a copy with another split party is told as stale."""
    edited = tmp_path / "pivodl-roles.svg"
    drawn = (DOCS / "pivodl-roles.svg").read_text(encoding="utf-8")
    changed = drawn.replace("south → east", "south → west", 1)
    assert changed != drawn
    edited.write_text(changed, encoding="utf-8")
    for path, status in ((DOCS / "pivodl-roles.svg", 0), (edited, 1)):
        command = [sys.executable, str(DOCS / "render_roles.py"), "--check", str(path)]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == status, checked.stderr
