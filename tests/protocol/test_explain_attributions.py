"""Attributions of a Fed-EINI prediction: what they are, what crosses, who allows them, and what a lie does."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.protocol.explained import Joined
from tests.protocol.test_boosting_oracle import OBJECTIVES
from tests.protocol.worlds import FOUR, assert_oracles_scores, spec, world
from tests.simulator import Federation, run
from treetap.trees.forestparams import ForestParams
from treetap.trees.params import BoostingParams
from treetap.wire.jobspec import Params
from treetap.wire.v1 import exchange_pb2, jobs_pb2

LABEL_HOLDER, *CHAIN = FOUR
ALLOWED: dict[str, dict[str, Any]] = {party: {"emits": {"EXPLANATION": ["parties"]}} for party in CHAIN}
ASKED = jobs_pb2.PredictRequest(model="job", protocol="eini", attributions=True, block=5)
MODELS: dict[str, Params] = {
    **{
        name: replace(BoostingParams(n_estimators=2, max_depth=3, max_bin=6), **changes)
        for name, changes in OBJECTIVES.items()
    },
    "forest of classes": ForestParams(criterion="gini", n_estimators=3, max_depth=3, max_bin=6),
    "forest of numbers": ForestParams(criterion="squared_error", n_estimators=3, max_depth=3, max_bin=6),
}
SHAPES: dict[str, tuple[int, ...]] = {"two parties": (2, 3), "a chain of two": (2, 2, 2), "no own columns": (0, 2, 2)}


def _world(params: Params, dims: tuple[int, ...], **changes: Any) -> Any:
    objective = params.objective if isinstance(params, BoostingParams) else "multi:softprob"
    if isinstance(params, ForestParams) and params.criterion == "squared_error":
        objective = "reg:squarederror"
    classes = 3 if objective == "multi:softprob" else 2
    return world(50, dims, objective=objective, classes=classes, missing=0.15, **changes)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("model", MODELS)
def test_they_are_the_values_in_the_clear(model: str, shape: str, tmp_path: Path) -> None:
    """Every objective, forests, one feature party and two: the joined model's Shapley values to 1e-9, and its scores."""
    params, dims = MODELS[model], SHAPES[shape]
    here = _world(params, dims)

    async def main() -> None:
        federation = Federation(tmp_path, here.tables, policies=ALLOWED)
        assert (await federation.train(spec(params, len(dims), obfuscation="standard"))).state == "finished"
        status = await federation.predict(ASKED)
        assert (status.state, status.error) == ("finished", "")
        assert_oracles_scores(status.predictions, here.oracle(params), here.newcomers, len(here.y))
        joined = Joined(federation.states, here)
        exact = joined.attributions()
        table = pq.read_table(status.attributions)
        outputs = len(exact.expected)
        assert table.num_rows == joined.n * outputs
        assert ("class" in table.column_names) == (outputs > 1)
        named = [player if player.startswith("own:") else f"party:{player}" for player in exact.players]
        assert [name for name in table.column_names if ":" in name] == named
        for k, name in enumerate(named):
            found = table.column(name).to_numpy().reshape(joined.n, outputs)
            np.testing.assert_allclose(found, exact.values[:, k], rtol=0, atol=1e-9)
        whole = np.sum([table.column(name).to_numpy() for name in ("expected", *named)], axis=0)
        np.testing.assert_allclose(whole, table.column("score").to_numpy(), rtol=0, atol=1e-8)
        assert np.abs(exact.values).max() > 1e-3
        for party in federation.states:
            assert federation.node(party)._engine._state == {}  # type: ignore[attr-defined]
        await federation.close()

    run(main())
