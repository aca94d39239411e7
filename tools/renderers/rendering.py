"""Tables between two markers of a page, pages by their markers, and the texts of pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Reports with figures that pages link to.
MEASURED = ROOT / "benchmarks" / "measured"


def page_with(name: str, docs: Path = DOCS) -> Path:
    """The page below a folder that has the markers of a table; ValueError where none or several have."""
    pages = [path for path in sorted(docs.rglob("*.md")) if f"<!-- {name}: begin -->" in path.read_text("utf-8")]
    if len(pages) != 1:
        found = ", ".join(str(path.relative_to(docs)) for path in pages) or "none"
        raise ValueError(f"one page of {docs} must have <!-- {name}: begin -->; it is in: {found}")
    return pages[0]


def with_tables(tables: Mapping[str, str], docs: Path = DOCS) -> dict[Path, str]:
    """The pages with these tables, by name, in the places of those that they have."""
    pages: dict[Path, str] = {}
    for name, table in tables.items():
        page = page_with(name, docs)
        pages[page] = with_table(pages.get(page) or page.read_text(encoding="utf-8"), name, table)
    return pages


def with_table(page: str, name: str, table: str) -> str:
    """The page with the text between a table's two markers replaced; ValueError where it has not just one of each."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have {begin} and {end} once each")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{table}{end}{rest.split(end)[1]}"


def stale(files: Mapping[Path, str]) -> list[Path]:
    """The files that are not there or have another text."""
    return [path for path, text in files.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]


def write(files: Mapping[Path, str]) -> None:
    """Write the files that have another text."""
    for path in stale(files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[path], encoding="utf-8")


def texts(picture: str) -> list[str]:
    """The texts of an SVG file in order, numbers as "#"; of a picture whose letters are paths those of its comments."""
    found = re.findall(r"<(?:text|title|tspan)\b[^>]*>([^<]+)<", picture) or re.findall(r"<!-- (.+?) -->", picture)
    return [re.sub(r"\d[\d,.]*(?:e[-+]?\d+)?", "#", unescape(each).replace("\u00a0", " ")) for each in found]
