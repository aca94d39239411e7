"""Network policies permit the coordinator to call parties, parties each other, and Ray's nodes those of their party."""

from __future__ import annotations

import copy
from dataclasses import replace
from itertools import product

import pytest

from tests.kubernetes.manifests import ORGANISATIONS, PARTIES, SETTINGS, Manifests, Pod
from tests.kubernetes.network import Endpoint, Network

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
