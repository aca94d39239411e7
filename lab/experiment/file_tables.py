"""The tables of an experiment's file: the data and what is held out, the parties, the audit, predictions, outputs."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from treetap.attacks.files import AttackSettings
from treetap.commands.jobs.job_file import ELSEWHERE, JobTable, has_parameter, unknown_parameter
from treetap.errors import ConfigError, did_you_mean
from treetap.names import named_by
from treetap.native.arithmetic import Choice
from treetap.party.defences.settings import OF_COLUMNS, Defences
from treetap.protocols.libraries import missing_library
from treetap.protocols.prediction import FORMATS
from treetap.protocols.registry import PREDICTION, prediction, training
from treetap.strict import Name, Strict, unshown
from treetap.tables.config import AUTO, Constrained, Encode, PublicCuts, encoded_by_name
from treetap.tables.source_keys import SourceKeys
from treetap.trees.params import TreeParams
from treetap.version import install
from treetap.workers.settings import WorkerSettings

#: Schemes of MLflow's servers.
_SERVERS = ("http", "https")
#: The beginning of an address with a user and a password.
_USER = re.compile("[^/]:[^/]*@")
#: Characters that have a meaning in the address of a SQLite file.
_MEANT = frozenset("?#%")


class OutputTable(Strict):
    """The places of copies of the results."""

    mlflow: str | None = None
    """The address of an MLflow server, or a folder; `$NAME` is an environment variable. Needs the extra `mlflow`."""

    @field_validator("mlflow")
    @classmethod
    def _address(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if "://" in value:
            parts = urlsplit(value)
            if parts.scheme not in _SERVERS or not parts.hostname:
                raise unshown("is neither the address of a server, as http://HOST:5000, nor a folder")
            if parts.username is not None:
                raise unshown("holds a password: give it by MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD")
        elif _USER.search(value):
            raise unshown("holds what may be a password, and is no address of a server: write http://HOST:5000")
        needed = ("mlflow",) if "://" in value else ("mlflow", "sqlalchemy", "alembic")
        if missing := [name for name in needed if find_spec(name) is None]:
            raise ValueError(f"needs {missing[0]}: {install('mlflow')}")
        return value

    def mlflow_address(self, base: Path) -> str | None:
        """The address of the server, or the absolute path of the folder, which starts at `base`; None if none is given.

        Raises:
            ConfigError: an environment variable is not set, or the path cannot be that of a SQLite file.
        """
        if self.mlflow is None or "://" in self.mlflow:
            return self.mlflow
        expanded = os.path.expandvars(self.mlflow)
        if "$" in expanded:
            raise ConfigError(f"output.mlflow = {self.mlflow!r}: the environment variable is not set")
        folder = str((base / expanded).resolve())
        if _MEANT & set(folder):
            raise ConfigError(f"output.mlflow: the path {folder} has one of {' '.join(sorted(_MEANT))}; name another")
        return folder


#: The protocols that predict.
PROTOCOLS = tuple(PREDICTION)


class DataTable(SourceKeys, Constrained):
    """The joined table. `$NAME` in `path` is an environment variable; a relative path is from the file's folder."""

    label: str
    """The label column."""
    positive: bool | int | str | None = None
    """The class that curves, gains and thresholds are of; by default the second of two, unless the first is rare."""
    weight: str | None = None
    """The column of sample weights, which goes to the label holder and is no feature; boosting only, and the job needs
    max_sample_weight.
    """
    id: str | None = None
    """The id column; without it rows are numbered."""
    drop: list[str] = []
    """Columns that no party gets."""
    encode: Encode = AUTO
    """Encoding of columns of text and dates, at every party."""
    drop_constant: bool = False
    """Train without columns that are constant among a party's training rows."""
    compare: bool | None = None
    """Also train on the joined table, and on the label holder's columns alone (PIVODL: on each party's); by default for
    trees and up to 100,000 records.
    """
    test_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """Share of the rows that is held out, drawn per class."""
    cv: Annotated[int, Field(ge=2, le=100)] | None = None
    """Number of folds, in the place of `test_share`; each is held out once, by a run of its own."""
    time: str | None = None
    """A column of numbers or dates: rows are held out by its order and not drawn. It is no feature unless a party names
    it in `columns`.
    """
    evaluate_rounds: bool = False
    """Measure the held-out rows after every round, as the job's eval table; boosting and forest, not with
    early_stopping_rounds.
    """
    seed: int | list[int] = 0
    """A whole number from 0, or a list: one run for each. It draws test rows and columns, and adds to the job's."""

    @classmethod
    def about_unknown(cls, key: str) -> str:
        """What stands in other files and tables, first."""
        return f"; {unknown_parameter(key)}" if key in ELSEWHERE else super().about_unknown(key)

    @field_validator("seed")
    @classmethod
    def _seeds(cls, seed: int | list[int]) -> int | list[int]:
        seeds = seed if isinstance(seed, list) else [seed]
        if not seeds:
            raise ValueError("names no seed; give a number, or a list with one number per run")
        if min(seeds) < 0:
            raise ValueError("a seed is a whole number from 0")
        if len(set(seeds)) < len(seeds):
            raise ValueError("names a seed twice; each seed is one run")
        return seed

    @model_validator(mode="after")
    def _held_out(self) -> DataTable:
        if self.cv is not None and "test_share" in self.model_fields_set:
            raise ValueError("test_share and cv exclude each other: with cv each fold is held out once; leave one out")
        if self.time is not None and self.time in (self.label, self.id, *self.drop):
            raise ValueError(f"time column {self.time!r} is the label, the id or dropped; it is no feature by itself")
        if self.duplicates != "refuse" and self.id is None:
            raise ValueError("duplicates is of ids, and rows are numbered: name the id column, or leave it out")
        return self

    @property
    def seeds(self) -> list[int]:
        """One for each run."""
        return self.seed if isinstance(self.seed, list) else [self.seed]


def lacking() -> str | None:
    """The library that every audit needs, if this machine lacks it."""
    return "threadpoolctl" if find_spec("threadpoolctl") is None else None


class AuditTable(AttackSettings):
    """The attacks on the feature parties' transcripts after each run; by default those of `treetap audit`."""

    run: bool = True
    """false: no audit, and no transcript but those of parties with `record`."""
    by_tree: bool | Literal["few"] = "few"
    """Group records after 1, 2, 5, 10, … trees, after every tree, or after all alone."""

    @model_validator(mode="after")
    def _known(self) -> AuditTable:
        from treetap.attacks.audit_file import check_settings, known_attacks

        if self.run and (missing := lacking()):
            raise ValueError(f"needs {missing}: {install('audit')}")
        if self.attacks is not None:
            known_attacks(self.attacks)
        tables = ("settings", "known_labels", "network", "features", "sums")
        check_settings({name: getattr(self, name) for name in tables})
        return self


class PredictTable(Strict):
    """The prediction of the held-out rows: protocols (by default the training's first), and the most rows."""

    protocols: Annotated[list[Literal[PROTOCOLS]], Field(min_length=1)] | None = None  # type: ignore[valid-type]
    """Protocols that predict the held-out rows, one after the other; the first is measured. By default the training
    protocol's own, with withheld spaces "eini".
    """
    limit: Annotated[int, Field(ge=1)] | None = None
    """Most held-out rows to predict, drawn by the seed."""
    format: Literal[FORMATS] = FORMATS[0]  # type: ignore[valid-type]
    """Format of the kept predictions."""

    @field_validator("protocols")
    @classmethod
    def _once(cls, protocols: list[str] | None) -> list[str] | None:
        if protocols is None:
            return None
        if len(set(protocols)) < len(protocols):
            raise ValueError("names a protocol twice")
        for name in protocols:
            if missing := missing_library(name, prediction(name)):
                raise ValueError(missing)
        return protocols


#: Names of the federation's other processes, and of the certificates' folder and authority.
RESERVED = ("coordinator", "operator", "gateway", "certs", "ca")


class PartyTable(WorkerSettings, Constrained, PublicCuts):
    """One party: the columns it gets, by name or as a random share of those that no party names."""

    name: Name
    """The party's name; not coordinator, operator, certs or ca."""
    columns: list[str] | None = None
    """Its columns by name, or by a pattern such as "Tel_*"; or `share`."""
    share: Annotated[float, Field(ge=0, le=1)] | None = None
    """A share of the columns that no party names; shares add up to 1 at most, and the rest goes to nobody."""
    labels: bool = False
    """It is the label holder; one party is, unless labels are spread."""
    label_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """PIVODL: share of the training rows that this party labels, drawn by the seed; shares add up to 1."""
    label_rows: str | None = None
    """PIVODL: file of the ids of the training rows that this party labels; [data] needs `id`."""
    encode: Encode | None = None
    """Encoding of its columns, in the place of that of `[data]`."""
    record: Literal["received", "both", "off"] | None = None
    """Transcript; with an audit "received" by default, but of the label holder of a network. Written here for the label
    holder of trees, its attack on columns reads all, for longer.
    """
    arithmetic: Choice = "auto"
    """As in the party file."""
    optimizer: Literal["amplified"] | None = None
    """As in the party file, for audits."""
    lacks: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Feature party of trees: share of all records that it does not have, drawn by the seed; see `join` in `[job]`."""
    defences: Defences = Defences()
    """Feature party: defences of its columns, `[party.defences]`."""

    @model_validator(mode="after")
    def _one_of(self) -> PartyTable:
        if (self.columns is None) == (self.share is None):
            raise ValueError("give either columns = [...] or share = 0.x")
        if len(set(self.columns or [])) < len(self.columns or []):
            raise ValueError("names a column twice")
        self.check_named(self.columns)
        if self.label_share is not None and self.label_rows is not None:
            raise ValueError("give either label_share = 0.x or label_rows = FILE")
        return self

    def check_named(self, columns: Sequence[str] | None) -> None:
        """Raise ValueError for a key that names a column that is none of these; None: they have no names yet."""
        for name in encoded_by_name(self.encode):
            if columns is None:
                raise ValueError(f"encode names {name!r}, and columns are drawn by share: name it in [data] encode")
            if not named_by(columns, name):
                raise ValueError(
                    f"encode names {name!r}, which is none of the party's columns{did_you_mean(name, columns)}"
                )
        self.check_directions(columns)
        self.check_cuts(columns)

    @field_validator("name")
    @classmethod
    def _not_reserved(cls, name: str) -> str:
        if name in RESERVED:
            raise ValueError(
                f"another part of the experiment has this name, as have {', '.join(RESERVED)}; choose another"
            )
        return name


def column_faults(parties: Sequence[PartyTable]) -> list[str]:
    """Faults of names and shares: a name that two parties have, shares that are too large."""
    names = [party.name for party in parties]
    if len(set(names)) != len(names):
        return ["two parties have one name"]
    if sum(party.share or 0 for party in parties) > 1 + 1e-9:
        return ["the shares add up to more than 1"]
    return []


def cut_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of listed cuts: more bins than the job has."""
    params, faults = job.params(), list[str]()
    if not isinstance(params, TreeParams):
        return faults
    for party in parties:
        try:
            party.check_bins(params.max_bin)
        except ValueError as fault:
            faults.append(f"[[party]] {party.name}: {fault}")
    return faults


def red_team_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of who attacks: a feature party of a network by its optimiser."""
    given = [party for party in parties if party.optimizer is not None]
    if given and not has_parameter(job.protocol, "optimizer"):
        return [f"optimizer of {given[0].name}: protocol {job.protocol!r} trains by none; leave it out"]
    return [f"optimizer of {party.name}: is of a feature party; leave it out" for party in given if party.labels]


def lack_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of who lacks records: feature parties of trees, of a job that finds whom they have."""
    lacking, kind = [party.name for party in parties if party.lacks], training(job.protocol)
    if not lacking:
        return []
    faults = [
        f"lacks of {party.name}: the label holder has all records; leave it out"
        for party in parties
        if party.labels and party.lacks
    ]
    if kind.one_role or not kind.grows_trees:
        faults.append(f"lacks is not for protocol {job.protocol!r}: {', '.join(lacking)}; leave it out")
    if job.alignment == "sorted-ids":
        faults.append(f"alignment = 'sorted-ids' needs the same ids, and {', '.join(lacking)} lacks some: leave it out")
    return faults


def defence_faults(parties: Sequence[PartyTable], of_labels: Defences) -> list[str]:
    """Faults of who has which defences: a feature party those of its columns, `[defences]` those of labels."""
    faults = []
    if columns := [name for name in OF_COLUMNS if name in of_labels.model_fields_set]:
        faults.append(
            f"[defences] {', '.join(columns)}: protects a feature party's columns, and this table is of labels; move "
            "it to [party.defences], below the [[party]] whose columns it protects"
        )
    for party in parties:
        if party.labels and party.defences.model_fields_set:
            faults.append(
                f"[party.defences] of {party.name}: the label holder sends nothing of its columns, and its "
                "defences of labels are in [defences]; leave it out"
            )
        elif labels := party.defences.named():
            faults.append(
                f"[party.defences] of {party.name}, {', '.join(labels)}: protects labels; move it to [defences], which "
                "is the label holder's"
            )
    return faults


def label_faults(parties: Sequence[PartyTable], job: JobTable) -> list[str]:
    """Faults of who has labels: one party, or, where they are spread, several, each row being labelled by one."""
    protocol, faults = training(job.protocol), list[str]()
    given = [party.name for party in parties if party.label_share is not None or party.label_rows is not None]
    if not protocol.one_role:
        faults = (
            [f"label_share and label_rows are not for protocol {job.protocol!r}: {', '.join(given)}"] if given else []
        )
        one = sum(party.labels for party in parties) == 1
        return faults + ([] if one else ["exactly one [[party]] has labels = true"])
    faults = []
    if any(party.labels for party in parties):
        faults.append(f"labels = true is not for protocol {job.protocol!r}: give label_share or label_rows")
    if len(parties) > protocol.most_equals:
        faults.append(f"{len(parties)} parties: protocol {job.protocol!r} takes at most {protocol.most_equals}")
    if without := [party.name for party in parties if party.columns == [] or party.share == 0]:
        faults.append(f"{', '.join(without)}: a party of protocol {job.protocol!r} has at least one column")
    if not given:
        faults.append("no party has labels: give label_share or label_rows")
    # shares are of the rows that no file names
    shares = [party.label_share for party in parties if party.label_share is not None]
    if shares and abs(sum(shares) - 1) > 1e-9:
        faults.append(f"label_share of all parties add up to {sum(shares):g}, not 1: one party labels each row")
    return faults
