"""The tables `[[defence]]` of an experiment: what `treetap frontier` compares, a training for each of their values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

from pydantic import ValidationError, model_validator

from treetap.commands.jobs.job_file import JobOptions, JobTable
from treetap.party.defences.settings import Defences
from treetap.privacy.frontiers import NO_DEFENCE
from treetap.strict import Strict, faults_of

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
        table: JobTable = JobTable.model_validate(shared.model_dump(exclude_unset=True) | dict(self.changes))
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


def recommended_rows(*, bare: bool) -> list[DefenceRow]:
    """The rows of a file without one. `bare`: the label holder has no columns.

    Then nothing is known of a label before its noise, and withdrawn nodes cannot be grown.
    """
    noise = {"epsilon": [0.5, 1.0], "stages": 1 if bare else 2}
    return [DefenceRow(id_lmid={"xi": [0.1, 0.25, 0.5, 0.75, 1.0]}), DefenceRow(label_dp=noise, grafting=True)]


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
