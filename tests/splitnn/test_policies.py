"""Policies that a split network does not fit: refused when the job is opened, by the rule's name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs treetap[neural]")

from tests.simulator import run
from tests.splitnn.jobs import EMITS, PARAMS, spec
from tests.splitnn.networks import federation
from tests.worlds import PARTIES, World, world
from treetap.neural.params import SplitnnParams
from treetap.party.defences.settings import Defences, Gradient
from treetap.wire.v2 import jobs_pb2

pytestmark = pytest.mark.second_tier

HOLDER, FEATURE, OTHER = PARTIES
HERE = world(49, (2, 2, 1), seed=3)
NUMBERS = world(49, (2, 2, 1), seed=3, objective="reg:squarederror")
REGRESSION = replace(PARAMS, objective="reg:squarederror")


def test_regressions_have_changed_gradients(tmp_path: Path) -> None:
    """A change of gradients does not ask for classes."""
    own = {HOLDER: Defences(gradient=Gradient(kind="compression", share=0.5))}
    assert _ended(tmp_path, NUMBERS, REGRESSION, defences=own).state == "finished"


def test_a_job_with_private_draws_needs_no_switch(tmp_path: Path) -> None:
    """The default of a policy suffices."""
    policies = {name: {"emits": lines["emits"]} for name, lines in EMITS.items()}
    assert _ended(tmp_path, HERE, replace(PARAMS, reproducible=False), policies=policies).state == "finished"


def _ended(folder: Path, here: World, params: SplitnnParams, **options: Any) -> jobs_pb2.JobStatus:
    """The status of a job that has ended."""

    async def main() -> jobs_pb2.JobStatus:
        running = federation(folder, here, **options)
        status = await running.train(spec(params))
        await running.close()
        if status.state == "failed":
            assert {message.word for message in running.log} <= {"prepare", "leave"}
        return status

    return run(main())
