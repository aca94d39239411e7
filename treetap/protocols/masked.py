"""Prediction with masked sums, by trees whose splits and leaf weights are spread over all parties: its options."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.protocols.messages import (
    MessageRow,
    ScoringSizes,
    Series,
    at_most,
    blocks,
    each_round,
    each_stage,
    label_holder_opens,
    once,
    to_each_other,
    to_label_holder,
)
from treetap.protocols.registry import Options, PredictionProtocol

#: Leaf weights of which scores are made: as trained, or with the noise of the training's release.
WEIGHTS = ("exact", "noised")
#: Most levels of a tree.
MOST_LEVELS = 64
#: Bytes of a node's numbers beside its records.
_NODE = 32


@dataclass(frozen=True)
class MaskedOptions(Options):
    """Of a prediction, see `treetap.protocols.registry.Options`."""

    choices = {"prediction_weights": WEIGHTS}
    prediction_weights: str = ""


@dataclass(kw_only=True)
class MaskedSizes(ScoringSizes):
    """Sizes of a masked prediction; stages are the levels of the trees.

    Attributes:
        held: the most nodes of a level that this party holds.
        outputs: of a score.
    """

    held: int = 0
    outputs: int = 0


def key_of_masks(_sizes: MaskedSizes, _series: Series) -> int:
    """A public key, from which the masks of two parties follow."""
    # Not above: the command line reads this description, and starts faster without the library of keys.
    from treetap.privacy.masks import KEY_BYTES

    return KEY_BYTES


PROTOCOL = PredictionProtocol(
    field="masked",
    summary="masked sums, for models of parties that share the labels",
    options=MaskedOptions,
    block=16_384,
    sends=(
        *blocks("pass_records", "add_shares"),
        MessageRow("mask_key", to_each_other, once, key_of_masks, step="exchange_mask_keys"),
        MessageRow(
            "arrived_records",
            to_each_other,
            each_stage,
            at_most(
                lambda sizes: sizes.held * (sizes.block // 8 + 1 + _NODE),
                "A bit for each record of a block, of each node of a level that the receiver holds.",
            ),
            step="pass_records",
        ),
        MessageRow(
            "score_shares",
            to_label_holder,
            each_round,
            at_most(
                lambda sizes: 8 * sizes.block * sizes.outputs,
                "A number of 64 bits for each output of each record of a block.",
            ),
            step="send_shares",
        ),
    ),
    opens_sums=label_holder_opens,
    roles=("recipient.Recipient", "member.Member"),
)
