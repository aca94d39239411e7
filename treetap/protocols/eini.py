"""Fed-EINI (Chen et al. 2021) with sums of ciphertexts: its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treetap.protocols.emissions import (
    BLOCKS,
    PUBLIC_KEY,
    Emission,
    along_chain,
    from_last,
    label_holder_opens,
    to_feature_parties,
    to_first,
)
from treetap.protocols.exclusions import Feature
from treetap.protocols.key_options import PAILLIER, KeyKind, key_faults
from treetap.protocols.registry import PredictionProtocol

if TYPE_CHECKING:
    from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class EiniOptions:
    """See `treetap.protocols.registry.Options`; by default as in the training job."""

    key_bits: int = 0
    obfuscation: str = ""
    scheme: str = ""

    def completed(self, spec: setup_pb2.JobSpec) -> EiniOptions:
        """See `Options`."""
        return EiniOptions(
            self.key_bits or spec.key_bits,
            self.obfuscation or spec.obfuscation,
            self.scheme or KeyKind.of(spec).scheme,
        )

    def faults(self) -> list[str]:
        """See `Options`."""
        return key_faults(self.scheme or PAILLIER, self.key_bits, self.obfuscation)


PROTOCOL = PredictionProtocol(
    field="eini",
    summary="encrypted, without decision paths",
    options=EiniOptions,
    block=1024,  # entries are many and large
    sends=(
        *PUBLIC_KEY,
        *BLOCKS,
        Emission("entry_layout", to_feature_parties),
        Emission("constant_entries", to_first),
        Emission("leaf_entries", along_chain),
        Emission("leaf_sums", from_last),
    ),
    opens_sums=label_holder_opens,
    sends_attributions=(
        Emission("attribution_layout", to_feature_parties),
        Emission("constant_attributions", to_first),
        Emission("attribution_entries", along_chain),
        Emission("attribution_sums", from_last),
    ),
    capabilities=frozenset({Feature.SERVE, Feature.DEGRADE, Feature.EXPLAIN, Feature.ATTRIBUTIONS}),
)
