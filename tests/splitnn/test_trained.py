"""Published networks at work: what their manifests say makes the models again, with the scores of the oracle."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")
import torch

from treetap.errors import DataError
from treetap.neural.centralised import CentralNetwork, Party
from treetap.neural.draws import Draws
from treetap.neural.inputs import InputScaler
from treetap.neural.params import Bottom, SplitnnParams, Top
from treetap.party.splitnn.published import trained_bottom, trained_top
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

pytestmark = pytest.mark.second_tier

HOLDER, B, C = "label-holder", "feature-b", "feature-c"
N = 40
PARAMS = SplitnnParams(
    epochs=2,
    batch_size=8,
    bottom={
        "default": Bottom(hidden=(5,), width=3),
        C: Bottom("resnet", channels=(4,), blocks=(1,), width=2, norm="batch", pool="none"),
    },
    top=Top((4,)),
)


def _table(columns: int, images: bool, seed: int, n: int = N) -> Table:
    rng = np.random.default_rng(seed)
    features = rng.normal(3.0, 2.0, (n, columns))
    features[rng.random((n, columns)) < 0.1] = np.nan
    names = [f"x{k}" for k in range(columns)]
    tensors = {"image": rng.integers(0, 256, (n, 6, 6), dtype=np.uint8)} if images else {}
    ids = [f"r{k:03d}" for k in range(n)]
    return Table(Path("table"), Ids.of(ids), names, Held(features), None, np.arange(n), names, tensors=tensors)


TABLES = {HOLDER: _table(2, False, 1), B: _table(3, False, 2), C: _table(0, True, 3)}


def _trained(params: SplitnnParams, *, columns: bool = True) -> tuple[CentralNetwork, dict[str, Any]]:
    """A network that was trained in one graph, and by party what a prediction opens."""
    scalers = {name: InputScaler.fit(table, np.arange(N)) for name, table in TABLES.items()}
    inputs = {name: scaler.apply(TABLES[name]) for name, scaler in scalers.items()}
    labels = np.random.default_rng(4).integers(0, 2, N).astype(np.float64)
    if params.regression:
        labels = labels * 7.0 + 100.0
    draws = {name: Draws.reproducible(1, name) for name in TABLES}
    parties = [Party(name, inputs[name] if columns or name != HOLDER else None, draws[name]) for name in TABLES]
    network = CentralNetwork(params, parties, labels, 0 if params.regression else 2).train()
    found = {}
    for name, weights in network.weights().items():
        empty = name == HOLDER and not columns
        manifest = {
            "inputs": (InputScaler((), (), (), (), {}) if empty else scalers[name]).to_dict(),
            "bottom": asdict(params.bottom_of(name)),
            "threads": params.threads,
            "feature_parties": [B, C],
            "target": network.objective.to_dict(),
            "top": asdict(params.top),
            "widths": {name: params.bottom_of(name).width for name in (C, B)},
        }
        # The part of an opened model that the models need.
        found[name] = SimpleNamespace(
            manifest=json.loads(json.dumps(manifest)), weights=weights, party=name, name="model"
        )
    return network, found


@pytest.mark.parametrize("columns", [True, False], ids=["with columns", "without"])
@pytest.mark.parametrize("wire_type", ["float32", "bfloat16"])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_the_scores_of_the_oracle(objective: str, wire_type: str, columns: bool) -> None:
    """Other records than those of the training, with all parties and without one: bit by bit the oracle's scores."""
    params = replace(PARAMS, objective=objective, wire_type=wire_type)
    network, opened = _trained(params, columns=columns)
    fresh = {HOLDER: _table(2, False, 11, 1500), B: _table(3, False, 12, 1500), C: _table(0, True, 13, 1500)}
    rows = np.arange(0, 1500, dtype=np.int64)
    top = trained_top(opened[HOLDER])
    top.take(fresh[HOLDER])
    embeddings = {}
    for name in (B, C):
        bottom = trained_bottom(opened[name])
        bottom.take(fresh[name])
        embeddings[name] = bottom.embed(rows, wire_type)
        assert embeddings[name].shape == (1500, top.widths[name])
    inputs = {name: InputScaler.from_dict(each.manifest["inputs"]) for name, each in opened.items()}
    scaled = {name: scaler.apply(fresh[name]) for name, scaler in inputs.items() if columns or name != HOLDER}
    own = top.embed(rows)
    for away in (frozenset[str](), frozenset([B]), frozenset([B, C])):
        left = {name: each for name, each in embeddings.items() if name not in away}
        assert np.array_equal(top.scores(own, left), network.scores(scaled, rows, away))


def test_weights_of_another_model() -> None:
    """A missing, superfluous or misshapen weight is refused by the party's and the model's name."""
    _, opened = _trained(PARAMS)
    for party, name in ((B, "bottom/linear0.weight"), (HOLDER, "top/linear1.bias")):
        load = trained_top if party == HOLDER else trained_bottom
        whole = opened[party].weights
        for weights in (
            {key: each for key, each in whole.items() if key != name},
            {**whole, f"{name}x": np.zeros(2)},
            {**whole, name: np.zeros(3)},
        ):
            opened[party].weights = weights
            with pytest.raises(
                DataError, match=f"^{party}: model model: the weights are not those of this model: .*; bring a back"
            ):
                load(opened[party])  # type: ignore[operator]
        opened[party].weights = whole


def test_one_thread_of_the_job() -> None:
    """Operations use the threads of the job, whatever this process used before."""
    _, opened = _trained(PARAMS)
    bottom = trained_bottom(opened[B])
    bottom.take(TABLES[B])
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    bottom.embed(np.arange(3), "float32")
    assert torch.get_num_threads() == 1
    torch.set_num_threads(before)
