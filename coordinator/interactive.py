"""Multi-interactive inference: one round per level, over all trees of a block or one tree after the other."""

from __future__ import annotations

from coordinator.alignment import align
from coordinator.attributions import share_names
from coordinator.protocols import PredictionCourse
from coordinator.runtime.answers import answered
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from treetap.errors import ProtocolError
from treetap.wire.v2 import interactive_pb2, prediction_pb2

#: Most levels of a tree: more rounds of queries mean that a party leads the records in circles.
MOST_LEVELS = 64


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> prediction_pb2.OpenedModel:
    """Have the parties load their shards and tables and align the records.

    Returns the label holder's description of the model.
    """
    progress.phase("align")
    opened = await roster.ask_all(roster.names, "open_model", opening)
    await align(roster, roster.names, opening.alignment)
    await share_names(roster, opening)
    found: prediction_pb2.OpenedModel = answered(opening.recipient, opened[opening.recipient], "opened_model")
    return found


async def score(
    roster: Roster,
    opening: prediction_pb2.OpenModel,
    opened: prediction_pb2.OpenedModel,
    block: int,
    progress: Progress,
) -> int:
    """Route one block down the trees; returns the number of blocks.

    At each level the label holder queries the owners of the nodes where records are, and moves the records.
    """
    label_holder = opening.recipient
    most = MOST_LEVELS * (opened.trees if opening.parameters.interactive.form == "per-tree" else 1)
    for level in range(most + 1):
        progress.stage(level)
        answer = await roster.ask(label_holder, "ask_directions", interactive_pb2.AskDirections(), block, level)
        asked: interactive_pb2.AskedDirections = answered(label_holder, answer, "asked_directions")
        owners = list(asked.asked)
        progress.records(asked.done, asked.total)
        if not owners:
            return asked.blocks
        await roster.ask_all(owners, "answer_directions", interactive_pb2.AnswerDirections(), block, level)
        await roster.ask(label_holder, "take_directions", interactive_pb2.TakeDirections(), block, level)
    raise ProtocolError(f"{label_holder} still asks after {most} levels")


COURSE = PredictionCourse(begin, score)
