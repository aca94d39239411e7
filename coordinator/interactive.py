"""Multi-interactive inference: one round per level, over all trees of a block or one tree after the other.

Owners that a level asks follow from the trees alone, so that they are the same in every block. A served model's first
block shows them; from then on a block is one step for each party, and messages between parties are what they wait for.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from treetap.coordinator.prediction import open_models
from treetap.coordinator.protocols import PredictionCourse
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.errors import ProtocolError
from treetap.process.together import together
from treetap.protocols.interactive import asked_stages
from treetap.wire.v2 import interactive_pb2, prediction_pb2


@dataclass
class Opened:
    """What blocks have in common: most levels of queries, and, once a block is done, the owners that each asks."""

    most: int
    owners: list[list[str]] = field(default_factory=list)


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> Opened:
    """Have the parties load their shards and tables and align the records."""
    model = await open_models(roster, opening, progress)
    # more rounds of queries mean that a party leads the records in circles
    return Opened(asked_stages(model.trees if opening.parameters.interactive.form == "per-tree" else 1))


async def score(
    roster: Roster, opening: prediction_pb2.OpenModel, opened: Opened, block: int, progress: Progress
) -> int:
    """Route one block down the trees; returns the number of blocks.

    At each level the label holder queries the owners of the nodes where records are, and moves the records.
    """
    if opening.serve and opened.owners:
        return await _route_known(roster, opening.recipient, opened.owners, block, progress)
    label_holder = opening.recipient
    owners: list[list[str]] = []
    for level in range(opened.most + 1):
        # Have the label holder follow its own splits and query the owners of a level.
        progress.stage(level)
        answer = await roster.ask(label_holder, "ask_directions", interactive_pb2.AskDirections(), block, level)
        asked: interactive_pb2.AskedDirections = answered(label_holder, answer, "asked_directions")
        progress.records(asked.done, asked.total)
        if not asked.asked:
            opened.owners = owners
            return asked.blocks
        owners.append(list(asked.asked))
        await roster.ask_all(asked.asked, "answer_directions", interactive_pb2.AnswerDirections(), block, level)
        await roster.ask(label_holder, "take_directions", interactive_pb2.TakeDirections(), block, level)
    raise ProtocolError(f"{label_holder} still asks after {opened.most} levels")


async def _route_known(
    roster: Roster, label_holder: str, owners: list[list[str]], block: int, progress: Progress
) -> int:
    """Route a block whose owners are known: one step for the label holder and each owner, all at once."""
    stages: dict[str, list[int]] = {}
    for level, asked in enumerate(owners):
        for party in asked:
            stages.setdefault(party, []).append(level)
    answer, *_ = await together(
        roster.ask(label_holder, "route_block", interactive_pb2.RouteBlock(), block),
        *(
            roster.ask(party, "answer_block", interactive_pb2.AnswerBlock(stages=levels), block)
            for party, levels in stages.items()
        ),
    )
    routed: interactive_pb2.RoutedBlock = answered(label_holder, answer, "routed_block")
    if [list(stage.asked) for stage in routed.stages] != owners:
        raise ProtocolError(f"{label_holder} asked other parties than in earlier blocks")
    progress.records(routed.done, routed.total)
    return routed.blocks


PREDICTION = PredictionCourse(begin, score)
