"""Tables between two markers of a page, and the texts of pictures, for the scripts that render them."""

from __future__ import annotations

import re
from html import unescape


def with_table(page: str, name: str, table: str) -> str:
    """The page with the text between a table's two markers replaced; ValueError where it has not just one of each."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page must have {begin} and {end} once each")
    before, rest = page.split(begin)
    return f"{before}{begin}\n{table}{end}{rest.split(end)[1]}"


def texts(picture: str) -> list[str]:
    """The texts of an SVG file in order, numbers as "#"; of a picture whose letters are paths those of its comments."""
    found = re.findall(r"<(?:text|title|tspan)\b[^>]*>([^<]+)<", picture) or re.findall(r"<!-- (.+?) -->", picture)
    return [re.sub(r"\d[\d,.]*(?:e[-+]?\d+)?", "#", unescape(each).replace("\u00a0", " ")) for each in found]
