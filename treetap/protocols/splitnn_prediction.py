"""Prediction by split networks: embeddings of a block to the label holder.

Apart from the training's description, which loads arrays and tables: the command line reads this one at each start.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treetap.protocols.messages import MessageRow, label_holder_opens, to_label_holder
from treetap.protocols.registry import PredictionProtocol
from treetap.protocols.scoring import BLOCKS

if TYPE_CHECKING:
    from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class NetworkOptions:
    """See `treetap.protocols.registry.Options`: a prediction follows from the model."""

    def completed(self, spec: setup_pb2.JobSpec) -> NetworkOptions:
        """See `Options`."""
        del spec
        return self

    def faults(self) -> list[str]:
        """See `Options`."""
        return []


PROTOCOL = PredictionProtocol(
    field="splitnn",
    summary="of models of splitnn: embeddings to the label holder",
    options=NetworkOptions,
    block=16_384,
    no_degrade="",
    sends=(*BLOCKS, MessageRow("embeddings", to_label_holder)),
    opens_sums=label_holder_opens,
    sends_attributions=(),
    library="torch",
    extra="neural",
    foreign={
        "form": "a network has no levels to go down; leave it out",
        **dict.fromkeys(("scheme", "key_bits", "obfuscation"), "embeddings are not encrypted; leave it out"),
    },
    of_trees=False,
    roles=("scoring_label_holder.LabelHolder", "scoring_feature_party.FeatureParty"),
    no_explanation="a network has no decision paths, and no feature has a share of an embedding; leave them out",
    no_degraded_serving="",
)
