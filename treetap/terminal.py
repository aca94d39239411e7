"""Layout of statuses, tables and progress in a terminal."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message
from rich import box
from rich.console import Console, ConsoleDimensions, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from treetap.errors import visible

#: Columns of a table that goes to a file or a pipe, which have no width of their own.
PIPED_COLUMNS = 160


class PlainConsole(Console):
    """A console that shows text as it is: no markup, no emoji, no highlighting; control characters are escaped.

    Styles come from the program alone, as `rich.text.Text`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Escaped before the layout, so that widths are right."""
        return super().render_str(visible(text, keep="\n"), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escaped also where the text was no plain string."""
        for segment in super().render(renderable, options):
            plain = segment.control or segment.text.isprintable()
            yield segment if plain else segment._replace(text=visible(segment.text, keep="\n"))


def _console(*, stderr: bool) -> Console:
    console = PlainConsole(stderr=stderr)
    if console.is_dumb_terminal:  # of which the library takes none to be narrower than 80 columns
        console.size = ConsoleDimensions(*shutil.get_terminal_size())
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_COLUMNS
    return console


#: Tables go to standard output, everything else to standard error, so that output can be piped.
out = _console(stderr=False)
err = _console(stderr=True)


def text(line: str) -> Text:
    """One line of text as it is, also if it holds a line feed."""
    return Text(visible(line))


def size(count: float) -> str:
    """A number of bytes with a fitting unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON types. protobuf's own JSON writes 64-bit numbers as strings."""
    content: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            content[field.name] = list(value) if field.is_repeated else value
        elif field.is_repeated:
            content[field.name] = [plain(item) for item in value]
        else:
            content[field.name] = plain(value)
    return content


def table(*headers: str) -> Table:
    """An empty table, narrow by itself, whose cells wrap where the width is not enough: nothing is cut."""
    made = Table(box=box.SIMPLE_HEAD, padding=0)
    for header in headers:
        made.add_column(header, overflow="fold")
    return made


def print_table(headers: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table of texts and numbers as they are."""
    made = table(*headers)
    for cells in rows:
        made.add_row(*(text(str(cell)) for cell in cells))
    out.print(made)
