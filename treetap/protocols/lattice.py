"""Fed-EINI on a lattice scheme."""

from __future__ import annotations

from treetap.protocols.eini import ChainSizes
from treetap.protocols.exclusions import Feature
from treetap.protocols.messages import (
    BLOCK_BYTES,
    MessageRow,
    Series,
    along_chain,
    at_most,
    blocks,
    each_round,
    from_last,
    label_holder_opens,
    once,
    spent,
    to_feature_parties,
)
from treetap.protocols.registry import Needs, Options, PredictionProtocol


def largest_key(_sizes: ChainSizes, _series: Series) -> int:
    """A key of the largest parameters."""
    # Not above: the command line reads this description, and starts faster without the library of numbers.
    from treetap.lattice.parameters import MOST_KEY_BYTES

    return MOST_KEY_BYTES


_COLUMNS = at_most(
    4 * BLOCK_BYTES, "The ciphertexts of a block, which are twice as long once a party has passed them on."
)
PROTOCOL = PredictionProtocol(
    field="lattice",
    summary="the same, much faster for many records, if every party has the native kernels",
    options=Options,
    block=16_384,  # one ciphertext holds 8,192 or 16,384 records, and a block never has more than it does
    sends=(
        *blocks("score_block", "score_block"),
        MessageRow("lattice_key", to_feature_parties, once, largest_key, step="make_keys"),
        MessageRow(
            "column_layout",
            to_feature_parties,
            once,
            at_most(
                lambda sizes: sizes.columns(), "The receiver's branches on the way to each column, no more than leaves."
            ),
            step="make_keys",
        ),
        MessageRow("lattice_columns", along_chain, each_round, _COLUMNS, step="score_block"),
        MessageRow(
            "lattice_sums",
            from_last,
            each_round,
            at_most(lambda sizes: sizes.column_sums, "A ciphertext for each column of the score."),
            step="mask_block",
        ),
    ),
    sends_served=spent("mask_block"),
    opens_sums=label_holder_opens,
    capabilities=frozenset(
        {
            *(Feature.WITHHELD_MODEL, Feature.LEFT_MODEL, Feature.SERVE, Feature.EXPLAIN, Feature.REASONS),
            Feature.LOOK_UP,
        }
    ),
    needs=Needs(kernels=True),
)
