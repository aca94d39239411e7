"""Options made of dataclasses: what a command gets, what its help says, and the settings of an attack."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
import typer
from typer.testing import CliRunner

from treetap.attacks.files import LabelTable
from treetap.attacks.id2graph.schema import KnownSettings, Settings
from treetap.attacks.networks.schema import FeatureSettings, NetworkSettings
from treetap.attacks.published.schema import DecodingSettings
from treetap.attacks.registry import ROWS
from treetap.attacks.sums.schema import SumsSettings
from treetap.commands.cli import app
from treetap.commands.jobs.cli import predict
from treetap.commands.jobs.serve import serve
from treetap.commands.lazy import LazyGroup, in_plain_text
from treetap.commands.options import argument, from_dataclasses, option
from treetap.errors import BadInput
from treetap.lab.audit.options import LabelOptions, SettingOptions


@dataclass(frozen=True, kw_only=True)
class Cooking:
    """Options of a test."""

    PANEL: ClassVar = "Kitchen"

    dish: str = argument("The dish.")
    minutes: int = option(10, "Minutes on the stove.", "--time", min=1)
    salt: bool = option(False, "With salt.", "--salt")


def _made() -> tuple[typer.Typer, list[Any]]:
    made, seen = typer.Typer(), list[Any]()

    @made.command()
    @from_dataclasses
    def cook(asked: Cooking, guests: Annotated[int, typer.Option(help="People.")] = 2) -> None:
        """Cook a dish."""
        seen.extend([asked, guests])

    return made, seen


def test_fields_are_options_with_their_names_ranges_and_defaults() -> None:
    made, seen = _made()
    assert CliRunner().invoke(made, ["soup", "--time", "5", "--salt", "--guests", "3"]).exit_code == 0
    assert seen == [Cooking(dish="soup", minutes=5, salt=True), 3]
    assert CliRunner().invoke(made, ["soup"]).exit_code == 0
    assert seen[2:] == [Cooking(dish="soup"), 2]


def test_wrong_usage_names_the_option_and_the_range() -> None:
    made, seen = _made()
    refused = CliRunner().invoke(made, ["soup", "--time", "0"])
    assert refused.exit_code == 2
    assert "--time" in refused.output
    assert "greater than or equal to 1" in refused.output
    assert CliRunner().invoke(made, []).exit_code == 2  # the argument has no default
    assert seen == []


def test_the_help_has_every_field_below_the_heading_of_its_class() -> None:
    shown = CliRunner().invoke(_made()[0], ["--help"], env={"COLUMNS": "100"}).output
    assert "Cook a dish." in shown
    kitchen = shown[shown.index("Kitchen") :]
    assert "Minutes on the stove. [default: 10]" in kitchen
    assert "People." not in kitchen
    assert "The dish." in shown[: shown.index("Kitchen")]


def test_predict_and_serve_share_their_options() -> None:
    """Both have every option of a model; those of a file of predictions are of `predict` alone, two of `serve`."""
    own = {name: set(command.__annotations__) for name, command in (("predict", predict), ("serve", serve))}
    assert own["serve"] - own["predict"] == {"look_up", "reasons"}
    assert {"records_file", "explain", "evaluate", "format"} <= own["predict"] - own["serve"]


def test_the_help_of_attack_names_every_setting_with_its_default() -> None:
    shown = CliRunner().invoke(app, ["attack", "--help"], env={"COLUMNS": "140"}).output
    grouping, rest, known = shown[shown.index("Settings, with") :].split("Changed:")[0].split("known  ")
    networks, predictions = rest.split("\n records  ")
    lists = {Settings: grouping, NetworkSettings: f" known  {networks}", DecodingSettings: f" records  {predictions}"}
    lists[KnownSettings] = f" known  {known}"
    of_columns = {FeatureSettings, SumsSettings}  # which an audit alone attacks
    assert {row.settings for row in ROWS} == {*lists, *of_columns, None}
    for kind, text in lists.items():
        said = dict[str, str]()
        for names, defaults in re.findall(r"^ ([a-z_, ]+?)  .*; (.*?)\s*$", text, re.MULTILINE):
            said |= zip(names.split(", "), defaults.split(", "), strict=names != "discount")
        assert set(said) == {field.name for field in fields(kind)}
        for field in fields(kind):
            if field.name not in ("discount", "columns"):  # by protocol; all
                assert type(field.default)(said[field.name]) == field.default, field.name
    for name in ("--discount", "--alpha", "--chunk-size", "--chunk-weight", "--chunk-edges", "--seed", "--known"):
        assert name in shown  # what a person typed before the settings had one option


@pytest.mark.parametrize("words", [["frontier"], ["screen"], ["model", "scorecard"], ["new", "party"]])
def test_lines_of_help_fill_the_screen(words: list[str]) -> None:
    """No line ends where the source's did: the next one's first word would not fit on it."""
    shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"}).output
    lines = [line.strip() for line in shown[: shown.index("╭")].splitlines()]
    pairs = [(line, below) for line, below in itertools.pairwise(lines) if line and below]
    assert pairs, words
    assert all(len(f"{line} {below.split()[0]}") > 78 for line, below in pairs)


def test_settings_of_a_file_and_of_options(tmp_path: Path) -> None:
    """An option goes before the file; a word needs no quotes, a list is TOML's."""
    file = tmp_path / "settings.toml"
    file.write_text('chunk_size = 500\nchunk_edges = "paper"\n')
    asked = SettingOptions(settings=file, given=["chunk_edges=linked", "columns=[0, 2]", "discount=0.5"])
    assert asked.read() == {"chunk_size": 500, "chunk_edges": "linked", "columns": [0, 2], "discount": 0.5}


@pytest.mark.parametrize(
    ("given", "text", "says"),
    [
        (["seed"], None, "--set seed: must be NAME=VALUE"),
        (["=1"], None, "--set =1: must be NAME=VALUE"),
        ([], None, "settings.toml: there is no such file"),
        ([], "seed = = 1", "settings.toml: is not TOML"),
    ],
)
def test_settings_that_cannot_be_read_are_refused(
    given: list[str], text: str | None, says: str, tmp_path: Path
) -> None:
    file = tmp_path / "settings.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadInput, match=says):
        SettingOptions(settings=None if given else file, given=given).read()


def test_a_column_of_labels_needs_a_table_and_a_table_its_column() -> None:
    file = Path("labels.csv")
    assert LabelOptions(labels=file, label="y").column_of(file, "id") == LabelTable(path=file, column="y")
    assert LabelOptions().column_of(None, "id") is None
    for alone in (LabelOptions(labels=file), LabelOptions(label="y"), LabelOptions(known_labels=file)):
        with pytest.raises(BadInput, match="go together"):
            alone.column_of(alone.labels, "id")


# ---- Help is printed as it is written: no word in brackets is lost, at no width of a terminal


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
