"""Phases that the courses of predictions share: opening the model, names of features, the answer of a scored block."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.coordinator.setup import align
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.wire.v2 import prediction_pb2


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
