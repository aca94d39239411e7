"""The parameters of jobs that grow trees, and the ranges they must lie in.

Names taken from XGBoost have XGBoost's meaning; those of a forest are scikit-learn's, or XGBoost's where
boosting has the parameter too. Two departures, both on purpose: `max_bin` defaults to 32 (the federated papers'
setting; every bin costs ciphertexts) and `max_depth=0` (no limit) is refused, because a heap-numbered tree needs a
limit. A forest's `max_depth` defaults to 6, as in boosting.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from treetap.arrays import Array, Bools, Floats, Ints
from treetap.trees import sampling
from treetap.trees.expansion import GROW_POLICIES, ExpansionRules
from treetap.trees.job_params import (
    BINARY,
    BOOSTED,
    UNBOUNDED,
    EarlyStoppingParams,
    JobParams,
    Range,
    not_a_choice,
    not_a_switch,
    out_of_range,
)
from treetap.trees.loss import UNIT, largest_step, record_bounds
from treetap.trees.survival import DISTRIBUTIONS

#: Greatest depth of trees that are padded: a full tree of it has 2,048 leaves.
MOST_PADDED_DEPTH = 11
#: What a feature party gets of the records of nodes: the sets themselves, or nothing.
INSTANCE_SPACES = ("sent", "withheld")
COMMON = {
    "n_estimators": Range(1, 100_000, integer=True),
    "max_depth": Range(1, 20, integer=True),
    "max_bin": Range(2, 65_536, integer=True),
    "subsample": Range(0, 1, open_low=True),
    "colsample_bytree": Range(0, 1, open_low=True),
    "seed": Range(0, 2**63 - 1, integer=True),
}


class FewestDrawn(NamedTuple):
    """Fewest drawn records, each as often as it is drawn: of a side of a split, and of a node that may be split."""

    of_side: int
    to_split: int


@dataclass(frozen=True)
class TreeParams(JobParams):
    """Parameters that every protocol that grows trees has. A party that sits a tree out offers it no candidates."""

    n_estimators: int = 100
    """Trees; in boosting rounds, each of one tree, or of one for each class."""
    max_depth: int = 6
    """Levels of splits."""
    max_bin: int = 32
    """Most bins of a column; every bin costs ciphertexts. At most 255 on a lattice."""
    subsample: float = 1.0
    """Chance of each record to be summed over in a tree."""
    colsample_bytree: float = 1.0
    """Share of each party's columns that a tree sees."""
    instance_spaces: str = INSTANCE_SPACES[0]
    """Sets of records of nodes for feature parties: "sent", or, on a lattice only, "withheld"."""
    pad_trees: bool = False
    """With instance_spaces = "withheld": every tree looks full, down to max_depth (at most 11)."""

    @property
    def withheld(self) -> bool:
        """True if feature parties get no set of records."""
        return self.instance_spaces == "withheld"

    @property
    @abstractmethod
    def draws_records(self) -> bool:
        """True if a tree sums over some of the records only, or over some more than once."""

    @property
    def draws_twice(self) -> bool:
        """True if a tree may draw a record more than once."""
        return False

    @property
    def additive(self) -> bool:
        """True if every tree has one split, and a score is a sum of functions of single columns."""
        return False

    @property
    def bins_per_node(self) -> bool:
        """True if every node has bins of its own."""
        return False

    @property
    def one_hot_below(self) -> int | None:
        """Columns of fewer categories are split one against the rest; None: columns of categories are not split."""
        return None

    @property
    def splits_categories(self) -> bool:
        return self.one_hot_below is not None

    @abstractmethod
    def drawn(self, tree: int, records: int) -> Ints:
        """The number of times that tree number `tree` draws each of N records, (N,)."""

    def none_set_aside(self) -> Self:
        """The same parameters with trees that draw from all records."""
        return self

    @property
    def fewest_drawn(self) -> FewestDrawn:
        """The fewest drawn records that the rules of the job imply, whatever the labels are, if no sums have noise."""
        return FewestDrawn(1, 2)

    @property
    def expansion(self) -> ExpansionRules:
        """The order in which a tree's nodes are split, and their limits."""
        return ExpansionRules(self.max_depth)

    def common_faults(self) -> list[str]:
        faults = super().common_faults() + not_a_choice(self, {"instance_spaces": INSTANCE_SPACES})
        faults += not_a_switch(self, "pad_trees")
        if self.pad_trees is True and not self.withheld:
            faults.append(
                "pad_trees = true hides the shape of trees, which instance spaces show: set "
                'instance_spaces = "withheld"'
            )
        if self.pad_trees is True and self.max_depth > MOST_PADDED_DEPTH:
            faults.append(
                f"max_depth = {self.max_depth}: must be at most {MOST_PADDED_DEPTH} with pad_trees, which builds full "
                "trees"
            )
        return faults

    def trees_per_round(self, classes: int) -> int:  # noqa: ARG002 - boosting looks at the classes
        """Trees that a round grows, of which `n_estimators` are the most."""
        return 1

    def takes_part(self, tree: int, party: str) -> bool:
        """True if a party offers candidates to tree number `tree`."""
        return sampling.takes_part(self.seed, tree, party, self.absence(party))

    def columns(self, tree: int, party: str, count: int) -> Ints:
        """The columns of a party's `count` that tree number `tree` uses, ascending."""
        return sampling.columns(self.seed, tree, party, count, self.colsample_bytree)


MULTI_STRATEGIES = ("one_output_per_tree", "multi_output_tree")
#: Forms of a boosting model: trees of any depth, or trees of one split, so that a score is a sum over columns.
MODELS = TREES, ADDITIVE = ("trees", "additive")


_LARGEST = 1e12
_NOT_NEGATIVE = Range(0, _LARGEST)
_ANY = Range(-_LARGEST, _LARGEST)
_BOOSTING_RANGES = {
    **COMMON,
    "learning_rate": Range(0, 1, open_low=True),
    "reg_lambda": _NOT_NEGATIVE,
    "reg_alpha": _NOT_NEGATIVE,
    "gamma": _NOT_NEGATIVE,
    "min_child_weight": _NOT_NEGATIVE,
    "scale_pos_weight": _NOT_NEGATIVE,
    "max_sample_weight": Range(0, _LARGEST, open_low=True),
    "max_leaves": Range(0, 2**20, integer=True),
    "tweedie_variance_power": Range(1, 2, open_low=True, open_high=True),
    "quantile_alpha": Range(0, 1, open_low=True, open_high=True),
    "aft_loss_distribution_scale": Range(0, _LARGEST, open_low=True),
    "max_cat_to_onehot": Range(1, 1_000_000, integer=True),
    "max_cat_threshold": Range(1, 1_000_000, integer=True),
}
_BOOSTING_CHOICES = {
    "objective": BOOSTED,
    "aft_loss_distribution": DISTRIBUTIONS,
    "multi_strategy": MULTI_STRATEGIES,
    "grow_policy": GROW_POLICIES,
    "model": MODELS,
}


@dataclass(frozen=True)
class BoostingParams(EarlyStoppingParams, TreeParams):
    """The parameters of a boosting job.

    `gamma` is the least loss change of a kept split (XGBoost's; twice the papers' γ). `n_estimators` counts rounds: a
    round of `one_output_per_tree` with C classes grows C trees. `max_delta_step` 0 is no bound, nor is `max_leaves` 0.
    `missing` is the value that means missing besides NaN. `base_score` None is 0.5 for the classifiers and the mean
    training label for numbers (XGBoost 2 and later estimates it for the classifiers too). A record's g and h are
    multiplied by its sample weight, at most `max_sample_weight`, and for the second of two classes by
    `scale_pos_weight`.
    A column of fewer than `max_cat_to_onehot` categories is split one against the rest, others by partitions, of which
    `max_cat_threshold` bounds one side.
    """

    protocol: ClassVar[str] = "boosting"
    objective: str = "binary:logistic"
    """The kind of labels and predictions: two classes, several, or numbers."""
    learning_rate: float = 0.3
    """Factor of leaf weights."""
    reg_lambda: float = 1.0
    """λ, the L2 penalty of leaf weights."""
    reg_alpha: float = 0.0
    """α, the L1 penalty of leaf weights."""
    max_delta_step: float | None = None
    """Largest size of a leaf's weight before the learning rate; 0: no bound. By default 0.7 of counts, else 0."""
    gamma: float = 0.0
    """Least loss change of a split."""
    min_child_weight: float = 1.0
    """Least sum of h of a side of a split."""
    scale_pos_weight: float = 1.0
    """Factor of the second of two classes; binary:logistic only."""
    max_sample_weight: float = 1.0
    """Largest sample weight that the job takes; every doubling costs a bit in each slot."""
    multi_strategy: str = "one_output_per_tree"
    """Several classes: a tree for each in every round, or one with a weight for each class in a leaf."""
    base_score: float | None = None
    """The prediction before the first tree, of two classes above 0 and below 1; by default 0.5, of numbers their mean.
    """
    max_cat_to_onehot: int = 4
    """A column of fewer categories is split one against the rest, others by partitions."""
    max_cat_threshold: int = 64
    """The categories on one side of a partition are fewer than this."""
    max_leaves: int = 0
    """Most leaves of a tree; 0: no limit."""
    tweedie_variance_power: float = 1.5
    """Of reg:tweedie: the variance grows with the mean to this power, from counts near 1 to amounts near 2."""
    quantile_alpha: float = 0.5
    """Of reg:quantileerror: the share of records whose label the prediction exceeds; 0.5: the median."""
    aft_loss_distribution: str = DISTRIBUTIONS[0]
    """Of survival:aft: the distribution of a time's logarithm."""
    aft_loss_distribution_scale: float = 1.0
    """Of survival:aft: its scale σ."""
    grow_policy: str = GROW_POLICIES[0]
    """Order of splits: level by level, or the largest loss change first, which `expansion_order` must allow."""
    model: str = TREES
    """Trees of any depth, or "additive": of one split each, so that a score is a sum of functions of single columns."""
    cycle: tuple[str, ...] = field(default_factory=tuple)
    """Additive: parties whose turn it is, tree by tree and over again; each offers its next column alone. Empty: the
    best gain of all columns wins."""

    @property
    def additive(self) -> bool:
        return self.model == ADDITIVE

    @property
    def expansion(self) -> ExpansionRules:
        return ExpansionRules(self.max_depth, self.max_leaves, self.grow_policy)

    @property
    def fewest_drawn(self) -> FewestDrawn:
        """By `min_child_weight` and the largest h of a record; a tree of several outputs asks it of one of them alone.

        See `boosting_criterion`: rules of `loss_changes` and `may_split`. An h without a bound says nothing.
        """
        if self.unbounded:
            return FewestDrawn(1, 2)
        largest = record_bounds(self.objective, self.largest_factor)[1] / UNIT
        records = self.min_child_weight / largest * (1 - 1e-9)  # sums of floats may be rounded up
        if self.outputs_per_tree(2) > 1:
            return FewestDrawn(1, max(2, math.ceil(records)))
        return FewestDrawn(max(1, math.ceil(records)), max(2, math.ceil(2 * records)))

    @property
    def largest_step(self) -> float:
        """δ: `max_delta_step`, or XGBoost's default."""
        return largest_step(self.objective, self.max_delta_step)

    def in_units(self, unit: float) -> BoostingParams:
        """The parameters for H and G divided by a power of two, which rounds nothing."""
        lighter = {name: getattr(self, name) / unit for name in ("reg_lambda", "reg_alpha", "min_child_weight")}
        return self if unit == 1 else replace(self, **lighter)

    def least_unit(self, records: int) -> float:
        """The least scale of h: λ′ is then no larger than sums of so many records may be, which is public."""
        return self.reg_lambda / records

    @property
    def penalty(self) -> int:
        """λ in units of 2^-32, at least one of them: λ′ of `treetap.trees.exact_rule`."""
        return max(1, round(self.reg_lambda * UNIT))

    def largest_penalty(self, records: int) -> int:
        """The largest λ′ of a tree over so many records, whatever the scale of its h."""
        return records * UNIT if self.unbounded else self.penalty

    @property
    def lightest_side(self) -> int:
        """The least Σh of a side in units of 2^-32."""
        return max(1, math.ceil(self.min_child_weight * UNIT))

    @property
    def draws_records(self) -> bool:
        """True also if records are set aside, which are in no tree."""
        return self.subsample < 1 or self.sets_aside

    @property
    def one_hot_below(self) -> int | None:
        """None in trees of several outputs, in which XGBoost splits no categories."""
        return self.max_cat_to_onehot if self.multi_strategy == "one_output_per_tree" else None

    def faults(self) -> list[str]:
        ranges = dict(_BOOSTING_RANGES)
        if self.base_score is not None:
            of = {**dict.fromkeys(BINARY, Range(0, 1, open_low=True, open_high=True)),
                  **dict.fromkeys(UNBOUNDED, Range(0, _LARGEST, open_low=True))}  # fmt: skip
            ranges["base_score"] = of.get(self.objective, _ANY)
        if self.max_delta_step is not None:
            ranges["max_delta_step"] = _NOT_NEGATIVE
        wrong = not_a_choice(self, _BOOSTING_CHOICES)
        in_order = {field.name: ranges[field.name] for field in fields(self) if field.name in ranges}
        wrong += out_of_range(self, in_order) + self.bad_stopping() + self.common_faults()
        if self.objective in BOOSTED and self.objective not in BINARY and self.scale_pos_weight != 1:
            wrong.append(
                f"scale_pos_weight multiplies the second of two classes, and {self.objective} has none: leave it out, "
                "or give records weights"
            )
        if self.max_leaves == 1:
            wrong.append("max_leaves must be 0, which is no limit, or at least 2: a tree of one leaf splits nothing")
        return wrong + self._bad_form()

    def _bad_form(self) -> list[str]:
        """The faults of an additive model, and of turns, which only such a model takes."""
        wrong = [contradicted(self.max_depth)] if self.additive and self.max_depth != 1 else []
        if not self.cycle:
            return wrong
        against = {
            f"model = {self.model!r}": not self.additive,
            f"colsample_bytree = {self.colsample_bytree!r}": self.colsample_bytree != 1,
            "parties that sit trees out": any(map(self.absence, self.cycle)),
            f"multi_strategy = {self.multi_strategy!r} with several classes": self.trees_per_round(3) > 1,
        }
        told = ", ".join(name for name, there in against.items() if there)
        if told:
            wrong.append(
                f'cycle gives each tree of model = "additive" one column, and does not go with {told}: leave cycle or '
                'these out (classes share a tree by multi_strategy = "multi_output_tree")'
            )
        return wrong

    def party_faults(self, first: str, others: Sequence[str]) -> list[str]:
        wrong, parties = super().party_faults(first, others), [first, *others]
        if self.cycle and set(self.cycle) != set(parties):
            wrong.append(
                f"cycle = {', '.join(self.cycle)}: names the job's parties ({', '.join(parties)}), each at least once"
            )
        return wrong

    def continuation_faults(self, before: Mapping[str, Any]) -> list[str]:
        wrong = super().continuation_faults(before)
        if self.additive and before.get("model") != ADDITIVE:
            wrong.append(
                f'model = "additive" goes on with an additive model alone, and that is of trees to depth '
                f"{before['max_depth']}: leave model out, or train anew"
            )
        return wrong

    def takes_part(self, tree: int, party: str) -> bool:
        return self.cycle[tree % len(self.cycle)] == party if self.cycle else super().takes_part(tree, party)

    def columns(self, tree: int, party: str, count: int) -> Ints:
        """The same; with turns the next column of the party whose turn it is, in the order of its table."""
        if not self.cycle:
            return super().columns(tree, party, count)
        if not count or not self.takes_part(tree, party):
            return np.zeros(0, dtype=np.int64)
        whole, rest = divmod(tree, len(self.cycle))
        turn = whole * self.cycle.count(party) + self.cycle[:rest].count(party)
        return np.array([turn % count], dtype=np.int64)

    @property
    def largest_weight(self) -> float:
        return self.max_sample_weight

    @property
    def largest_factor(self) -> float:
        """The largest number by which g and h of a record are multiplied."""
        return self.max_sample_weight * max(1.0, self.scale_pos_weight)

    def factors(self, labels: Array, weights: Floats | None) -> Floats | None:
        """The numbers (N,) by which g and h are multiplied, of labels and sample weights (N,); None: all are 1."""
        if self.scale_pos_weight == 1:
            return weights
        own = np.ones(len(labels)) if weights is None else weights
        return np.where(np.asarray(labels) == 1, own * self.scale_pos_weight, own)

    def training_rows(self, records: int) -> Bools:
        """The records that are not set aside, (N,)."""
        if not self.sets_aside:
            return np.ones(records, dtype=bool)
        return ~sampling.validation_rows(self.seed, records, self.validation_share)

    def none_set_aside(self) -> Self:
        return replace(self, early_stopping_rounds=None)

    def screened(self) -> Self:
        """Those of a screening: of one tree the root is summed, over all records and columns, category by category."""
        kept = {name: getattr(self, name) for name in ("objective", "max_bin", "instance_spaces", "missing", "seed")}
        most = int(_BOOSTING_RANGES["max_cat_to_onehot"].high)
        # where sums are shared a best cut is chosen by G²/H alone
        kept |= {"reg_lambda": 0.0, "min_child_weight": LEAST_H}
        return type(self)(**kept, n_estimators=1, max_depth=1, max_cat_to_onehot=most)

    def drawn(self, tree: int, records: int) -> Ints:
        """Once or not at all."""
        eligible = self.training_rows(records)
        return sampling.rows(self.seed, tree, records, self.subsample, eligible).astype(np.int64)

    def outputs_per_tree(self, classes: int) -> int:
        """Numbers that a leaf holds: every output in a multi-output tree, else one."""
        return self.outputs(classes) if self.multi_strategy == "multi_output_tree" else 1

    def trees_per_round(self, classes: int) -> int:
        return self.outputs(classes) // self.outputs_per_tree(classes)

    def slot_bounds(self, outputs: int) -> list[int]:
        """The largest size of a record's number in each slot of a plaintext, of trees with so many outputs."""
        g, h = record_bounds(self.objective, self.largest_factor)
        return [g] * outputs + [h] * outputs + [1]


def contradicted(max_depth: object) -> str:
    """The fault of a depth beside the word that decides it."""
    return f'model = "additive" decides max_depth = 1: remove max_depth = {max_depth!r}, or model'


#: Least Σh of bins that a screening joins, and of a side of its best cut.
LEAST_H = 5.0
#: The label holder's own model in a screening: of its columns alone, by trees of three levels until they stop helping.
OWN_MODEL = BoostingParams(
    n_estimators=200, max_depth=3, learning_rate=0.1, early_stopping_rounds=10, validation_share=0.15
)
CRITERIA = ("gini", "squared_error")
BINNINGS = ("global", "per-node")
_FOREST_RANGES = {**COMMON, "min_samples_leaf": Range(1, 1_000_000_000, integer=True)}


@dataclass(frozen=True)
class ForestParams(TreeParams):
    """The parameters of a forest job.

    Each tree draws ⌊subsample · N⌋ records, at least one, without replacement unless `bootstrap`, and of every party's
    columns the share `colsample_bytree`. `min_samples_leaf` counts drawn records. `binning`: quantiles once per job, or
    of each node's own drawn records.
    """

    protocol: ClassVar[str] = "forest"
    subsample: float = 0.8
    """Share of the records that each tree draws."""
    colsample_bytree: float = 0.8
    """Share of each party's columns that a tree may use, at least one."""
    criterion: str = "gini"
    """Labels are classes, or numbers."""
    bootstrap: bool = False
    """Draw with replacement; feature parties then learn how often each record was drawn."""
    min_samples_leaf: int = 1
    """Fewest drawn records of a leaf."""
    binning: str = "global"
    """Quantiles once for the job, or of each node's own drawn records: finer, about twice the ciphertexts."""

    @property
    def objective(self) -> str:
        """The criterion."""
        return self.criterion

    @property
    def penalty(self) -> int:
        """As in boosting; means have none."""
        return 0

    def largest_penalty(self, _records: int) -> int:
        return self.penalty

    @property
    def lightest_side(self) -> int:
        """The fewest draws of a side."""
        return self.min_samples_leaf

    @property
    def fewest_drawn(self) -> FewestDrawn:
        return FewestDrawn(self.min_samples_leaf, 2 * self.min_samples_leaf)

    @property
    def draws_records(self) -> bool:
        return self.subsample < 1 or self.bootstrap

    @property
    def draws_twice(self) -> bool:
        return self.bootstrap

    @property
    def bins_per_node(self) -> bool:
        return self.binning == "per-node"

    def faults(self) -> list[str]:
        wrong = not_a_choice(self, {"criterion": CRITERIA, "binning": BINNINGS})
        return wrong + out_of_range(self, _FOREST_RANGES) + self.common_faults() + not_a_switch(self, "bootstrap")

    def outputs(self, classes: int) -> int:
        """Numbers that a leaf holds: a frequency for each class, or the mean."""
        return classes if self.criterion == "gini" else 1

    def slot_bounds(self, outputs: int) -> list[int]:
        """As in boosting: of a count of each class, or of a target and a number of draws."""
        return [1] * outputs if self.criterion == "gini" else [UNIT, 1]

    def drawn(self, tree: int, records: int) -> Ints:
        return sampling.drawn(self.seed, tree, records, self.subsample, bootstrap=self.bootstrap)
