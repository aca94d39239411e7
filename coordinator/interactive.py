"""Multi-interactive inference: one round per level, over all trees of a block or one tree after the other."""

from __future__ import annotations

from coordinator.alignment import align
from coordinator.explain import share_names
from coordinator.progress import Progress
from coordinator.roster import Roster
from treetap.errors import ProtocolError
from treetap.wire.v1 import interactive_pb2

#: No tree is deeper: more rounds would mean that somebody leads the records in circles.
MOST_LEVELS = 64


async def predict(
    roster: Roster, opening: interactive_pb2.OpenModel, progress: Progress
) -> interactive_pb2.WrittenPredictions:
    """Open the model everywhere, align, lead every block down, write.

    1. Parties load their shards and tables and find the records that all of them hold.
    2. Per block and level the label holder asks the owners of the nodes where records stand, and moves them.
    3. The label holder writes the predictions.
    """
    label_holder = opening.label_holder
    progress.phase("align")
    opened = await roster.ask_all(roster.names, "open_model", opening)
    await align(roster, roster.names, opening.alignment)
    most = MOST_LEVELS * (opened[label_holder].opened_model.trees if opening.form == "per-tree" else 1)
    await share_names(roster, opening)
    progress.phase("predict")
    block, blocks = 0, 1
    while block < blocks:
        progress.tree(block, blocks)
        blocks = await _predict_block(roster, label_holder, block, most, progress)
        block += 1
    progress.phase("write")
    written = await roster.ask(label_holder, "write_predictions", interactive_pb2.WritePredictions())
    return written.written_predictions


async def _predict_block(roster: Roster, label_holder: str, block: int, most: int, progress: Progress) -> int:
    """Lead one block down in at most so many rounds; returns how many blocks there are."""
    for level in range(most + 1):
        progress.depth(level)
        answer = await roster.ask(label_holder, "ask_directions", interactive_pb2.AskDirections(), block, level)
        owners = list(answer.asked_directions.asked)
        progress.records(answer.asked_directions.done, answer.asked_directions.total)
        if not owners:
            return answer.asked_directions.blocks
        await roster.ask_all(owners, "answer_directions", interactive_pb2.AnswerDirections(), block, level)
        await roster.ask(label_holder, "take_directions", interactive_pb2.TakeDirections(), block, level)
    raise ProtocolError(f"{label_holder} still asks after {most} levels")
