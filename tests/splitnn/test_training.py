"""A federation's network is that of one graph, bit by bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.simulator import run
from tests.splitnn.jobs import PARAMS
from tests.splitnn.networks import assert_same_bits, oracle, published, trained
from tests.worlds import world
from treetap.neural.params import SplitnnParams
from treetap.party.defences.settings import Defences

pytestmark = pytest.mark.second_tier

HERE = world(49, (2, 2, 1), seed=3)
TWO = world(49, (2, 2), seed=4)
DROPOUT = {"feature-b": 0.4}
SETTINGS: dict[str, tuple[SplitnnParams, dict[str, Any]]] = {
    "plain": (PARAMS, {}),
    "adam, bfloat16": (replace(PARAMS, optimizer="adam", wire_type="bfloat16", learning_rate=0.01), {}),
    "dropout, cosine": (replace(PARAMS, party_dropout=DROPOUT, schedule="cosine", epochs=3), {}),
    "dimip": (PARAMS, {"dimip": {"feature-b": 0.3}}),
    "noise": (replace(PARAMS, party_dropout=DROPOUT), {"gradient": {"kind": "noise", "scale": 0.01}}),
    "early stopping": (replace(PARAMS, early_stopping_rounds=1, validation_share=0.2, epochs=6, learning_rate=1.0), {}),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_the_federations_weights_are_those_of_one_graph(case: str, tmp_path: Path) -> None:
    """All weights of all parties, whatever optimiser, type, dropout or defence."""
    params, defences = SETTINGS[case]
    own = Defences(**defences)
    status = run(trained(tmp_path, HERE, params, defences={"label-holder": own}))
    assert status.state == "finished", status.error
    network, _ = oracle(tmp_path, HERE, params, own)
    assert_same_bits(published(tmp_path, HERE), network.weights())
    assert status.used_trees == (
        status.stored_trees if params.early_stopping_rounds is None else network.stopping.best_round + 1
    )
