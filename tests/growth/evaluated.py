"""A world with an eval table: the new records, whose cells may be missing where no cell of the training is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tests.oracle import OracleModel, oracle_predict
from tests.worlds import PARTIES, World, world
from treetap.trees import metrics
from treetap.trees.ensemble import Ensemble
from treetap.trees.params import ForestParams, TreeParams


@dataclass(frozen=True)
class Evaluated:
    """`here`: the world, in which every party has a table `eval`. `labels` (M,): of its records, in order of ids."""

    here: World
    labels: npt.NDArray[Any]

    def metrics(self, oracle: OracleModel, params: TreeParams, rounds: int) -> dict[str, float]:
        """The metrics of the eval table's records after some rounds of the oracle's model."""
        first = OracleModel(oracle.base_margin, oracle.trees_per_round)
        first.averaged = oracle.averaged
        first += oracle[: rounds * oracle.trees_per_round]
        scores = np.array(oracle_predict(first, self.here.newcomers))
        averaged = isinstance(params, ForestParams)
        classes = self.here.classes
        ensemble = Ensemble(params.objective, classes, tuple(oracle.base_margin), (), 1, averaged=averaged)
        found = metrics.evaluate(params.objective, ensemble.outcome(scores), self.labels)
        return {f"eval_{name}": value for name, value in found.items()}


def evaluated(n: int = 60, dims: tuple[int, ...] = (2, 2, 1), *, fresh: int = 30, **more: Any) -> Evaluated:
    """A world with labels for the new records: those of the training's records, drawn anew."""
    return with_eval_table(world(n, dims, fresh=fresh, **more))


def with_eval_table(here: World) -> Evaluated:
    """A world whose new records have labels."""
    n, fresh = len(here.y), len(here.new[0])
    labels = np.random.default_rng(n).permutation(np.resize(here.y, fresh))
    known = {f"r{n + i:05d}": label for i, label in enumerate(labels.tolist())}
    tables = {}
    for party, (columns, content) in here.tables.items():
        table = content["predict"]
        if party == PARTIES[0]:
            table = table.append_column("y", pa.array([known[each] for each in table.column("id").to_pylist()]))
        tables[party] = (columns, {**content, "eval": table})
    return Evaluated(replace(here, tables=tables), labels)
