"""What a holder of a published model learns of records of its training: the document of this audit.

A motivated intruder test: what the intruder `knew`, what it `tried`, and what it got: the verdicts and the figures
behind them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from treetap.attacks.schema import Count, Findings
from treetap.attacks.verdict import Compared, Verdict

Artefact = Literal["card", "answers", "export", "export and answers"]
#: Artefact → the words for it in verdicts, and what it holds.
HELD: dict[Artefact, tuple[str, str]] = {
    "card": ("the card", "metrics, importances by party and the sizes of trees"),
    "answers": ("served answers", "class, probability and score of each record by its id"),
    "export": ("the export", "thresholds, leaf weights and covers of all trees, hence the score of any record"),
    "export and answers": ("the export and served answers", "both, hence the score that fits the record's own"),
}


class Membership(Findings):
    """Whether a record was in the training, by one artefact.

    `auc`, with its 95 % interval `low` to `high`: the chance that of a record of the training and another one the first
    is told apart; of the better of the ways that were tried, `how`. `found`: the share of the training's records that
    are named where 1 % of the others are named wrongly, `found_low` to `found_high` with 95 %. `compared`: the AUC
    beside that of a guess without the artefact.
    """

    artefact: Artefact
    how: str
    auc: float
    low: float
    high: float
    found: float
    found_low: float
    found_high: float
    compared: Compared


class ColumnGuess(Findings):
    """One column of records of the training, guessed by one artefact, beside a guess by the other columns alone.

    `bins`: the values that are told apart: categories, or of a number the intervals between the model's thresholds.
    `records`: those that were guessed. `compared`: by accuracy, or of numbers also by explained variance (R²).
    """

    artefact: Artefact
    party: str
    column: str
    kind: Literal["number", "category"]
    bins: Count
    records: Count
    compared: Compared


class PublishedDocument(Findings):
    """The audit of one published model.

    `records`: that took part, half of them `members`, records of the training; `left_out`: of the table. `seconds`: of
    a processor, with the shadow models. `reasons`: what was not measured → why.
    """

    model: str
    protocol: str
    parties: list[str]
    records: Count
    members: Count
    left_out: Count
    shadow_models: Count
    most_shadow_models: Count
    seconds: float = Field(ge=0)
    most_seconds: float = Field(gt=0)
    seed: Count
    created: AwareDatetime
    treetap: str
    knew: list[str]
    tried: list[str]
    verdicts: list[Verdict]
    membership: list[Membership]
    member_columns: list[ColumnGuess]
    reasons: dict[str, str]
