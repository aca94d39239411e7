"""The parameters of a boosting job; a name taken from XGBoost means what XGBoost means by it.

Two departures, both on purpose: `max_bin` defaults to 32 (the federated papers' setting; every bin costs ciphertexts)
and `max_depth=0` (no limit) is refused, because a heap-numbered tree needs a limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from treetap.errors import ConfigError

OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror")
MULTI_STRATEGIES = ("one_output_per_tree", "multi_output_tree")


@dataclass(frozen=True)
class _Range:
    """An interval that a number must lie in; `integer` also asks for a whole number."""

    low: float
    high: float
    integer: bool = False
    open_low: bool = False
    open_high: bool = False

    def complaint(self, value: object) -> str | None:
        """What is wrong with `value`, or None."""
        shown = f"{'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"
        kind = "a whole number" if self.integer else "a number"
        allowed = (int,) if self.integer else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):
            return f"must be {kind} in {shown}, not {value!r}"
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return None if above and below else f"must be {kind} in {shown}, not {value!r}"


_LARGEST = 1e12
_RANGES = {
    "n_estimators": _Range(1, 100_000, integer=True),
    "max_depth": _Range(1, 20, integer=True),
    "max_bin": _Range(2, 65_536, integer=True),
    "learning_rate": _Range(0, 1, open_low=True),
    "reg_lambda": _Range(0, _LARGEST),
    "gamma": _Range(0, _LARGEST),
    "min_child_weight": _Range(0, _LARGEST),
    "subsample": _Range(0, 1, open_low=True),
    "colsample_bytree": _Range(0, 1, open_low=True),
    "validation_share": _Range(0, 1, open_low=True, open_high=True),
    "seed": _Range(0, 2**63 - 1, integer=True),
}


@dataclass(frozen=True)
class BoostingParams:
    """What a boosting job is asked to do.

    `gamma` is the least loss change of a kept split (XGBoost's; twice the papers' γ). `n_estimators` counts rounds: a
    round of `one_output_per_tree` with C classes grows C trees. `validation_share` of the records is set aside only if
    `early_stopping_rounds` is given. `missing` is the value that means "missing" besides NaN. `base_score` None is 0.5
    for the classifiers and the mean training label for squared error (XGBoost 2 and later estimates it for all three).
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

    def validate(self) -> None:
        """Raise ConfigError naming every field that is wrong, with the range it must lie in."""
        wrong: list[str] = []
        for name, choices in (("objective", OBJECTIVES), ("multi_strategy", MULTI_STRATEGIES)):
            if getattr(self, name) not in choices:
                wrong.append(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        ranges = dict(_RANGES)
        if self.base_score is not None:
            logistic = self.objective == "binary:logistic"
            ranges["base_score"] = (
                _Range(0, 1, open_low=True, open_high=True) if logistic else _Range(-_LARGEST, _LARGEST)
            )
        if self.early_stopping_rounds is not None:
            ranges["early_stopping_rounds"] = _Range(1, 100_000, integer=True)
        for field in fields(self):
            if field.name in ranges:
                complaint = ranges[field.name].complaint(getattr(self, field.name))
                if complaint:
                    wrong.append(f"{field.name} {complaint}")
        missing: object = self.missing
        if isinstance(missing, bool) or not isinstance(missing, int | float) or math.isinf(missing):
            wrong.append(f"missing must be a finite number or nan, not {missing!r}")
        if wrong:
            raise ConfigError("boosting parameters: " + "; ".join(wrong))

    def outputs(self, classes: int) -> int:
        """Columns of the score: one for logistic and squared error, `classes` for softmax."""
        return classes if self.objective == "multi:softprob" else 1

    def outputs_per_tree(self, classes: int) -> int:
        """Numbers that a leaf holds: every output in a multi-output tree, else one."""
        return self.outputs(classes) if self.multi_strategy == "multi_output_tree" else 1

    def trees_per_round(self, classes: int) -> int:
        """Trees that a round grows."""
        return self.outputs(classes) // self.outputs_per_tree(classes)
