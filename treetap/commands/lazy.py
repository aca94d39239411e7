"""Groups of commands that are imported when they are called: a list of them costs their names and lines alone."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from treetap.process.limits import imported


class Row(NamedTuple):
    """A command: the module with its function or its `typer.Typer`, of the same name, and what a list says about it.

    `line` is the first paragraph of the function's docstring, or the help of the `typer.Typer`; a test compares them.
    `panel`: the heading below which the list has it.
    """

    module: str
    line: str
    panel: str | None = None


class LazyGroup(TyperGroup):
    """A group of the commands in `ROWS`, by name and in that order.

    Its `commands` are stand-ins, enough for a list and for the error about a name that is not there.
    """

    ROWS: ClassVar[Mapping[str, Row]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        for name, row in self.ROWS.items():
            self.commands[name] = in_plain_text(TyperCommand(name, help=row.line, rich_help_panel=row.panel))

    def load(self, name: str) -> Any:
        """Import a command, and make it as `typer` does."""
        named = getattr(importlib.import_module(self.ROWS[name].module), name.replace("-", "_"))
        imported()
        around = typer.Typer(add_completion=False)
        if isinstance(named, typer.Typer):
            around.add_typer(named, name=name)
        else:
            around.command(name)(named)
        return typer.main.get_group(around).commands[name]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that words name; the stand-in of one that is to run is replaced."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name not in self.ROWS else in_plain_text(self.load(str(name))), rest


#: What Rich, which prints help and is loaded for it alone, takes for a tag, and the backslashes before it.
_TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[]*?\])")


def in_plain_text(command: Any) -> Any:
    """A command whose help is printed as it is written: a table's name in brackets is text, no markup."""
    below = [command]
    for one in below:
        below += getattr(one, "commands", {}).values()
        for part in (one, *one.params):
            for name in ("help", "short_help", "epilog"):
                if isinstance(text := getattr(part, name, None), str):
                    setattr(part, name, _TAG.sub(r"\1\1\\\2", text))
    return command
