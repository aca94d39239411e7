"""Prediction with masked sums: one step per level of the trees at all parties, then one share of each party."""

from __future__ import annotations

from coordinator.opened_models import open_models
from coordinator.protocols import PredictionCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, answered
from treetap.errors import ProtocolError
from treetap.process.together import together
from treetap.wire.v2 import masked_pb2, prediction_pb2

#: Most levels of a tree.
MOST_LEVELS = 64


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> prediction_pb2.OpenedModel:
    """Have every party open the model, align the records, and exchange keys for masks with each other.

    Returns the recipient's description of the model.
    """
    found = await open_models(roster, opening, progress)
    progress.phase("keys")
    await roster.ask_all(roster.names, "exchange_mask_keys")
    if found.levels > MOST_LEVELS:
        raise ProtocolError(f"{opening.recipient} says that the trees have {found.levels} levels")
    return found


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
    adding = roster.ask_all([recipient], "add_shares", masked_pb2.AddShares(), block)
    answers, _ = await together(adding, sending)
    scored: prediction_pb2.ScoredBlock = answered(recipient, answers[recipient], "scored_block")
    progress.records(scored.done, scored.total)
    return scored.blocks


COURSE = PredictionCourse(begin, score)
