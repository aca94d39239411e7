"""Fed-EINI (Chen et al. 2021) with sums of ciphertexts: its options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treetap.protocols.key_options import PAILLIER, KeyKind, key_faults
from treetap.protocols.messages import (
    PUBLIC_KEY,
    MessageRow,
    along_chain,
    from_last,
    label_holder_opens,
    to_feature_parties,
    to_first,
)
from treetap.protocols.registry import PredictionProtocol
from treetap.protocols.scoring import BLOCKS

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
    no_degrade="",
    sends=(
        *PUBLIC_KEY,
        *BLOCKS,
        MessageRow("entry_layout", to_feature_parties),
        MessageRow("constant_entries", to_first),
        MessageRow("leaf_entries", along_chain),
        MessageRow("leaf_sums", from_last),
    ),
    opens_sums=label_holder_opens,
    sends_attributions=(
        MessageRow("attribution_layout", to_feature_parties),
        MessageRow("constant_attributions", to_first),
        MessageRow("attribution_entries", along_chain),
        MessageRow("attribution_sums", from_last),
    ),
    library="",
    extra="",
    foreign={},
)
