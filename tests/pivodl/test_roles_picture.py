"""The picture of the roles of PIVODL's parties."""

from __future__ import annotations

from pathlib import Path

from tests.commands.command import python

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_has_the_roles_that_are_drawn(tmp_path: Path) -> None:
    """The picture is what draws and tree give, and a copy with another split party is told as stale."""
    edited = tmp_path / "pivodl-roles.svg"
    drawn = (DOCS / "pivodl-roles.svg").read_text(encoding="utf-8")
    changed = drawn.replace("south → east", "south → west", 1)
    assert changed != drawn
    edited.write_text(changed, encoding="utf-8")
    for path, status in ((DOCS / "pivodl-roles.svg", 0), (edited, 1)):
        checked = python(DOCS / "render_roles.py", "--check", path)
        assert checked.status == status, checked.err
