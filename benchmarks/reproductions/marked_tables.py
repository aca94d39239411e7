"""Tables of results between marks in a page: `<!-- name -->` and `<!-- end of name -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

from resumable import Results

from treetap.errors import BadInput

#: The rows of a table, the head first.
Rows = Sequence[Sequence[str]]


def filled(text: str, name: str, rows: Rows, page: str) -> str:
    """The text with a table between the marks of its name; without rows but the head, the words that none is there.

    Raises `BadInput`, which names the `page`, if the text lacks a mark.
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in text or end not in text:
        raise BadInput(f"{page} has no marks {start} and {end}")
    body = "\n".join(_table(rows)) if len(rows) > 1 else "No results are at hand."
    between = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
    return between.sub(lambda _: f"{start}\n{body}\n{end}", text)


@dataclass(frozen=True)
class MarkedPage:
    """A page whose tables and pictures are made of a file of results.

    Attributes:
        source: the page with its text and marks.
        tables: mark in the page → the table that stands there, of these results.
        pictures: draws the pictures of these results in a folder.
    """

    source: Path
    tables: Callable[[Results], Mapping[str, Rows]]
    pictures: Callable[[Results, Path], None]

    def with_tables(self, text: str, results: Results) -> str:
        """The page's text with all its tables. Raises BadInput: it lacks the marks of one."""
        for name, rows in self.tables(results).items():
            text = filled(text, name, rows, self.source.name)
        return text

    def write(self, results: Results, out: Path) -> Path:
        """Fill the tables and draw the pictures in the folder `out`; the page's path.

        Raises:
            BadInput: the page lacks the marks of a table, or cannot be written.
        """
        return write_marked_page(
            self.source, out, lambda text: self.with_tables(text, results), lambda: self.pictures(results, out)
        )


def write_marked_page(source: Path, out: Path, fill: Callable[[str], str], draw: Callable[[], None]) -> Path:
    """Fill the tables of a page in the folder `out`, a copy of `source` if there is none; then draw what is beside it.

    Returns the page's path.

    Raises:
        BadInput: the page lacks the marks of a table, or a file cannot be written.
    """
    page = out / source.name
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not page.exists():
            copyfile(source, page)
        page.write_text(fill(page.read_text()))
        draw()
    except OSError as failure:
        raise BadInput(f"{failure.filename or page}: {failure.strerror or failure}") from None
    return page


def _table(rows: Rows) -> list[str]:
    head, *others = rows
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *others)]
