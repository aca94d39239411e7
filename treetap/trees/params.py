"""The parameters of a boosting job; a name taken from XGBoost means what XGBoost means by it.

Two departures, both on purpose: `max_bin` defaults to 32 (the federated papers' setting; every bin costs ciphertexts)
and `max_depth=0` (no limit) is refused, because a heap-numbered tree needs a limit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from treetap.errors import ConfigError
from treetap.trees import sampling
from treetap.trees.ranges import COMMON, Range, bad_dropout, bad_missing, not_a_choice, out_of_range

OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror")
MULTI_STRATEGIES = ("one_output_per_tree", "multi_output_tree")


_LARGEST = 1e12
_ANY = Range(-_LARGEST, _LARGEST)
_RANGES = {
    **COMMON,
    "learning_rate": Range(0, 1, open_low=True),
    "reg_lambda": Range(0, _LARGEST),
    "gamma": Range(0, _LARGEST),
    "min_child_weight": Range(0, _LARGEST),
    "validation_share": Range(0, 1, open_low=True, open_high=True),
}


@dataclass(frozen=True)
class BoostingParams:
    """What a boosting job is asked to do.

    `gamma` is the least loss change of a kept split (XGBoost's; twice the papers' γ). `n_estimators` counts rounds: a
    round of `one_output_per_tree` with C classes grows C trees. `validation_share` of the records is set aside only if
    `early_stopping_rounds` is given. `missing` is the value that means "missing" besides NaN. `base_score` None is 0.5
    for the classifiers and the mean training label for squared error (XGBoost 2 and later estimates it for all three).
    `party_dropout`: the chance, by name, that a party offers no candidates to a tree.
    """

    objective: str = "binary:logistic"
    n_estimators: int = 100
    max_depth: int = 6
    max_bin: int = 32
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    multi_strategy: str = "one_output_per_tree"
    base_score: float | None = None
    early_stopping_rounds: int | None = None
    validation_share: float = 0.1
    missing: float = math.nan
    seed: int = 0
    party_dropout: Mapping[str, float] = field(default_factory=dict)

    def validate(self) -> None:
        """Raise ConfigError naming every field that is wrong, with the range it must lie in."""
        ranges = dict(_RANGES)
        if self.base_score is not None:
            logistic = self.objective == "binary:logistic"
            ranges["base_score"] = Range(0, 1, open_low=True, open_high=True) if logistic else _ANY
        if self.early_stopping_rounds is not None:
            ranges["early_stopping_rounds"] = Range(1, 100_000, integer=True)
        wrong = not_a_choice(self, {"objective": OBJECTIVES, "multi_strategy": MULTI_STRATEGIES})
        in_order = {field.name: ranges[field.name] for field in fields(self) if field.name in ranges}
        wrong += out_of_range(self, in_order) + bad_missing(self.missing) + bad_dropout(self.party_dropout)
        if wrong:
            raise ConfigError("boosting parameters: " + "; ".join(wrong))

    def takes_part(self, tree: int, party: str) -> bool:
        """Whether a party offers candidates to tree number `tree`."""
        return sampling.takes_part(self.seed, tree, party, self.party_dropout.get(party, 0.0))

    def outputs(self, classes: int) -> int:
        """Columns of the score: one for logistic and squared error, `classes` for softmax."""
        return classes if self.objective == "multi:softprob" else 1

    def outputs_per_tree(self, classes: int) -> int:
        """Numbers that a leaf holds: every output in a multi-output tree, else one."""
        return self.outputs(classes) if self.multi_strategy == "multi_output_tree" else 1

    def trees_per_round(self, classes: int) -> int:
        """Trees that a round grows."""
        return self.outputs(classes) // self.outputs_per_tree(classes)
