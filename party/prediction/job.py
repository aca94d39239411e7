"""A prediction as one party is given it: what every role of a protocol that predicts is made of."""

from __future__ import annotations

from dataclasses import dataclass

from party.config import PartyConfig
from party.runtime.context import StepContext
from party.runtime.job_store import Store
from party.serving.registry import ServedModels
from treetap.protocols.prediction import present
from treetap.wire.v2 import prediction_pb2


@dataclass(frozen=True)
class PredictionJob:
    """One attempt at a prediction at one party; `served_models`: the registry that clients of this party ask."""

    config: PartyConfig
    store: Store
    context: StepContext
    opening: prediction_pb2.OpenModel
    served_models: ServedModels

    @property
    def chain(self) -> list[str]:
        """The feature parties that are present, in the order of the chain."""
        return present(self.opening)
