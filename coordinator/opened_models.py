"""The first steps of every prediction: each party opens its shard and its table, and they align their records."""

from __future__ import annotations

from coordinator.alignment import align
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, answered
from treetap.wire.v2 import prediction_pb2


async def open_models(
    roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress
) -> prediction_pb2.OpenedModel:
    """Have every party open the model, and align the records; returns the recipient's description of the model."""
    progress.phase("align")
    results = await roster.ask_all(roster.names, "open_model", opening)
    answers = {party: answered(party, result, "opened_model") for party, result in results.items()}
    progress.opened(answers)
    await align(roster, roster.names, opening.alignment)
    opened: prediction_pb2.OpenedModel = answers[opening.recipient]
    return opened
