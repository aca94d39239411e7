"""Connections that NetworkPolicies permit, computed from the policies as Kubernetes defines them.

A pod that no policy selects for a direction may do everything in it; one that policies select, what any of them
permits. A connection needs the caller's egress and the answering pod's ingress.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any

#: The label that Kubernetes gives each namespace, and a user cannot change.
NAME = "kubernetes.io/metadata.name"

Object = dict[str, Any]


@dataclass(frozen=True)
class Endpoint:
    """A pod, or a host without pods, in a cluster.

    `called_at` and `calls_from`: its addresses as another cluster sees them, of the balancer and of its connections.
    """

    name: str
    cluster: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    called_at: str | None = None
    calls_from: str | None = None


class Network:
    """The policies of all clusters: cluster → NetworkPolicy objects."""

    def __init__(self, policies: Mapping[str, Sequence[Object]]) -> None:
        self._policies = policies

    def ports(
        self, caller: Endpoint, answering: Endpoint, candidates: Iterable[int], protocol: str = "TCP"
    ) -> set[int]:
        """The ports of `answering`, among `candidates`, to which `caller` may connect."""
        return {
            port
            for port in candidates
            if self._permits("egress", caller, answering, port, protocol)
            and self._permits("ingress", answering, caller, port, protocol)
        }

    def _permits(self, direction: str, own: Endpoint, other: Endpoint, port: int, protocol: str) -> bool:
        selecting = list(self._selecting(direction, own))
        if not selecting:
            return True
        peers = "to" if direction == "egress" else "from"
        rules = [rule for policy in selecting for rule in policy["spec"].get(direction, [])]
        return any(
            _has_port(rule.get("ports"), port, protocol) and _has_peer(rule.get(peers), own, other, direction)
            for rule in rules
        )

    def _selecting(self, direction: str, pod: Endpoint) -> Iterator[Object]:
        for policy in self._policies.get(pod.cluster, []):
            if policy["metadata"]["namespace"] != pod.namespace:
                continue
            if direction.capitalize() in policy["spec"]["policyTypes"] and selects(policy["spec"]["podSelector"], pod):
                yield policy


def selects(selector: Object, pod: Endpoint) -> bool:
    """True if a pod has the labels; an empty selector selects every pod."""
    return _labelled(selector, dict(pod.labels))


def _labelled(selector: Object, labels: Mapping[str, str]) -> bool:
    if set(selector) - {"matchLabels"}:
        raise NotImplementedError(f"a selector by {', '.join(selector)}")
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def _has_port(ports: list[Object] | None, port: int, protocol: str) -> bool:
    if ports is None:
        return True
    return any(
        each["protocol"] == protocol and each["port"] <= port <= each.get("endPort", each["port"]) for each in ports
    )


def _has_peer(peers: list[Object] | None, own: Endpoint, other: Endpoint, direction: str) -> bool:
    return peers is None or any(_is_peer(each, own, other, direction) for each in peers)


def _is_peer(peer: Object, own: Endpoint, other: Endpoint, direction: str) -> bool:
    if "ipBlock" in peer:
        seen = other.called_at if direction == "egress" else other.calls_from
        return own.cluster != other.cluster and seen is not None and _within(peer["ipBlock"], seen)
    if own.cluster != other.cluster:
        return False
    if "namespaceSelector" not in peer:
        return own.namespace == other.namespace and selects(peer["podSelector"], other)
    return _labelled(peer["namespaceSelector"], {NAME: other.namespace}) and selects(peer.get("podSelector", {}), other)


def _within(block: Object, address: str) -> bool:
    if "except" in block:
        raise NotImplementedError("an address block with exceptions")
    return ip_address(address) in ip_network(block["cidr"])
