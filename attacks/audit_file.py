"""The file that `treetap audit` reads: the parties' transcripts and tables, and the labels for scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from attacks.advice.defence_lines import check_written
from attacks.features.names import ATTACKS as ON_COLUMNS
from attacks.features.settings import FeatureSettings
from attacks.id2graph.settings import Settings, usual_discount
from attacks.networks.settings import NetworkSettings
from attacks.registry import ATTACKS
from treetap.errors import BadInput
from treetap.names import Name, did_you_mean
from treetap.strict import Strict, load

#: Name of the audit file in a folder that can be audited.
FILE = "audit.toml"


class LabelTable(Strict):
    """The table of the labels. They score the attacks; no attack reads them."""

    path: Path
    column: str
    id: str = "id"


class AuditedParty(Strict):
    """One party: its transcript, and its own table; without a table the attacks use the transcript alone.

    The label holder of a split network is one too, if [[victim]] names whose columns it attacks; its table is needed.
    Of a feature party of a split network also `model`, the folder of its published model, and `evaluation`, its table
    of other records.
    """

    name: Name
    transcript: Path
    table: Path | None = None
    id: str = "id"
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    model: Path | None = None
    evaluation: Path | None = None


class Victim(Strict):
    """A feature party of a split network, whose columns the label holder attacks.

    `auxiliary`: records whose columns the label holder knows. `victims`: a table whose ids are the records to guess;
    by default those of `truth`, or all common records, that are not auxiliary. `truth`: their columns, by which guesses
    are scored; `model`: the party's published model; no attack but match-exact reads it, and none reads `truth`.
    `id`: the id column of all of these; `columns`: of `auxiliary` and `truth`, by default all but the ids.
    `attributes`: those that are guessed one by one. `epoch`: of the training, from 1, by default the last whole one.
    `predicted`: the name of a prediction, whose embeddings are attacked instead; `records`: the label holder's table of
    it.
    """

    name: Name
    auxiliary: Path
    truth: Path | None = None
    victims: Path | None = None
    model: Path | None = None
    id: str = "id"
    columns: Annotated[list[str], Field(min_length=1)] | None = None
    attributes: Annotated[list[str], Field(min_length=1)] | None = None
    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    epoch: Annotated[int, Field(ge=1)] | None = None
    predicted: Name | None = None
    records: Path | None = None

    @field_validator("attacks")
    @classmethod
    def _known(cls, names: list[str] | None) -> list[str] | None:
        if unknown := [name for name in names or () if name not in ON_COLUMNS]:
            raise ValueError(f"unknown attack on columns {unknown[0]!r}; known are {', '.join(ON_COLUMNS)}")
        return names

    @model_validator(mode="after")
    def _one_source(self) -> Victim:
        if self.predicted is not None and self.records is None:
            raise ValueError("predicted needs records, the label holder's own table of the predicted records")
        if self.predicted is None and self.records is not None:
            raise ValueError("records is of a prediction: name it as predicted, or leave records out")
        if self.predicted is not None and self.epoch is not None:
            raise ValueError("a prediction has no epochs: give either predicted or epoch")
        return self


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
    it, by which the audit knows that the frontier is of this table. `defences`: the table [defences] of the label
    holder's file, which no transcript has, so that the advice does not repeat it.

    Of a split network: `known`: labels that each party is assumed to know, otherwise drawn from [label]; `evaluation`:
    labels of the records in the parties' `evaluation` tables; `network`: settings of the attacks; `accuracy`; `victim`:
    the feature parties whose columns the label holder attacks; `features`: settings of these attacks.
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
    defences: dict[str, Any] | None = None
    settings: dict[str, Any] = {}
    known: LabelTable | None = None
    evaluation: LabelTable | None = None
    network: dict[str, Any] = {}
    accuracy: Accuracies = Accuracies()
    victim: list[Victim] = []
    features: dict[str, Any] = {}
    party: Annotated[list[AuditedParty], Field(min_length=1)]

    @field_validator("attacks")
    @classmethod
    def _known(cls, names: list[str] | None) -> list[str] | None:
        return names if names is None else known_attacks(names)

    @field_validator("defences")
    @classmethod
    def _written(cls, defences: dict[str, Any] | None) -> dict[str, Any] | None:
        check_written(defences or {})
        return defences

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

    @field_validator("features")
    @classmethod
    def _sound_features(cls, settings: dict[str, Any]) -> dict[str, Any]:
        check_feature_settings(settings)
        return settings

    @model_validator(mode="after")
    def _distinct(self) -> AuditFile:
        tables: tuple[tuple[str, Sequence[AuditedParty | Victim]], ...] = (
            ("party", self.party),
            ("victim", self.victim),
        )
        for what, rows in tables:
            if len({row.name for row in rows}) < len(rows):
                raise ValueError(f"two [[{what}]] have one name")
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


def check_feature_settings(settings: Mapping[str, Any]) -> None:
    """Check the settings of attacks on columns; ValueError naming each one that is unknown or wrong."""
    try:
        FeatureSettings.read(settings)
    except BadInput as fault:
        raise ValueError(str(fault)) from None


def known_attacks(names: list[str]) -> list[str]:
    """The names, each once, in the registry's order. ValueError for an unknown one."""
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        raise ValueError(
            f"unknown attack {unknown[0]!r}; known are {', '.join(ATTACKS)}{did_you_mean(unknown[0], ATTACKS)}"
        )
    return [name for name in ATTACKS if name in names]


def read(run: Path) -> AuditFile:
    """Read an audit file, or that of a folder; relative paths in it are relative to its folder.

    Raises:
        BadInput: there is no such file, or it is wrong.
    """
    path = run / FILE if run.is_dir() else run
    file, base = load(path, AuditFile), path.absolute().parent
    update: dict[str, Any] = {name: _beside(base, getattr(file, name)) for name in ("ca", "revoked", "frontier")}
    for name in ("label", "known", "evaluation"):
        table: LabelTable | None = getattr(file, name)
        update[name] = table and table.model_copy(update={"path": base / table.path})
    places = ("transcript", "table", "model", "evaluation")
    update["party"] = [
        party.model_copy(update={name: _beside(base, getattr(party, name)) for name in places}) for party in file.party
    ]
    files = ("auxiliary", "truth", "victims", "model", "records")
    update["victim"] = [
        victim.model_copy(update={name: _beside(base, getattr(victim, name)) for name in files})
        for victim in file.victim
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


def with_label_holder(
    content: Mapping[str, Any],
    id_column: str,
    holder: tuple[str, str, str],
    victims: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """The content of an audit file with the label holder as attacker too.

    `holder`: name, transcript, table. `victims`: feature party → its auxiliary records, all its columns, its model.
    """
    name, transcript, table = holder
    attacker = {"name": name, "transcript": transcript, "table": table, "id": id_column}
    rows = [
        {"name": name, "auxiliary": auxiliary, "truth": truth, "model": model, "id": id_column}
        for name, (auxiliary, truth, model) in victims.items()
    ]
    return {**content, "party": [*content["party"], attacker], "victim": rows}
