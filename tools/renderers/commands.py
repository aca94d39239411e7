"""docs/reference/commands.md: every command with its arguments and options, from what `--help` reads."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from treetap.commands import cli
from treetap.commands.lazy import LazyGroup

HEAD = f"""# Commands

Every command of `treetap`, with its arguments and options, as `treetap COMMAND --help` prints them. This page is for a
reader who looks for an option; the guides say when to use it. It is generated from the commands themselves.

Exit status: {(cli.__doc__ or "").partition("Exit status: ")[2].strip()}

A command that takes `--json` prints its report as JSON on standard output; messages go to standard error.

"""


def rendered(docs: Path) -> dict[Path, str]:
    """The page."""
    whole = typer.main.get_command(cli.app)
    assert isinstance(whole, LazyGroup)
    panels: dict[str, list[str]] = {}
    for name in whole.list_commands(None):
        panels.setdefault(whole.rows[name].panel, []).append(name)
    lines = [HEAD.rstrip(), ""]
    for panel, names in panels.items():
        listed = ", ".join(f"[`{name}`](#treetap-{name})" for name in names)
        lines += textwrap.wrap(
            f"- **{panel}**: {listed}", 118, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )
    lines += ["", *_options(whole.params)]
    for panel, names in panels.items():
        lines += [f"## {panel}", ""]
        for name in names:
            for words, command in commands(whole.load(name), (name,)):
                lines += [f"{'#' * (2 + len(words))} treetap {' '.join(words)}", "", *_about(words, command)]
    return {docs / "reference" / "commands.md": "\n".join(lines).rstrip() + "\n"}


def commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """A command and those below it, each with its words."""
    yield words, command
    if isinstance(command, LazyGroup):
        for name in command.list_commands(None):
            yield from commands(command.load(name), (*words, name))
    else:
        for name, below in getattr(command, "commands", {}).items():
            yield from commands(below, (*words, name))


def _about(words: tuple[str, ...], command: Any) -> list[str]:
    """A command: its purpose, its call and its parameters."""
    parts = inspect.cleandoc(command.help or "").split("\n\n")
    usage = [] if hasattr(command, "commands") else ["```text", _usage(words, command), "```", ""]
    return [*_paragraph(parts[0]), *usage, *(line for part in parts[1:] for line in _paragraph(part)), *_table(command)]


def _usage(words: tuple[str, ...], command: Any) -> str:
    """The line of a call: what must be given, and that more may."""
    given = ["treetap", *words]
    for part in command.params:
        if not part.opts[0].startswith("-"):
            name = _metavar(part)
            given.append(name if part.required else f"[{name}]")
        elif part.required:
            given.append(f"{part.opts[0]} {_metavar(part)}")
    return " ".join([*given, "[OPTIONS]"])


def _paragraph(part: str) -> list[str]:
    """A paragraph of a docstring; one of commands or of a list as it is."""
    bare = part.strip("\b\n")
    as_it_is = part.startswith("\b") or re.match(r"(?:treetap |\[)", bare) or re.search(r"^ {2,}\S", bare, re.M)
    if as_it_is:
        return ["```text", *(line.rstrip() for line in bare.splitlines()), "```", ""]
    return [*(escaped(line) for line in bare.splitlines()), ""]


def _table(command: Any) -> list[str]:
    """The arguments and options in Markdown; under the heading of its panel each that has one."""
    panels: dict[str, list[Any]] = {}
    for part in command.params:
        if not getattr(part, "hidden", False):
            panel = getattr(part, "rich_help_panel", None)
            panels.setdefault(panel if isinstance(panel, str) else "", []).append(part)
    lines = []
    for panel, parts in panels.items():
        lines += [f"**{panel}**", ""] if panel else []
        lines += _options(parts)
    return lines


def _options(parts: list[Any]) -> list[str]:
    if not parts:
        return []
    lines = ["| option | meaning | default |", "|---|---|---|"]
    for part in parts:
        names = part.opts if part.opts[0].startswith("-") else [_metavar(part)]
        takes = f" {part.metavar}" if part.metavar and names == part.opts else ""
        name = ", ".join(f"`{it}{takes}`" for it in names).replace("|", "\\|")
        if part.secondary_opts:
            name += f" / `{part.secondary_opts[0]}`"
        about = escaped(part.help or "")
        variables = [part.envvar] if isinstance(part.envvar, str) else part.envvar or []
        about += "".join(f" Or the environment variable `{variable}`." for variable in variables)
        lines.append(f"| {name} | {about} | {_default(part)} |")
    return [*lines, ""]


def _default(part: Any) -> str:
    if part.required:
        return "required"
    if part.default in (None, "", False) or callable(part.default) or part.default == 0:
        return ""
    return f"`{part.default if isinstance(part.default, str | Path) else json.dumps(part.default)}`"


def _metavar(part: Any) -> str:
    return str(part.metavar or part.name.upper()) if isinstance(part.name, str) else ""


def escaped(text: str) -> str:
    """Text in which no sign is one of Markdown, HTML or a table's cell."""
    quoted = re.split(r"(`[^`]*`)", text)
    signs = {"|": "\\|", "<": "&lt;", "*": "\\*", "_": "\\_", "[": "\\[", "]": "\\]"}
    plain = "".join(part if part.startswith("`") else "".join(signs.get(it, it) for it in part) for part in quoted)
    return re.sub(r"docs/([\w-]+\.md)(#[\w-]+)?", r"[\1](../\1\2)", plain)
