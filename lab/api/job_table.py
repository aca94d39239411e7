"""The job table of an estimator's parameters: those of its protocol, under their names in a job file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import signature
from typing import Any

import numpy as np

from treetap.commands.jobs.job_file import JobTable
from treetap.lab.api.errors import InvalidInput, checked
from treetap.lab.api.parameters import Parameters
from treetap.protocols.key_options import KEY_FIELDS
from treetap.protocols.registry import TRAINING, training
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import BoostingParams

#: The names under which protocols that have no objective have what takes its place, for classes and for numbers.
_CRITERIA = ("gini", "squared_error")
#: Keys of a job that the estimators set themselves.
_OWN = ("protocol", "objective", "alignment", "base_model")


def job_table(given: Parameters, objective: str, alignment: str, classes: Sequence[str], *, numeric: bool) -> JobTable:
    """The job of these parameters.

    `objective`, `alignment`: where the parameters have none. `classes`: names of the classes in order, none of numbers.

    Raises:
        InvalidInput: a parameter is out of range, or one of another protocol.
    """
    with checked():
        described = training(given.protocol)
    own = {field.name for field in fields(described.params)}
    usual = given.protocol == next(iter(TRAINING))
    defaults = {name: it.default for name, it in signature(type(given)).parameters.items()}
    values = {name: plain(getattr(given, name)) for name in defaults}
    changed = {name for name, value in values.items() if not _same(value, defaults[name])}
    boosting = [field.name for field in fields(BoostingParams)]
    keys = {name: values[name] for name in boosting if usual or name in changed}
    if "objective" in own:
        keys["objective"] = objective
    else:
        keys["criterion"] = _CRITERIA[numeric]
    if "classes" in own:
        keys["classes"] = list(classes)
    keys |= {name: values[name] for name in KEY_FIELDS if described.grows_trees or name in changed}
    keys |= {"protocol": given.protocol, "alignment": given.alignment or alignment}
    keys |= _options(given.options, changed | ({*defaults} if usual else set()))
    with checked(JobTable):
        table: JobTable = JobTable.model_validate({name: value for name, value in keys.items() if value is not None})
    if (objective in REGRESSIONS) != numeric:
        other = "FederatedClassifier" if numeric else "FederatedRegressor"
        raise InvalidInput(f"objective = {objective!r} is one of {other}: use that, or leave objective out")
    return table


def changed(job: JobTable, **keys: Any) -> JobTable:
    """The job with other parameters. Raises InvalidInput: one is out of range."""
    with checked(JobTable):
        table: JobTable = JobTable.model_validate({**job.model_dump(exclude_unset=True), **keys})
        return table


def plain(value: Any) -> Any:
    """A number of numpy as Python's, which a job file has."""
    return value.item() if isinstance(value, np.generic) else value


def _options(options: Any, taken: set[str]) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise InvalidInput(f"options = {options!r}: must be keys of [job] with their values, such as {{'seed': 1}}")
    for name in options or {}:
        if name in taken or name in _OWN:
            raise InvalidInput(f"options: {name!r} is a parameter itself: give it there alone")
    return {name: plain(value) for name, value in (options or {}).items()}


def _same(value: Any, default: Any) -> bool:
    """True of a value that is the default, NaN too."""
    if isinstance(value, float) and isinstance(default, float) and math.isnan(default):
        return math.isnan(value)
    return type(value) is type(default) and bool(value == default)
