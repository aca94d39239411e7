"""The profile `watch` of docker-compose.yml: whose metrics Prometheus reads, and from where it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from renderers.rendering import ROOT
from renderers.watch import JOB
from treetap.coordinator.config import CoordinatorConfig
from treetap.party import config as party_config

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: Mapping[str, Any] = COMPOSE["services"]
WATCHING = {name for name, service in SERVICES.items() if service.get("profiles") == ["watch"]}


def _on(network: str) -> set[str]:
    return {name for name, service in SERVICES.items() if network in service.get("networks", ())}


def _metrics() -> Iterator[tuple[str, str | None]]:
    """Each process of the federation, and where its own file says that it answers for metrics."""
    folder = ROOT / "examples" / "compose"
    yield "coordinator", CoordinatorConfig.from_file(folder / "coordinator" / "coordinator.toml").metrics
    for name in ("label-holder", "feature-b", "feature-c"):
        yield name, party_config.read(folder / name / "party.toml").metrics


def test_prometheus_reads_each_process_on_a_network_of_the_two() -> None:
    """At an alias of that network, which the process's own file names; nothing else is on it, and it leads nowhere."""
    (scraped,) = yaml.safe_load((ROOT / "examples" / "watch" / "prometheus.yml").read_text())["scrape_configs"]
    targets = [target for group in scraped["static_configs"] for target in group["targets"]]
    assert scraped["job_name"] == JOB
    assert targets == [metrics for _, metrics in _metrics()]
    for name, metrics in _metrics():
        network = f"watch-{name}"
        assert SERVICES[name]["networks"][network]["aliases"] == [str(metrics).removesuffix(":9464")]
        assert _on(network) == {name, "prometheus"}
        assert COMPOSE["networks"][network] == {"internal": True}


def test_what_watches_has_no_other_way_in() -> None:
    """Ports are of loopback, files are read alone, and Prometheus answers on no network that a party is on."""
    assert {"prometheus", "grafana"} == WATCHING == _on("boards")
    for name in WATCHING:
        service = SERVICES[name]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert all(mount.endswith(":ro") for mount in service["volumes"] if mount.startswith("./"))
        assert service["read_only"]
        assert not {"tls", "state"} & {mount.partition("-")[0] for mount in service["volumes"]}
    assert "--web.listen-address=prometheus.boards:9090" in SERVICES["prometheus"]["command"]
    assert SERVICES["prometheus"]["networks"]["boards"]["aliases"] == ["prometheus.boards"]


@pytest.mark.parametrize("name", sorted(WATCHING))
def test_files_that_are_mounted_are_there(name: str) -> None:
    """Docker makes an empty folder of one that is not."""
    mounts = [mount.split(":")[0] for mount in SERVICES[name]["volumes"] if mount.startswith("./")]
    assert mounts
    assert [mount for mount in mounts if not (ROOT / mount).exists()] == []
