"""The file that `treetap audit` reads: the parties' transcripts and tables, and the labels for scoring.

A folder that can be audited holds one, and so does each run of an experiment that keeps its transcripts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field, ValidationInfo, field_validator, model_validator

from treetap.attacks.advice.names import check_written
from treetap.attacks.files import AttackSettings, AuditedParty, Files, LabelTable, ScoredPrediction, Victim
from treetap.attacks.registry import Needs, chosen, rows
from treetap.errors import BadInput
from treetap.strict import Strict, load

#: Name of the audit file in a folder that can be audited.
FILE = "audit.toml"
#: Table of an audit file → the attacks whose settings it has.
SETTINGS = {
    "settings": Needs.SETS,
    "known_labels": Needs.KNOWN_LABELS,
    "network": Needs.GRADIENTS,
    "features": Needs.EMBEDDINGS,
    "sums": Needs.SUMS,
    "decoding": Needs.SCORES,
}


class Accuracies(Strict):
    """Accuracies of a split network on other records, of which an experiment knows all, an auditor perhaps none."""

    together: Annotated[float, Field(ge=0, le=1)] | None = None
    """Accuracy of the trained model."""
    alone: Annotated[float, Field(ge=0, le=1)] | None = None
    """Accuracy by the label holder's columns alone."""
    undefended: Annotated[float, Field(ge=0, le=1)] | None = None
    """Accuracy of the same training without a defence."""


class AuditFile(Files, AttackSettings):
    """The audit file; no transcript has the defences of the label holder, so that the file repeats them."""

    job: str | None = None
    """Name of the audited job, where transcripts have several."""
    title: str | None = None
    """Title of the report, in the place of the job's name."""
    ca: Path | None = None
    """The federation's authority, by which signatures are verified."""
    revoked: Path | None = None
    """The authority's list of revoked certificates."""
    label: LabelTable | None = None
    """The labels, which score the attacks; no attack reads them."""
    data_digest: str | None = None
    """Digest of the audited table, by which the audit knows that the frontier is of this table."""
    defences: dict[str, Any] | None = None
    """The table `[defences]` of the label holder's file, so that the advice does not repeat it."""
    known: LabelTable | None = None
    """Labels that each party is assumed to know; otherwise drawn from `[label]`."""
    evaluation: LabelTable | None = None
    """Networks: labels of the records in the parties' `evaluation` tables."""
    accuracy: Accuracies = Accuracies()
    """Networks: accuracies on other records."""
    victim: list[Victim] = []
    """Feature parties whose columns the label holder attacks: `[[victim]]`."""
    prediction: list[ScoredPrediction] = []
    """Predictions whose scores their recipients attack: `[[prediction]]`."""
    decoding: dict[str, Any] = {}
    """Settings of the attacks on scores."""
    party: Annotated[list[AuditedParty], Field(min_length=1)]
    """The attackers, with transcripts and tables: `[[party]]`."""

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
            chosen(victim.attacks or [], "attack on columns", Needs.EMBEDDINGS, Needs.SUMS)
        return self


def check_settings(tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Check the tables of settings, by name; ValueError naming each one that is unknown or wrong."""
    for name, given in tables.items():
        for schema in {attack.settings for attack in rows(SETTINGS[name]).values() if attack.settings is not None}:
            try:
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
    return load(path, AuditFile).below(path.absolute().parent)


#: An experiment's folder holds this file, and its runs are the folders of this pattern.
EXPERIMENT, RUNS = "experiment.toml", "seed-*"


class Runs(NamedTuple):
    """The folders or files to audit, and the runs that kept nothing to audit. `several`: they are an experiment's."""

    audited: list[Path]
    silent: list[Path]
    several: bool


def audited_runs(run: Path) -> Runs:
    """The runs of a folder that holds an audit file, of such a file, or of an experiment's folder.

    Raises:
        BadInput: there is nothing to audit; the message says what records it.
    """
    if not run.is_dir() or (run / FILE).is_file():
        return Runs([run], [], several=False)
    # Sort key of a run's name: seed 2 before seed 10.
    folders = sorted(
        (path for path in run.glob(RUNS) if path.is_dir()),
        key=lambda path: [(int(part), "") if part.isdecimal() else (-1, part) for part in path.name.split("-")],
    )
    kept = [path for path in folders if (path / FILE).is_file()]
    if kept:
        return Runs(kept, [path for path in folders if path not in kept], several=True)
    # a seed's folder of an experiment holds no audit file where transcripts were not kept: name that cause
    of_one = run.match(RUNS) and (run.parent / EXPERIMENT).is_file()
    if folders or of_one or (run / EXPERIMENT).is_file():
        raise BadInput(
            f"{run}: the experiment kept no transcripts to audit: add a line [audit] to its file and run it again"
        )
    raise BadInput(
        f"{run}: holds no {FILE}; treetap demo --workdir writes one, and an experiment with a line [audit] in its "
        "file, and docs/measure.md shows one"
    )
