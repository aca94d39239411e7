"""Many submissions at real processes: two jobs are under way, the others wait, also through the coordinator's death."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tests.system.federations import ended, settings
from tests.worlds import spec, world
from treetap.lab.local_federation import LocalFederation
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.second_tier
MANY = 12
SMALL = BoostingParams(n_estimators=1, max_depth=1, max_bin=4)


def test_many_jobs_wait_for_their_turn(tmp_path: Path) -> None:
    """All end; the parties never have more than two, and the queue goes on where the coordinator was killed."""
    here = world(n=60)
    with LocalFederation(tmp_path, settings(tmp_path, {"train": here})) as federation:
        for number in range(MANY):
            federation.operator.submit(jobs_pb2.SubmitRequest(job=f"job-{number}", spec=spec(SMALL)))
        states = Counter(status.state for status in federation.operator.status())
        assert states["running"] <= 2
        assert states["waiting"] >= MANY - 4
        federation.kill("coordinator")
        federation.restart("coordinator")
        most, deadline = 0, time.monotonic() + 120
        while time.monotonic() < deadline:
            states = Counter(status.state for status in federation.operator.status())
            most = max(most, states["running"])
            if not states["running"] + states["waiting"]:
                break
            time.sleep(0.1)
        assert most == 2
        assert set(states) <= {"finished", "interrupted"}, states
        assert states["interrupted"] <= 2  # ran when the coordinator was killed
        for status in federation.operator.status():
            if status.state == "interrupted":
                federation.operator.resume(status.job)
                assert ended(federation, status.job).state == "finished"
