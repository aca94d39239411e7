"""Settings of attacks by the nodes of trees, and their findings in the audit document.

Of those that group records, with the values of the ID2Graph paper, and of those by known labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from treetap.attacks.schema import Count, DrawingSettings, Findings, RangedSettings
from treetap.protocols.registry import training
from treetap.trees.job_params import Range

#: The paper's discount per tree (its η): 1 for independent trees, less for trees in sequence.
INDEPENDENT_DISCOUNT = 1.0
SEQUENTIAL_DISCOUNT = 0.6
#: The readings of the edge between chunks: as printed, and as the text says.
CHUNK_EDGES = ("paper", "linked")
#: Settings that an attack reads: of k-means, of Louvain, of leaves in chunks.
KMEANS = ("columns", "starts", "iterations", "kmeans_tolerance", "seed")
LOUVAIN = ("alpha", "discount", "runs", "passes", "tolerance", *KMEANS)
CHUNKS = ("chunk_size", "chunk_weight", "chunk_edges")


@dataclass(frozen=True)
class Settings(RangedSettings):
    """Parameters of all attacks that group records; each reads its own."""

    ATTACKS: ClassVar = "attacks that group records"
    RANGES: ClassVar = {
        "discount": Range(0, 1, open_low=True),
        "alpha": Range(0, 1e6),
        "chunk_size": Range(2, 2**31, integer=True),
        "chunk_weight": Range(0, 1e9),
        "runs": Range(1, 1000, integer=True),
        "passes": Range(1, 100_000, integer=True),
        "tolerance": Range(0, 1),
        "max_entries": Range(1, 2**40, integer=True),
        "starts": Range(1, 1000, integer=True),
        "iterations": Range(1, 1_000_000, integer=True),
        "kmeans_tolerance": Range(0, 1),
        "seed": Range(0, 2**31 - 1, integer=True),
    }
    CHOICES: ClassVar = {"chunk_edges": CHUNK_EDGES}

    discount: float = INDEPENDENT_DISCOUNT
    """Weight of each further tree, as a factor: 0.6 for trees in sequence, 1 for independent ones."""
    alpha: float = 3.0
    """Weight of the groups that are found against the features."""
    chunk_size: int = 1000
    """B: records of a chunk of a leaf."""
    chunk_weight: float = 100.0
    """w': weight of the edge between two chunks."""
    chunk_edges: str = "paper"
    """The reading of algorithm 3: edges as printed, or as its text says."""
    columns: tuple[int, ...] | None = None
    """Numbers, from 0, of the features to cluster on; by default all."""
    runs: int = 5
    """Runs of Louvain, of which the best counts."""
    passes: int = 100
    """Most passes of Louvain."""
    tolerance: float = 1e-6
    """Gain of modularity below which Louvain ends."""
    max_entries: int = 15_000_000
    """Most numbers of a matrix."""
    starts: int = 10
    """Starts of k-means."""
    iterations: int = 300
    """Most iterations of k-means."""
    kmeans_tolerance: float = 1e-4
    """Change of centres below which k-means ends."""
    seed: int = 0
    """Number that all draws follow from."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.columns is not None:
            object.__setattr__(self, "columns", tuple(self.columns))  # a list from a file is not hashable

    def faults(self) -> list[str]:
        """The faults of all fields."""
        columns = self.columns
        right = columns is None or (
            isinstance(columns, list | tuple)
            and bool(columns)
            and all(type(column) is int and column >= 0 for column in columns)
            and len(set(columns)) == len(columns)
        )
        wrong = [] if right else [f"columns must be distinct column numbers from 0, at least one, not {columns!r}"]
        return super().faults() + wrong


def usual_discount(protocol: str) -> float:
    """The paper's discount for the trees of a protocol that trains."""
    return SEQUENTIAL_DISCOUNT if training(protocol).sequential else INDEPENDENT_DISCOUNT


class AttackResult(Findings):
    """One attack on one party's view. Scores compare its clusters with the labels: null where there are none.

    All figures but the lists are those after `after_trees` trees: the number with the largest V-measure, since an
    attacker may stop after any tree; without labels all trees; null for an attack that uses no tree. `accuracy` is that
    of the best one-to-one matching of clusters and classes; `named_accuracy` that of a matching by the order of their
    sizes. `groups`: communities or components before k-means, null for an attack that forms none. `by_tree`,
    `accuracy_by_tree`: V-measure and accuracy after the first tree, the first two, ...; null without labels, an entry
    null where it was not computed.
    """

    after_trees: Count | None
    v_measure: float | None
    homogeneity: float | None
    completeness: float | None
    ari: float | None
    nmi: float | None
    accuracy: float | None
    named_accuracy: float | None
    seconds: float
    groups: Count | None
    clusters: Count
    parameters: dict[str, Any]
    by_tree: list[float | None] | None
    accuracy_by_tree: list[float | None] | None

    def largest(self, measure: Literal["v_measure", "accuracy"]) -> tuple[int | None, float] | None:
        """The number of trees with the largest figure, the first of several, and that figure; None without scores.

        The number is None for an attack that uses no tree.
        """
        steps = self.by_tree if measure == "v_measure" else self.accuracy_by_tree
        steps_scored: list[tuple[int | None, float]] = [
            (trees, value) for trees, value in enumerate(steps or [], start=1) if value is not None
        ]
        whole: float | None = getattr(self, measure)
        if self.after_trees is None or not steps_scored:
            return None if whole is None else (self.after_trees, whole)
        return max(steps_scored, key=lambda figure: figure[1])


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
