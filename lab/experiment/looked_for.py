"""The class that an experiment looks for: curves, gains and thresholds are of it, against the rest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treetap.errors import ConfigError, DataError
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.tables.labels import Labels, class_name
from treetap.tables.source import Source
from treetap.trees.evaluation import looked_for

#: Names of classes that an error lists before it says how many there are.
_LISTED = 8


def check_positive(experiment: ExperimentFile, source: Source, classes: Sequence[str]) -> None:
    """Check that the class that the file looks for, if it names one, is one of the table's.

    Raises:
        DataError: it is none of them.
        ConfigError: there are no classes.
    """
    data = experiment.data
    if data.positive is None:
        return
    if not classes:
        raise ConfigError(f"positive of [data] names a class, and a regression has none ({data.label!r}); leave it out")
    if class_name(data.positive) not in classes:
        more = f" and {len(classes) - _LISTED} more" if len(classes) > _LISTED else ""
        raise DataError(
            f"{source}: label column {data.label!r} has no class {class_name(data.positive)!r}, which positive of "
            f"[data] names; its classes are {', '.join(map(repr, classes[:_LISTED]))}{more}"
        )


def with_positive(experiment: ExperimentFile, labels: Labels) -> ExperimentFile:
    """The experiment with the class that all of its runs look for; of more than two classes none, unless it names one.

    `labels`: of the whole table, so that runs whose held-out rows differ do not look for different classes.
    """
    given, names = experiment.data.positive, getattr(experiment.job, "classes", None) or labels.classes
    if given is None and len(names) == 2:
        first = np.count_nonzero(np.asarray(labels.classes)[labels.values.astype(np.int64)] == names[0])
        given = names[looked_for(int(first), len(labels.values))]
    if given is None:
        return experiment
    data = experiment.data.model_copy(update={"positive": class_name(given)})
    return experiment.model_copy(update={"data": data})
