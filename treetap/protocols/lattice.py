"""Fed-EINI on a lattice scheme: it has no options of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from treetap.protocols.emissions import BLOCKS, Emission, along_chain, from_last, label_holder_opens, to_feature_parties
from treetap.protocols.exclusions import Feature
from treetap.protocols.registry import Needs, PredictionProtocol

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
    sends=(
        *BLOCKS,
        Emission("lattice_key", to_feature_parties),
        Emission("column_layout", to_feature_parties),
        Emission("lattice_columns", along_chain),
        Emission("lattice_sums", from_last),
    ),
    opens_sums=label_holder_opens,
    capabilities=frozenset({Feature.SERVE, Feature.EXPLAIN}),
    needs=Needs(kernels=True),
)
