"""The file that `treetap audit` reads: the parties' transcripts and tables, and the labels for scoring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from attacks.id2graph.settings import Settings, usual_discount
from attacks.registry import ATTACKS
from treetap.errors import BadInput
from treetap.names import Name
from treetap.strict import Strict, load

#: Name of the audit file in a folder that can be audited.
FILE = "audit.toml"


class LabelTable(Strict):
    """The table of the labels. They score the attacks; no attack reads them."""

    path: Path
    column: str
    id: str = "id"


class AuditedParty(Strict):
    """One feature party: its transcript, and its own table; without a table the attacks use the transcript alone."""

    name: Name
    transcript: Path
    table: Path | None = None
    id: str = "id"
    columns: Annotated[list[str], Field(min_length=1)] | None = None


class AuditFile(Strict):
    """The audit file. `ca`: the federation's authority, by which signatures are verified; `revoked`: its list of
    revoked certificates.

    `classes`: the number of groups that an attack looks for; required without [label].
    `drawn_only`: keep of each leaf the records that the tree was trained on, as far as messages named them.
    `frontier`: a document of `treetap frontier`; `data_digest`: the digest of the audited table, as such a document has
    it, by which the audit knows that the frontier is of this table.
    """

    job: str | None = None
    ca: Path | None = None
    revoked: Path | None = None
    classes: Annotated[int, Field(ge=2)] | None = None
    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    label: LabelTable | None = None
    drawn_only: bool = False
    frontier: Path | None = None
    data_digest: str | None = None
    settings: dict[str, Any] = {}
    party: Annotated[list[AuditedParty], Field(min_length=1)]

    @field_validator("attacks")
    @classmethod
    def _known(cls, names: list[str] | None) -> list[str] | None:
        return names if names is None else known_attacks(names)

    @field_validator("settings")
    @classmethod
    def _sound(cls, settings: dict[str, Any]) -> dict[str, Any]:
        check_settings(settings)
        return settings

    @model_validator(mode="after")
    def _distinct(self) -> AuditFile:
        names = [party.name for party in self.party]
        if len(set(names)) < len(names):
            raise ValueError("two [[party]] have one name")
        return self

    def attack_settings(self, protocol: str) -> Settings:
        """The given settings; the default discount is the paper's for the protocol."""
        return Settings.read({"discount": usual_discount(protocol)} | self.settings)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the attack settings; ValueError naming each one that is unknown or wrong."""
    try:
        Settings.read(settings)
    except BadInput as fault:
        raise ValueError(str(fault)) from None


def known_attacks(names: list[str]) -> list[str]:
    """The names, each once, in the registry's order. ValueError for an unknown one."""
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        raise ValueError(f"unknown attack {unknown[0]!r}; known are {', '.join(ATTACKS)}")
    return [name for name in ATTACKS if name in names]


def read(run: Path) -> AuditFile:
    """Read an audit file, or that of a folder; relative paths in it are relative to its folder.

    Raises:
        BadInput: there is no such file, or it is wrong.
    """
    path = run / FILE if run.is_dir() else run
    if run.is_dir() and not path.is_file():
        raise BadInput(
            f"{run}: holds no {FILE}; treetap demo and treetap experiment with --workdir write one, "
            "and docs/audit.md shows one"
        )
    file, base = load(path, AuditFile), path.resolve().parent
    label = file.label and file.label.model_copy(update={"path": base / file.label.path})
    parties = [
        party.model_copy(
            update={"transcript": base / party.transcript, "table": party.table and base / party.table},
        )
        for party in file.party
    ]
    ca, revoked = file.ca and base / file.ca, file.revoked and base / file.revoked
    frontier = file.frontier and base / file.frontier
    update = {"ca": ca, "revoked": revoked, "frontier": frontier, "label": label, "party": parties}
    return file.model_copy(update=update)


def of_run(parties: Mapping[str, tuple[str, str, list[str]]], id_column: str, label: tuple[str, str]) -> dict[str, Any]:
    """The content of an audit file. `parties`: name → (transcript, table, columns). `label`: table and column."""
    rows = [
        {"name": name, "transcript": transcript, "table": table, "id": id_column, "columns": columns}
        for name, (transcript, table, columns) in parties.items()
    ]
    return {"label": {"path": label[0], "column": label[1], "id": id_column}, "party": rows}
