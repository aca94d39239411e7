"""Nodes and the head of a cluster, lost in the middle of a tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ray_cluster import RayCluster
from tests.system.federations import ended, has_stored, settings, states, until
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.lab.local_federation import LocalFederation
from treetap.protocols.key_options import LATTICE
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.second_tier, pytest.mark.timeout(600)]
HERE = world(120, (2, 2, 1), seed=8)
PARAMS = BoostingParams(n_estimators=40, max_depth=3, max_bin=8)


def _federation(folder: Path, cluster: RayCluster) -> LocalFederation:
    """Three parties, the second of which has two workers on the cluster."""
    parties = settings(folder, {"here": HERE}, keys={"schemes": [LATTICE]})
    table = {"address": cluster.address, "workers": 2, "cpus": 0.25, "start_s": 30.0}
    parties[PARTIES[1]] |= {"engine": "ray", "silence_s": 20.0, "cluster": table}
    return LocalFederation(folder / "federation", parties)


def _lose(federation: LocalFederation, cluster: RayCluster, node: int) -> jobs_pb2.JobStatus:
    """The end of a training, one of whose nodes is killed after its first tree."""
    given = spec(PARAMS, table="here", scheme=LATTICE)
    federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=given))
    until(lambda: has_stored(federation, PARTIES[0], "job"), "a first tree", 60.0)
    cluster.kill(node)
    return ended(federation, "job")


@pytest.mark.campaign
def test_a_job_goes_on_without_a_node(tmp_path: Path) -> None:
    """Both workers are on the head afterwards, and the model is the oracle's."""
    with RayCluster(nodes=2) as cluster, _federation(tmp_path, cluster) as federation:
        status = _lose(federation, cluster, 1)
        assert status.state == "finished", status.error
        assert_oracles_model(states(federation, HERE), HERE.oracle(PARAMS))
        log = (federation.folder / PARTIES[1] / "log.txt").read_text()
        assert "was lost with its node, which died or left the cluster; its shard is summed anew" in log


@pytest.mark.campaign
def test_a_head_that_dies_is_named_and_the_job_resumes_with_another(tmp_path: Path) -> None:
    """The party goes on running, and finds the new head at the same address."""
    with RayCluster(nodes=1, cpus=2) as cluster, _federation(tmp_path, cluster) as federation:
        status = _lose(federation, cluster, 0)
        assert status.state == "interrupted", status.error
        assert PARTIES[1] in status.error
        assert "head" in status.error
        federation.operator.resume("job")
        assert ended(federation, "job").state == "interrupted"
        with RayCluster(nodes=1, cpus=2, port=int(cluster.address.rpartition(":")[2])):
            for _ in range(3):  # the driver may yet be about to end with its old head
                federation.operator.resume("job")
                if (status := ended(federation, "job")).state == "finished":
                    break
            assert status.state == "finished", status.error
            assert_oracles_model(states(federation, HERE), HERE.oracle(PARAMS))
