"""Prediction by split networks: embeddings of a block to the label holder.

Apart from the training's description, which loads arrays and tables: the command line reads this one at each start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treetap.protocols.exclusions import Feature
from treetap.protocols.messages import (
    JobSizes,
    MessageRow,
    Series,
    blocks,
    each_round,
    label_holder_opens,
    spent,
    to_label_holder,
)
from treetap.protocols.registry import Needs, Options, PredictionProtocol

#: Bytes of a short message beside its numbers, as a mailbox counts them.
_MESSAGE = 384


@dataclass(kw_only=True)
class NetworkSizes(JobSizes):
    """Sizes of a job of a network, in training and in predictions.

    Attributes:
        widths: of the embeddings, by feature party.
        wire_type: of their numbers.
        rows: most records of a batch or block.
        held: validation records.
        blocks: of these, which may go one by one.
    """

    widths: Mapping[str, int]
    wire_type: str
    rows: int
    held: int = 0
    blocks: int = 0

    def numbers(self, party: str, rows: int, blocks: int = 1) -> int:
        """Bytes of the numbers of some rows of a party's embeddings."""
        from treetap.neural.params import NUMBER_BYTES  # not above: the command line reads this module at each start

        return rows * self.widths[party] * NUMBER_BYTES[self.wire_type] + blocks * _MESSAGE


def embeddings_of_rows(sizes: NetworkSizes, series: Series) -> int:
    """The sender's embedding of each record of a batch or block, or of each validation record."""
    held = sizes.numbers(series.sender, sizes.held, sizes.blocks)
    return max(sizes.numbers(series.sender, sizes.rows), held)


PROTOCOL = PredictionProtocol(
    field="splitnn",
    summary="of models of splitnn: embeddings to the label holder",
    options=Options,
    block=16_384,
    sends=(
        *blocks("embed_block", "embed_block"),
        MessageRow("embeddings", to_label_holder, each_round, embeddings_of_rows, step="embed_block"),
    ),
    sends_served=spent("embed_block"),
    opens_sums=label_holder_opens,
    capabilities=frozenset({Feature.SERVE, Feature.DEGRADE, Feature.SERVE_DEGRADED}),
    needs=Needs("torch", "neural"),
    of_trees=False,
    roles=("scoring_label_holder.LabelHolder", "scoring_feature_party.FeatureParty"),
)
