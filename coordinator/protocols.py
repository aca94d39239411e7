"""The course of each protocol at the coordinator: tables of the modules that have it as `TRAINING` or `PREDICTION`."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
from treetap.coordinator.setup import Found, Plan
from treetap.protocols.registry import prediction_name, training_name
from treetap.wire.v2 import prediction_pb2, setup_pb2

#: Name of a protocol that trains → its module.
TRAINING: Mapping[str, str] = {
    "boosting": "treetap.coordinator.boosting",
    "forest": "treetap.coordinator.forest",
    "pivodl": "treetap.coordinator.pivodl",
    "splitnn": "treetap.coordinator.splitnn",
}
#: Name of a protocol that predicts → its module.
PREDICTION: Mapping[str, str] = {
    "interactive": "treetap.coordinator.interactive",
    "eini": "treetap.coordinator.eini",
    "eini-lattice": "treetap.coordinator.eini",
    "masked": "treetap.coordinator.masked",
    "splitnn": "treetap.coordinator.splitnn",
}


class TrainingCourse(NamedTuple):
    """The course of a training protocol, once the records are aligned.

    `plan` has the parties prepare their columns (bins) and returns the rounds to do; `train` does them, beginning with
    the steps before the first round (keys).
    """

    plan: Callable[[Roster, setup_pb2.JobSpec, Found, Progress], Awaitable[Plan]]
    train: Callable[[Roster, setup_pb2.JobSpec, Plan, Progress], Awaitable[None]]


class PredictionCourse(NamedTuple):
    """The course of a prediction protocol.

    `begin` has every party open the model, and does all other steps before the first block; it returns what `score`
    takes. That scores the block of a given number, and returns the number of blocks.
    """

    begin: Callable[[Roster, prediction_pb2.OpenModel, Progress], Awaitable[Any]]
    score: Callable[[Roster, prediction_pb2.OpenModel, Any, int, Progress], Awaitable[int]]


def training(spec: setup_pb2.JobSpec) -> TrainingCourse:
    course: TrainingCourse = importlib.import_module(TRAINING[training_name(spec)]).TRAINING
    return course


def prediction(opening: prediction_pb2.OpenModel) -> PredictionCourse:
    course: PredictionCourse = importlib.import_module(PREDICTION[prediction_name(opening)]).PREDICTION
    return course
