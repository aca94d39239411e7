"""Limits that a party's policy sets: on what a training job may ask for, and on each partner over its jobs.

A training's parameter has one row in `PARAMETERS`. Partners are counted by `treetap.party.runtime.ledger`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field, field_validator

from treetap.errors import Refused, did_you_mean
from treetap.protocols.registry import PREDICTION, TRAINING
from treetap.strict import Name, Strict

if TYPE_CHECKING:
    from treetap.trees.job_params import JobParams

Count = Annotated[int, Field(ge=1)]
#: Most previews in 24 hours with a partner for whom a policy has no number.
PREVIEWS_PER_DAY = 5
Counted = Annotated[int, Field(ge=0)]


class Limits(Strict):
    """Limits on the parameters of a training job; a job without the parameter has no such limit."""

    trees: Count | None = None
    """Most trees of a job and of its base model together: `n_estimators`, or as many for each class in boosting of
    several by one output a tree. Their number a feature party does not know: it refuses the first tree beyond.
    """
    epochs: Count | None = None
    """Most `epochs` of a split network."""
    max_depth: Count | None = None
    """Most levels of splits."""
    max_bin: Annotated[int, Field(ge=2)] | None = None
    """Most bins of a column."""
    min_child_weight: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Boosting: least `min_child_weight` for each unit of the job's largest weight, max_sample_weight · max(1,
    scale_pos_weight); of two classes a record adds at most 1/4 of its weight. Refuses objectives of which a record may
    add any number, as counts.
    """
    min_samples_leaf: Count | None = None
    """Forest: least `min_samples_leaf`."""
    instance_threshold: Count | None = None
    """PIVODL: least `instance_threshold`."""
    min_samples: Count | None = None
    """PIVODL: least `min_samples`."""
    epsilon: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """PIVODL: largest ε of the noise on leaf weights; a job without noise is refused."""
    gain_comparison: Literal["announce", "secure"] = "announce"
    """PIVODL: "secure" refuses jobs whose split parties announce their gains."""

    def check(self, party: str, params: JobParams, base_trees: int = 0, classes: int = 2) -> None:
        """Raise `Refused` naming each limit that a job's parameters break.

        `base_trees`: those of its base model. `classes`: of the label; where they are not known, the fewest.
        """
        own = {field.name for field in fields(params)}
        faults = []
        for key, row in PARAMETERS.items():
            limit = getattr(self, key)
            if limit is None or row.name not in own:
                continue
            given, train_with, beside = getattr(params, row.name), limit, ""
            if key == "trees":
                a_round = params.trees_per_round(classes)  # type: ignore[attr-defined] # rounds are of trees
                train_with = (limit - base_trees) // a_round
                beside = f", rounds of {a_round} trees or more" if a_round > 1 else ""
                beside += f" after {base_trees} trees of a base model" if base_trees else ""
            elif key == "min_child_weight" and (factor := getattr(params, "largest_factor", 1.0)) != 1:
                train_with, beside = limit * factor, f" of weights up to {factor:g}"
            if key == "min_child_weight" and params.unbounded:
                faults.append(f"{key} bounds no number of records where objective = {params.objective!r}: use another")
                continue
            if row.keeps(given, train_with):
                continue
            asked = (f"without {row.name}" if given is None else f"with {row.name} = {given!r}") + beside
            remedy = f"with {row.name} = {train_with!r}{row.or_else}"
            if key == "trees" and train_with < 1:
                remedy = "without a base model" if base_trees else 'with multi_strategy = "multi_output_tree"'
            faults.append(
                f"{party} takes no part in a job {asked}: its policy says {key} = {limit!r} under [limits]; train "
                f"{remedy}, or change it in {party}'s policy file and send {party} SIGHUP"
            )
        if faults:
            raise Refused("\n".join(faults))

    def check_tree(self, party: str, tree: int) -> None:
        """Raise `Refused` if tree number `tree` is beyond the limit, in a job of more classes than `check` was told."""
        if self.trees is not None and tree >= self.trees:
            raise Refused(
                f"{party} grows no tree after tree {self.trees - 1}: its policy says trees = {self.trees} under "
                "[limits], and each round of the job has a tree for every class; train with a smaller n_estimators, "
                f"or change it in {party}'s policy file and send {party} SIGHUP"
            )


class Parameter(NamedTuple):
    """A limit's parameter.

    Attributes:
        name: of the job's parameter.
        keeps: True if the job's value, the first one, keeps the limit.
        or_else: other values that do, in the words of an error.
    """

    name: str
    keeps: Callable[[Any, Any], bool]
    or_else: str


def _at_most(name: str) -> Parameter:
    return Parameter(name, lambda given, most: (math.inf if given is None else given) <= most, " or less")


def _at_least(name: str) -> Parameter:
    return Parameter(name, lambda given, least: given >= least, " or more")


#: Key of `Limits` → the parameter that it limits.
PARAMETERS: Mapping[str, Parameter] = {
    "trees": _at_most("n_estimators"),
    "epochs": _at_most("epochs"),
    "max_depth": _at_most("max_depth"),
    "max_bin": _at_most("max_bin"),
    "min_child_weight": _at_least("min_child_weight"),
    "min_samples_leaf": _at_least("min_samples_leaf"),
    "instance_threshold": _at_least("instance_threshold"),
    "min_samples": _at_least("min_samples"),
    "epsilon": _at_most("epsilon"),
    "gain_comparison": Parameter("gain_comparison", lambda given, limit: limit in ("announce", given), ""),
}


class Partner(Strict):
    """Limits on one partner, another party or a coordinator; "*" has those of all other parties. Absent: no limit.

    What is counted is in the party's ledger, over all jobs in which the partner takes part, attempts that fail
    included.
    """

    tables: list[Name] | None = None
    """Own tables that jobs with it may use; by default all."""
    protocols: list[str] | None = None
    """Protocols of trainings and predictions with it, such as ["boosting", "masked"]; by default all."""
    jobs_per_day: Counted | None = None
    """Most attempts at trainings in 24 hours; a job that resumes is a further attempt."""
    predictions_per_day: Counted | None = None
    """Most attempts at predictions in 24 hours; a served model is one."""
    previews_per_day: Counted | None = None
    """Most previews in 24 hours; by default those of "*", or 5."""
    records_per_day: Counted | None = None
    """Most common records, in 24 hours, of all trainings, predictions and previews with --records together. An
    alignment tells how many they are; sums, scores and rows beyond the limit do not leave.
    """
    largest_list: Count | None = None
    """Alignment by "psi": most ids of its list; a longer one is not raised."""
    look_ups_per_day: Counted | None = None
    """At a party that is asked: most look-ups of new records in 24 hours by models that the partner serves. Each tells
    it whether an id is in the own table. Charged by hundredths; by default there are none.
    """
    queries_per_record: Count | None = None
    """At a party that is asked: most predictions of one record, ever; counted from when the limit is set."""

    @field_validator("protocols")
    @classmethod
    def _known(cls, protocols: list[str] | None) -> list[str] | None:
        known = list(dict.fromkeys((*TRAINING, *PREDICTION)))
        for name in protocols or []:
            if name not in known:
                raise ValueError(f"{name!r} is no protocol (they are {', '.join(known)}){did_you_mean(name, known)}")
        return protocols
