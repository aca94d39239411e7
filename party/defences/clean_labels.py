"""Labels as a party's table has them: closed, and handed out by one function, for a named use.

With `label_dp` or a `label_budget` other parties and the coordinator get nothing that is computed from labels as they
are. Every use of these is here, so that a new one is decided here: it is refused, stays in the party's own files, or is
noted as released. Lint keeps all other code of parties from the functions that read labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from treetap.arrays import Rows
from treetap.errors import ConfigError, Refused
from treetap.party.defences.settings import Defences
from treetap.party.policy import Policy
from treetap.protocols.exclusions import Feature, between
from treetap.tables.labels import Labels, PartialLabels, read_classes, read_labels, read_partial_labels, read_targets
from treetap.tables.reading import Table
from treetap.trees.job_params import REGRESSIONS

Held = TypeVar("Held", Labels, PartialLabels)


class Use(Enum):
    """Uses of labels as they are."""

    TRAINING = "training"  #: gradients, counts, metrics of a training: all of it reaches others
    EVAL_TABLE = "eval table"  #: metrics after each round, and early stopping by them
    NOISE = "noise"  #: the draw of noisy labels
    EVALUATION = "evaluation"  #: `predict --evaluate`: a document of this party; its measures by `LabelRules.released`
    OWN_FILES = "own files"  #: metrics beside a model of noisy labels, its repair, and the account of released sets


@dataclass(frozen=True)
class LabelRules:
    """A party's own rules for its labels.

    Attributes:
        party: its name, for errors.
        noisy: `[defences]` has `label_dp`.
        budget: `label_budget` of the policy, or None.
        evaluate: `evaluate_clean_labels` of the policy.
    """

    party: str
    noisy: bool
    budget: float | None
    evaluate: bool

    @classmethod
    def of(cls, party: str, defences: Defences, policy: Policy) -> LabelRules:
        return cls(
            party, defences.label_dp is not None, policy.labels.label_budget, policy.labels.evaluate_clean_labels
        )

    @property
    def protect(self) -> bool:
        """True if nothing that is computed from labels as they are may leave unnoticed."""
        return self.noisy or self.budget is not None

    @property
    def released(self) -> bool:
        """True if measures by labels as they are may leave the party, as far as its labels are concerned."""
        return self.evaluate or not self.protect

    def check(self, use: Use) -> None:
        """Raise for a use that these rules forbid.

        Raises:
            Refused: a training without noise, where the policy has a budget.
            ConfigError: an eval table beside `label_dp`.
        """
        if use is Use.EVAL_TABLE and self.noisy:
            raise ConfigError(str(between(Feature.EVAL_TABLE, Feature.LABEL_DP)))
        if use in (Use.TRAINING, Use.EVAL_TABLE) and self.budget is not None:
            raise Refused(
                f"{self.party} takes no part in a job that uses its labels as they are: its policy says label_budget = "
                f"{self.budget:g} under [labels]; write label_dp = {{epsilon = 1.0}} under [defences] of "
                f"{self.party}'s file and send {self.party} SIGHUP"
            )
        if use is Use.TRAINING and self.noisy:
            raise Refused(f"{self.party} trains on noisy labels alone: it has label_dp under [defences]")


class CleanLabels(Generic[Held]):
    """Labels as they are; `for_use` hands them out."""

    def __init__(self, held: Held, rules: LabelRules) -> None:
        self._held: Held = held
        self._rules = rules

    def __repr__(self) -> str:
        return f"<CleanLabels: {self._held!r}>"

    def for_use(self, use: Use) -> Held:
        """The labels, for one use; raises as `LabelRules.check` does."""
        self._rules.check(use)
        return self._held

    def at(self: CleanLabels[Labels], records: Rows) -> CleanLabels[Labels]:
        """Those of the records at these places, in this order, with all classes."""
        return CleanLabels(self._held.at(records), self._rules)


def read(table: Table, column: str, objective: str, rules: LabelRules) -> CleanLabels[Labels]:
    """The labels of a table to train on; raises as `treetap.tables.labels.read_labels` does."""
    return CleanLabels(read_labels(table, column, objective), rules)


def read_evaluated(
    table: Table, column: str, objective: str, classes: Sequence[str], rules: LabelRules
) -> CleanLabels[Labels]:
    """Those of an eval table, which may be of one class; raises as `read_classes` and `read_targets` do."""
    regression = objective in REGRESSIONS
    read = read_targets(table, column, objective) if regression else read_classes(table, column, classes)
    return CleanLabels(read, rules)


def read_some(
    table: Table, column: str, objective: str, classes: Sequence[str], rules: LabelRules, *, public: bool = True
) -> CleanLabels[PartialLabels]:
    """Those of the records that have one; arguments and errors are those of `read_partial_labels`."""
    return CleanLabels(read_partial_labels(table, column, objective, classes, public=public), rules)
