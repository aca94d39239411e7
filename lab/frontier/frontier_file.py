"""The file that `treetap frontier` reads: an experiment file, which may have a table `[frontier]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from treetap.commands.jobs.job_file import JobOptions, JobTable
from treetap.lab.experiment.experiment_file import AuditTable, ExperimentFile
from treetap.party.defences.settings import Defences, IdLmid, LabelDp, ReducedLeakage
from treetap.privacy.frontiers import NO_DEFENCE
from treetap.protocols.registry import training
from treetap.strict import Strict
from treetap.trees.job_params import REGRESSIONS

#: The label holder's own columns without a federation: a training of every frontier, and no point.
ALONE = "alone"
#: A defence of feature parties' columns, and the name of points that are settings of the job.
CELLS, JOB = "min_cell_records", "job"
#: The four models of one job with label DP: trees on noisy labels, repaired or not, with or without clean weights.
LABEL_DP_VARIANTS = ("label_dp", "label_dp + refit", "grafting", "grafting + refit")


@dataclass(frozen=True)
class Plan:
    """A defence, or settings of the job, that is trained.

    `name`: the key in a party's table `[defences]`, "none", "job" or "alone". `defences`: of the label. `changes`: of
    "job" the parameters that differ, of "min_cell_records" that of every feature party.
    """

    name: str
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
        """A name for files and progress, another one for each plan."""
        repaired = ["repaired"] if self.defences.private_values else []
        told = self.settings.items() if self.name == JOB else [(value,) for value in self.settings.values()]
        words = [self.name, *(str(part) for parts in told for part in parts), *repaired]
        signed = (re.sub(r"^-(?=[\d.])", "minus-", word) for word in words)
        return "-".join(re.sub(r"[^\w.]+", "-", word).strip("-") for word in signed)

    def job(self, given: JobTable) -> JobTable:
        """The job of the training. Raises ValueError (ValidationError) if it cannot have the settings."""
        if self.name != JOB:
            return given
        table: JobTable = JobTable.model_validate(given.model_dump(exclude_unset=True) | dict(self.changes))
        return table


@dataclass(frozen=True)
class Training:
    """A plan with a seed of the data."""

    plan: Plan
    seed: int

    @property
    def asked(self) -> dict[str, Any]:
        """The identity of a training among those of one folder, as plain JSON types."""
        changes: dict[str, Any] = {self.plan.name: dict(self.plan.changes)} if self.plan.changes else {}
        changes |= {ALONE: True} if self.plan.name == ALONE else {}
        return {"defences": self.plan.defences.model_dump(exclude_defaults=True), **changes, "seed": self.seed}

    @property
    def word(self) -> str:
        """A name for files and progress."""
        return f"{self.plan.word}-seed-{self.seed}"


#: The attack that needs no training: the reference line of a frontier.
REFERENCE = "cl"


#: Keys of [job] that are the same for all points.
_SHARED = frozenset(JobOptions.model_fields) | {"objective"}


class FrontierTable(Strict):
    """The points: for each defence the values of its parameter; and settings of the job, a table for each point.

    `none`: also without a defence, the reference. `grafting`: out of each training with label DP also the points of its
    repaired model, and of clean weights in both. `attacks`: by default `id2graph` (its quotient form, which has the
    same modularity, where the exact graph is too large), `uni`, `uni+cl`, `own-cuts`; `cl` always. `settings`: of the
    attacks; `known_labels`: of those by known labels; `sums`: of the label holder's attack on columns. Of an
    experiment's `[audit]` these four count where `[frontier]` has none.
    """

    trainer: Literal["federation", "centralised"] = "federation"
    """Train by whole federations, or by the centralised trainer, which grows the same trees much faster."""
    none: bool = True
    """Also train without a defence, the reference."""
    id_lmid: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = []
    """Values of ξ of ID-LMID."""
    counts: Literal["shown", "paper"] = "shown"
    """ID-LMID: count every record of a shown set, or those that the tree draws."""
    reduced_leakage: list[Annotated[int, Field(ge=1)]] = []
    """Numbers of first trees that the label holder grows alone."""
    label_dp: list[Annotated[float, Field(gt=0, le=64)]] = []
    """Values of ε of noisy labels."""
    stages: Annotated[int, Field(ge=1, le=16)] = 1
    """Stages of noisy labels."""
    grafting: bool = False
    """Four points of each noisy training: as trained, with clean leaf weights, repaired, and both."""
    min_cell_records: list[Annotated[int, Field(ge=2, le=1_000_000)]] = []
    """Values of m of merged bins at feature parties."""
    job: list[Annotated[dict[str, Any], Field(min_length=1)]] = []
    """Parameters of the job, a table for each point: [{max_depth = 3}, {max_bin = 8}]."""
    attacks: Annotated[list[str], Field(min_length=1)] | None = None
    """Names of attacks; by default id2graph, uni, uni+cl and own-cuts. cl is always one."""
    settings: dict[str, Any] = {}
    """Settings of the attacks."""
    known_labels: dict[str, Any] = {}
    """Settings of the attacks by known labels."""
    sums: dict[str, Any] = {}
    """Settings of the label holder's attack on columns."""

    @model_validator(mode="after")
    def _points(self) -> FrontierTable:
        for name in ("id_lmid", "reduced_leakage", "label_dp", CELLS):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(f"{name} names a value twice")
        if shared := sorted({name for one in self.job for name in one} & _SHARED):
            raise ValueError(f"job sets {', '.join(shared)}, which all points of a frontier share: give it in [job]")
        if any(one in self.job[:place] for place, one in enumerate(self.job)):
            raise ValueError("job names settings twice")
        if self.grafting and not self.label_dp:
            raise ValueError("grafting = true repairs models of noisy labels: add label_dp = [0.5, 1, 2]")
        if not self.plans():
            raise ValueError("has no point: give id_lmid = [0.25, 0.5, 1], or another defence")
        # the checks of an audit
        AuditTable(attacks=self.attacks, settings=self.settings, known_labels=self.known_labels, sums=self.sums)
        return self

    def plans(self) -> list[Plan]:
        """The trainings, in the order of a report."""
        plans = [Plan(NO_DEFENCE)] if self.none else []
        for trees in sorted(self.reduced_leakage):
            plans.append(Plan("reduced_leakage", Defences(reduced_leakage=ReducedLeakage(trees=trees))))
        for xi in sorted(self.id_lmid):
            plans.append(Plan("id_lmid", Defences(id_lmid=IdLmid(xi=xi, counts=self.counts))))
        for epsilon in sorted(self.label_dp):
            noise = LabelDp(epsilon=epsilon, stages=self.stages)
            repairs = Defences(label_dp=noise, grafting=self.grafting, refit=self.grafting)
            plans.append(Plan("label_dp", repairs))
        plans += [Plan(CELLS, changes={CELLS: least}) for least in sorted(self.min_cell_records)]
        plans += [Plan(JOB, changes=settings) for settings in self.job]
        return plans


#: The table of a file without one; of a label holder without own columns `NO_COLUMNS` changes it.
RECOMMENDED: Mapping[str, Any] = {
    "trainer": "centralised",
    "id_lmid": [0.1, 0.25, 0.5, 0.75, 1.0],
    "label_dp": [0.5, 1.0],
    "stages": 2,
    "grafting": True,
}
#: Without own columns nothing is known of a label before its noise, and withdrawn nodes cannot be grown.
NO_COLUMNS: Mapping[str, Any] = {"stages": 1}
#: What a frontier takes over from an experiment's audit.
_OF_AUDIT = ("attacks", "settings", "known_labels", "sums")


class FrontierFile(ExperimentFile):
    """An experiment file; without a table `[frontier]` it has `RECOMMENDED`. Defences and rows are the frontier's own.

    A federation's label holder records the sums that it opens, for the attack on columns, unless it has record = "off".
    """

    frontier: FrontierTable
    """The points; without the table recommended ones."""

    @model_validator(mode="before")
    @classmethod
    def _with_points(cls, content: Any) -> Any:
        """The recommended points where none are named, and the attacks of an experiment's audit."""
        if not isinstance(content, dict):
            return content
        parties = content.get("party")
        holders = [it for it in parties if isinstance(it, dict)] if isinstance(parties, list) else []
        bare = any(it.get("labels") is True and it.get("columns") == [] for it in holders)
        points = content.get("frontier", {**RECOMMENDED, **(NO_COLUMNS if bare else {})})
        if isinstance(points, dict) and isinstance(audit := content.get("audit"), dict):
            points = {key: audit[key] for key in _OF_AUDIT if key in audit} | points
        return {**content, "frontier": points}

    @model_validator(mode="after")
    def _own_tables(self) -> FrontierFile:
        # a frontier sets these itself for each point, or compares what they would change
        if self.predict is not None:
            raise ValueError("[predict] is not for a frontier: all held-out rows are predicted by the first protocol")
        if self.defences.named():
            raise ValueError("[defences] is not for a frontier, which sets its own: name them in [frontier]")
        if self.data.cv is not None:
            raise ValueError("cv is not for a frontier, whose points are trained once for each seed: give seeds")
        if self.data.weight is not None:
            raise ValueError(
                "weight in [data] is not for a frontier: label_dp, one of its defences, goes without weights"
            )
        if not training(self.job.protocol).grows_trees:
            raise ValueError(
                f"protocol {self.job.protocol!r} grows no trees, which these defences and attacks are about: give "
                "[defences] and [audit] to 'treetap experiment', once for each point"
            )
        if training(self.job.protocol).one_role:
            raise ValueError(
                f"protocol {self.job.protocol!r} has none of these defences: its labels have no one holder"
            )
        if self.job.params().objective in REGRESSIONS:
            raise ValueError("a regression has numbers for labels: these defences and attacks are about classes")
        for party in self.party:
            if party.record == "off" and not party.labels:
                raise ValueError(f"a frontier reads transcripts, but {party.name} has record = 'off'; leave it out")
        return self

    @model_validator(mode="after")
    def _points_can_be(self) -> FrontierFile:
        if self.of_columns:
            raise ValueError("[party.defences] is not for a frontier: give min_cell_records = [2, 3] in [frontier]")
        for plan in self.frontier.plans():
            try:
                plan.job(self.job)
            except ValidationError as fault:
                said = "; ".join(error["msg"].removeprefix("Value error, ") for error in fault.errors())
                raise ValueError(f"frontier.job, {plan.changes}: {said}") from None
        return self

    @property
    def reads_cells(self) -> bool:
        """True if the label holder's attack on columns is a part of each training."""
        return self.frontier.trainer == "federation" and all(party.record != "off" for party in self.party)

    def planned(self, plan: Plan) -> FrontierFile:
        """The same file with the defences and the job of a plan, and transcripts for attacks in both directions."""
        changed = {CELLS: plan.changes[CELLS]} if plan.name == CELLS else {}
        parties = [
            party.model_copy(update={"record": party.record or "received"})
            if party.labels
            else party.model_copy(update={"defences": Defences(**changed)})
            for party in self.party
        ]
        changes = {"party": parties, "defences": plan.defences, "job": plan.job(self.job), "audit": None}
        # the label holder alone is one training for all points
        return self.model_copy(update=changes | {"data": self.data.model_copy(update={"compare": False})})

    def trainings(self) -> list[Training]:
        """All trainings: the label holder alone, then every plan, with every seed, seeds of one plan together."""
        return [Training(plan, seed) for plan in (Plan(ALONE), *self.frontier.plans()) for seed in self.data.seeds]
