"""Layout of statuses, tables and progress in a terminal."""

from __future__ import annotations

import os
from typing import Any

from google.protobuf.message import Message
from rich import box
from rich.console import Console
from rich.table import Table

#: Columns of a table that goes to a file or a pipe, which have no width of their own.
PIPED_COLUMNS = 160


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPED_COLUMNS
    return console


#: Tables go to standard output, everything else to standard error, so that output can be piped.
out = _console(stderr=False)
err = _console(stderr=True)


def size(count: float) -> str:
    """A number of bytes with a fitting unit."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON types. protobuf's own JSON writes 64-bit numbers as strings."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            found[field.name] = list(value) if field.is_repeated else value
        elif field.is_repeated:
            found[field.name] = [plain(each) for each in value]
        else:
            found[field.name] = plain(value)
    return found


def table(*headers: str) -> Table:
    """An empty table, narrow by itself, whose cells wrap where the width is not enough: nothing is cut."""
    made = Table(box=box.SIMPLE_HEAD, padding=0)
    for header in headers:
        made.add_column(header, overflow="fold")
    return made
