"""Texts that docs/ has from the code are as they are rendered, and another text is found."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.needs import needs_libraries
from tools.renderers.__main__ import NAMES, main
from tools.renderers.rendering import DOCS, page_with, stale, with_table

#: Those that need libraries beside the first tier's.
SECOND = ("threats", "orders", "watch")
TIERED = [pytest.param(name, marks=[pytest.mark.second_tier] if name in SECOND else []) for name in NAMES]


@pytest.mark.parametrize("name", TIERED)
def test_it_is_as_rendered(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables of pages, pictures, and the pages of docs/reference."""
    if name == "threats":
        needs_libraries("grpc_tools", extra="dev")  # comments of the .proto files
    files = importlib.import_module(f"tools.renderers.{name}").rendered(DOCS)
    assert files
    assert stale(files) == [], "run make reference"
    assert "left as they are" not in capsys.readouterr().err or name == "orders"


def test_every_generated_page_is_of_a_renderer() -> None:
    """No page below docs/reference is written by hand; the front of the command names every module that renders."""
    made = {path for name in NAMES if name not in ("threats", "watch") for path in _rendered(name)}
    rest = {path.name for path in (DOCS / "reference").glob("*.md")} - {path.name for path in made}
    assert rest == {"messages.md", "alerts.md"}


def _rendered(name: str) -> dict[Path, str]:
    return importlib.import_module(f"tools.renderers.{name}").rendered(DOCS)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "page", "old", "new"),
    [
        ("exclusions", "exclusions.md", "early stopping watches", "x"),
        ("orders", "protocol-forest.md", "`share_labels`; `publish`", "`share_labels`"),
        ("register", "register.md", "| of this project |", "| new |"),
        ("roles", "pivodl-roles.svg", "south → east", "south → west"),
        ("commands", "reference/commands.md", "required", "optional"),
        ("keys", "reference/keys.md", "required", "optional"),
    ],
)
def test_another_text_is_told_and_written_anew(
    name: str,
    page: str,
    old: str,
    new: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One word of a copy is changed."""
    shutil.copytree(DOCS, tmp_path / "docs")
    copy = tmp_path / "docs" / page
    kept = copy.read_text(encoding="utf-8")
    assert old in kept
    copy.write_text(kept.replace(old, new, 1), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["tools.renderers", name, "--docs", str(tmp_path / "docs"), "--check"])
    assert main() == 1
    assert f"{page} is stale: run make reference" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", sys.argv[:-1])
    assert main() == 0
    assert copy.read_text(encoding="utf-8") == kept


def test_a_table_has_one_page(tmp_path: Path) -> None:
    """Found by its marker in any page below the folder; none, or two, is an error that names them."""
    page = "<!-- steps: begin -->\nold\n<!-- steps: end -->\n"
    with pytest.raises(ValueError, match=re.escape("it is in: none")):
        page_with("steps", tmp_path)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.md").write_text(page)
    assert page_with("steps", tmp_path) == tmp_path / "below" / "a.md"
    assert with_table(page, "steps", "new\n") == page.replace("old", "new")
    (tmp_path / "b.md").write_text(page)
    with pytest.raises(ValueError, match=re.escape("it is in: b.md, below/a.md")):
        page_with("steps", tmp_path)
