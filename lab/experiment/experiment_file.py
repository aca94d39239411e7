"""The file that `treetap experiment` reads: one table, its parties and a job."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from treetap.commands.jobs.job_file import JobTable, has_parameter
from treetap.errors import ConfigError
from treetap.lab.experiment.party_table import (
    PartyTable,
    column_faults,
    cut_faults,
    defence_faults,
    label_faults,
    red_team_faults,
)
from treetap.lab.experiment.results import PlannedRun
from treetap.names import matched
from treetap.party.defences.settings import Defences
from treetap.protocols.exclusions import TRAININGS, Feature, broken, named_in
from treetap.protocols.libraries import missing_library
from treetap.protocols.prediction import FORMATS, predicting
from treetap.protocols.registry import PREDICTION, TRAINING, prediction, training
from treetap.strict import Strict, unshown
from treetap.tables.config import AUTO, OTHERS, Constrained, Direction, Encode, auto_for_others, encoded_by_name
from treetap.tables.source_keys import SourceKeys
from treetap.trees.params import TreeParams
from treetap.version import install
from treetap.wire.v2 import setup_pb2

#: Schemes of MLflow's servers.
_SERVERS = ("http", "https")
#: The beginning of an address with a user and a password.
_USER = re.compile("[^/]:[^/]*@")
#: Characters that have a meaning in the address of a SQLite file.
_MEANT = frozenset("?#%")


class OutputTable(Strict):
    """Where copies of the results go."""

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


#: Libraries of every audit, which imports them after the training.
_OF_AUDIT = ("scipy", "sklearn")


def lacking() -> str | None:
    """The library that an audit needs and this machine lacks."""
    return next((name for name in _OF_AUDIT if find_spec(name) is None), None)


class AuditTable(Strict):
    """The attacks on the feature parties' transcripts after each run; by default those of `treetap audit`."""

    run: bool = True
    """false: no audit, and no transcript but those of parties with `record`."""
    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    """Names of attacks; without it all that suit the number of records."""
    classes: Annotated[int, Field(ge=2)] | None = None
    """Groups that an attack looks for; by default the label's classes."""
    by_tree: bool | Literal["few"] = "few"
    """Group records after 1, 2, 5, 10, … trees, after every tree, or after all alone."""
    drawn_only: bool = False
    """Keep of each leaf the records that the tree was trained on."""
    settings: dict[str, Any] = {}
    """Settings of the attacks by sets of records."""
    known_labels: dict[str, Any] = {}
    """Trees: settings of the attacks by known labels."""
    network: dict[str, Any] = {}
    """Networks: settings of the attacks by gradients."""
    features: dict[str, Any] = {}
    """Networks: settings of the label holder's attacks on columns."""
    sums: dict[str, Any] = {}
    """Trees: settings of the label holder's attack on columns; with any of them it reads all, for longer."""
    frontier: Path | None = None
    """A `frontier.json` of `treetap frontier`, by whose figures the audit advises."""

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


class ExperimentFile(Strict):
    """The file that `treetap experiment` reads. `defences`: of labels; those of columns are in the parties' tables."""

    data: DataTable
    """The joined table, and what is held out."""
    party: Annotated[list[PartyTable], Field(min_length=2)]
    """The parties, two or more: `[[party]]`."""
    job: JobTable
    """The parameters, as in a job file, without parties and tables."""
    audit: AuditTable | None = None
    """The attacks on what the parties have received; by default on for trees and up to 100,000 records."""
    predict: PredictTable | None = None
    """How held-out rows are predicted."""
    defences: Defences = Defences()
    """The label holder's defences of its labels, with the keys of [defences] in a party file."""
    output: OutputTable = OutputTable()
    """Places for results beside the folder."""

    @field_validator("job")
    @classmethod
    def _trainable(cls, job: JobTable) -> JobTable:
        """All parties of an experiment run here."""
        if missing := missing_library(job.protocol, training(job.protocol)):
            raise ValueError(missing)
        return job

    @model_validator(mode="before")
    @classmethod
    def _repeatable(cls, content: Any) -> Any:
        """One table is aligned with itself; by its sorted ids a run comes out the same whenever it is repeated.

        So does a network whose private draws follow from the job's seed, as they do unless the file says otherwise.
        """
        if not (isinstance(content, dict) and isinstance(content.get("job"), dict)):
            return content
        given, usual = content["job"], dict[str, Any](alignment="sorted-ids")
        protocol = given.get("protocol")
        if isinstance(protocol, str) and protocol in TRAINING and has_parameter(protocol, "reproducible"):
            usual["reproducible"] = True
        return {**content, "job": usual | given}

    @property
    def runs(self) -> list[PlannedRun]:
        """One for each seed or, with cross-validation, for each fold of each seed."""
        folds = [None] if self.data.cv is None else range(1, self.data.cv + 1)
        return [PlannedRun(seed, fold) for seed in self.data.seeds for fold in folds]

    def spec(self, job: JobTable) -> setup_pb2.JobSpec:
        """A job of this experiment's parties: `job`, or the same with another seed."""
        first, *others = self.in_order
        return job.spec(first, others, "train", "predict" if self.data.evaluate_rounds else "")

    @property
    def spread(self) -> bool:
        """True if labels are spread over the parties."""
        return training(self.job.protocol).one_role

    @property
    def in_order(self) -> list[str]:
        """The parties in the order of the job: the label holder, if there is one, before the others."""
        return [party.name for party in sorted(self.party, key=lambda party: not party.labels)]

    @property
    def of_columns(self) -> dict[str, Defences]:
        """The defences of feature parties' columns, by party; without those that have none."""
        return {party.name: party.defences for party in self.party if party.defences.named(columns=True)}

    @property
    def min_cell_records(self) -> dict[str, int]:
        """That setting of the feature parties that have it, by name."""
        return {name: own.min_cell_records for name, own in self.of_columns.items() if own.min_cell_records}

    @property
    def noised(self) -> list[str]:
        """The feature parties whose sums have noise."""
        return [name for name, own in self.of_columns.items() if own.column_privacy is not None]

    @property
    def defended(self) -> bool:
        """True if labels or columns have a defence."""
        return bool(self.defences.named() or self.of_columns)

    @property
    def protocols(self) -> list[str]:
        """The protocols that predict the held-out rows."""
        asked = None if self.predict is None else self.predict.protocols
        return list(asked or self._predicting[:1])

    @property
    def _predicting(self) -> list[str]:
        return predicting(self.job.protocol, withheld=self._withheld)

    @property
    def _withheld(self) -> bool:
        params = self.job.params()
        return isinstance(params, TreeParams) and params.withheld

    @property
    def format(self) -> str:
        """The format of the file of predictions."""
        return FORMATS[0] if self.predict is None else str(self.predict.format)

    def encode(self, party: PartyTable, columns: Sequence[str]) -> str | dict[str, str]:
        """The encodings of these columns at a party, its own or those of `[data]`; `AUTO` where neither says one."""
        given = auto_for_others(self.data.encode if party.encode is None else party.encode)
        if isinstance(given, str):
            return given
        return {name: encoding for name, encoding in given.items() if name in (OTHERS, *columns)}

    def claims(self, names: Sequence[str]) -> dict[str, list[str]]:
        """The columns of the parties that name some: of patterns those of the table, whose columns are `names`.

        Raises:
            ConfigError: two parties claim a column, or a key of one names a column that it has not.
        """
        owner, claimed = dict[str, str](), dict[str, list[str]]()
        for party in self.party:
            if party.columns is None:
                continue
            own = claimed[party.name] = matched(
                party.columns, names, [*self.data.spared, self.data.time, *self.data.drop]
            )
            for column in own:
                if owner.setdefault(column, party.name) != party.name:
                    raise ConfigError(f"column {column!r} is claimed by {owner[column]} and by {party.name}")
            try:
                party.check_named(own)
            except ValueError as fault:
                raise ConfigError(f"[[party]] {party.name}: {fault}") from None
        return claimed

    def constraints(self, party: PartyTable, columns: Sequence[str]) -> dict[str, Direction]:
        """The monotone constraints of these columns at a party: those of `[data]`, and its own."""
        given = {**self.data.directions, **party.directions}
        return {name: direction for name, direction in given.items() if name in columns}

    @property
    def constrained(self) -> set[str]:
        """The columns with a monotone constraint, whichever party has them."""
        return {*self.data.directions, *(name for party in self.party for name in party.directions)}

    @property
    def encoded_by_name(self) -> set[str]:
        """The columns that some table of encodings names."""
        given = [self.data.encode, *(party.encode for party in self.party)]
        return {name for encode in given for name in encoded_by_name(encode)}

    @property
    def audited(self) -> bool:
        """True if each run ends with an audit."""
        return self.audit is not None and self.audit.run

    def record(self, party: PartyTable) -> str:
        """The messages in the party's transcript; under audit parties record what they receive.

        All but the label holder of a network, whose attacks take long and need records that it knows.
        """
        attacks = self.audited and (not party.labels or training(self.job.protocol).grows_trees)
        return party.record or ("received" if attacks else "off")

    def record_sums(self, party: PartyTable) -> bool:
        """True for a label holder of trees under audit that records: attacks on columns are by the sums it opens."""
        kind = training(self.job.protocol)
        attacks = self.audited and party.labels and self.record(party) != "off"
        return attacks and kind.grows_trees and not kind.one_role

    @property
    def reads_briefly(self) -> bool:
        """True if the label holder's attack on columns has little work: its file asks for no more."""
        assert self.audit is not None
        return not self.audit.sums and all(party.record is None for party in self.party if party.labels)

    @model_validator(mode="after")
    def _together(self) -> ExperimentFile:
        used = {Feature.EXPERIMENT, *named_in(vars(self.job), vars(self.data))}
        used |= {Feature.EVAL_TABLE} if self.data.evaluate_rounds else set()
        used |= {Feature.MONOTONE} if self.constrained else set()
        used |= {Feature.CUTS} if any(party.cuts for party in self.party) else set()
        name = self.job.protocol
        if rows := broken(TRAININGS, used, name, training(name).capabilities):
            raise ValueError("; ".join(map(str, rows)))
        return self

    @model_validator(mode="after")
    def _parties(self) -> ExperimentFile:
        faults = [*column_faults(self.party), *label_faults(self.party, self.job)]
        faults += [*red_team_faults(self.party, self.job), *defence_faults(self.party, self.defences)]
        faults += cut_faults(self.party, self.job)
        if faults:
            raise ValueError("; ".join(faults))
        # these read the parties, and would name the wrong fault where the tables contradict each other
        if faults := self.job.params().party_faults(self.in_order[0], self.in_order[1:]):
            raise ValueError("; ".join(faults))
        if self.audited:
            for party in self.party:
                if party.record == "off" and not party.labels:
                    raise ValueError(f"[audit] reads transcripts, but {party.name} has record = 'off'; leave it out")
        if foreign := [name for name in self.protocols if name not in self._predicting]:
            mode = " with instance_spaces = 'withheld'" if self._withheld else ""
            raise ValueError(
                f"{', '.join(foreign)}: does not predict by models of protocol {self.job.protocol!r}{mode}"
            )
        if self.data.id is None and any(party.label_rows is not None for party in self.party):
            raise ValueError("label_rows has files of ids: name the id column in [data]")
        if self.job.seed + max(self.data.seeds) >= 1 << 63:
            raise ValueError("data.seed and job.seed add up to more than 2^63 - 1")
        try:
            self.spec(self.job)
        except ConfigError as refusal:  # what excludes each other in the job itself
            raise ValueError("; ".join(str(refusal).splitlines())) from None
        return self
