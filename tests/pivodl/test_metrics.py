"""Metrics of a training: sums under masks, in the label's own unit whatever that is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.pivodl.federations import centralised, federation_of, job_of, transparent
from tests.pivodl.worlds import OBJECTIVES, binned, some_params, some_world
from tests.simulator import finished, run
from tests.worlds import World, spread
from treetap.trees.pivodl_params import PivodlParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")


def _metrics(folder: Path, here: World, params: PivodlParams) -> dict[str, float]:
    """The last metrics that the coordinator reports of a training."""
    found: dict[str, float] = {}

    async def main() -> None:
        job = job_of(here, params)
        federation = federation_of(folder, here, job)
        status = finished(await federation.train(job))
        found.update({each.name: each.value for each in status.metrics})

    with transparent():
        run(main())
    return found


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("unit", [1.0, 1e7])
def test_the_error_of_a_regression_is_in_the_unit_of_the_label(unit: float, tmp_path: Path) -> None:
    """Labels of tens of millions have squares that no masked sum of their own unit would hold."""
    params = some_params(2, **OBJECTIVES["squared error"])
    here = some_world(2, params.objective, 3)
    here = spread(replace(here, y=here.y * unit), [place % 3 for place in range(len(here.y))])
    model = centralised(here, params)
    scores = model.predict(binned(here, params))
    expected = float(np.sqrt(np.mean((model.outcome(scores) - here.y) ** 2)))
    assert _metrics(tmp_path, here, params)["train_rmse"] == pytest.approx(expected, rel=1e-4)
