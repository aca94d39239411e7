"""The rendered manifests: network policies, certificates that are not in them, and the schemas of Kubernetes.

Network policies permit the coordinator to call parties, parties each other, and Ray's nodes those of their party.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.kubernetes.manifests import (
    FOLDER,
    ORGANISATIONS,
    PARTIES,
    ROOT,
    SETTINGS,
    Manifests,
    Object,
    Pod,
    build,
    pods_of,
)
from tests.kubernetes.network import Endpoint, Network
from tests.needs import kustomize_command

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("kubernetes")]
PARTY_PORT, COORDINATOR_PORT = 7101, 7100
RAY_PORTS = {6379, 6380, 6381, 10100, 10999}
#: Ports of all processes, those beside them, and some that nothing uses.
CANDIDATES = {22, 53, 80, 443, 6378, 6382, 8265, 10001, 10099, 11000, PARTY_PORT, COORDINATOR_PORT, *RAY_PORTS}
#: Last byte of an organisation's example addresses.
NUMBERS = {"coordinator": 1, "bank": 2, "telco": 3, "shop": 4}
HOST = Endpoint("a host of the internet", "internet", "", (), "203.0.113.9", "203.0.113.9")


def endpoint(organisation: str, pod: Pod, setting: str) -> Endpoint:
    """A pod as others see it: in one cluster, or behind its organisation's addresses."""
    kind = pod.labels["app.kubernetes.io/component"]
    cluster = "one" if setting == "overlays" else organisation
    number = NUMBERS[organisation]
    balanced = kind == "party"
    return Endpoint(
        organisation if kind != "ray" else f"{organisation}'s {pod.name}",
        cluster,
        pod.namespace,
        tuple(sorted(pod.labels.items())),
        f"192.0.2.{number}" if balanced else None,
        f"198.51.100.{number}",
    )


def endpoints(manifests: Manifests, setting: str) -> list[Endpoint]:
    """All pods of the federation, one without labels in each namespace, and strangers who label theirs like ours."""
    own = [endpoint(each, pod, setting) for each in ORGANISATIONS for pod in manifests.pods(each, setting)]
    own += [replace(each, name=f"unlabelled of {each.name}", labels=()) for each in own if each.name in ORGANISATIONS]
    clusters = {each.cluster for each in own}
    forged = [("app.kubernetes.io/component", kind) for kind in ("party", "coordinator", "ray")]
    strangers = [Endpoint(f"stranger as {label[1]}", c, "elsewhere", (label,)) for c in clusters for label in forged]
    return [*own, *strangers, HOST]


def network(manifests: Manifests, setting: str) -> Network:
    """The policies of all organisations, by cluster."""
    found: dict[str, list[dict[str, object]]] = {}
    for organisation in ORGANISATIONS:
        policies = [each for each in manifests.of(organisation, setting) if each["kind"] == "NetworkPolicy"]
        found.setdefault("one" if setting == "overlays" else organisation, []).extend(policies)
    return Network(found)


def graph(of: Network, pods: list[Endpoint]) -> dict[tuple[str, str], set[int]]:
    """(caller, answering) → ports, where there are any; connections between two strangers are left out."""
    ours = [each for each in pods if each.namespace.startswith("treetap-")]
    pairs = [(a, b) for a, b in product(pods, pods) if a != b and (a in ours or b in ours)]
    permitted = {(a.name, b.name): of.ports(a, b, CANDIDATES) for a, b in pairs}
    return {pair: ports for pair, ports in permitted.items() if ports}


def expected() -> dict[tuple[str, str], set[int]]:
    """The connections that docs/deploy.md lists, and those of Ray."""
    wanted = {("coordinator", party): {PARTY_PORT} for party in PARTIES}
    wanted |= {(a, b): {PARTY_PORT} for a, b in product(PARTIES, PARTIES) if a != b}
    head, workers = "telco's head", "telco's workers"
    wanted |= dict.fromkeys([(head, workers), (workers, head), ("telco", head), ("telco", workers)], RAY_PORTS)
    return wanted | {(each, "telco"): RAY_PORTS - {6379} for each in (head, workers)}


@pytest.mark.parametrize("setting", SETTINGS)
def test_exactly_the_needed_connections_are_permitted(manifests: Manifests, setting: str) -> None:
    """In one cluster and across clusters the permitted graph is the expected one, of pairs and of their ports."""
    assert graph(network(manifests, setting), endpoints(manifests, setting)) == expected()


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_pod_may_ask_its_clusters_dns(manifests: Manifests, setting: str) -> None:
    """Names are resolved by pods of kube-system with the label of DNS, over both protocols, and by no others."""
    for pod in (each for each in endpoints(manifests, setting) if each.namespace.startswith("treetap-")):
        dns = Endpoint("dns", pod.cluster, "kube-system", (("k8s-app", "kube-dns"),))
        other = Endpoint("other", pod.cluster, "kube-system", (("k8s-app", "metrics-server"),))
        forged = Endpoint("forged", pod.cluster, "elsewhere", (("k8s-app", "kube-dns"),))
        for protocol in ("UDP", "TCP"):
            of = network(manifests, setting)
            assert of.ports(pod, dns, CANDIDATES, protocol) == {53}
            assert of.ports(pod, other, CANDIDATES, protocol) == set()
            assert of.ports(pod, forged, CANDIDATES, protocol) == set()


@pytest.mark.parametrize(
    ("organisation", "policy"),
    [(each, "peers") for each in ORGANISATIONS] + [("telco", "ray"), ("bank", "default-deny")],
)
def test_a_missing_policy_is_seen(manifests: Manifests, organisation: str, policy: str) -> None:
    """Without any one of the policies the permitted graph is another one."""
    fewer = Manifests(copy.copy(manifests.objects))
    key = ("overlays", organisation)
    fewer.objects[key] = [
        each for each in fewer.of(organisation) if (each["kind"], each["metadata"]["name"]) != ("NetworkPolicy", policy)
    ]
    assert graph(network(fewer, "overlays"), endpoints(fewer, "overlays")) != expected()


# ---- Certificates and keys are never committed; without them nothing is rendered, and a page says how they are made


def secrets_of(manifests: Manifests) -> list[str]:
    """Paths, from the clone, of all files that the overlays put into Secrets."""
    found = []
    for organisation in ORGANISATIONS:
        for each in manifests.of(organisation):
            if each["kind"] == "Secret":
                folder = FOLDER / "overlays" / organisation / each["metadata"]["name"]
                found += [str((folder / name).relative_to(ROOT)) for name in each["data"]]
    return found


def test_no_certificate_is_committed_and_git_ignores_all(manifests: Manifests) -> None:
    """Each file of a Secret is one that git ignores and does not have; the page beside them it has."""
    paths = secrets_of(manifests)
    assert len(paths) == 4 * len(ORGANISATIONS) + 2
    pages = sorted({str(Path(path).with_name("README.md")) for path in paths})
    git = ["git", "-C", str(ROOT)]
    ignored = subprocess.run([*git, "check-ignore", *paths, *pages], capture_output=True, text=True, check=False)
    if ignored.returncode == 128:
        pytest.skip("not a clone")
    assert ignored.stdout.split() == paths
    assert subprocess.run([*git, "ls-files", *paths], capture_output=True, text=True, check=True).stdout == ""
    assert all((ROOT / page).is_file() for page in pages)


def test_without_its_certificate_an_overlay_is_not_rendered(tmp_path: Path) -> None:
    """Kustomize ends with the missing file's name, which lies beside the page that says how it is made."""
    shutil.copytree(FOLDER, tmp_path / "kubernetes", ignore=shutil.ignore_patterns("*.key", "*.crt", "*.pem"))
    ended = build(kustomize_command(), tmp_path / "kubernetes" / "overlays" / "shop", check=False)
    assert ended.returncode != 0
    assert "overlays/shop/tls/" in ended.stderr
    assert "no such file or directory" in ended.stderr


# ---- Every rendered object is one that Kubernetes accepts, field by field, in the oldest and the newest version


#: 1.29 is the first in which containers may run beside the others from before their start, as Ray's node does.
VERSIONS = ("1.29", "1.33", "1.37")
#: The kinds in the manifests; another one needs a thought about who may apply it.
KINDS = {
    *("Namespace", "ServiceAccount", "ConfigMap", "Secret", "Service", "PersistentVolumeClaim", "StatefulSet"),
    *("PodDisruptionBudget", "NetworkPolicy", "RayCluster"),
}


@pytest.fixture(scope="module", autouse=True)
def _schemas_read_once() -> Any:
    """Schemas are files of a megabyte, which the package reads for every object."""
    from kubernetes_validate import utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", cache(utils.schema_contents))
        yield


def check(each: Object, version: str) -> None:
    """Raise `jsonschema.ValidationError` unless a version of Kubernetes has the object, with no field beside its own.

    A RayCluster is checked by the excerpt of KubeRay's definition, and its pod templates as pods of Kubernetes.
    """
    from kubernetes_validate import utils

    if each["kind"] != "RayCluster":
        utils.validate(each, version, strict=True)
        return
    schema = yaml.safe_load((FOLDER / "kuberay" / "raycluster.v1.yaml").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(each)
    for pod in pods_of(each):
        metadata = {"name": "pod", **pod.template["metadata"]}
        utils.validate(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod.spec}, version, strict=True
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(manifests: Manifests, version: str) -> None:
    """Strictly, by the schemas of that version: an unknown field is an error, not a field without effect."""
    objects = [*manifests.distinct(), yaml.safe_load((FOLDER / "loader.yaml").read_text(encoding="utf-8"))]
    assert {each["kind"] for each in objects} == KINDS | {"Pod"}
    for each in objects:
        check(each, version)


def altered(manifests: Manifests, organisation: str, kind: str, name: str, path: str, value: object) -> Object:
    """A copy of an object with another value at a path of keys and numbers."""
    found = copy.deepcopy(manifests.one(organisation, kind, name))
    *way, last = [int(word) if word.isdigit() else word for word in path.split(".")]
    place: Any = found
    for word in way:
        place = place[word]
    place[last] = value
    return found


POD = "template.spec.containers.0"
FAULTS = [
    ("StatefulSet", "party", "spec.replica", 1),
    ("StatefulSet", "party", f"spec.{POD}.securityContext.readOnlyRootFileSystem", True),
    ("StatefulSet", "party", f"spec.{POD}.resources.limits.memory", ["8Gi"]),
    ("NetworkPolicy", "peers", "spec.ingres", []),
    ("NetworkPolicy", "peers", "spec.ingress.0.ports.0.port", [7101]),
    ("PodDisruptionBudget", "ray", "spec.minAvailable", [3]),
    ("RayCluster", "ray", "spec.headGroup", {}),
    ("RayCluster", "ray", "spec.headGroupSpec.rayStartParams.num-cpus", 0),
    ("RayCluster", "ray", "spec.workerGroupSpecs.0.replicas", "2"),
    ("RayCluster", "ray", "spec.workerGroupSpecs.0.cpus", 4),
    ("RayCluster", "ray", f"spec.headGroupSpec.{POD}.securityContext.capability", {}),
    ("RayCluster", "ray", "spec.headGroupSpec.template.metadata.labels.x", 1),
]


@pytest.mark.parametrize(("kind", "name", "path", "value"), FAULTS, ids=[f"{f[0]}-{f[2]}" for f in FAULTS])
def test_a_field_that_does_not_exist_or_has_another_type_is_refused(
    manifests: Manifests, kind: str, name: str, path: str, value: object
) -> None:
    """The check finds misspelt fields and wrong types, at the top, within pods, and in what is KubeRay's."""
    with pytest.raises(jsonschema.ValidationError):
        check(altered(manifests, "telco", kind, name, path, value), VERSIONS[-1])


@pytest.mark.parametrize("field", ["groupName", "minReplicas", "maxReplicas", "template"])
def test_a_missing_field_of_a_group_is_refused(manifests: Manifests, field: str) -> None:
    """KubeRay's definition requires these of every group of workers."""
    cluster = copy.deepcopy(manifests.one("telco", "RayCluster", "ray"))
    del cluster["spec"]["workerGroupSpecs"][0][field]
    with pytest.raises(jsonschema.ValidationError, match=f"'{field}' is a required property"):
        check(cluster, VERSIONS[-1])
