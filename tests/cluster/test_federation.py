"""Parties whose shards are summed on a cluster, in a federation of real processes: one model, and faults by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.memory import actors
from tests.ray_cluster import RayCluster
from tests.simulator import Federation, run
from tests.system.federations import ended, has_stored, settings, shards, states, until
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.lab.local_federation import LocalFederation, to_toml
from treetap.models.store import TREES
from treetap.ops.doctor import configuration
from treetap.party.config import read
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("ray"), pytest.mark.long]
LABEL_HOLDER, ON_CLUSTER, _ = PARTIES
HERE = world(120, (2, 2, 1), seed=8)
PARAMS = BoostingParams(n_estimators=4, max_depth=3, max_bin=8)
FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6, bootstrap=True, binning="per-node")


@dataclass
class Running:
    """A federation whose feature parties have shards on the cluster."""

    federation: LocalFederation
    cluster: RayCluster

    def begin(self, job: str, given: setup_pb2.JobSpec) -> None:
        self.federation.operator.submit(jobs_pb2.SubmitRequest(job=job, spec=given))

    def trained(self, job: str, given: setup_pb2.JobSpec) -> jobs_pb2.JobStatus:
        self.begin(job, given)
        status = ended(self.federation, job)
        assert status.state == "finished", status.error
        return status

    def log(self, party: str = ON_CLUSTER) -> str:
        return (self.federation.folder / party / "log.txt").read_text()


@pytest.fixture(scope="module")
def running(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three parties: the second has two workers on two nodes, the third one."""
    folder = tmp_path_factory.mktemp("on-cluster")
    parties = settings(folder, {"here": HERE}, keys={"schemes": [PAILLIER, LATTICE]})
    for name, workers in zip(PARTIES[1:], (2, 1), strict=True):
        cluster = {"address": ray_cluster.address, "cpus": 0.4, "workers": workers}
        parties[name] |= {"engine": "ray", "cluster": cluster}
    with LocalFederation(folder, parties) as federation:
        yield Running(federation, ray_cluster)


@pytest.mark.parametrize("params", [PARAMS, FOREST], ids=["boosting", "forest, bins per node"])
def test_the_model_is_the_same_bit_for_bit(
    running: Running, params: BoostingParams | ForestParams, tmp_path: Path
) -> None:
    """Shards on two nodes and a thread make the same files, which have the trees of the joined table."""
    job = type(params).__name__.lower()
    status = running.trained(job, spec(params, table="here", scheme=LATTICE))
    assert_oracles_model(states(running.federation, HERE), HERE.oracle(params), job)

    async def with_processes() -> dict[str, bytes]:
        federation = Federation(tmp_path, HERE.tables)
        assert (await federation.train(spec(params, scheme=LATTICE), job)).state == "finished"
        await federation.close()
        return {name: (state / "models" / job / TREES).read_bytes() for name, state in federation.states.items()}

    assert shards(running.federation, HERE, job) == run(with_processes())
    names = {row.name for account in status.accounts for row in account.account.cpu_seconds}
    assert {f"{ON_CLUSTER} cluster worker 1", f"{ON_CLUSTER} cluster driver", LABEL_HOLDER} <= names
    where = f"{running.cluster.address} (nodes {running.cluster.address.rpartition(':')[0]})"
    assert f"1 threads here, and 2 on the cluster at {where} for sums by scheme = 'lattice' alone" in running.log()


def test_a_job_by_paillier_is_computed_here(running: Running) -> None:
    """The log says so by name."""
    running.trained("by-paillier", spec(PARAMS, table="here"))
    assert_oracles_model(states(running.federation, HERE), HERE.oracle(PARAMS), "by-paillier")
    assert f"job by-paillier is computed by the processes of {ON_CLUSTER}" in running.log()
    assert "cluster" not in running.log(LABEL_HOLDER)


@pytest.mark.parametrize(("workers", "level"), [(2, "ok"), (5, "fault")])
def test_doctor_asks_the_cluster(running: Running, workers: int, level: str) -> None:
    """It reports nodes, room and encryption of a cluster that is in use, or that the workers do not fit."""
    config = read(running.federation.folder / ON_CLUSTER / "config.toml")
    assert config.cluster is not None
    changed = config.cluster.model_copy(update={"workers": workers})
    (finding,) = configuration._cluster(config.model_copy(update={"cluster": changed}))
    assert finding.level == level, finding
    assert f"room for 4 workers of 0.4 CPU each, cluster.workers = {workers}" in finding.message
    assert level == "fault" or finding.message.startswith("2 nodes (")


def test_the_party_itself_never_imports_ray(running: Running) -> None:
    """Ray's library is mapped by the process that connects, not by the party."""
    assert "_raylet.so" not in Path(f"/proc/{running.federation.pid(ON_CLUSTER)}/maps").read_text()


def test_a_job_goes_on_without_an_actor(running: Running) -> None:
    """Killed amid its levels, again and again: the shard is summed anew, and the model is that of the joined table."""
    params = BoostingParams(n_estimators=30, max_depth=4, max_bin=8)
    running.begin("killed", spec(params, table="here", scheme=LATTICE))
    until(lambda: has_stored(running.federation, LABEL_HOLDER, "killed"), "a first tree", 60.0)
    for _ in range(2):
        for pid in actors(running.cluster)[:2]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(actors(running.cluster)) == 3, "other actors", 60.0)
    status = ended(running.federation, "killed")
    assert status.state == "finished", status.error
    assert_oracles_model(states(running.federation, HERE), HERE.oracle(params), "killed")
    assert "its shard is summed anew in another process" in "".join(running.log(name) for name in PARTIES[1:])


def test_a_party_without_its_cluster_does_not_start(tmp_path: Path) -> None:
    """An address where no cluster answers is an error with the address and the remedy, and status 2."""
    lost = {"address": "127.0.0.1:1", "start_s": 0.5, "workers": 1}
    config = {"name": "party", "insecure": True, "state": "state", "engine": "ray", "cluster": lost}
    file = tmp_path / "party.toml"
    file.write_text(to_toml(config))
    command = [sys.executable, "-m", "treetap", "party", "--config", str(file)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2, ended.stderr
    assert "cluster.address: no cluster answers at 127.0.0.1:1" in ended.stderr
    assert "Traceback" not in ended.stderr
