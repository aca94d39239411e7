"""Commands that are imported when they are called: a list of them costs their names and lines alone.

Those of core are rows of a table. A *wing*, `lab` or `ops`, has a group of entry points, each of which names a row
there; one that was left out, as an image may do, is known by the names of its commands alone.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Mapping
from importlib import metadata
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from treetap.errors import BadInput
from treetap.process.limits import imported

#: Headings of the list of commands, in its order.
PANELS = TRY, PARTY, JOBS, PRIVACY, OPERATE = "Try", "Run a party", "Run jobs", "Privacy", "Operate"
WINGS = ("lab", "ops")
LEFT_OUT = (
    "treetap {name}: this installation leaves out the wing `{wing}`, which has it; an image of target `audit`, or \
the wheel with the extra `{wing}`, brings both"
)


class Row(NamedTuple):
    """A command: the module with its function or its `typer.Typer`, of the same name, and what a list says about it.

    `line` is the first paragraph of the function's docstring, or the help of the `typer.Typer`; a test compares them.
    `panel`: the heading below which the list has it.
    """

    module: str
    line: str
    panel: str


class LazyGroup(TyperGroup):
    """The commands in `ROWS` and those of the wings, by panel.

    Its `commands` are stand-ins, enough for a list and for the error about a name that is not there.
    """

    ROWS: ClassVar[Mapping[str, Row]] = {}

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.rows = dict(self.ROWS)
        self.below: dict[str, Row] = {}
        self.left_out: dict[str, str] = {}
        self._whole = False
        self._stand_in()

    def _stand_in(self) -> None:
        for name, row in sorted(self.rows.items(), key=lambda each: PANELS.index(each[1].panel)):
            self.commands[name] = in_plain_text(TyperCommand(name, help=row.line, rich_help_panel=row.panel))

    def add_wings(self) -> None:
        """Add the rows of the wings to those of core, once."""
        if self._whole:
            return
        self._whole = True
        # Command → its row; of one in a wing that was left out, the wing's name. A point in a name stands for a space.
        # A clone may hold metadata of an earlier build beside those of the installation.
        points = [point for part in metadata.distributions(name="treetap") for point in part.entry_points]
        groups = {f"treetap.{wing}" for wing in WINGS}
        rows: dict[str, Row | str] = {}
        for point in (point for point in points if point.group in groups):
            wing = point.group.removeprefix("treetap.")
            try:
                rows[point.name.replace(".", " ")] = point.load()
            except ModuleNotFoundError as missing:
                if missing.name != f"treetap.{wing}":
                    raise
                rows[point.name.replace(".", " ")] = wing
        for name, row in rows.items():
            if isinstance(row, str):
                self.left_out[name] = row
            else:
                (self.below if " " in name else self.rows)[name] = row
        self.commands.clear()
        self._stand_in()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002 - click passes it
        """The names, in the order of the panels."""
        self.add_wings()
        return list(self.commands)

    def load(self, name: str) -> Any:
        """Import a command, and make it as `typer` does; to a group of core a wing may add commands of its own."""
        around = typer.Typer(add_completion=False)
        named = self._imported(name, self.rows[name])
        if isinstance(named, typer.Typer):
            self.add_wings()
            for words, row in self.below.items():
                if words.startswith(f"{name} "):
                    named.command(words.removeprefix(f"{name} "))(self._imported(words, row))
            around.add_typer(named, name=name)
        else:
            around.command(name)(named)
        return typer.main.get_group(around).commands[name]

    @staticmethod
    def _imported(name: str, row: Row) -> Any:
        named = getattr(importlib.import_module(row.module), re.sub(r"[- ]", "_", name))
        imported()
        return named

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that words name; the stand-in of one that is to run is replaced."""
        if args and args[0] not in self.rows:
            self.add_wings()
        self._check_there(args[:1])
        name, command, rest = super().resolve_command(ctx, args)
        if name in self.rows:
            command = in_plain_text(self.load(str(name)))
        self._check_there(args[:2])
        return name, command, rest

    def _check_there(self, words: list[str]) -> None:
        if wing := self.left_out.get(name := " ".join(words)):
            raise BadInput(LEFT_OUT.format(name=name, wing=wing))


#: What Rich, which prints help and is loaded for it alone, takes for a tag, and the backslashes before it.
_TAG = re.compile(r"(\\*)(\[[a-z#/@][^\[]*?\])")


def in_plain_text(command: Any) -> Any:
    """A command whose help is printed as it is written: a table's name in brackets is text, no markup.

    Lines fill the width of the screen.
    """
    below = [command]
    for one in below:
        below += getattr(one, "commands", {}).values()
        for part in (one, *one.params):
            for name in ("help", "short_help", "epilog"):
                if isinstance(text := getattr(part, name, None), str):
                    # a paragraph's width in the source is no terminal's; columns stay as they are
                    paragraphs = inspect.cleandoc(text).split("\n\n")
                    text = "\n\n".join(it if "  " in it else it.replace("\n", " ") for it in paragraphs)
                    setattr(part, name, _TAG.sub(r"\1\1\\\2", text))
    return command
