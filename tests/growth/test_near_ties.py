"""Candidates whose scores floats cannot tell apart: the trainer, the federation and fractions name one winner."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.library.trees.same import differences
from tests.library.trees.tables import encoded
from tests.oracle import OracleSplit
from tests.simulator import Federation, finished
from tests.worlds import PARTIES, World, assert_oracles_model, spec, weighted
from treetap.arrays import Ints
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.centralised import train
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams

#: Weights have 20 bits before the point and 32 behind it; the largest residual is 2^10.
HEAVIEST, SCALE = 1 << 20, 1 << 10
PARAMS = BoostingParams(
    n_estimators=1, max_depth=1, objective="reg:squarederror", base_score=0.0, max_sample_weight=float(HEAVIEST)
)


def near_ties(seed: int) -> Iterator[tuple[Ints, int]]:
    """g and h (4, 2) of records, and the place of the winner among two columns, which floats get wrong.

    Records 0 and 1 are left by the first column, 0 and 2 by the second. Their scores differ by some 2^-54 of them.
    """
    rng, criterion = np.random.default_rng(seed), BoostingCriterion(float(SCALE), PARAMS)
    while True:
        values = np.stack(
            [rng.integers(-UNIT, UNIT, 4), rng.integers(HEAVIEST * UNIT // 2, HEAVIEST * UNIT, 4)], axis=1
        )
        left, right = values[:2].sum(axis=0).astype(float), values[2:].sum(axis=0).astype(float)
        weights = left[0] / left[1], right[0] / right[1]
        # the score's slope is 2w_L − 2w_R in Σg, and w_R² − w_L² in Σh: one unit of g against so many of h
        step = int(rng.integers(1, 1 << 6))
        moved = np.array([step, round(2 * step / sum(weights))])
        total = values[2:].sum(axis=0)
        values[2] = values[1] + moved
        values[3] = total - values[2]
        if not (abs(values[:, 0]).max() * 2 > UNIT >= abs(values[:, 0]).max()):
            continue  # or the scale is another
        if values[:, 1].min() < UNIT or values[:, 1].max() > HEAVIEST * UNIT:
            continue
        sums = np.column_stack([values, np.ones(4, dtype=np.int64)])
        lefts, whole = np.stack([sums[[0, 1]].sum(axis=0), sums[[0, 2]].sum(axis=0)]), sums.sum(axis=0)
        scores = [_score(left.tolist(), whole.tolist()) for left in lefts]
        best = criterion.choose(list(criterion.gains(lefts[None], whole[None])[0][:, None]))
        winner = int(scores[1] > scores[0])
        if best is not None and scores[0] != scores[1] and best[0] != winner:
            yield values, winner


def _score(left: list[int], whole: list[int]) -> Fraction:
    (x, y, _), (X, Y, _) = left, whole
    return Fraction(x * x, y + UNIT) + Fraction((X - x) ** 2, Y - y + UNIT)


def _world(values: Ints) -> World:
    """Records with such g and h: a weight is h, a label −g/h."""
    weights = values[:, 1] / UNIT
    labels = -values[:, 0] / UNIT * SCALE / weights
    blocks = [np.array([[0.0], [0.0], [1.0], [1.0]]), np.array([[0.0], [1.0], [0.0], [1.0]])]
    ids = [f"r{i:05d}" for i in range(4)]
    tables = {
        name: (["x"], {"train": pa.table({"id": ids, "x": block[:, 0]})})
        for name, block in zip(PARTIES, blocks, strict=False)
    }
    holder = tables[PARTIES[0]]
    holder[1]["train"] = holder[1]["train"].append_column("y", pa.array(labels))
    return weighted(World(tables, blocks, labels, blocks, 2), weights)


def test_trainer_and_oracle_are_right_where_floats_are_wrong() -> None:
    """Of either column as the winner some cases in which floats name the other one, or the first."""
    won = [0, 0]
    for _, (values, winner) in zip(range(30), near_ties(3), strict=False):
        here = _world(values)
        model = train(encoded(here.parties, 4), here.y, PARAMS, weights=here.weights)
        (split,) = model.ensemble.trees[0].splits
        assert split.owner == PARTIES[winner]
        assert differences(model, here.oracle(PARAMS)) == ""
        won[winner] += 1
    assert min(won) > 0


@pytest.mark.parametrize("winner", [0, 1])
async def test_a_federation_finds_the_same_winner(winner: int, tmp_path: Path) -> None:
    """The label holder's column, and the other party's."""
    values = next(values for values, best in near_ties(5) if best == winner)
    here = _world(values)
    federation = Federation(tmp_path, here.tables)
    finished(await federation.train(spec(PARAMS, 2)))
    oracle = here.oracle(PARAMS)
    root = oracle[0].nodes[1]
    assert isinstance(root, OracleSplit)
    assert root.owner == PARTIES[winner]
    assert_oracles_model(federation.states, oracle)
