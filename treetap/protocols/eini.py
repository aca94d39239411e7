"""Fed-EINI (Chen et al. 2021) with sums of ciphertexts: its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treetap.protocols.exclusions import Feature
from treetap.protocols.key_options import KEY_BITS, OBFUSCATIONS, PAILLIER, KeyKind, key_faults
from treetap.protocols.messages import (
    BLOCK_BYTES,
    MOST_ATTRIBUTING,
    PUBLIC_KEY,
    MessageRow,
    ScoringSizes,
    along_chain,
    at_most,
    blocks,
    each_round,
    from_last,
    label_holder_opens,
    once,
    spent,
    to_feature_parties,
    to_first,
)
from treetap.protocols.registry import Options, PredictionProtocol

if TYPE_CHECKING:
    from treetap.wire.v2 import setup_pb2

#: Most bytes of entries that come once, where their number is not known beforehand.
CONSTANT_BYTES = 16 * BLOCK_BYTES


@dataclass(frozen=True)
class EiniOptions(Options):
    """See `treetap.protocols.registry.Options`; by default as in the training job, or a common key if it had no
    Paillier key.
    """

    key_bits: int = 0
    obfuscation: str = ""

    def completed(self, spec: setup_pb2.JobSpec) -> EiniOptions:
        by_paillier = KeyKind.of(spec).scheme == PAILLIER
        bits, obfuscation = (spec.key_bits, spec.obfuscation) if by_paillier else (KEY_BITS, OBFUSCATIONS[0])
        return EiniOptions(self.key_bits or bits, self.obfuscation or obfuscation)

    def faults(self) -> list[str]:
        return key_faults(PAILLIER, self.key_bits, self.obfuscation)


@dataclass(kw_only=True)
class ChainSizes(ScoringSizes):
    """Sizes of a prediction along a chain.

    Attributes:
        attributed: ciphertexts of a record's attributions that come here, entries or sums; 0 until they are laid out.
        column_sums: bytes of the sums of a block under the lattice scheme.
    """

    attributed: int = 0
    column_sums: int = 0


_CONSTANTS = at_most(CONSTANT_BYTES, "Ciphertexts of as many blocks as the layout may have entries.")
PROTOCOL = PredictionProtocol(
    field="eini",
    summary="encrypted, without decision paths",
    options=EiniOptions,
    block=1024,  # entries are many and large
    sends=(
        *PUBLIC_KEY,
        *blocks("score_block", "score_block"),
        MessageRow(
            "entry_layout",
            to_feature_parties,
            once,
            at_most(lambda sizes: sizes.layout(1), "The entry of each leaf, as it comes and as it goes on."),
            step="make_keys",
        ),
        MessageRow(
            "constant_entries",
            to_first,
            once,
            at_most(
                lambda sizes: min(CONSTANT_BYTES, sizes.leaves * sizes.ciphertext_bytes), "A ciphertext for each leaf."
            ),
            step="make_keys",
        ),
        MessageRow(
            "leaf_entries",
            along_chain,
            each_round,
            at_most(
                lambda sizes: max(BLOCK_BYTES, sizes.leaves * sizes.ciphertext_bytes),
                "A ciphertext for each leaf of each record of a block, no more than fit but of one record.",
            ),
            step="score_block",
        ),
        MessageRow(
            "leaf_sums",
            from_last,
            each_round,
            at_most(lambda sizes: sizes.block * sizes.ciphertext_bytes, "A ciphertext for each record of a block."),
            step="mask_block",
        ),
    ),
    sends_served=spent("mask_block"),
    opens_sums=label_holder_opens,
    sends_attributions=(
        MessageRow(
            "attribution_layout",
            to_feature_parties,
            once,
            at_most(
                lambda sizes: sizes.layout(1 << MOST_ATTRIBUTING),
                "An entry for each leaf and each set of feature parties on its way.",
            ),
            step="make_keys",
        ),
        MessageRow("constant_attributions", to_first, once, _CONSTANTS, step="make_keys"),
        MessageRow(
            "attribution_entries",
            along_chain,
            each_round,
            at_most(
                lambda sizes: max(BLOCK_BYTES, sizes.attributed * sizes.ciphertext_bytes),
                "The ciphertexts of each entry of each record of a block, no more than fit but of one record.",
            ),
            step="attribute_block",
        ),
        MessageRow(
            "attribution_sums",
            from_last,
            each_round,
            at_most(
                lambda sizes: sizes.block * sizes.attributed * sizes.ciphertext_bytes,
                "As many ciphertexts for each record of a block as the values of all players need.",
            ),
            step="mask_attributions",
        ),
    ),
    capabilities=frozenset(
        {
            *(Feature.WITHHELD_MODEL, Feature.LEFT_MODEL, Feature.SERVE, Feature.REASONS),
            Feature.LOOK_UP,
            *(Feature.DEGRADE, Feature.EXPLAIN, Feature.ATTRIBUTIONS),
        }
    ),
)
