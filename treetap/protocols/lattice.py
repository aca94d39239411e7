"""Fed-EINI on a lattice scheme: it has no options of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treetap.protocols.messages import MessageRow, along_chain, from_last, label_holder_opens, to_feature_parties
from treetap.protocols.registry import PredictionProtocol
from treetap.protocols.scoring import BLOCKS

if TYPE_CHECKING:
    from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class LatticeOptions:
    """See `treetap.protocols.registry.Options`."""

    def completed(self, spec: setup_pb2.JobSpec) -> LatticeOptions:
        """See `Options`."""
        del spec
        return self

    def faults(self) -> list[str]:
        """See `Options`."""
        return []


PROTOCOL = PredictionProtocol(
    field="lattice",
    summary="the same, much faster for many records, if every party has the native kernels",
    options=LatticeOptions,
    block=16_384,  # one ciphertext holds 8,192 or 16,384 records, and a block never has more than it does
    no_degrade="the lattice backend cannot; use protocol eini or interactive, or retry",
    sends=(
        *BLOCKS,
        MessageRow("lattice_key", to_feature_parties),
        MessageRow("column_layout", to_feature_parties),
        MessageRow("lattice_columns", along_chain),
        MessageRow("lattice_sums", from_last),
    ),
    opens_sums=label_holder_opens,
    sends_attributions=(),
    library="",
    extra="",
    kernels=True,
    foreign={
        "scheme": "eini-lattice has a scheme of its own; leave it out",
        "obfuscation": "eini-lattice hides in a way of its own; leave it out",
        "key_bits": "a lattice key has the size that the model asks for; leave it out",
    },
)
