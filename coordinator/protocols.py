"""The course of each protocol at the coordinator: tables of the modules that have it as `TRAINING` or `PREDICTION`.

Phases that the courses of predictions share: opening the model, names of features, the answer of a scored block.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.coordinator.setup import Found, Plan, align
from treetap.process.together import together
from treetap.protocols.prediction import present
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


async def open_models(
    roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress
) -> prediction_pb2.OpenedModel:
    """Have every party open the model, and align the records; returns the recipient's description of the model.

    If names are requested, every present feature party then sends its names to the label holder or withholds them.
    """
    progress.phase("align")
    results = await roster.ask_all(roster.names, "open_model", opening)
    answers = {party: answered(party, result, "opened_model") for party, result in results.items()}
    progress.opened(answers)
    await align(roster, roster.names, opening.alignment)
    if opening.explain:
        naming = roster.ask_all(present(opening), "name_features")
        await together(roster.ask(opening.recipient, "take_names"), naming)
    opened: prediction_pb2.OpenedModel = answers[opening.recipient]
    return opened


async def score_block(
    roster: Roster, recipient: str, step: str, block: int, others: Coroutine[Any, Any, Any], progress: Progress
) -> int:
    """Have the recipient score a block by a step while the `others` do theirs; returns the number of blocks.

    Each sends on what it has received while those before it still work. One block is under way at a time, so no party
    holds more than a block.
    """
    answer, _ = await together(roster.ask(recipient, step, round=block), others)
    scored: prediction_pb2.ScoredBlock = answered(recipient, answer, "scored_block")
    progress.records(scored.done, scored.total)
    return scored.blocks
