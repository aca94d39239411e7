"""Fed-EINI inference: one round for a block of records, along the chain of the parties (docs/protocol-eini.md).

The course is the same for both ciphers, sums of ciphertexts (`eini`) and a lattice scheme (`eini-lattice`): the
coordinator sees names and the numbers of blocks and records; no ciphertext.
"""

from __future__ import annotations

from treetap.coordinator.prediction import open_models, score_block
from treetap.coordinator.protocols import PredictionCourse
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.wire.v2 import prediction_pb2


async def begin(roster: Roster, opening: prediction_pb2.OpenModel, progress: Progress) -> None:
    """Have every party open the model, align, make keys."""
    await open_models(roster, opening, progress)
    progress.phase("keys")
    await together(roster.ask(opening.recipient, "make_keys"), roster.ask_all(present(opening), "take_key"))


async def score(roster: Roster, opening: prediction_pb2.OpenModel, _: None, block: int, progress: Progress) -> int:
    """Score one block, and then compute its attributions along the same chain; returns the number of blocks."""
    label_holder, members = opening.recipient, present(opening)
    masking = roster.ask_all(members, "mask_block", round=block)
    blocks = await score_block(roster, label_holder, "score_block", block, masking, progress)
    if opening.attributions:
        masking = roster.ask_all(members, "mask_attributions", round=block)
        blocks = await score_block(roster, label_holder, "attribute_block", block, masking, progress)
    return blocks


PREDICTION = PredictionCourse(begin, score)
