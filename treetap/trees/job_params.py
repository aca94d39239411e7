"""Parameters that every training job has, whatever it trains, and the checks of ranges that their classes share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np

from treetap.arrays import Array
from treetap.errors import ConfigError, did_you_mean

OBJECTIVES = ("binary:logistic", "multi:softprob", "reg:squarederror")
#: Objectives of numbers above zero, whose scores are logarithms.
LOG_LINKED = ("count:poisson", "reg:gamma", "reg:tweedie")
#: The objective of times to an event, whose loss is of all records together.
COX = "survival:cox"
#: That of times of which bounds are known.
AFT = "survival:aft"
SURVIVAL = (COX, AFT)
#: Objectives of boosting.
BOOSTED = (*OBJECTIVES, *LOG_LINKED, "reg:quantileerror", *SURVIVAL)
#: Objectives whose labels are numbers, not classes.
REGRESSIONS = ("reg:squarederror", "squared_error", *BOOSTED[3:])
#: Objectives whose second derivatives have no bound that is known before the training, or one that few come near.
UNBOUNDED = (*LOG_LINKED, *SURVIVAL)
#: Objectives of two classes with one score, from which the probability of the second class follows.
BINARY = ("binary:logistic",)


@dataclass(frozen=True)
class Range:
    """An interval that a number must lie in; `integer` also asks for a whole number."""

    low: float
    high: float
    integer: bool = False
    open_low: bool = False
    open_high: bool = False

    def complaint(self, value: object) -> str | None:
        """The fault of `value`, or None."""
        shown = f"{'(' if self.open_low else '['}{self.low:g}, {self.high:g}{')' if self.open_high else ']'}"
        kind = "a whole number" if self.integer else "a number"
        allowed = (int,) if self.integer else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed):  # True is a whole number to Python
            return f"must be {kind} in {shown}, not {value!r}"
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return None if above and below else f"must be {kind} in {shown}, not {value!r}"


def out_of_range(params: object, ranges: dict[str, Range]) -> list[str]:
    """The faults of the fields of `params` that have a range, by name."""
    complaints = ((name, allowed.complaint(getattr(params, name))) for name, allowed in ranges.items())
    return [f"{name} {complaint}" for name, complaint in complaints if complaint]


def not_a_choice(params: object, choices: dict[str, tuple[str, ...]]) -> list[str]:
    """The faults of the fields of `params` whose value is one of several names."""
    return [
        f"{name} must be one of {', '.join(allowed)}, not {value!r}{did_you_mean(str(value), allowed)}"
        for name, allowed in choices.items()
        if (value := getattr(params, name)) not in allowed
    ]


def not_a_switch(params: object, name: str) -> list[str]:
    """The fault of a field that must be true or false, if it has one."""
    value = getattr(params, name)
    return [] if isinstance(value, bool) else [f"{name} must be true or false, not {value!r}"]


def absence_of(params: Mapping[str, Any], party: str) -> float:
    """The probability that a party sits out, by parameters as `JobParams.to_dict` gives them."""
    return float(params.get("party_dropout", {}).get(party, 0.0))


@dataclass(frozen=True)
class JobParams(ABC):
    """Parameters of every training.

    `missing` is the value that means "missing" besides NaN. `party_dropout`: the probability, by name, that a party
    sits out: a tree, or a batch of a split network. `protocol`: the name of the one that they are of. `always_there`:
    the reason why none may sit out; empty: any may.
    """

    protocol: ClassVar[str]
    always_there: ClassVar[str] = ""
    missing: float = math.nan
    """A number that counts as missing, beside NaN and empty cells."""
    seed: int = 0
    """Governs all draws that are not secret: records, columns, what is set aside, who sits out."""
    party_dropout: Mapping[str, float] = field(default_factory=dict)
    """Feature party = chance, at least 0 and below 1, with which it sits out a tree or a batch."""

    @property
    @abstractmethod
    def objective(self) -> str:
        """The objective: the kind of labels and predictions."""

    @property
    def regression(self) -> bool:
        """True if the labels are numbers."""
        return self.objective in REGRESSIONS

    @property
    def unbounded(self) -> bool:
        """True if a record's second derivative may be any number."""
        return self.objective in UNBOUNDED

    def outputs(self, classes: int) -> int:
        """Columns of the score: one for each class of `multi:softprob`, otherwise one."""
        return classes if self.objective == "multi:softprob" else 1

    @property
    def largest_weight(self) -> float | None:
        """The largest sample weight that a record may have; None: records have no weights."""
        return None

    @property
    def adds_noise(self) -> bool:
        """True if the model carries noise that no centralised model repeats."""
        return False

    @property
    def splits_categories(self) -> bool:
        """True for trees that split columns by sets of their categories: by it alone `AUTO` takes such encodings."""
        return False

    def norms_batches(self, _party: str) -> bool:
        """True if a party's part of a network normalises over the records of a batch."""
        return False

    def absence(self, party: str) -> float:
        """The probability that a party sits out."""
        return self.party_dropout.get(party, 0.0)

    def common_faults(self) -> list[str]:
        """The faults of the parameters that every training has."""
        faults, missing, allowed = [], self.missing, Range(0, 1, open_high=True)
        if isinstance(missing, bool) or not isinstance(missing, int | float) or math.isinf(missing):
            faults.append(
                f"missing must be a finite number or nan, not {missing!r}: a table's own settings list texts, as in "
                "missing = [\"-\"], and a data frame has X.replace('-', None)"
            )
        if self.always_there:
            return faults + [f"party_dropout must be empty: {self.always_there}"] * bool(self.party_dropout)
        complaints = ((name, allowed.complaint(share)) for name, share in self.party_dropout.items())
        return faults + [f"party_dropout of {name} {complaint}" for name, complaint in complaints if complaint]

    def continuation_faults(self, before: Mapping[str, Any]) -> list[str]:
        """The reasons why a training of these cannot continue from a model with the parameters `before`."""
        if set(self.party_dropout) == set(before["party_dropout"]):
            return []
        return ["party_dropout must name the parties that its training named: predictions without a party rest on it"]

    def party_faults(self, _first: str, others: Sequence[str]) -> list[str]:
        """The faults of what is said by party, in a job of these; `first`: the label holder, if there is one."""
        return [
            f"party_dropout names {name!r}, which is not a feature party of the job ({', '.join(others)})"
            for name in self.party_dropout
            if name not in others
        ]

    @abstractmethod
    def faults(self) -> list[str]:
        """What is wrong of every field, with the range it must lie in."""

    def validate(self) -> None:
        """Raise ConfigError naming every field that is wrong, with the range it must lie in."""
        if wrong := self.faults():
            raise ConfigError(f"{self.protocol} parameters: " + "; ".join(wrong))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: a value of NaN, which nothing equals, is null."""
        plain = asdict(self)
        return {**plain, "missing": None if math.isnan(self.missing) else self.missing}


@dataclass(frozen=True)
class EarlyStoppingParams:
    """The parameters of a training that may stop early, beside its own."""

    early_stopping_rounds: int | None = None
    """Rounds (epochs) without a better validation loss after which training ends; the best one is published."""
    validation_share: float = 0.1
    """Share of the records that is set aside for it, only with `early_stopping_rounds`."""

    @property
    def sets_aside(self) -> bool:
        """True if some records are set aside, whose loss decides on the best round."""
        return self.early_stopping_rounds is not None

    def watch(self) -> EarlyStopping:
        """A new watch over that loss."""
        return EarlyStopping(self.early_stopping_rounds)

    def bad_stopping(self) -> list[str]:
        """The faults of these parameters."""
        ranges = {"validation_share": Range(0, 1, open_low=True, open_high=True)}
        if self.sets_aside:
            ranges = {"early_stopping_rounds": Range(1, 100_000, integer=True), **ranges}
        return out_of_range(self, ranges)


@dataclass
class EarlyStopping:
    """The watch over the validation loss.

    Attributes:
        rounds: those without a better one after which training ends; None: it does not end early.
        best: the smallest loss so far.
        best_round: the round of it; None before the first.
        stale: rounds since.
    """

    rounds: int | None
    best: float = float("inf")
    best_round: int | None = None
    stale: int = 0

    def take(self, number: int, loss: float) -> bool:
        """Note the loss after a round; True if it is the best so far. Without early stopping each round is."""
        if self.rounds is None or loss < self.best:
            self.best, self.best_round, self.stale = loss, number, 0
            return True
        self.stale += 1
        return False

    @property
    def stopped(self) -> bool:
        """True if no round is to follow."""
        return self.rounds is not None and self.stale >= self.rounds

    def state(self) -> dict[str, Array]:
        """The watch as arrays, by name."""
        number = -1 if self.best_round is None else self.best_round
        return {"stopping": np.array([self.best, number, self.stale], dtype=np.float64)}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        best, number, stale = np.asarray(arrays["stopping"], dtype=np.float64).tolist()
        self.best, self.best_round, self.stale = best, None if number < 0 else int(number), int(stale)
