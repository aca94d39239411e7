"""Options of `treetap audit` and `treetap attack`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from treetap.commands.options import Ca, Revoked
from treetap.errors import BadInput


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit. What is None, or not given, the audit file says."""

    html: Annotated[Path | None, typer.Option(help="File of the report; by default audit.html beside audit.toml.")] = (
        None
    )
    document: Annotated[Path | None, typer.Option(help="Also write the report as JSON here.")] = None
    job: Annotated[str | None, typer.Option(help="Name of the job, where the transcripts hold several.")] = None
    ca: Ca = None
    revoked: Revoked = None
    frontier: Annotated[
        Path | None, typer.Option(help="What treetap frontier wrote as frontier.json: the advice is by its figures.")
    ] = None
    attacks: Annotated[str | None, typer.Option(help="Names, with commas between; see treetap attack --help.")] = None
    last_tree_only: Annotated[bool, typer.Option(help="Skip the figures after the first tree, the first two, ….")] = (
        False
    )
    fail_above: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMIT=V",
            help="Exit with 1 above it; may be repeated. any: V-measure of every attack but cl; an attack's name: its "
            "own; accuracy: of every attack but cl; information: share of the label's entropy that all nodes tell; "
            "label_guess, of pivodl: AUC of the guess of other parties' labels; gradient-clusters and gradient-labels, "
            "of splitnn: V-measure, and share of labels named right; attributes, decode, match and match-exact, of a "
            "label holder: accuracy or R² of any column, SSIM of images or share of the mean record's error removed.",
        ),
    ] = None
    allow_partial: Annotated[
        bool, typer.Option(help="Let --fail-above judge transcripts that end before their job does, or lack trees.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class AttackerOptions:
    """The attacker: its transcript, its own table and its model."""

    PANEL: ClassVar = "Attacker"

    transcript: Annotated[
        Path, typer.Argument(help="A transcript's folder, a state folder, a .tap file or an archive of any.")
    ]
    job: Annotated[str | None, typer.Option(help="Name of the job, where the transcript holds several.")] = None
    party: Annotated[str | None, typer.Option(help="Name of the transcript's party, if it is not in it.")] = None
    ca: Ca = None
    revoked: Revoked = None
    columns: Annotated[Path | None, typer.Option(help="The attacker's own table, CSV or Parquet.")] = None
    use: Annotated[list[str] | None, typer.Option(help="Only this column of it; may be repeated.")] = None
    id: Annotated[str, typer.Option(help="The table's id column.")] = "id"
    model: Annotated[
        Path | None, typer.Option(help="Folder of the attacker's published model, of splitnn: state/models/JOB.")
    ] = None
    received_only: Annotated[bool, typer.Option(help="Use messages alone, without own splits and set differences.")] = (
        False
    )
    drawn_only: Annotated[
        bool, typer.Option(help="Of each leaf use only the records that its tree drew, if the protocol draws records.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Tables of labels: those that score the attack, and those that the attacker knows."""

    PANEL: ClassVar = "Labels"

    labels: Annotated[Path | None, typer.Option(help="A table with the same ids and the labels, to score against.")] = (
        None
    )
    label: Annotated[str | None, typer.Option(help="The label's column in it.")] = None
    label_id: Annotated[str | None, typer.Option(help="The id column in it; by default as --id.")] = None
    known_labels: Annotated[
        Path | None,
        typer.Option(
            help="A table with ids and the column of --label, of splitnn: labels that the attacker is assumed to know. "
            "Without it some of --labels."
        ),
    ] = None

    def column_of(self, path: Path | None, id_column: str) -> tuple[Path, str, str] | None:
        """A table, its label's column and its id column; None without the table.

        Raises:
            BadInput: a column is named without a table, or a table without a column.
        """
        if (self.labels is None and self.known_labels is None) != (self.label is None):
            raise BadInput("--label COLUMN and --labels FILE, or --known-labels FILE, go together")
        return None if path is None or self.label is None else (path, self.label, self.label_id or id_column)


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """Settings of an attack, which its own schema checks."""

    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE.toml", help="Settings of the attack: see above.")
    ] = None
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="One setting, before the file's; may be repeated."),
    ] = None

    def read(self) -> dict[str, Any]:
        """All settings that are given; a value that is no TOML is text, so that a word needs no quotes.

        Raises:
            BadInput: the file cannot be read, or an option is no NAME=VALUE.
        """
        settings = {} if self.settings is None else _table(self.settings)
        for text in self.given or []:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise BadInput(f"--set {text}: must be NAME=VALUE, as --set seed=1")
            try:
                settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
            except tomllib.TOMLDecodeError:
                settings[name.strip()] = value.strip()
        return settings


def _table(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as fault:
        raise BadInput(f"--settings {path}: cannot be read: {fault.strerror or fault}") from None
    except ValueError as fault:
        raise BadInput(f"--settings {path}: is no TOML: {fault}") from None
