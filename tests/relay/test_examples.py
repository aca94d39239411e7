"""The relay's files for a host and for Kubernetes: they start the process, and the schemas know every field."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.manifests import FOLDER, build, pods_of
from tests.kubernetes.test_manifests import VERSIONS, check
from tests.needs import kustomize_command
from tests.weight import ROOT
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.health import read as read_health
from treetap.coordinator.config import CoordinatorConfig
from treetap.ops.certs.requests import revoke
from treetap.ops.relay.command import RelayConfig
from treetap.wire.ports import Role

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("kubernetes")]
HOST = ROOT / "examples" / "hosts" / "relay"


def test_the_hosts_files_start_the_relay() -> None:
    """Unit and compose file have the same command on the file beside them, which names the federation's processes."""
    place = "/etc/treetap-relay/relay.toml"
    assert f"\nExecStart=/opt/treetap/bin/treetap relay {place}\n" in (HOST / "treetap-relay.service").read_text()
    service = yaml.safe_load((HOST / "docker-compose.yml").read_text())["services"]["relay"]
    assert service["command"] == ["relay", place]
    assert service["healthcheck"]["test"] == ["CMD", "treetap", "health", "--config", place]
    assert {"mem_limit", "pids_limit", "ulimits", "read_only", "cap_drop"} <= set(service)
    config = RelayConfig.from_file(HOST / "relay.toml")
    assert service["ports"] == [f"443:{config.listen.rpartition(':')[2]}"]
    parties = CoordinatorConfig.from_file(HOST.parent / "coordinator" / "coordinator.toml").parties
    assert config.names is not None
    assert set(config.names) == {*parties, "coordinator"}
    assert read_health(HOST / "relay.toml")[0].role is Role.RELAY


def test_the_manifests_of_a_relay(tmp_path: Path) -> None:
    """All versions' schemas know its objects; its pod runs the command on its file, and may be called at one port."""
    copy = tmp_path / "kubernetes"
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("*.key", "*.crt", "*.pem", "*.csr"))
    create_authority(tmp_path / "authority")
    revoke(tmp_path / "authority")
    issue(copy / "relay" / "tls", "relay", Role.RELAY, ca_folder=tmp_path / "authority")
    for file in ("ca.crt", "crl.pem"):
        shutil.copy(tmp_path / "authority" / file, copy / "relay" / "tls")
    objects = list(yaml.safe_load_all(build(kustomize_command(), copy / "relay").stdout))
    for version in VERSIONS:
        for one in objects:
            check(one, version)
    (pod,) = [pod for one in objects for pod in pods_of(one)]
    assert pod.container("relay")["args"] == ["relay", "/etc/treetap/relay.toml"]
    port = int(RelayConfig.from_file(copy / "relay" / "relay.toml").listen.rpartition(":")[2])
    assert [each["containerPort"] for each in pod.container("relay")["ports"]] == [port]
    policies = {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "NetworkPolicy"}
    assert set(policies) == {"default-deny", "dns", "public"}
    assert policies["public"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port}]
