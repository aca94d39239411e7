"""The site of docs/: it is built without a warning, and every link in it leads somewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.attacks.browser import Browser, found
from tests.site_links import faults

ROOT = Path(__file__).parents[2]
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
#: How many blocks of code have no icon, or reach below it; what else lies on text; links to samples in sight.
BLOCKS = """[...document.querySelectorAll("pre")].filter(it => {
  const code = it.querySelector(":scope > code").getBoundingClientRect(), icon = it.querySelector(".md-code__nav");
  return icon === null || code.right > icon.getBoundingClientRect().left;
}).length"""
ABOVE = """[...document.querySelectorAll(".md-sidebar-button")].filter(it => it.checkVisibility()).filter(it =>
  it.getBoundingClientRect().bottom > document.querySelector(".md-header").getBoundingClientRect().bottom).length"""
SAMPLES = """[...document.querySelectorAll('a[href*="samples/"]')].filter(it => it.checkVisibility()).filter(it => {
  const {left, right, bottom} = it.getBoundingClientRect();
  return 0 <= left && right <= innerWidth && bottom <= innerHeight;
}).map(it => it.textContent.trim())"""
pytestmark = [pytest.mark.second_tier, pytest.mark.long, pytest.mark.xdist_group("pages")]


@pytest.mark.timeout(600)
def test_the_site_is_built_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    """Every page, and nothing that is fetched from elsewhere."""
    if shutil.which("zensical", path=str(Path(sys.executable).parent)) is None:
        pytest.skip("needs zensical and mkdocstrings-python: make .venv/.docs")
    command = [sys.executable, "-m", "tools.renderers.site", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500, check=False)
    said = COLOURS.sub("", done.stdout + done.stderr)
    wrong = faults(tmp_path / "site")
    assert (done.returncode, wrong) == (0, []), "\n".join([said, *wrong])
    assert f"Search needs HTTP: python3 -m http.server --directory {tmp_path / 'site'} 8000" in said
    listed = {path.parent.name for path in (tmp_path / "site").rglob("index.html")}
    assert {"tutorial", "commands", "keys", "messages", "api", "adr"} <= listed
    first = tmp_path / "site" / "index.html"
    page = first.read_text(encoding="utf-8")
    assert not re.search(r'(?:src|href)="https?://[^"]*\.(?:css|js|woff2?)"', page)
    if found() is not None:
        (tmp_path / "chromium").mkdir()
        with Browser(tmp_path / "chromium") as browser:
            for width, height, scheme in ((1280, 720, "light"), (390, 664, "dark")):
                browser.open(first, width=width, height=height, scheme=scheme)
                assert browser.evaluate("document.documentElement.scrollWidth") <= width
                assert browser.evaluate("document.querySelectorAll('pre > code').length") > 1
                assert browser.evaluate(BLOCKS) == 0
                assert browser.evaluate(ABOVE) == 0
                assert {"A sample report", "its audit"} <= set(browser.evaluate(SAMPLES))
