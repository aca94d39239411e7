"""A party whose workers are on a cluster, in a federation of real processes: one model, and faults that are named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from party.config import read
from tests.memory import actors
from tests.ray_cluster import RayCluster
from tests.simulator import Federation, run
from tests.system.federations import ended, has_stored, settings, shards, states, until
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.commands.doctor import configuration
from treetap.commands.local_federation import LocalFederation, to_toml
from treetap.models.store import TREES
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import jobs_pb2

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("ray"), pytest.mark.long]
LABEL_HOLDER, ON_CLUSTER, _ = PARTIES
HERE = world(120, (2, 2, 1), seed=8)
PARAMS = BoostingParams(n_estimators=4, max_depth=3, max_bin=8)


@dataclass
class Running:
    """A federation one of whose feature parties computes on the cluster."""

    federation: LocalFederation
    cluster: RayCluster

    def submit(self, job: str) -> None:
        """Begin a training."""
        self.federation.operator.submit(jobs_pb2.SubmitRequest(job=job, spec=spec(PARAMS, table="here")))

    def log(self) -> str:
        """The log of the party on the cluster."""
        return (self.federation.folder / ON_CLUSTER / "log.txt").read_text()


@pytest.fixture(scope="module")
def running(ray_cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Three parties, the second with two workers on the cluster and one for keys beside it."""
    folder = tmp_path_factory.mktemp("on-cluster")
    parties = settings(folder, {"here": HERE})
    cluster = {"address": ray_cluster.address, "cpus": 0.5}
    parties[ON_CLUSTER] |= {"engine": "ray", "workers": 2, "key_workers": 1, "cluster": cluster}
    with LocalFederation(folder, parties) as federation:
        yield Running(federation, ray_cluster)


def test_the_model_is_the_same_bit_for_bit(running: Running, tmp_path: Path) -> None:
    """Workers on a cluster and workers in a process make the same shards, which are the oracle's trees."""
    running.submit("same")
    status = ended(running.federation, "same")
    assert status.state == "finished", status.error
    assert_oracles_model(states(running.federation, HERE), HERE.oracle(PARAMS), "same")

    async def with_processes() -> dict[str, bytes]:
        federation = Federation(tmp_path, HERE.tables)
        assert (await federation.train(spec(PARAMS), "same")).state == "finished"
        await federation.close()
        return {name: (state / "models" / "same" / TREES).read_bytes() for name, state in federation.states.items()}

    assert shards(running.federation, HERE, "same") == run(with_processes())
    names = {row.name for account in status.accounts for row in account.account.cpu_seconds}
    assert {f"{ON_CLUSTER} cluster worker 1", f"{ON_CLUSTER} key worker 0", f"{LABEL_HOLDER} worker 0"} <= names
    where = f"{running.cluster.address} (nodes {running.cluster.address.rpartition(':')[0]})"
    assert f"2 on the cluster at {where}, and 1 processes here for the keys" in running.log()


@pytest.mark.parametrize(("workers", "level"), [(2, "ok"), (5, "fault")])
def test_doctor_asks_the_cluster(running: Running, workers: int, level: str) -> None:
    """It reports nodes, room and encryption of a cluster that is in use, or that the workers do not fit."""
    config = read(running.federation.folder / ON_CLUSTER / "config.toml").model_copy(update={"workers": workers})
    (finding,) = configuration._cluster(config)
    assert finding.level == level, finding
    assert f"room for 4 workers of 0.5 CPU each, workers = {workers}" in finding.message
    assert level == "fault" or finding.message.startswith("2 nodes (")


def test_the_party_itself_never_imports_ray(running: Running) -> None:
    """Ray's library is mapped by the child process that connects, and by no other process of the party."""
    party = running.federation.pid(ON_CLUSTER)
    mapped = {pid for pid in (party, *_children(party)) if "_raylet.so" in Path(f"/proc/{pid}/maps").read_text()}
    assert len(mapped) == 1
    assert party not in mapped


def test_an_actor_that_dies_is_named_and_the_job_resumes(running: Running) -> None:
    """A job whose actor is killed is interrupted with the worker's name; resumed, it makes the oracle's model."""
    running.submit("killed")
    until(lambda: has_stored(running.federation, LABEL_HOLDER, "killed"), "a first tree", 60.0)
    _kill(actors(running.cluster)[0])
    status = ended(running.federation, "killed")
    assert status.state == "interrupted", status.error
    assert ON_CLUSTER in status.error
    assert "compute worker" in status.error
    running.federation.operator.resume("killed")
    assert ended(running.federation, "killed").state == "finished"
    assert_oracles_model(states(running.federation, HERE), HERE.oracle(PARAMS), "killed")


def test_a_party_without_its_cluster_does_not_start(tmp_path: Path) -> None:
    """An address where no cluster answers is an error with the address and the remedy, and status 2."""
    lost = {"address": "127.0.0.1:1", "start_s": 0.5}
    config = {"name": "party", "insecure": True, "state": "state", "engine": "ray", "workers": 1, "cluster": lost}
    file = tmp_path / "party.toml"
    file.write_text(to_toml(config))
    command = [sys.executable, "-m", "treetap", "party", "--config", str(file)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2, ended.stderr
    assert "cluster.address: no cluster answers at 127.0.0.1:1" in ended.stderr
    assert "Traceback" not in ended.stderr


def _children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
