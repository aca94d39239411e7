"""Links of a built site: every one that stays in it leads to a file that is there, and to an anchor that it has.

`python -m tests.site_links FOLDER` prints each that does not, with the anchors that are most like it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and what it links to or shows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: dict[str, None] = {}
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        self.links.update(dict.fromkeys(given[name] for name in ("href", "src", "srcset") if name in given))


def faults(site: Path) -> list[str]:
    """The links of a site that lead nowhere: page, link, and what may be meant."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    return [
        f"{path.relative_to(site)}: {link}: {fault}"
        for path, page in pages.items()
        for link in page.links
        if path.name != "404.html" and (fault := _fault(site, pages, path, link)) is not None
    ]


def _fault(site: Path, pages: Mapping[Path, Page], page: Path, link: str) -> str | None:
    """The fault of a link; None if it has none, or leads elsewhere."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return None
    anchor = unquote(parts.fragment)
    there = page if not parts.path else Path(os.path.normpath(page.parent / unquote(parts.path)))
    there = there / "index.html" if there.is_dir() else there
    if not there.is_file():
        names = [str(path.parent.relative_to(site)) for path in pages if path.name == "index.html"]
        return f"no such page; near: {_near(unquote(parts.path).strip('./'), names)}{_elsewhere(pages, anchor, site)}"
    if not anchor or there not in pages or anchor in pages[there].anchors:
        return None
    return f"no such anchor; near: {_near(anchor, sorted(pages[there].anchors))}{_elsewhere(pages, anchor, site)}"


def _elsewhere(pages: Mapping[Path, Page], anchor: str, site: Path) -> str:
    """The pages that have an anchor, where it is no common word."""
    having = [str(path.parent.relative_to(site)) for path, page in pages.items() if anchor and anchor in page.anchors]
    return f"; the anchor stands on {', '.join(having)}" if 0 < len(having) <= 3 else ""


def _near(name: str, names: list[str]) -> str:
    return ", ".join(get_close_matches(name, names, n=3, cutoff=0.4)) or "nothing"


def main() -> int:
    """Print the faults; returns 1 if there are any."""
    found = faults(Path(sys.argv[1]).resolve())
    print("\n".join(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
