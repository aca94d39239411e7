"""The network in one graph against a trainer without PyTorch: both could not be wrong in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.splitnn.oracle import NaiveNetwork  # noqa: E402
from treetap.neural.centralised import CentralNetwork, Party  # noqa: E402
from treetap.neural.draws import Draws  # noqa: E402
from treetap.neural.inputs import InputScaler  # noqa: E402
from treetap.neural.params import Bottom, SplitnnParams, Top  # noqa: E402
from treetap.tables.features import Held  # noqa: E402
from treetap.tables.reading import Table  # noqa: E402
from treetap.tables.record_ids import Ids  # noqa: E402

pytestmark = pytest.mark.second_tier

RECORDS = 33
BOTTOM = {"default": Bottom(hidden=(6, 5), width=4), "shop": Bottom(width=3)}


@pytest.mark.parametrize(
    ("objective", "classes", "fields"),
    [
        ("multi:softprob", 4, {"optimizer": "sgd", "schedule": "cosine", "weight_decay": 0.01}),
        (
            "multi:softprob",
            4,
            {"optimizer": "adam", "learning_rate": 0.01, "party_dropout": {"shop": 0.4, "telco": 0.7}},
        ),
        ("binary:logistic", 2, {"optimizer": "adam", "weight_decay": 0.01, "schedule": "cosine", "top": Top()}),
        ("binary:logistic", 2, {"optimizer": "sgd", "party_dropout": {"telco": 0.5}}),
        ("reg:squarederror", 0, {"optimizer": "sgd", "momentum": 0.0, "seed": 3}),
        ("reg:squarederror", 0, {"optimizer": "adam", "batch_size": 33, "schedule": "cosine"}),
    ],
)
def test_two_trainers_agree(objective: str, classes: int, fields: dict[str, Any]) -> None:
    """Weights of all parties after two epochs, and scores with and without a party, to 1e-4 of the largest."""
    params = SplitnnParams(
        **{"objective": objective, "epochs": 2, "batch_size": 8, "bottom": BOTTOM, "top": Top((7,)), **fields}
    )
    params.validate()
    draws = np.random.default_rng(5)
    raw = {name: draws.normal(3.0, 2.0, size=(RECORDS, 3)) for name in ("bank", "shop", "telco")}
    raw["shop"][::5, 1] = np.nan
    labels = draws.normal(1e3, 50.0, RECORDS) if params.regression else draws.integers(0, classes, RECORDS)
    naive = NaiveNetwork(params, raw, labels, classes).train()
    tables = {
        name: Table(
            Path("own.csv"), Ids.of(map(str, range(RECORDS))), ["x", "y", "z"], Held(values), None, np.arange(RECORDS)
        )
        for name, values in raw.items()
    }
    inputs = {name: InputScaler.fit(each, np.arange(RECORDS)).apply(each) for name, each in tables.items()}
    parties = [Party(name, own, Draws.reproducible(params.seed, name)) for name, own in inputs.items()]
    central = CentralNetwork(params, parties, labels, classes)
    before = central.weights()
    found = central.train().weights()
    for party, arrays in naive.weights().items():
        assert set(arrays) == set(found[party])
        for name, expected in arrays.items():
            error = np.abs(found[party][name] - expected).max()
            assert error < 1e-4 * np.abs(expected).max(), (party, name)
            assert error < 1e-2 * np.abs(expected - before[party][name]).max(), (party, name)  # both have trained
    for away in (set(), {"shop"}, {"shop", "telco"}):
        expected = naive.scores(away)
        scores = central.scores(inputs, np.arange(RECORDS), frozenset(away))
        assert np.abs(scores - expected).max() < 1e-4 * np.abs(expected).max()
