"""What an explained prediction does besides: names of features, and attributions block by block (docs/model.md)."""

from __future__ import annotations

from coordinator.runtime.roster import Roster, together
from treetap.wire.v2 import attributions_pb2, prediction_pb2


async def share_names(roster: Roster, opening: prediction_pb2.OpenModel) -> None:
    """Once, if asked for: every feature party that is there tells the label holder its names, or withholds them."""
    if opening.explain:
        members = [party for party in opening.feature_parties if party not in opening.away]
        naming = roster.ask_all(members, "name_features", prediction_pb2.NameFeatures())
        taking = roster.ask_all([opening.label_holder], "take_names", prediction_pb2.TakeNames())
        await together(taking, naming)


async def attribute(roster: Roster, opening: prediction_pb2.OpenModel, block: int) -> prediction_pb2.ScoredBlock:
    """The attributions of a block that has its scores, along the same chain; returns how far the prediction is then."""
    members, holder = list(opening.feature_parties), opening.label_holder
    masking = roster.ask_all(members, "mask_attributions", attributions_pb2.MaskAttributions(), block)
    sending = roster.ask_all([holder], "attribute_block", attributions_pb2.AttributeBlock(), block)
    answers, _ = await together(sending, masking)
    return answers[holder].prediction.scored_block
