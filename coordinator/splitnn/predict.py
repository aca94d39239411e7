"""Predictions of split networks: one round for a block of records (docs/protocol-splitnn.md).

The coordinator sees names and the numbers of blocks and records; no embedding and no score.
"""

from __future__ import annotations

from coordinator.opened_models import open_models
from coordinator.protocols import PredictionCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, answered
from treetap.wire.v2 import prediction_pb2, splitnn_pb2


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> prediction_pb2.OpenedModel:
    """Have every party open the model and align its table; returns the label holder's description of the model."""
    return await open_models(roster, opening, progress)


async def score(
    roster: Roster,
    opening: prediction_pb2.OpenModel,
    _opened: prediction_pb2.OpenedModel,
    block: int,
    progress: Progress,
) -> int:
    """Score one block; returns the number of blocks.

    All parties do it at the same time: the label holder names the records, feature parties send their embeddings, the
    label holder joins them.
    """
    answers = await roster.ask_all(roster.names, "embed_block", splitnn_pb2.EmbedBlock(), block)
    scored: prediction_pb2.ScoredBlock = answered(opening.recipient, answers[opening.recipient], "scored_block")
    progress.records(scored.done, scored.total)
    return scored.blocks


COURSE = PredictionCourse(begin, score)
