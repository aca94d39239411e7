"""A party's Ray cluster: room for its workers, own certificates, ports that policies know, no key of the party."""

from __future__ import annotations

import base64
import ipaddress
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from cryptography import x509
from packaging.requirements import Requirement

from tests.kubernetes.manifests import ROOT, Manifests, Object, Pod
from tests.kubernetes.test_processes import config_of
from treetap.party.config import PartyConfig
from treetap.wire.tls import TlsFiles

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("kubernetes")]
PARTY = "telco"


def cluster_of(manifests: Manifests) -> Object:
    """The party's RayCluster."""
    return manifests.one(PARTY, "RayCluster", "ray")


def groups(manifests: Manifests) -> list[Object]:
    """Its groups, the head's first."""
    spec = cluster_of(manifests)["spec"]
    return [spec["headGroupSpec"], *spec["workerGroupSpecs"]]


def nodes(manifests: Manifests) -> list[tuple[Pod, Object]]:
    """Every pod in which a node of Ray runs, and that node's container: head, workers, and beside the party."""
    ray = [(pod, pod.container(f"ray-{name}")) for pod in _ray(manifests) for name in [pod.name.removesuffix("s")]]
    return [*ray, (_party(manifests), _party(manifests).container("ray-node"))]


def _ray(manifests: Manifests) -> list[Pod]:
    return [pod for pod in manifests.pods(PARTY) if pod.kind == "RayCluster"]


def _party(manifests: Manifests) -> Pod:
    (pod,) = (pod for pod in manifests.pods(PARTY) if pod.kind == "StatefulSet")
    return pod


def start_parameters(manifests: Manifests) -> list[dict[str, str]]:
    """Options of `ray start` at each of the nodes."""
    _, beside = nodes(manifests)[-1]
    words = [word.removeprefix("--").partition("=") for word in beside["args"]]
    return [*(each["rayStartParams"] for each in groups(manifests)), {key: value for key, _, value in words}]


def test_the_cluster_has_room_for_the_workers(manifests: Manifests, tmp_path: Path) -> None:
    """Processors that Ray counts are those that the pods get, none at the head and beside the party, enough in all."""
    config: PartyConfig = config_of(manifests, PARTY, tmp_path)
    assert config.engine == "ray"
    assert config.cluster is not None
    head, *workers = groups(manifests)
    assert head["rayStartParams"]["num-cpus"] == start_parameters(manifests)[-1]["num-cpus"] == "0"
    room = 0
    for group in workers:
        (container,) = group["template"]["spec"]["containers"]
        assert container["resources"]["requests"] == container["resources"]["limits"]
        processors = int(container["resources"]["limits"]["cpu"])
        assert group["rayStartParams"]["num-cpus"] == str(processors)
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]
        room += group["replicas"] * int(processors // config.cluster.cpus)
    assert room >= config.cluster.workers
    budget = manifests.one(PARTY, "PodDisruptionBudget", "ray")["spec"]["minAvailable"]
    assert budget == sum(pod.replicas for pod in _ray(manifests))


def test_the_party_calls_the_service_that_kuberay_makes_for_the_head(manifests: Manifests, tmp_path: Path) -> None:
    """NAME-head-svc in the cluster's namespace, at the port of Ray's table, which the head's container declares."""
    config: PartyConfig = config_of(manifests, PARTY, tmp_path)
    assert config.cluster is not None
    metadata = cluster_of(manifests)["metadata"]
    service = f"{metadata['name']}-head-svc"
    ((_, head), *_, (_, beside)) = nodes(manifests)
    (port,) = (each["containerPort"] for each in head["ports"])
    assert config.cluster.address == f"{service}.{metadata['namespace']}.svc.cluster.local:{port}"
    assert f"--address={service}:{port}" in beside["args"]
    assert config.cluster.unencrypted is False


def test_nodes_listen_on_ports_that_the_policy_permits(manifests: Manifests) -> None:
    """Ports that Ray would draw at random are fixed, the same at every node, and exactly those of the policy."""
    fixed = [(int(each["min-worker-port"]), int(each["max-worker-port"])) for each in start_parameters(manifests)]
    single = {(int(each[f"{name}-port"]),) * 2 for each in start_parameters(manifests) for name in _NODE}
    assert len(set(fixed)) == 1
    assert len(single) == len(_NODE)
    (rule,) = manifests.one(PARTY, "NetworkPolicy", "ray")["spec"]["ingress"]
    permitted = {port for each in rule["ports"] for port in range(each["port"], each["endPort"] + 1)}
    wanted = {port for first, last in {*fixed, *single} for port in range(first, last + 1)}
    assert permitted == wanted | {6379}
    for pod, node in nodes(manifests):
        for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
            assert node.get(probe, {"tcpSocket": {"port": 6380}})["tcpSocket"]["port"] in permitted, pod.name


_NODE = ("node-manager", "object-manager")


def test_ray_speaks_tls_only_and_has_no_key_of_the_party(manifests: Manifests) -> None:
    """Every process of Ray has the cluster's certificates; those of the federation, and the tables, the party alone."""
    party = _party(manifests).container("party")
    users = [*nodes(manifests), (_party(manifests), party)]
    for pod, container in users:
        environment = {each["name"]: each.get("value") for each in container["env"]}
        assert environment["RAY_USE_TLS"] == "1", pod.name
        files = {environment[f"RAY_TLS_{name}"] for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")}
        assert files == {f"/ray-tls/{name}" for name in ("ray.crt", "ray.key", "ca.crt")}
    for pod in manifests.pods(PARTY):
        for container in pod.containers():
            mounts = {each["name"] for each in container["volumeMounts"]}
            assert ("ray-authority" in mounts) == (container["name"] == "ray-certificate")
            if container is not party and container["name"] != "party":
                assert not mounts & {"tls", "data", "state", "configuration"}
    authority = manifests.one(PARTY, "Secret", "ray-authority")["data"]["ca.crt"]
    assert authority != manifests.one(PARTY, "Secret", "tls")["data"]["ca.crt"]


def test_one_release_of_ray(manifests: Manifests) -> None:
    """The manifest's release is one that the extra `cluster` permits."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (ray,) = (each for each in map(Requirement, extras["cluster"]) if each.name == "ray")
    assert ray.specifier.contains(cluster_of(manifests)["spec"]["rayVersion"])
    assert ray.specifier.contains(version("ray"))


def test_a_pod_makes_a_certificate_of_its_own_address(manifests: Manifests, tmp_path: Path) -> None:
    """The first container's script, the same in all pods, run with folders of this machine after an earlier start."""
    container, *others = (pod.container("ray-certificate") for pod, _ in nodes(manifests))
    assert [others[0], others[1]] == [container, container]
    folders = {name: tmp_path / name for name in ("ray-authority", "authority", "ray-tls")}
    for folder in folders.values():
        folder.mkdir()
    _decode(manifests.one(PARTY, "Secret", "ray-authority"), folders["ray-authority"])
    for left in (folders["authority"] / "ca.key", folders["ray-tls"] / "ray.key"):
        left.write_text("of an earlier start")
    (script,) = container["args"]
    for name, folder in folders.items():
        script = script.replace(f" /{name}", f" {folder}")
    environment = os.environ | {"POD_IP": "10.1.2.3", "NAMESPACE": f"treetap-{PARTY}"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    subprocess.run([*container["command"], script], env=environment, check=True, timeout=60, capture_output=True)
    files = TlsFiles(*(folders["ray-tls"] / name for name in ("ca.crt", "ray.crt", "ray.key")))
    assert files.inspect("ray") == "ray"
    assert list(folders["authority"].iterdir()) == []
    names = x509.load_pem_x509_certificate(files.certificate.read_bytes()).extensions
    alternatives = names.get_extension_for_class(x509.SubjectAlternativeName).value
    assert alternatives.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("10.1.2.3")]
    dialled = {"ray-head-svc", f"ray-head-svc.treetap-{PARTY}.svc.cluster.local"}
    assert dialled <= set(alternatives.get_values_for_type(x509.DNSName))


def _decode(secret: Object, folder: Path) -> None:
    for name, text in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
