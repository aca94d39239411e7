"""README and tutorial do what they say, block by block, in a folder that has what a clone has."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.documents import carry_out, own_environment

ROOT = Path(__file__).parents[2]
# Whole federations are brought up, at the ports that the pages name.
pytestmark = [pytest.mark.second_tier, pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("pages")]


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    """Its files, commands and programs, and what it says that they print."""
    shutil.copytree(ROOT / "examples" / "loans", tmp_path / "examples" / "loans")
    assert carry_out(ROOT / page, tmp_path, own_environment(), 800).faults == []
