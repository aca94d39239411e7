"""Fed-EINI under Paillier (Chen et al. 2021): its options."""

from __future__ import annotations

from dataclasses import dataclass

from treetap.protocols.paillier_options import key_faults
from treetap.protocols.registry import PredictionProtocol
from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class EiniOptions:
    """See `treetap.protocols.registry.Options`; as in the training job where nothing is said."""

    key_bits: int = 0
    obfuscation: str = ""

    def completed(self, spec: setup_pb2.JobSpec) -> EiniOptions:
        """See `Options`."""
        return EiniOptions(self.key_bits or spec.key_bits, self.obfuscation or spec.obfuscation)

    def faults(self) -> list[str]:
        """See `Options`."""
        return key_faults(self.key_bits, self.obfuscation)


PROTOCOL = PredictionProtocol(
    field="eini",
    options=EiniOptions,
    block=1024,  # entries are many and large
    encrypted=True,
    no_degrade="",
    attributes=True,
    foreign={},
)
