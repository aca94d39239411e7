"""One model of what a report says: sections of sentences, tables and pictures.

`treetap.pages.page` renders a section as HTML, `treetap.pages.printing` in a terminal. The JSON form of a report is the
document from which its sections are made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

#: Where a part of a section is shown.
Where = Literal["both", "page", "terminal"]
#: Width of dots on a line, and its margins.
DOTS, DOTS_MARGIN = 240, 6
#: What has a form of its own in a sentence: terms, code, and the places of names.
_PIECES = re.compile(r"(\*\*.+?\*\*|`.+?`|\{\})")


class Text:
    """A paragraph. In `words` ** is around a term, ` around code, and {} stands for a name: names stay text.

    `said`: what follows them, as it is; a line of it that is set in by four is one to copy.
    """

    def __init__(self, words: str = "", *names: str, said: str = "", style: str = "", where: Where = "page") -> None:
        self.words, self.names, self.said, self.style, self.where = words, names, said, style, where

    def __bool__(self) -> bool:
        return bool(self.words or self.said)

    @property
    def pieces(self) -> Iterator[tuple[str, str]]:
        """The pieces, each with its form: term, code, name, line, or none."""
        names = iter(self.names)
        for piece in _PIECES.split(self.words):
            if piece == "{}":
                yield "name", next(names)
            elif piece.startswith(("**", "`")):
                yield ("term" if piece[0] == "*" else "code"), piece.strip("*`")
            else:
                yield "", piece
        said, *lines = self.said.split("\n    ")
        yield "", said
        yield from (("line", line) for line in lines)

    def __str__(self) -> str:
        return "".join("\n    " * (form == "line") + piece for form, piece in self.pieces)


@dataclass(frozen=True)
class Code:
    """Lines of a file to write, with its name."""

    file: str
    lines: Sequence[str]
    where: Where = "page"


@dataclass(frozen=True)
class Image:
    """A picture that the document has as a data URL; `alt`: its description."""

    url: str
    alt: str


class Cell(NamedTuple):
    """A cell of a matrix: a figure, more below it, and from 0 to 1 how strong its colour is; empty of nothing.

    `style`: its class in the style sheet, where it is not its row's.
    """

    figure: str
    more: str = ""
    heat: str = ""
    style: str = ""


class Dots(NamedTuple):
    """Figures from 0 to 1 on a line: classes in the style sheet with places. `limit`: of a line across, or empty.

    `joined`: by a line in the first one's colour.
    """

    dots: list[tuple[str, str]]
    limit: str = ""
    joined: bool = False
    width: int = DOTS
    start: str = f"{DOTS_MARGIN}"
    end: str = f"{DOTS - DOTS_MARGIN}"


#: What a cell of a table holds: words or a figure, also with more below it, a picture, lines to write.
Entry = str | Cell | Dots | Image | Sequence[Code]


@dataclass(frozen=True)
class Table:
    """Heads and rows; the first `names` columns identify a row, a column in `words` is of text, others are of figures.

    `label`: its title in a terminal, and what a screen reader hears. `style`: its class in the style sheet: of `cards`
    a row is a card on a narrow screen. `folded`: shown when a reader asks for it. `best`: rows that stand out.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    label: str = ""
    names: int = 1
    words: Collection[int] = ()
    style: str = ""
    folded: bool = False
    best: Collection[int] = ()
    where: Where = "both"

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True)
class Listed:
    """A list of sentences, or of links: each with its address, or none."""

    rows: Sequence[tuple[str, str]]
    where: Where = "both"

    def __bool__(self) -> bool:
        return bool(self.rows)


@dataclass(frozen=True)
class Terms:
    """Terms with their meanings."""

    meanings: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.meanings)


@dataclass(frozen=True)
class Facts:
    """Names with values; `style`: `facts` in a row, `settings` below one another."""

    rows: Sequence[tuple[str, str]]
    style: str = "facts"


@dataclass(frozen=True)
class Key:
    """The legend of pictures: the form of the marks, each mark's class in the style sheet with its meaning."""

    mark: str
    meanings: Sequence[tuple[str, str]]
    label: str = ""

    def __bool__(self) -> bool:
        return bool(self.meanings)


@dataclass(frozen=True)
class Section:
    """A title and parts in order, of which those that are empty are left out.

    `anchor`: its place on a page, which lists it; none: it belongs to the section around it. `style`: its class in the
    style sheet. `folded`: shown when a reader asks for it, and `open`, at first. `where`: on a page, in a terminal. A
    title with names is a `Text`, of a section without an anchor.
    """

    title: str | Text
    parts: Sequence[object]
    anchor: str = ""
    style: str = ""
    folded: bool = False
    open: bool = False
    where: Where = "both"

    def __bool__(self) -> bool:
        return bool(self.shown("page") or self.shown("terminal"))

    def shown(self, where: Where) -> list[object]:
        """The parts for a page or a terminal: pictures are on pages alone."""
        return [part for part in self.parts if part and getattr(part, "where", "page") in (where, "both")]

    @property
    def anchored(self) -> Iterator[Section]:
        """The sections that a page lists."""
        if self.anchor and self:
            yield self
        for part in self.parts:
            if isinstance(part, Section):
                yield from part.anchored
