"""README and pages do what they say, block by block, each in a folder that has the examples as a clone has them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.documents import carry_out, is_carried_out, own_environment, pages

ROOT = Path(__file__).parents[2]
LIMIT_S = 800
# Whole federations are brought up, at the ports that the pages name.
pytestmark = [pytest.mark.second_tier, pytest.mark.long, pytest.mark.timeout(900), pytest.mark.xdist_group("pages")]
#: What a newcomer follows; the other pages are of campaigns.
FOLLOWED = {"README.md", "docs/tutorial.md"}
#: Of `test_walks`, each walk by itself; with commands of benchmarks, for hours; of parties on several hosts.
APART = {"walks.md", "paper.md", "screen.md"}
#: By their paths in the clone.
CARRIED_OUT = [str(page.relative_to(ROOT)) for page in pages(ROOT) if is_carried_out(page) and page.name not in APART]


def test_pages_are_found() -> None:
    """Those that a newcomer follows are among them."""
    assert set(CARRIED_OUT) >= FOLLOWED


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[] if page in FOLLOWED else pytest.mark.campaign) for page in CARRIED_OUT],
)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    """Its files, commands and programs, and what it says that they print."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("runs", "__pycache__"))
    assert carry_out(ROOT / page, tmp_path, own_environment(), LIMIT_S).faults == []
