"""A party without PyTorch: it refuses split networks by what to install, and trains trees as ever."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.simulator import Federation
from tests.splitnn.jobs import EMITS, PARAMS
from tests.worlds import spec, world
from treetap.trees.params import BoostingParams

HERE = world(40, (1, 2))


async def test_a_training_is_refused_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the opening, before any message; the same party trains trees afterwards."""
    federation = Federation(tmp_path, HERE.tables, policies=EMITS)
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "torch", None)
        status = await federation.train(spec(PARAMS, parties=2), "network")
        assert (status.state, status.bad_input) == ("failed", True)
        assert re.match(r"[a-z-]+: protocol splitnn needs torch: install treetap's extra 'neural' there$", status.error)
        assert not list(tmp_path.glob("*/state/jobs/network"))
        trees = BoostingParams(n_estimators=1, max_depth=2, max_bin=4)
        assert (await federation.train(spec(trees, 2), "trees")).state == "finished"
