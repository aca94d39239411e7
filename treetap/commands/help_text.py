"""Help as it is written: the command line takes no markup, so that a table's name in brackets is text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from rich.markup import escape


def literal(app: typer.Typer) -> Any:
    """The command of an app, with all help texts of it and below it escaped."""
    command = typer.main.get_command(app)
    for each in _every(command):
        for part in (each, *each.params):
            for name in ("help", "short_help", "epilog", "deprecated"):
                if isinstance(text := getattr(part, name, None), str):
                    setattr(part, name, escape(text))
    return command


def _every(command: Any) -> Iterator[Any]:
    """The command, and all below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _every(below)
