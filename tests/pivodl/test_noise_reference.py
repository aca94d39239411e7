"""With noise the federation is the centralised trainer that is given the same noise: it adds nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pivodl.federations import assert_central_model, federation_of, job_of, released, transparent
from tests.pivodl.worlds import OBJECTIVES, binned, some_params, some_world
from tests.simulator import run
from tests.worlds import World
from treetap.trees.centralised_pivodl import train
from treetap.trees.pivodl_params import PivodlParams

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit Paillier key")


def _trained(folder: Path, here: World, params: PivodlParams) -> dict[str, Path]:
    """The folders of the parties of a federation that has trained."""

    async def main() -> dict[str, Path]:
        job = job_of(here, params)
        federation = federation_of(folder, here, job)
        assert (await federation.train(job)).state == "finished"
        return federation.states

    return run(main())


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_federation_is_the_centralised_model_of_the_same_noise(objective: str, tmp_path: Path) -> None:
    """Split for split, bit for bit; without the noise its splits are others."""
    params = some_params(7, **OBJECTIVES[objective], epsilon=8.0, n_estimators=3, max_depth=2, gamma=0.0)
    here = some_world(7, params.objective, 4)
    with transparent():
        states = _trained(tmp_path, here, params)
    found = released(states)
    drawn: set[tuple[int, int]] = set()

    def release(tree: int, leaf: int, weight: Any) -> Any:
        del weight
        drawn.add((tree, leaf))
        return found[tree, leaf]

    model = train(binned(here, params), here.y, params, here.ownership, release)
    assert_central_model(states, model)
    assert drawn == set(found)
    exact = train(binned(here, params), here.y, replace(params, epsilon=None), here.ownership)
    assert [tree.splits for tree in exact.trees] != [tree.splits for tree in model.trees]
