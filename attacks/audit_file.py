"""The file that `treetap audit` reads: the parties' transcripts and tables, and the labels for scoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator, model_validator

from attacks.advice.defence_lines import check_written
from attacks.files import AuditedParty, LabelTable, ScoredPrediction, Victim
from attacks.registry import Needs, chosen, rows
from treetap.errors import BadInput
from treetap.strict import Strict, load

#: Name of the audit file in a folder that can be audited.
FILE = "audit.toml"
#: Table of an audit file → the attacks whose settings it has.
SETTINGS = {
    "settings": Needs.SETS,
    "network": Needs.GRADIENTS,
    "features": Needs.EMBEDDINGS,
    "decoding": Needs.SCORES,
}


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

    `prediction`: predictions whose scores their recipients attack; `decoding`: settings of these attacks.
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
    prediction: list[ScoredPrediction] = []
    decoding: dict[str, Any] = {}
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

    @field_validator(*SETTINGS)
    @classmethod
    def _sound(cls, settings: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        check_settings({str(info.field_name): settings})
        return settings

    @model_validator(mode="after")
    def _distinct(self) -> AuditFile:
        names: dict[str, Sequence[str]] = {
            "party": [party.name for party in self.party],
            "victim": [victim.name for victim in self.victim],
            "prediction": [prediction.job for prediction in self.prediction],
        }
        for what, given in names.items():
            if len(set(given)) < len(given):
                raise ValueError(f"two [[{what}]] have one name")
        for victim in self.victim:
            chosen(victim.attacks or [], "attack on columns", Needs.EMBEDDINGS)
        return self


def check_settings(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the tables of settings, by name; ValueError naming each one that is unknown or wrong."""
    for name, given in tables.items():
        for schema in {attack.settings for attack in rows(SETTINGS[name]).values()}:
            try:
                assert schema is not None  # every attack of these has settings
                schema.read(given)
            except BadInput as fault:
                raise ValueError(str(fault)) from None


def known_attacks(names: list[str]) -> list[str]:
    """The names of attacks that group records, each once, in the registry's order. ValueError for another one."""
    return chosen(names, "attack", Needs.COLUMNS, Needs.SETS)


def read(run: Path) -> AuditFile:
    """Read an audit file, or that of a folder; relative paths in it are relative to its folder.

    Raises:
        BadInput: there is no such file, or it is wrong.
    """
    path = run / FILE if run.is_dir() else run
    file, base = load(path, AuditFile), path.absolute().parent
    update: dict[str, Any] = {
        name: base / given for name in ("ca", "revoked", "frontier") if (given := getattr(file, name)) is not None
    }
    for name in ("label", "known", "evaluation"):
        table: LabelTable | None = getattr(file, name)
        update[name] = table and table.below(base)
    update["party"] = [party.below(base) for party in file.party]
    update["victim"] = [victim.below(base) for victim in file.victim]
    update["prediction"] = [prediction.below(base) for prediction in file.prediction]
    return file.model_copy(update=update)


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
