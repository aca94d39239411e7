"""Settings of attacks by known labels and the nodes of trees, and their findings in the audit document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from treetap.attacks.schema import Count, DrawingSettings, Findings
from treetap.trees.job_params import Range


@dataclass(frozen=True)
class KnownSettings(DrawingSettings):
    """Settings of both attacks.

    Attributes:
        first: records of the rarest class that the attack names first, whose precision is measured.
        neighbours: known records, the nearest ones, that vote on a label.
    """

    ATTACKS: ClassVar = "attacks by known labels"
    RANGES: ClassVar = DrawingSettings.RANGES | {
        "first": Range(1, 1_000_000, integer=True),
        "neighbours": Range(1, 1000, integer=True),
    }

    draws: int = 20
    most_records: int = 20_000
    first: int = 100
    neighbours: int = 5


class Averaged(Findings):
    """A figure over the draws of known labels: mean, and standard deviation (null of one draw)."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The mean of the draws' figures, and their spread."""
        return cls(mean=float(np.mean(values)), deviation=float(np.std(values)) if len(values) > 1 else None)


class Naming(Findings):
    """The labels of the other records as an attack names them.

    `auc`: of several classes the mean over the classes, each against all others; a class of which no label is known
    counts with ½. `precision`: the share of the rarest class among the records that the attack names first for it.
    """

    auc: Averaged
    precision: Averaged
    accuracy: Averaged


class KnownLabelResult(Findings):
    """One attack by the `nodes` that the party knows, by its own `columns` alone, which take no part, and by `both`.

    `reassigned`: the attack by nodes where labels were reassigned after the training, by the party's columns alone;
    `reassigned_columns`: the attack by columns on these labels. Null where the party's columns are not at hand.
    """

    nodes: Naming
    columns: Naming | None
    both: Naming | None
    reassigned: Naming
    reassigned_columns: Naming | None
    seconds: float


#: What orders records: own winning splits, their trees discounted or alike; leaves, nodes; own columns without the
#: training, by their first or second component.
RankedBy = Literal["splits", "splits-alike", "leaves", "nodes", "columns", "columns-second"]


class Ranked(Findings):
    """An order of records as a guess of their labels.

    `auc`, `precision`, `accuracy`: as in `Naming`, by the better side; of two classes `accuracy` by the sizes of the
    classes; of several each class against the rest, each by its better side, without `accuracy`. `by_sizes`: the sizes
    of two classes tell the side. `by_known`: the share of draws, and classes, whose known labels tell it. `v_measure`:
    of the best groups by the order or its components, of which a verdict makes no use.
    """

    auc: float
    precision: float
    accuracy: float | None = None
    by_sizes: bool | None = None
    by_known: float | None = None
    v_measure: float | None = None


class RankedResult(Findings):
    """One order of records without a known label, by each kind of points; `left_out`: own splits beyond the memory."""

    by: dict[RankedBy, Ranked]
    left_out: Count
    seconds: float


class DrawnLabels(Findings):
    """The labels that the party is assumed to know, and what guessing scores.

    `known`: of each of the `draws`. `unseen`: the mean number of classes of which none is known. `records`: those that
    are named, `left_out`: those of the job that are neither known nor named. `nodes`: known nodes but the roots.
    `rarest`: the class whose precision is measured among the `first` records that are named for it; `chance`: its share
    of the named records; `majority`: that of the largest class.
    """

    known: Count
    draws: Count
    unseen: float
    records: Count
    left_out: Count
    nodes: Count
    rarest: str
    first: Count
    chance: float
    majority: float


class KnownLabelFigures(Findings):
    """The attacks on the labels of the records that a party knows no label of; `reasons`: attack → why it is null."""

    drawn: DrawnLabels | None
    known_neighbours: KnownLabelResult | None = Field(alias="known-neighbours")
    known_regression: KnownLabelResult | None = Field(alias="known-regression")
    first_component: RankedResult | None = Field(alias="first-component")
    vote: RankedResult | None
    heaviest_cut: RankedResult | None = Field(alias="heaviest-cut")
    reasons: dict[str, str]
