"""The parameters of a random forest; names are scikit-learn's, or XGBoost's where boosting has the parameter too.

`max_bin` defaults to 32 and `max_depth` to 6, as in boosting: every bin and every node costs ciphertexts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from treetap.errors import ConfigError
from treetap.trees import sampling
from treetap.trees.ranges import COMMON, Range, bad_dropout, bad_missing, not_a_choice, out_of_range

CRITERIA = ("gini", "squared_error")
BINNINGS = ("global", "per-node")
_RANGES = {**COMMON, "min_samples_leaf": Range(1, 1_000_000_000, integer=True)}


@dataclass(frozen=True)
class ForestParams:
    """What a forest job is asked to do.

    Each tree draws ⌊subsample · N⌋ records, at least one, without replacement unless `bootstrap`, and of every party's
    columns the share `colsample_bytree`. `min_samples_leaf` counts drawn records. `binning`: quantiles once per job, or
    of each node's own drawn records. `missing` is the value that means "missing" besides NaN. `party_dropout`: the
    chance, by name, that a party offers no candidates to a tree.
    """

    criterion: str = "gini"
    n_estimators: int = 100
    max_depth: int = 6
    max_bin: int = 32
    subsample: float = 0.8
    bootstrap: bool = False
    colsample_bytree: float = 0.8
    min_samples_leaf: int = 1
    binning: str = "global"
    missing: float = math.nan
    seed: int = 0
    party_dropout: Mapping[str, float] = field(default_factory=dict)

    @property
    def objective(self) -> str:
        """What labels and predictions are: by the criterion."""
        return self.criterion

    def validate(self) -> None:
        """Raise ConfigError naming every field that is wrong, with the range it must lie in."""
        wrong = not_a_choice(self, {"criterion": CRITERIA, "binning": BINNINGS})
        wrong += out_of_range(self, _RANGES) + bad_missing(self.missing) + bad_dropout(self.party_dropout)
        if not isinstance(self.bootstrap, bool):
            wrong.append(f"bootstrap must be true or false, not {self.bootstrap!r}")
        if wrong:
            raise ConfigError("forest parameters: " + "; ".join(wrong))

    def takes_part(self, tree: int, party: str) -> bool:
        """Whether a party offers candidates to tree number `tree`."""
        return sampling.takes_part(self.seed, tree, party, self.party_dropout.get(party, 0.0))

    def outputs(self, classes: int) -> int:
        """Numbers that a leaf holds: a frequency for each class, or the mean."""
        return classes if self.criterion == "gini" else 1
