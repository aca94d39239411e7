"""Options of `treetap audit` and `treetap attack`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

from treetap.attacks.files import LabelTable
from treetap.commands.options import CA, REVOKED, argument, option
from treetap.errors import BadInput
from treetap.strict import read_toml


@dataclass(frozen=True, kw_only=True)
class AuditOptions:
    """Options of an audit. What is None, or not given, the audit file says."""

    details: bool = option(False, "Print every attack's figures too, which the report has in any case.")
    html: Path | None = option(
        None, "File of the report; by default audit.html beside audit.toml, of --model intruder.html in it."
    )
    document: Path | None = option(None, "Also write the report as JSON here.")
    job: str | None = option(None, "Name of the job, where the transcripts hold several.")
    ca: Path | None = option(None, CA)
    revoked: Path | None = option(None, REVOKED)
    frontier: Path | None = option(None, "What treetap frontier wrote as frontier.json: the advice is by its figures.")
    attacks: str | None = option(None, "Names, with commas between; see treetap attack --help.")
    every_tree: bool = option(
        False, "Group records after each number of trees, as --fail-above does; else after 1, 2, 5, …."
    )
    last_tree_only: bool = option(False, "Group them after all trees alone.")
    fail_above: list[str] | None = option(
        None,
        "Exit with 1 above it; may be repeated. any: V-measure of every attack but cl; an attack's name: its "
        "own; accuracy: of every attack but cl; information: share of the label's entropy that all nodes tell; "
        "known-neighbours, known-regression, first-component, vote and heaviest-cut, of trees: AUC by what a party "
        "knows of nodes and splits; "
        "label_guess, of pivodl: AUC of the guess of other parties' labels; source_columns, of pivodl: share of a "
        "party's cells that another one places right; gradient-clusters and gradient-labels, "
        "of splitnn: V-measure, and share of labels named right; attributes, decode, match and match-exact, of a "
        "label holder: accuracy or R² of any column, SSIM of images or share of the mean record's error removed; "
        "columns, of a label holder of trees: share of a feature party's cells that it placed in their bins; "
        "path-decoding and prediction-inversion, of predictions: share of whole paths, of hidden weights; membership "
        "and member-columns, of --model: AUC, and accuracy or R² of any column, by any published artefact.",
        metavar="LIMIT=V",
    )
    allow_partial: bool = option(
        False, "Let --fail-above judge transcripts that end before their job does, or lack trees."
    )

    def of_transcripts(self) -> list[str]:
        """The options that are given and that an audit of a published model has not."""
        beside = ("details", "html", "document", "fail_above")
        given = (it.name for it in fields(self) if it.name not in beside and getattr(self, it.name) != it.default)
        return [f"--{name.replace('_', '-')}" for name in given]

    def by_tree(self, *, thorough: bool) -> bool | Literal["few"]:
        """The numbers of trees after which records are grouped. Raises BadInput for two answers."""
        if self.every_tree and self.last_tree_only:
            raise BadInput("--every-tree and --last-tree-only exclude each other: leave one out")
        if self.last_tree_only:
            return False
        return True if self.every_tree or thorough else "few"


@dataclass(frozen=True, kw_only=True)
class PublishedOptions:
    """A published model, and a table of records of which some were in its training."""

    PANEL: ClassVar = "Published model"

    model: Path | None = option(
        None, "In the place of RUN: an experiment's run, a folder that model.save wrote, or a model that stands alone."
    )
    table: Path | None = option(
        None, "With --model: records with the columns of all parties and the label, best half of them of the training."
    )
    id: str = option("id", "The id column of --table.")
    label: str = option("label", "The label's column of --table.")
    member: str = option(
        "member", "The column of --table with two values, the later one (1, yes, true) for records of the training."
    )


@dataclass(frozen=True, kw_only=True)
class AttackerOptions:
    """The attacker: its transcript, its own table and its model."""

    PANEL: ClassVar = "Attacker"

    transcript: Path = argument("A transcript's folder, a state folder, a .tap file or an archive of any.")
    job: str | None = option(None, "Name of the job, where the transcript holds several.")
    party: str | None = option(None, "Name of the transcript's party, if it is not in it.")
    ca: Path | None = option(None, CA)
    revoked: Path | None = option(None, REVOKED)
    columns: Path | None = option(None, "The attacker's own table, CSV or Parquet.")
    use: list[str] | None = option(None, "Only this column of it; may be repeated.")
    id: str = option("id", "The table's id column.")
    model: Path | None = option(None, "Folder of the attacker's published model, of splitnn: state/models/JOB.")
    predictions: Path | None = option(None, "File of predictions whose scores are attacked.")
    received_only: bool = option(False, "Use messages alone, without own splits and set differences.")
    drawn_only: bool = option(
        False, "Of each leaf use only the records that its tree drew, if the protocol draws records."
    )


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Tables of labels: those that score the attack, and those that the attacker knows."""

    PANEL: ClassVar = "Labels"

    labels: Path | None = option(None, "A table with the same ids and the labels, to score against.")
    label: str | None = option(None, "The label's column in it.")
    label_id: str | None = option(None, "The id column in it; by default as --id.")
    known_labels: Path | None = option(
        None,
        "A table with ids and the column of --label: labels that the attacker is assumed to know. "
        "Without it some of --labels.",
    )

    def column_of(self, path: Path | None, id_column: str) -> LabelTable | None:
        """A table with its label's column and its id column; None without the table.

        Raises:
            BadInput: a column is named without a table, or a table without a column.
        """
        if (self.labels is None and self.known_labels is None) != (self.label is None):
            raise BadInput("--label COLUMN and --labels FILE, or --known-labels FILE, go together")
        if path is None or self.label is None:
            return None
        return LabelTable(path=path, column=self.label, id=self.label_id or id_column)


@dataclass(frozen=True, kw_only=True)
class SettingOptions:
    """Settings of an attack, which its own schema checks."""

    settings: Path | None = option(None, "Settings of the attack: see above.", "--settings", metavar="FILE.toml")
    given: list[str] | None = option(
        None, "One setting, before the file's; may be repeated.", "--set", metavar="NAME=VALUE"
    )

    def read(self) -> dict[str, Any]:
        """All settings that are given; a value that is no TOML is text, so that a word needs no quotes.

        Raises:
            BadInput: the file cannot be read, or an option is no NAME=VALUE.
        """
        settings = {} if self.settings is None else read_toml(self.settings)
        for text in self.given or []:
            name, equals, value = text.partition("=")
            if not equals or not name.strip():
                raise BadInput(f"--set {text}: must be NAME=VALUE, as --set seed=1")
            try:
                settings[name.strip()] = tomllib.loads(f"value = {value}")["value"]
            except tomllib.TOMLDecodeError:
                settings[name.strip()] = value.strip()
        return settings
