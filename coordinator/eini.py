"""Fed-EINI inference: one round for a block of records, along the chain of the parties (docs/protocol-eini.md).

The course is the same for both backends, schemes that add up (`eini`) and lattices (`eini-lattice`).

The coordinator sees names and the numbers of blocks and records; no ciphertext.
"""

from __future__ import annotations

from coordinator.attributions import attribute, share_names
from coordinator.opened_models import open_models
from coordinator.protocols import PredictionCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, answered
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.wire.v2 import eini_pb2, prediction_pb2, setup_pb2


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> prediction_pb2.OpenedModel:
    """Have every party open the model, align, make keys; returns the label holder's description of the model."""
    label_holder, members = opening.recipient, present(opening)
    found = await open_models(roster, opening, progress)
    await share_names(roster, opening)
    progress.phase("keys")
    making = roster.ask(label_holder, "make_keys", setup_pb2.MakeKeys())
    await together(making, roster.ask_all(members, "take_key", setup_pb2.TakeKey()))
    return found


async def score(
    roster: Roster,
    opening: prediction_pb2.OpenModel,
    _opened: prediction_pb2.OpenedModel,
    block: int,
    progress: Progress,
) -> int:
    """Score one block; returns the number of blocks.

    The parties work on a block at the same time: each sends on what it has received while the label holder still
    encrypts the rest. One block is under way at a time, so no party holds more than a block.
    """
    label_holder, members = opening.recipient, present(opening)
    masking = roster.ask_all(members, "mask_block", eini_pb2.MaskBlock(), block)
    scoring = roster.ask_all([label_holder], "score_block", eini_pb2.ScoreBlock(), block)
    answers, _ = await together(scoring, masking)
    scored: prediction_pb2.ScoredBlock = answered(label_holder, answers[label_holder], "scored_block")
    if opening.attributions:
        scored = await attribute(roster, opening, block)
    progress.records(scored.done, scored.total)
    return scored.blocks


COURSE = PredictionCourse(begin, score)
