"""Jobs of trees of winsorised labels: see `tests.trainings`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.forest.oracle import forest_train
from tests.oracle import OracleModel, Parties
from tests.trainings import DROPOUT
from tests.worlds import spec
from treetap.protocols.winsorised import WinsorisedParams

PARAMS = WinsorisedParams(n_estimators=4, max_depth=2, max_bin=3, trim=0.1, party_dropout=DROPOUT)
#: Every label is the median.
WITHOUT_SPLITS = replace(PARAMS, trim=0.499, n_estimators=2)
EMITTING = {"two feature parties": spec(WinsorisedParams(n_estimators=3, max_depth=3, max_bin=4))}


def train_naively(parties: Parties, labels: Sequence[Any], params: WinsorisedParams, classes: int = 0) -> OracleModel:
    """The forest of the winsorised labels."""
    return forest_train(parties, list(params.winsorised(labels)), params.of_forest(), classes)
