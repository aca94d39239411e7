"""Prediction with masked sums, by trees whose splits and leaf weights are spread over all parties: its options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from treetap.protocols.messages import MessageRow, label_holder_opens, to_each_other, to_label_holder
from treetap.protocols.registry import PredictionProtocol
from treetap.protocols.scoring import BLOCKS

if TYPE_CHECKING:
    from treetap.wire.v2 import setup_pb2

#: Leaf weights of which scores are made: as trained, or with the noise of the training's release.
WEIGHTS = ("exact", "noised")


@dataclass(frozen=True)
class MaskedOptions:
    """See `treetap.protocols.registry.Options`."""

    prediction_weights: str = ""

    def completed(self, spec: setup_pb2.JobSpec) -> MaskedOptions:
        """See `Options`: exact weights."""
        del spec
        return replace(self, prediction_weights=self.prediction_weights or WEIGHTS[0])

    def faults(self) -> list[str]:
        """See `Options`."""
        if self.prediction_weights in WEIGHTS:
            return []
        return [f"prediction_weights = {self.prediction_weights!r}: must be one of {', '.join(WEIGHTS)}"]


PROTOCOL = PredictionProtocol(
    field="masked",
    summary="masked sums, for models of parties that share the labels",
    options=MaskedOptions,
    block=16_384,
    no_degrade="masks cancel only in the sum over all parties, so there is no score without one of them; use retry",
    sends=(
        *BLOCKS,
        MessageRow("mask_key", to_each_other),
        MessageRow("arrived_records", to_each_other),
        MessageRow("score_shares", to_label_holder),
    ),
    opens_sums=label_holder_opens,
    sends_attributions=(),
    library="",
    extra="",
    foreign=dict.fromkeys(("scheme", "key_bits", "obfuscation"), "masked sums encrypt nothing; leave it out"),
    roles=("recipient.Recipient", "member.Member"),
    no_serving="every party would learn when a client asks about which record, and each answer would be a further sum "
    "over the same leaf weights; predict a table",
    no_explanation="no party knows all leaf weights of these models; leave them out",
)
