"""Nodes and the head of a cluster, lost in the middle of a tree; every kind of job with workers on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import pytest

from tests.memory import forms_of, held_by
from tests.ray_cluster import RayCluster
from tests.system.federations import ended, has_stored, settings, states, until
from tests.worlds import (
    PARTIES,
    assert_oracles_model,
    assert_oracles_scores,
    lattice_tolerance,
    spec,
    world,
)
from treetap.commands import local_federation
from treetap.commands.local_federation import LocalFederation
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.prediction import predict_request
from treetap.trees.params import BoostingParams, ForestParams
from treetap.wire.v2 import jobs_pb2, setup_pb2

pytestmark = [pytest.mark.xdist_group("ray"), pytest.mark.second_tier, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
HERE = world(120, (2, 2, 1), seed=8)
PARAMS = BoostingParams(n_estimators=40, max_depth=3, max_bin=8)
FOREST = ForestParams(n_estimators=2, max_depth=3, max_bin=6)


def _federation(folder: Path, cluster: RayCluster, *on_cluster: str, **policy: bool) -> LocalFederation:
    """Three parties, some of which have two workers on the cluster."""
    parties = settings(folder, {"here": HERE}, schemes=[PAILLIER, LATTICE], **policy)
    for name in on_cluster:
        table = {"address": cluster.address, "cpus": 0.25, "start_s": 30.0}
        parties[name] |= {"engine": "ray", "workers": 2, "silence_s": 20.0, "cluster": table}
        parties[name] |= {} if policy else {"key_workers": 1}
    return LocalFederation(folder / "federation", parties)


def _trained(federation: LocalFederation, job: str, given: setup_pb2.JobSpec) -> jobs_pb2.JobStatus:
    federation.operator.submit(jobs_pb2.SubmitRequest(job=job, spec=given))
    return ended(federation, job)


def _interrupted(federation: LocalFederation, cluster: RayCluster, node: int) -> str:
    """The error of a training, one of whose nodes is killed after its first tree."""
    federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=spec(PARAMS, table="here")))
    until(lambda: has_stored(federation, PARTIES[0], "job"), "a first tree", 60.0)
    cluster.kill(node)
    status = ended(federation, "job")
    assert status.state == "interrupted", status.error
    assert PARTIES[1] in status.error
    return status.error


def _resumed(federation: LocalFederation) -> None:
    """The job goes on, at the first attempt or, while actors are placed, at a later one, to the oracle's model."""
    for _ in range(3):
        federation.operator.resume("job")
        if (status := ended(federation, "job")).state == "finished":
            break
    assert status.state == "finished", status.error
    assert_oracles_model(states(federation, HERE), HERE.oracle(PARAMS))


def test_a_node_that_dies_is_named_and_the_job_resumes_on_the_others(tmp_path: Path) -> None:
    """Both workers are on the head afterwards, and the model is the oracle's."""
    with RayCluster(nodes=2) as cluster, _federation(tmp_path, cluster, PARTIES[1]) as federation:
        assert "was lost with its node" in _interrupted(federation, cluster, 1)
        _resumed(federation)


def test_a_head_that_dies_is_named_and_the_job_resumes_with_another(tmp_path: Path) -> None:
    """The party goes on running, and finds the new head at the same address."""
    with RayCluster(nodes=1, cpus=2) as cluster, _federation(tmp_path, cluster, PARTIES[1]) as federation:
        assert "head" in _interrupted(federation, cluster, 0)
        federation.operator.resume("job")
        status = ended(federation, "job")
        assert status.state == "interrupted", status.error
        assert cluster.address in status.error
        with RayCluster(nodes=1, cpus=2, port=int(cluster.address.rpartition(":")[2])):
            _resumed(federation)


@pytest.fixture(params=[False, True], ids=["keys kept here", "keys entrusted"])
def everywhere(ray_cluster: RayCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalFederation]:
    """All parties have their workers on the cluster, with and without their keys."""
    policy = {"cluster_holds_key": True} if request.param else {}
    with _federation(tmp_path, ray_cluster, *PARTIES, **policy) as federation:
        yield federation


def test_every_kind_of_job_runs_on_a_cluster(everywhere: LocalFederation) -> None:
    """Boosting after a private alignment and on a lattice, a forest, predictions of both schemes are the oracle's."""
    shown = states(everywhere, HERE)
    few = replace(PARAMS, n_estimators=2)  # nothing is lost in the middle of these
    status = _trained(everywhere, "boosting", spec(few, table="here", alignment="psi"))
    assert status.state == "finished", status.error
    assert_oracles_model(shown, HERE.oracle(few), "boosting")
    status = _trained(everywhere, "on-a-lattice", spec(few, table="here", scheme=LATTICE))
    assert status.state == "finished", status.error
    assert_oracles_model(shown, HERE.oracle(few), "on-a-lattice")
    status = _trained(everywhere, "forest", spec(FOREST, table="here"))
    assert status.state == "finished", status.error
    assert_oracles_model(shown, HERE.oracle(FOREST), "forest")
    oracle = HERE.oracle(few)
    for protocol, within in (("eini", 1e-9), ("eini-lattice", lattice_tolerance(oracle))):
        asked = predict_request(job=f"by-{protocol}", model="boosting", table="here-new", protocol=protocol)
        status = ended(everywhere, everywhere.operator.predict(asked))
        assert status.state == "finished", status.error
        assert_oracles_scores(status.predictions, oracle, HERE.newcomers, len(HERE.y), within)


@pytest.mark.campaign
@pytest.mark.skipif(os.geteuid() != 0, reason="no user but root can read the memory of actors")
def test_no_key_of_a_training_is_in_the_cluster(
    ray_cluster: RayCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a tree, after a private alignment, the cluster has none of the parties' keys and exponents."""
    known = tmp_path / "known"
    known.mkdir()

    def begin(words: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.cluster.watched_party", str(known), *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, start_new_session=True, cwd=ROOT)

    monkeypatch.setattr(local_federation, "begin", begin)
    with _federation(tmp_path, ray_cluster, *PARTIES) as federation:
        given = spec(PARAMS, table="here", alignment="psi")
        federation.operator.submit(jobs_pb2.SubmitRequest(job="job", spec=given))
        until(lambda: has_stored(federation, PARTIES[0], "job"), "a first tree", 60.0)
        os.kill(federation.pid(PARTIES[0]), signal.SIGSTOP)
        try:
            secrets = {file.name: int(file.read_text()) for file in known.iterdir()}
            forms = {form: name for label, number in secrets.items() for form, name in forms_of(label, number).items()}
            found = held_by(ray_cluster, forms)
        finally:
            os.kill(federation.pid(PARTIES[0]), signal.SIGCONT)
        assert {name.partition("-")[0] for name in secrets} == {"p", "q", "exponent", "scalar"}
        assert not any(found.values()), found
