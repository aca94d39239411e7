"""Help is printed as it is written: no word in brackets is lost, at no width of a terminal."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any

import pytest
import typer

from treetap.commands.cli import app
from treetap.commands.lazy import LazyGroup, in_plain_text

TEXT = "Read [red], [/], [[victim]], ([tls] revoked) and [link=x]."
BRACKETED = re.compile(r"\[+[^\[\]\s]+\]+")


def _commands(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    if isinstance(command, LazyGroup):
        command.list_commands(None)
    for name, below in getattr(command, "commands", {}).items():
        yield from _commands(command.load(name) if isinstance(command, LazyGroup) else below, (*words, name))


def _bare(text: str) -> str:
    """Text without blanks, line breaks and boxes, which depend on the width."""
    return re.sub(r"[\s│╭╮╰╯─\b]", "", text)


def _help(command: Any, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        command([*words, "--help"], prog_name="treetap")
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.second_tier
@pytest.mark.parametrize("width", [40, 80, 133])
def test_every_word_in_brackets_is_in_the_help(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of docstrings and of options, of every command and in every list of commands; docstrings are there whole."""
    monkeypatch.setenv("COLUMNS", str(width))
    whole, seen = in_plain_text(typer.main.get_command(app)), set()
    for words, command in _commands(typer.main.get_command(app)):
        bare = _bare(_help(whole, words, capsys))
        assert _bare(inspect.cleandoc(command.help or "")) in bare, words
        for part in command.params:
            for word in BRACKETED.findall(part.help or ""):
                assert word in bare, (words, part.name)
        seen |= set(BRACKETED.findall(command.help or ""))
    assert {"[[victim]]", "[audit]", "[serve]"} <= seen


def test_a_list_of_commands_says_of_each_what_its_own_help_begins_with() -> None:
    """The lines of the table, which a list prints without an import, are the first paragraphs of the docstrings."""
    group = typer.main.get_command(app)
    assert isinstance(group, LazyGroup)
    assert len(group.list_commands(None)) > 20
    for name, row in group.rows.items():
        command = group.load(name)
        assert command.name == name
        assert row.line == inspect.cleandoc(command.help or "").split("\n\n")[0].replace("\n", " ")


def test_what_looks_like_markup_is_text(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Tags of colours, closing tags and links of docstrings and options are printed."""
    made = typer.Typer()

    @made.command(help=TEXT)
    def one(option: Annotated[str, typer.Option(help=TEXT)] = "") -> None:
        del option

    monkeypatch.setenv("COLUMNS", "200")
    assert _help(in_plain_text(typer.main.get_command(made)), (), capsys).count(TEXT) == 2
