"""The file that `treetap experiment` reads: one table, its parties and a job.

The tables `[[defence]]` of an experiment: what `treetap frontier` compares, a training for each of their values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from treetap.commands.jobs.job_file import JobOptions, JobTable, has_parameter
from treetap.errors import ConfigError
from treetap.lab.experiment.file_tables import (
    AuditTable,
    DataTable,
    OutputTable,
    PartyTable,
    PredictTable,
    column_faults,
    cut_faults,
    defence_faults,
    label_faults,
    lack_faults,
    red_team_faults,
)
from treetap.lab.experiment.results import PlannedRun
from treetap.lab.local_federation import dealer_of
from treetap.names import matched
from treetap.party.defences.settings import Defences
from treetap.privacy.frontiers import NO_DEFENCE
from treetap.protocols.exclusions import TRAININGS, Feature, broken, named_in
from treetap.protocols.job_spec import WITHHELD
from treetap.protocols.libraries import missing_library
from treetap.protocols.messages import LEFT
from treetap.protocols.prediction import predicting
from treetap.protocols.registry import TRAINING, training
from treetap.strict import Strict, faults_of
from treetap.tables.config import OTHERS, Direction, auto_for_others
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import ADDITIVE, BoostingParams, TreeParams
from treetap.wire.v2 import setup_pb2

#: The attack that needs no training: the reference line of a frontier.
REFERENCE = "cl"
#: Who trains: whole federations, or the centralised trainer, which grows the same trees much faster.
Trainer = Literal["federation", "centralised"]
#: A defence of feature parties' columns, and the name of points that are settings of the job.
CELLS, JOB = "min_cell_records", "job"
#: The four models of one job with label DP: trees on noisy labels, repaired or not, with or without clean weights.
LABEL_DP_VARIANTS = ("label_dp", "label_dp + refit", "grafting", "grafting + refit")
#: Keys of [job] that are the same for all points.
_SHARED = frozenset(JobOptions.model_fields) | {"objective"}


@dataclass(frozen=True)
class Plan:
    """A defence, or settings of the job, that is trained.

    `name`: the key in a party's table `[defences]`, "none" or "job". `defences`: of the label. `changes`: of "job" the
    parameters that differ, of "min_cell_records" that of every feature party.
    """

    name: str = NO_DEFENCE
    defences: Defences = field(default_factory=Defences)
    changes: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def settings(self) -> dict[str, Any]:
        """The own settings, by the keys that a party's file or the job has."""
        of_label = getattr(self.defences, self.name, None)
        return dict(self.changes) if of_label is None else of_label.model_dump()

    @property
    def points(self) -> tuple[str, ...]:
        """The defences whose points one training gives."""
        return LABEL_DP_VARIANTS if self.defences.private_values else (self.name,)

    @property
    def word(self) -> str:
        """A name for the kept results and progress, another one for each plan."""
        repaired = ["repaired"] if self.defences.private_values else []
        told = self.settings.items() if self.name == JOB else [(value,) for value in self.settings.values()]
        words = [self.name, *(str(part) for parts in told for part in parts), *repaired]
        signed = (re.sub(r"^-(?=[\d.])", "minus-", word) for word in words)
        return "-".join(re.sub(r"[^\w.]+", "-", word).strip("-") for word in signed)

    def job(self, shared: JobTable) -> JobTable:
        """The job of the training. Raises ValidationError if it cannot have the settings."""
        if self.name != JOB:
            return shared
        if "privacy" in self.changes:
            return shared.with_privacy(self.changes["privacy"])
        decided = {"max_depth"} if "model" in self.changes else set[str]()  # by the form, not by the shared job
        given = shared.model_dump(exclude_unset=True, exclude=decided)
        table: JobTable = JobTable.model_validate(given | dict(self.changes))
        return table


class DefenceRow(Strict):
    """One defence as a party's file has it, or parameters of the job; a list has a training for each of its values."""

    id_lmid: dict[str, Any] = {}
    """Labels: ID-LMID, as { xi = [0.25, 0.5, 1.0] }."""
    reduced_leakage: dict[str, Any] = {}
    """Labels: the first trees are the label holder's, as { trees = [1, 2] }."""
    label_dp: dict[str, Any] = {}
    """Labels: noisy ones, as { epsilon = [0.5, 1.0], stages = 2 }."""
    grafting: bool = False
    """With `label_dp`: four points of each training, as trained, with clean leaf weights, repaired, and both."""
    min_cell_records: int | list[int] = []
    """Columns: m of merged bins at every feature party, as [10, 20]."""
    job: dict[str, Any] = {}
    """Parameters of the job instead of a defence, as { max_depth = [2, 3] }."""

    @model_validator(mode="after")
    def _trainable(self) -> DefenceRow:
        if shared := sorted(self.job.keys() & _SHARED):
            raise ValueError(f"job sets {', '.join(shared)}, which all points of a frontier share: give it in [job]")
        if self.grafting and not self.label_dp:
            raise ValueError("grafting = true repairs models of noisy labels: add label_dp = { epsilon = [0.5, 1] }")
        self.plans()
        return self

    def plans(self) -> list[Plan]:
        """The trainings of the row. Raises ValueError: it has none, several defences, or one that cannot be."""
        names = [name for name in type(self).model_fields if getattr(self, name) and name != "grafting"]
        if len(names) != 1:
            raise ValueError("must have one defence, or job: id_lmid = { xi = [0.25, 0.5, 1] }, or another")
        name, content = names[0], getattr(self, names[0])
        lists = content if isinstance(content, dict) else {name: content}
        # every choice of one value from each of the lists
        choices = product(*(value if isinstance(value, list) else [value] for value in lists.values()))
        settings = [dict(zip(lists, choice, strict=True)) for choice in choices]
        if name == JOB:
            return [Plan(JOB, changes=changes) for changes in settings]
        repairs = dict.fromkeys(("grafting", "refit"), True) if self.grafting else {}
        plans = []
        for values in settings:
            try:
                own = Defences.model_validate(values if name == CELLS else {name: values, **repairs})
            except ValidationError as fault:
                raise ValueError("; ".join(faults_of(fault, Defences))) from None
            plans.append(Plan(CELLS, changes=values) if name == CELLS else Plan(name, own))
        return plans


#: Rounds of an additive model in the place of one of deeper trees: on public tables it has about their AUC then.
ADDITIVE_ROUNDS = 2


def recommended_rows(job: JobTable, *, bare: bool) -> list[DefenceRow]:
    """The rows of a file without one: defences of labels, less depth, and the additive form where the job can have it.

    `bare`: the label holder has no columns. Then nothing is known of a label before its noise, and withdrawn nodes
    cannot be grown.
    """
    noise = {"epsilon": [0.5, 1.0], "stages": 1 if bare else 2}
    rows = [DefenceRow(id_lmid={"xi": [0.1, 0.25, 0.5, 0.75, 1.0]}), DefenceRow(label_dp=noise, grafting=True)]
    params = job.params()
    if isinstance(params, TreeParams) and params.max_depth > 2:
        rows.append(DefenceRow(job={"max_depth": 2}))
    if isinstance(params, BoostingParams) and params.max_depth > 1 and job.privacy != WITHHELD:
        rows.append(DefenceRow(job={"model": ADDITIVE, "n_estimators": ADDITIVE_ROUNDS * params.n_estimators}))
    return rows


class Cells(Strict):
    """Shares of a feature party's cells that the label holder placed: `read`, `left_sets` alone, with links `given`.

    `explained`: the variance of places in columns of numbers that it explains (R²), None without such a column.
    """

    read: float
    left_sets: float
    given: float
    explained: float | None


class Guess(Strict):
    """The share of labels, or the AUC, that a feature party guesses without the training and with it.

    `drawn`: the error of the difference by the draws of known labels.
    """

    before: float
    after: float
    drawn: float = 0.0


class TrainingResult(Strict):
    """The results of a training.

    `test`: point, or "alone" → measures of the held-out rows; None: undefined. `v_measure`: feature party → attack.
    `guesses`: by feature party, by the `measure`. `cells`: of feature parties; `unread`: the reasons of those whose
    sums could not be attacked; both empty where none were to be. `local_subtrees`, `hidden_nodes`: what the label
    holder grew alone. `ciphertexts`: sent, by kind; none of a centralised training. `records`: `train` and `test`.
    `seconds`: wall time, attacks included.
    """

    test: dict[str, dict[str, float | None]]
    v_measure: dict[str, dict[str, float]]
    measure: Literal["accuracy", "AUC"]
    guesses: dict[str, Guess]
    cells: dict[str, Cells]
    unread: dict[str, str]
    classes: int
    local_subtrees: int
    hidden_nodes: int
    ciphertexts: dict[str, int]
    records: dict[str, int]
    seconds: float = 0.0


class TrainingResults(Strict):
    """Finished trainings by their names."""

    points: dict[str, TrainingResult]


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
    defence: list[DefenceRow] = []
    """Defences to compare, of `treetap frontier`."""

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
        """A table is aligned with itself; by its sorted ids a run comes out the same whenever it is repeated.

        Where a party lacks records, private set intersection finds the others.

        So does a network whose private draws follow from the job's seed, as they do unless the file says otherwise.
        """
        if not (isinstance(content, dict) and isinstance(content.get("job"), dict)):
            return content
        parties = content.get("party")
        parties = parties if isinstance(parties, list) else []
        lacking = any(isinstance(party, dict) and party.get("lacks") for party in parties)
        given, usual = content["job"], dict[str, Any](alignment="psi" if lacking else "sorted-ids")
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
        return job.spec(first, others, "train", "predict" if self.data.evaluate_rounds else "", dealer_of(job))

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
        """That setting of the feature parties that have it, by name, or `min_side_records`."""
        settings = {name: own.min_cell_records or own.min_side_records for name, own in self.of_columns.items()}
        return {name: least for name, least in settings.items() if least}

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
                    raise ConfigError(
                        f"[[party]] {owner[column]} and {party.name} both name column {column!r}: leave it to one"
                    )
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
    def apart(self) -> bool:
        """True if the records are the label holder's, of which feature parties have some."""
        return (self.job.join, self.job.alignment) == (LEFT, "psi")

    @property
    def audited(self) -> bool:
        """True if each run ends with an audit."""
        return self.audit is not None and self.audit.run

    def record(self, party: PartyTable) -> str:
        """The messages in the party's transcript; under audit parties record what they receive.

        All but the label holder of a network, whose attacks take long and need records that it knows, and of a job with
        records that others lack, whose sums no attack reads.
        """
        read = training(self.job.protocol).grows_trees and not self.apart
        attacks = self.audited and (not party.labels or read)
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
        used |= {Feature.LEFT} if self.job.join == LEFT else set()
        used |= {Feature.EVAL_TABLE} if self.data.evaluate_rounds else set()
        used |= {Feature.MONOTONE} if any(it.directions for it in (self.data, *self.party)) else set()
        used |= {Feature.CUTS} if any(party.cuts for party in self.party) else set()
        name = self.job.protocol
        if rows := broken(TRAININGS, used, name, training(name).capabilities):
            raise ValueError("; ".join(map(str, rows)))
        return self

    @model_validator(mode="after")
    def _parties(self) -> ExperimentFile:
        faults = [*column_faults(self.party), *label_faults(self.party, self.job)]
        faults += [*red_team_faults(self.party, self.job), *defence_faults(self.party, self.defences)]
        faults += [*cut_faults(self.party, self.job), *lack_faults(self.party, self.job)]
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
            self.job.drafts(self.spec)
        except ConfigError as refusal:  # what excludes each other in the job itself
            raise ValueError("; ".join(str(refusal).splitlines())) from None
        if self.defence:
            self.check_rows()
        return self

    def planned(self, plan: Plan) -> ExperimentFile:
        """The same file with the defences and the job of a plan, and transcripts for attacks in both directions."""
        changed = Defences(**{CELLS: plan.changes[CELLS]} if plan.name == CELLS else {})
        parties = [
            party.model_copy(update={"record": party.record or "received"} if party.labels else {"defences": changed})
            for party in self.party
        ]
        # the label holder alone is one training for all points
        data = self.data.model_copy(update={"compare": plan.name == NO_DEFENCE})
        changes = {"party": parties, "defences": plan.defences, "job": plan.job(self.job), "data": data}
        return self.model_copy(update={**changes, "defence": []})

    @property
    def plans(self) -> list[Plan]:
        """The trainings of the rows `[[defence]]`, after one without a defence."""
        return [Plan(), *(plan for row in self.defence for plan in row.plans())]

    def check_rows(self) -> None:
        """Raise ValueError for what no row can have: trainings differ in their own defence alone."""
        protocol = training(self.job.protocol)
        misfits = {
            "[predict]": self.predict is not None,
            "[defences]": bool(self.defences.named()),
            "[party.defences]": bool(self.of_columns),
            "cv in [data]": self.data.cv is not None,
            "weight in [data]": self.data.weight is not None,
            f"protocol {self.job.protocol!r}": not protocol.grows_trees or protocol.one_role,
            "a regression": self.job.params().objective in REGRESSIONS,
            "lacks in [[party]]": any(party.lacks for party in self.party),
            "record = 'off'": any(party.record == "off" and not party.labels for party in self.party),
        }
        if faults := [name for name, there in misfits.items() if there]:
            raise ValueError(
                f"{', '.join(faults)}: not for a frontier, whose rows [[defence]] are all the defences that it trains "
                "with, of trees that one party's classes label, once for each seed: leave it out, or run 'treetap "
                "experiment', also with [defences]"
            )
        words = [plan.word for plan in self.plans]
        if len(set(words)) < len(words):
            raise ValueError(f"[[defence]] has {next(word for word in words if words.count(word) > 1)} twice")
        for plan in self.plans:
            try:
                plan.job(self.job).drafts(self.spec)
            except ValidationError as fault:
                raise ValueError(f"[[defence]] job {plan.changes}: {'; '.join(faults_of(fault, JobTable))}") from None
            except ConfigError as refusal:
                raise ValueError(f"[[defence]] job {plan.changes}: {'; '.join(str(refusal).splitlines())}") from None
