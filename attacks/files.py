"""The tables of an audit file that name files, relative to its folder; attacks read them without the registry."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from treetap.strict import Name, Strict
from treetap.tables.config import PublicCuts


class Files(Strict):
    """The base of tables with paths, which are relative to the folder of the file."""

    def below(self, base: Path) -> Self:
        """The same with paths that are below a folder, those of tables in it too."""
        return self.model_copy(update={name: _below(value, base) for name, value in self})

    def near(self, folder: Path) -> dict[str, Any]:
        """The table as TOML has it, with paths that are relative to a folder, so that this can be moved."""
        content = {name: value for name, value in self.model_dump(exclude_none=True).items() if value != {}}
        paths = {name: os.path.relpath(value, folder) for name, value in content.items() if isinstance(value, Path)}
        return content | paths


def _below(value: Any, base: Path) -> Any:
    if isinstance(value, list):
        return [_below(one, base) for one in value]
    return value.below(base) if isinstance(value, Files) else base / value if isinstance(value, Path) else value


class LabelTable(Files):
    """The table of the labels. They score the attacks; no attack reads them."""

    path: Path
    """A file with the labels."""
    column: str
    """The label column."""
    id: str = "id"
    """The id column."""


class AttackSettings(Strict):
    """What an audit's file and the table `[audit]` of an experiment both say of attacks."""

    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    """Names of attacks; by default all that fit."""
    classes: Annotated[int, Field(ge=2)] | None = None
    """Groups that an attack looks for; by default the label's classes, and required without labels."""
    drawn_only: bool = False
    """Keep of each leaf the records that the tree was trained on, as far as messages named them."""
    settings: dict[str, Any] = {}
    """Settings of the attacks by sets of records."""
    known_labels: dict[str, Any] = {}
    """Trees: settings of the attacks by known labels."""
    network: dict[str, Any] = {}
    """Networks: settings of the attacks by gradients."""
    features: dict[str, Any] = {}
    """Networks: settings of the label holder's attacks on columns."""
    sums: dict[str, Any] = {}
    """Trees: settings of the label holder's attack on columns; with any of them an experiment reads all, for longer."""
    frontier: Path | None = None
    """A `frontier.json` of `treetap frontier`, by whose figures the audit advises."""


class AuditedParty(Files):
    """One party. The label holder is one too, if [[victim]] names whose columns it attacks."""

    name: Name
    """The party's name."""
    transcript: Path
    """Its transcript: a folder or a file."""
    table: Path | None = None
    """Its own table; without it attacks use the transcript alone. A label holder needs it."""
    id: str = "id"
    """The id column."""
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    """Columns of the table; by default all but the id."""
    model: Path | None = None
    """Feature party of a network: the folder of its published model."""
    evaluation: Path | None = None
    """Feature party of a network: its table of other records."""


class Victim(Files, PublicCuts):
    """A feature party whose columns the label holder attacks."""

    name: Name
    """The feature party's name."""
    auxiliary: Path | None = None
    """Networks, required: records whose columns the label holder knows."""
    truth: Path | None = None
    """The party's true columns, by which alone claims and guesses are scored."""
    victims: Path | None = None
    """Networks: a table whose ids are the records to guess; by default the records of `truth`, else all, that are not
    auxiliary.
    """
    model: Path | None = None
    """Networks: the party's published model; match-exact alone reads it."""
    id: str = "id"
    """The id column of these tables."""
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    """Columns of these tables; by default all but the ids."""
    attributes: Annotated[list[str], Field(min_length=1)] | None = None
    """Networks: columns that are guessed one by one."""
    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    """Names of attacks on columns; by default all that fit."""
    epoch: Annotated[int, Field(ge=1)] | None = None
    """Networks: the attacked epoch, from 1; by default the last whole one."""
    predicted: Name | None = None
    """Networks: name of a prediction, whose embeddings are attacked instead."""
    records: Path | None = None
    """Networks: the label holder's table of that prediction."""

    @model_validator(mode="after")
    def _one_source(self) -> Victim:
        if self.predicted is not None and self.records is None:
            raise ValueError("predicted needs records, the label holder's own table of the predicted records")
        if self.predicted is None and self.records is not None:
            raise ValueError("records is of a prediction: name it as predicted, or leave records out")
        if self.predicted is not None and self.epoch is not None:
            raise ValueError("a prediction has no epochs: give either predicted or epoch")
        return self


class ScoredPrediction(Files):
    """A prediction by masked sums, whose recipient attacks the scores that it got."""

    job: Name
    """Name of the prediction."""
    transcript: Path
    """The recipient's transcripts: a folder that has the prediction's, and the training's."""
    model: Path
    """Folder of the recipient's published model."""
    table: Path
    """The recipient's own table of the predicted records."""
    scores: Path
    """The file of predictions that it wrote."""
    id: str = "id"
    """The id column of the table."""
