"""Additional steps of an explained prediction: feature names, and attributions block by block (docs/model.md)."""

from __future__ import annotations

from coordinator.runtime.roster import Roster, answered
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.wire.v2 import attributions_pb2, prediction_pb2


async def share_names(roster: Roster, opening: prediction_pb2.OpenModel) -> None:
    """If names are requested, have every present feature party send them to the label holder or withhold them."""
    if opening.explain:
        naming = roster.ask_all(present(opening), "name_features", prediction_pb2.NameFeatures())
        taking = roster.ask_all([opening.recipient], "take_names", prediction_pb2.TakeNames())
        await together(taking, naming)


async def attribute(roster: Roster, opening: prediction_pb2.OpenModel, block: int) -> prediction_pb2.ScoredBlock:
    """Compute the attributions of a scored block along the same chain; returns the state of the prediction after it."""
    members, holder = list(opening.feature_parties), opening.recipient
    masking = roster.ask_all(members, "mask_attributions", attributions_pb2.MaskAttributions(), block)
    sending = roster.ask_all([holder], "attribute_block", attributions_pb2.AttributeBlock(), block)
    answers, _ = await together(sending, masking)
    scored: prediction_pb2.ScoredBlock = answered(holder, answers[holder], "scored_block")
    return scored
