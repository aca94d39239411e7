"""The advice in the audit document; an unknown field is an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

#: Table of a frontier: the audited one, by the digest of its content; another one, whose frontier the audit was given;
#: a public one, which the project measured.
Whose = Literal["this table", "given", "project"]
#: What is suggested: defences by the names of a frontier's points, and settings of the job.
Defence = Literal["id_lmid", "reduced_leakage", "label_dp", "label_dp + refit", "grafting", "grafting + refit", "job"]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Source(_Part):
    """A frontier that the figures are from: `table` by its file's name, `records` that were trained on."""

    table: str
    whose: Whose
    digest: str
    records: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=2)]
    trees: Annotated[int, Field(ge=1)]
    max_depth: Annotated[int, Field(ge=1)]
    seeds: Annotated[int, Field(ge=1)]


class Effect(_Part):
    """The effect of one defence on one table: means over the seeds, `_sd` their standard deviation.

    `v_without`, `v_left`: V-measure of ID2Graph without and with it; `v_own`: that of the attacker's own columns.
    `auc_without`, `auc`: of held-out records; null where undefined.
    """

    table: str
    whose: Whose
    v_without: float
    v_left: float
    v_sd: float | None
    v_own: float
    auc_without: float | None
    auc: float | None
    auc_sd: float | None

    @property
    def v_reached(self) -> float:
        """The V-measure of an attacker with the defence: one whom the training misleads uses its own columns alone."""
        return max(self.v_left, self.v_own)


class Lines(_Part):
    """Lines to write into a file."""

    file: str
    lines: list[str]


class Suggestion(_Part):
    """A defence with its settings, or settings of the job (`defence` "job"), and what it does on the tables at hand.

    `taken`: the share that it takes away of what the training adds to the V-measure of the attacker's own columns,
    over all `effects`; null where the training adds next to nothing. `price`: AUC lost, the mean over the tables.
    `helps`: enough is taken away, and nothing that does the same costs less.
    """

    defence: Defence
    settings: dict[str, Any]
    helps: bool
    taken: float | None
    price: float | None
    effects: Annotated[list[Effect], Field(min_length=1)]
    lines: list[Lines]


class Parameter(_Part):
    """A parameter of a protocol that has none of the defences: what it lowers, and what was measured."""

    name: str
    tells: str
    lines: list[Lines]


class Advice(_Part):
    """Suggestions that lower the attacks, the best first, and those that do not help, last."""

    sources: list[Source]
    suggestions: list[Suggestion]
    parameters: list[Parameter]
