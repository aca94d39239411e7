"""Multi-interactive inference, one round per level over all trees of a block of records."""

from __future__ import annotations

from coordinator.progress import Progress
from coordinator.roster import Roster, together
from treetap.errors import ProtocolError
from treetap.wire.v1 import interactive_pb2, setup_pb2

#: No tree is deeper: more rounds would mean that somebody leads the records in circles.
MOST_LEVELS = 64


async def predict(
    roster: Roster, opening: interactive_pb2.OpenModel, progress: Progress
) -> interactive_pb2.WrittenPredictions:
    """Open the model everywhere, align, lead every block down, write.

    1. Parties load their shards and tables and compare the digests of their sorted ids.
    2. Per block and level the label holder asks the owners of the nodes where records stand, and moves them.
    3. The label holder writes the predictions.
    """
    label_holder = opening.label_holder
    progress.phase("align")
    opened = await roster.ask_all(roster.names, "open_model", opening)
    sending = roster.ask_all(opening.feature_parties, "send_digest", setup_pb2.SendDigest())
    await together(sending, roster.ask(label_holder, "compare_digests", setup_pb2.CompareDigests()))
    progress.phase("predict")
    blocks = opened[label_holder].opened_model.blocks
    for block in range(blocks):
        progress.tree(block, blocks)
        await _predict_block(roster, label_holder, block, progress)
    progress.phase("write")
    written = await roster.ask(label_holder, "write_predictions", interactive_pb2.WritePredictions())
    return written.written_predictions


async def _predict_block(roster: Roster, label_holder: str, block: int, progress: Progress) -> None:
    for level in range(MOST_LEVELS):
        progress.depth(level)
        asked = await roster.ask(label_holder, "ask_directions", interactive_pb2.AskDirections(), block, level)
        owners = list(asked.asked_directions.asked)
        if not owners:
            return
        await roster.ask_all(owners, "answer_directions", interactive_pb2.AnswerDirections(), block, level)
        await roster.ask(label_holder, "take_directions", interactive_pb2.TakeDirections(), block, level)
    raise ProtocolError(f"{label_holder} still asks after {MOST_LEVELS} levels")
