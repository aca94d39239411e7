"""Prediction with masked sums: one step per level of the trees at all parties, then one share of each party."""

from __future__ import annotations

from treetap.coordinator.prediction import open_models, score_block
from treetap.coordinator.protocols import PredictionCourse
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
from treetap.errors import ProtocolError
from treetap.protocols.masked import MOST_LEVELS
from treetap.wire.v2 import prediction_pb2


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> prediction_pb2.OpenedModel:
    """Have every party open the model, align the records, and exchange keys for masks with each other.

    Returns the recipient's description of the model.
    """
    model = await open_models(roster, opening, progress)
    progress.phase("keys")
    await roster.ask_all(roster.names, "exchange_mask_keys")
    if model.levels > MOST_LEVELS:
        raise ProtocolError(f"{opening.recipient} says that the trees have {model.levels} levels")
    return model


async def score(
    roster: Roster,
    opening: prediction_pb2.OpenModel,
    opened: prediction_pb2.OpenedModel,
    block: int,
    progress: Progress,
) -> int:
    """Score one block; returns the number of blocks.

    1. Level by level every party splits the records at its nodes, and passes them on.
    2. Every party sends its masked share of all scores; the recipient adds them up.
    """
    recipient, others = opening.recipient, list(opening.feature_parties)
    for level in range(max(1, opened.levels)):
        progress.stage(level)
        await roster.ask_all(roster.names, "pass_records", round=block, stage=level)
    sending = roster.ask_all(others, "send_shares", round=block)
    return await score_block(roster, recipient, "add_shares", block, sending, progress)


PREDICTION = PredictionCourse(begin, score)
