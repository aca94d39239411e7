"""A transcript that several modules of this folder copy, change and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.recorded import train, transcript
from tests.worlds import PARTIES, world
from treetap.trees.params import BoostingParams


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The transcript of a feature party of a federation in which the feature parties won splits."""
    params = BoostingParams(n_estimators=2, max_depth=3, max_bin=6)
    states = train(tmp_path_factory.mktemp("recorded") / "federation", world(60, (2, 2, 2), seed=5), params)
    return transcript(states, PARTIES[1])
