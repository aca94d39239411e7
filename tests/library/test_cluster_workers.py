"""Workers in actors of a cluster of Ray: the same properties as workers in processes, and the faults of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tests import worker_contract
from tests.ray_cluster import RayCluster
from treetap.workers.cluster.config import ClusterConfig
from treetap.workers.cluster.engine import ClusterEngine
from treetap.workers.engines import await_workers

pytestmark = pytest.mark.xdist_group("ray")
MODULES = ["treetap.psi"]
SILENCE_S = 1.0


def closed(engine: ClusterEngine) -> None:
    asyncio.run(engine.close())


@pytest.fixture(scope="module")
def engine(ray_cluster: RayCluster) -> Iterator[ClusterEngine]:
    """Two workers on a cluster of two nodes, which the tests of this module share."""
    made = ClusterEngine(ClusterConfig(address=ray_cluster.address, start_s=60), 2, 20.0, MODULES)
    made.start()
    try:
        asyncio.run(await_workers(made))
        yield made
    finally:
        closed(made)


@pytest.mark.parametrize(
    "scenario", [*worker_contract.PEACEFUL, *worker_contract.FATAL], ids=lambda each: each.__name__
)
def test_contract(engine: ClusterEngine, scenario: Any) -> None:
    """Actors have the properties that worker processes have."""
    asyncio.run(scenario(engine))
