"""The file that `treetap audit` reads: the parties' transcripts and tables, and the labels for scoring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from attacks.id2graph.settings import Settings, usual_discount
from attacks.networks.settings import NetworkSettings
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
    """One feature party: its transcript, and its own table; without a table the attacks use the transcript alone.

    Of a split network also `model`, the folder of its published model, and `evaluation`, its table of other records.
    """

    name: Name
    transcript: Path
    table: Path | None = None
    id: str = "id"
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    model: Path | None = None
    evaluation: Path | None = None


class Accuracies(Strict):
    """Accuracies of a split network on other records, of which an experiment knows all, an auditor perhaps none.

    `together`: of the trained model; `alone`: of the label holder's columns alone; `undefended`: of the same training
    without a defence.
    """

    together: Annotated[float, Field(ge=0, le=1)] | None = None
    alone: Annotated[float, Field(ge=0, le=1)] | None = None
    undefended: Annotated[float, Field(ge=0, le=1)] | None = None


class AuditFile(Strict):
    """The audit file. `ca`: the federation's authority, by which signatures are verified; `revoked`: its list of
    revoked certificates.

    `classes`: the number of groups that an attack looks for; required without [label].
    `drawn_only`: keep of each leaf the records that the tree was trained on, as far as messages named them.
    `frontier`: a document of `treetap frontier`; `data_digest`: the digest of the audited table, as such a document has
    it, by which the audit knows that the frontier is of this table.

    Of a split network: `known`: labels that each party is assumed to know, otherwise drawn from [label]; `evaluation`:
    labels of the records in the parties' `evaluation` tables; `network`: settings of the attacks; `accuracy`.
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
    known: LabelTable | None = None
    evaluation: LabelTable | None = None
    network: dict[str, Any] = {}
    accuracy: Accuracies = Accuracies()
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

    @field_validator("network")
    @classmethod
    def _sound_network(cls, settings: dict[str, Any]) -> dict[str, Any]:
        check_network_settings(settings)
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


def check_network_settings(settings: Mapping[str, Any]) -> None:
    """Check the settings of attacks on networks; ValueError naming each one that is unknown or wrong."""
    try:
        NetworkSettings.read(settings)
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
    update: dict[str, Any] = {name: _beside(base, getattr(file, name)) for name in ("ca", "revoked", "frontier")}
    for name in ("label", "known", "evaluation"):
        table: LabelTable | None = getattr(file, name)
        update[name] = table and table.model_copy(update={"path": base / table.path})
    places = ("transcript", "table", "model", "evaluation")
    update["party"] = [
        party.model_copy(update={name: _beside(base, getattr(party, name)) for name in places}) for party in file.party
    ]
    return file.model_copy(update=update)


def _beside(base: Path, path: Path | None) -> Path | None:
    return path and base / path


def of_run(
    parties: Mapping[str, tuple[str, str, list[str]]],
    id_column: str,
    label: tuple[str, str],
    networks: Mapping[str, tuple[str, str]] | None = None,
    evaluation: str = "",
) -> dict[str, Any]:
    """The content of an audit file. `parties`: name → (transcript, table, columns). `label`: table and column.

    `networks`, of split networks: name → (published model, table of other records); `evaluation`: the table with the
    labels of these.
    """
    rows: list[dict[str, Any]] = [
        {"name": name, "transcript": transcript, "table": table, "id": id_column, "columns": columns}
        for name, (transcript, table, columns) in parties.items()
    ]
    content: dict[str, Any] = {"label": {"path": label[0], "column": label[1], "id": id_column}}
    if networks is not None:
        for row in rows:
            row["model"], row["evaluation"] = networks[row["name"]]
        content["evaluation"] = {"path": evaluation, "column": label[1], "id": id_column}
    return {**content, "party": rows}
