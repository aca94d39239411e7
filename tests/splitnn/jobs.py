"""Jobs of split networks: see `tests.trainings`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.worlds import PARTIES, SIX, World, spec
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams, Top
from treetap.wire.v2 import setup_pb2

#: Two epochs of five batches, the last of them of one record, which joins the one before it.
PARAMS = SplitnnParams(
    epochs=2,
    batch_size=12,
    learning_rate=0.1,
    bottom={DEFAULT: Bottom(hidden=(5,), width=4), PARTIES[0]: Bottom(width=3)},
    top=Top((6,)),
    reproducible=True,
)
#: What the parties' policies need.
EMITS: dict[str, dict[str, Any]] = {
    PARTIES[0]: {"emits": {"EMBEDDING_GRADIENT": ["parties"]}, "networks": {"reproducible": True}},
    **{name: {"emits": {"EMBEDDING": [PARTIES[0]]}, "networks": {"reproducible": True}} for name in SIX[1:]},
}


EMITTING = {
    "two feature parties": spec(PARAMS),
    "one by psi": spec(PARAMS, parties=2, alignment="psi"),
    "early stopping": spec(replace(PARAMS, early_stopping_rounds=1, validation_share=0.2)),
}


def policies(_job: setup_pb2.JobSpec) -> dict[str, dict[str, Any]]:
    """Lines of the parties' policies."""
    return EMITS


def fitting(here: World, _params: SplitnnParams) -> World:
    """Any world."""
    return here
