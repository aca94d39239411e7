"""Predictions of split networks: one round for a block of records (docs/protocol-splitnn.md).

The coordinator sees names and the numbers of blocks and records; no embedding and no score.
"""

from __future__ import annotations

from coordinator.protocols import PredictionCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from coordinator.scoring import open_models, score_block
from treetap.protocols.prediction import present
from treetap.wire.v2 import prediction_pb2


async def score(
    roster: Roster, opening: prediction_pb2.OpenModel, _: prediction_pb2.OpenedModel, block: int, progress: Progress
) -> int:
    """Score one block; returns the number of blocks.

    All parties do it at the same time: the label holder names the records, feature parties send their embeddings, the
    label holder joins them.
    """
    embedding = roster.ask_all(present(opening), "embed_block", round=block)
    return await score_block(roster, opening.recipient, "embed_block", block, embedding, progress)


COURSE = PredictionCourse(open_models, score)
