"""A prediction as one party is given it, and the rows of the tables of steps that every role of a prediction has."""

from __future__ import annotations

from dataclasses import dataclass

from party.alignment.steps import ALIGNMENT
from party.config import PartyConfig
from party.runtime.context import StepContext
from party.runtime.job_store import Store
from party.runtime.step_order import NEXT_ROUND, NEXT_STAGE, OPENING, THIS_ROUND, Conditions, Next, StepTable
from party.serving.registry import ServedModels
from treetap.protocols.prediction import present
from treetap.wire.v2 import prediction_pb2

#: The phase in which names of features are sent; it has no step without `explain`.
NAMES = "names"
#: Conditions: properties of the prediction.
BATCH = "the records are those of a table"
SERVED = "the records are those of clients' requests"
ATTRIBUTED = "attributions are asked for"
UNATTRIBUTED = "no attributions are asked for"
#: Outcomes of `await_requests`.
REQUESTED = "clients have asked"
UNREQUESTED = "no client has asked"
#: Outcomes of the last step of a block.
MORE_BLOCKS = "the block is done and another one follows"
LAST_BLOCK = "the last block is done"
ANSWERED = "the block is done and its clients are answered"
#: From the opening to the common records and the names of features.
OPENING_ROWS: StepTable = {OPENING: (Next("open_model"),), ALIGNMENT: (Next(NAMES),)}


def first_block(step: str) -> tuple[Next, ...]:
    """The row of the label holder's last step before the blocks; `step`: the first step of a block."""
    return Next(step, when=BATCH), Next("await_requests", when=SERVED)


def requested_block(step: str) -> tuple[Next, ...]:
    """The row of `await_requests`; `step`: the first step of a block."""
    return Next(step, THIS_ROUND, REQUESTED), Next("await_requests", NEXT_STAGE, UNREQUESTED)


def after_batch_block(step: str) -> tuple[Next, ...]:
    """The row of the label holder's last step of a block of a table; `step`: the first step of the next one."""
    return Next(step, NEXT_ROUND, MORE_BLOCKS), Next("write_predictions", when=LAST_BLOCK)


def after_block(step: str) -> tuple[Next, ...]:
    """The row of the label holder's last step of any block; `step`: the first step of the next one."""
    return *after_batch_block(step), Next("await_requests", NEXT_ROUND, ANSWERED)


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

    @property
    def conditions(self) -> Conditions:
        """The conditions in the rows of steps."""
        serve, attributions = self.opening.serve, self.opening.attributions
        return {
            BATCH: lambda _: not serve,
            SERVED: lambda _: serve,
            ATTRIBUTED: lambda _: attributions,
            UNATTRIBUTED: lambda _: not attributions,
        }
