"""The advice in the audit document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from treetap.attacks.schema import Findings

#: Table of a frontier: the audited one, by the digest of its content; another one, whose frontier the audit was given;
#: a public one, which the project measured.
Whose = Literal["this table", "given", "project"]
#: What is suggested: defences by the names of a frontier's points, and settings of the job.
Defence = Literal[
    "id_lmid",
    "reduced_leakage",
    "label_dp",
    "label_dp + refit",
    "grafting",
    "grafting + refit",
    "min_cell_records",
    "job",
]

#: Reasons to suggest nothing.
Withheld = Literal["little to lower", "nothing scored", "no table is near"]


class ReadCells(Findings):
    """Cells of a feature party that the label holder placed, a share: `read` by itself, `left_sets` alone (a floor).

    `explained`: the variance of places in columns of numbers that it explained (R²), null without such a column.
    """

    read: float
    left_sets: float
    explained: float | None = None


#: How labels are guessed: groups that are matched to classes, or ranked by few known labels where a class is rare.
Measure = Literal["accuracy", "AUC"]


class Guessed(Findings):
    """The share of labels, or the AUC, that a party guesses without the training and with it."""

    before: float
    after: float

    @property
    def share(self) -> float:
        """The gain as a share of what was left to guess; 0 where nothing was left."""
        return (self.after - self.before) / (1 - self.before) if self.before < 1 else 0.0


class Source(Findings):
    """The frontier that the figures are from: `table` by its file's name, `records` that were trained on.

    Without a defence: `guessed` of the labels by the `measure`, `auc` of held-out records, null where undefined;
    `cells`: see `ReadCells`, null where not measured. `alone`: the AUC of the label holder without a federation.
    """

    table: str
    whose: Whose
    digest: str
    records: Annotated[int, Field(ge=1)]
    classes: Annotated[int, Field(ge=2)]
    trees: Annotated[int, Field(ge=1)]
    max_depth: Annotated[int, Field(ge=1)]
    seeds: Annotated[int, Field(ge=1)]
    measure: Measure
    guessed: Guessed
    auc: float | None
    alone: float | None
    cells: ReadCells | None


class Effect(Findings):
    """The measures with one defence on the table of the source: means over the seeds, `_sd` their standard deviation.

    `guessed`: of the labels with the training; `auc`: of held-out records, null where undefined; `cells`: null where
    not measured.
    """

    guessed: float
    guessed_sd: float | None
    auc: float | None
    auc_sd: float | None
    cells: ReadCells | None


class Lines(Findings):
    """Lines to write into a file."""

    file: str
    lines: list[str]


class Suggestion(Findings):
    """A defence with its settings, or settings of the job (`defence` "job"), and what it does on the source's table.

    `taken`: the share that it takes away of what the training adds to what can be guessed without it, at most 1; null
    where the training adds next to nothing.
    `taken_cells`: the share that it takes away of the cells read beyond the floor of left sets without a defence, below
    0 where more is read; null where not measured. `price`: AUC lost. `helps`: enough is taken away in one of the two
    directions, and nothing that does the same costs less.
    """

    defence: Defence
    settings: dict[str, Any]
    helps: bool
    taken: float | None
    taken_cells: float | None
    price: float | None
    effect: Effect
    lines: list[Lines]


class Parameter(Findings):
    """A parameter of a protocol that has none of the defences: what it lowers, what was measured, and `on` what."""

    name: str
    tells: str
    on: str = ""
    lines: list[Lines]


class NetworkSuggestion(Findings):
    """A defence of a split network: see `treetap.attacks.advice.networks.NetworkPoint`.

    `taken_log`, `taken_model`: the shares that it takes away of what the party's log and its completed model tell above
    what needs no training, null where they told next to nothing. `kept`: the share of the gain over the label holder
    alone that it keeps, null where there was none. `helps`: enough is taken away in one of the two, some of the gain is
    left, and nothing that takes as much keeps more.
    """

    defences: dict[str, Any]
    helps: bool
    log: float
    model: float
    accuracy: float
    taken_log: float | None
    taken_model: float | None
    kept: float | None
    lines: list[Lines]


class NetworkAdvice(Findings):
    """The measured table that is nearest to a split network: see `treetap.attacks.advice.networks.NetworkTable`.

    `log`, `model`, `accuracy`: without a defence.
    """

    table: str
    classes: int
    records: int
    known: int
    log: float
    model: float
    untrained: float
    accuracy: float
    alone: float
    suggestions: list[NetworkSuggestion]


class Advice(Findings):
    """Suggestions by the frontier of this table or of the nearest one, and what the job has is left out.

    `guessed`: of the audited party that the training tells most, by the measure of the source; null without scores.
    `source`: null where nothing is suggested by a frontier, for the reason in `withheld`; null also of a protocol with
    `parameters` of its own, and of a split network, which has `network`. `unlike`: the table of a frontier that the
    audit was given and that is neither of this table nor like it. `defences`: those that the label holder has; null
    where the audit is not told.
    """

    guessed: Guessed | None
    source: Source | None
    withheld: Withheld | None
    unlike: str | None
    defences: list[str] | None
    suggestions: list[Suggestion]
    parameters: list[Parameter]
    network: NetworkAdvice | None = None
