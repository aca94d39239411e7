"""examples/hosts: files that fit together, and a federation of them in which every container stands for a host."""

from __future__ import annotations

import csv
import json
import os
import random
import secrets
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import role_of
from tests.containers.composed import IMAGE, PARTIES, ROOT, Composed, compose_command
from tests.containers.leftovers import PREFIX
from tests.containers.subnets import free_subnets
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.health import read as read_address
from treetap.commands.jobs.client import OperatorConfig
from treetap.commands.jobs.job_file import JobFile
from treetap.coordinator.config import CoordinatorConfig
from treetap.ops.certs.requests import revoke
from treetap.party.config import read as read_party
from treetap.strict import load

pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.long,
    pytest.mark.timeout(1200),
    pytest.mark.xdist_group("containers"),
]
HOSTS = ROOT / "examples" / "hosts"
DOMAIN = "example.org"


def test_the_files_of_all_hosts_agree() -> None:
    """The coordinator dials parties where they listen, the operator the coordinator, and the job names the parties."""
    coordinator = CoordinatorConfig.from_file(HOSTS / "coordinator" / "coordinator.toml")
    assert set(coordinator.parties) == set(PARTIES)
    for party in PARTIES:
        config = read_party(HOSTS / party / "party.toml")
        assert config.name == party
        assert coordinator.parties[party] == f"{party}.{DOMAIN}:{config.listen.rpartition(':')[2]}"
        assert set(config.tables) == {"train", "predict"}
        assert (config.tables["train"].label is not None) == (party == "label-holder")
    port = coordinator.listen.rpartition(":")[2]
    assert OperatorConfig.from_file(HOSTS / "operator" / "operator.toml").coordinator == f"coordinator.{DOMAIN}:{port}"
    job = load(HOSTS / "operator" / "job.toml", JobFile).job
    assert [job.label_holder, *job.feature_parties] == list(PARTIES)


@pytest.mark.parametrize("host", ["coordinator", *PARTIES])
def test_unit_and_compose_file_start_the_process_of_their_folder(host: str) -> None:
    """The unit's command and the container's are the same sub-command on the same file, which lies beside them."""
    kind, place = ("coordinator", "/etc/treetap-coordinator") if host == "coordinator" else ("party", "/etc/treetap")
    assert (HOSTS / host / f"{kind}.toml").is_file()
    unit = (HOSTS / host / f"treetap-{kind}.service").read_text()
    assert f"\nExecStart=/opt/treetap/bin/treetap {kind} --config {place}/{kind}.toml\n" in unit
    assert {"LimitCORE=0", "LimitNOFILE=65536", "TasksMax=512"} <= set(unit.splitlines())
    limits = (HOSTS / host / "docker-compose.yml").read_text()
    assert all(f"{limit}:" in limits for limit in ("mem_limit", "pids_limit", "nofile", "core"))
    command = compose_command()
    if command is None:
        pytest.skip("neither `docker compose` nor `docker-compose` is installed")
    shown = subprocess.run([*command, "config"], cwd=HOSTS / host, capture_output=True, text=True, check=True).stdout
    words = [line.strip().removeprefix("- ") for line in shown.splitlines()]
    start = words.index("command:") + 1
    assert words[start : start + 3] == [kind, "--config", f"{place}/{kind}.toml"]
    assert read_address(HOSTS / host / f"{kind}.toml")[0].name == host


@pytest.fixture
def hosts(composed: Composed, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A container per host, reached by its host name, with its folder of examples/hosts and its own certificate."""
    from docker.types import IPAMConfig, IPAMPool

    create_authority(tmp_path / "authority")
    revoke(tmp_path / "authority")
    _tables(tmp_path)
    (subnet,) = free_subnets(composed.client, 1)
    pools = IPAMConfig(pool_configs=[IPAMPool(subnet=subnet)])
    network = composed.client.networks.create(f"{PREFIX}hosts-{secrets.token_hex(3)}", internal=True, ipam=pools)
    running: dict[str, Any] = {}
    try:
        for host in (*PARTIES, "coordinator"):
            kind, name = ("coordinator", "treetap-coordinator") if host == "coordinator" else ("party", "treetap")
            folder = _folder(tmp_path, host)
            places = {folder: f"/etc/{name}", tmp_path / "tables" / host: "/srv/treetap"}
            binds = {str(source): {"bind": place, "mode": "ro"} for source, place in places.items()}
            (tmp_path / "state" / host).mkdir(parents=True)
            binds[str(tmp_path / "state" / host)] = {"bind": f"/var/lib/{name}", "mode": "rw"}
            running[host] = _start(composed, network, host, [kind, "--config", f"/etc/{name}/{kind}.toml"], binds)
        operator = {str(_folder(tmp_path, "operator")): {"bind": "/operator", "mode": "ro"}}
        running["operator"] = _start(composed, network, "operator", ["infinity"], operator, entrypoint="sleep")
        yield running
    finally:
        for container in running.values():
            container.remove(force=True)
        network.remove()


def test_the_hosts_train_and_predict(hosts: dict[str, Any], tmp_path: Path) -> None:
    """Every process answers its health check by host name; the job trains and the label holder's state has the file."""
    own = ["--ca", "tls/ca.crt", "--certificate", "tls/operator.crt", "--key", "tls/operator.key"]
    for host in (*PARTIES, "coordinator"):
        address = f"{host}.{DOMAIN}:{7100 if host == 'coordinator' else 7101}"
        # Wait until a command ends with 0.
        container = hosts["operator"]
        command = ["treetap", "health", "--address", address, "--name", host, "--role", role_of(host), *own]
        deadline = time.monotonic() + 60.0
        while (ended := _run(container, command))[0] != 0:
            assert time.monotonic() < deadline, ended[1]
            time.sleep(0.5)
    status, output = _run(hosts["operator"], ["treetap", "train", "job.toml", "--json"])
    assert status == 0, output
    assert json.loads(output[output.index("{") :])["metrics"]["train_auc"] > 0.8
    status, output = _run(hosts["operator"], ["treetap", "predict", "first", "--name", "new"])
    assert status == 0, output
    assert (tmp_path / "state" / "label-holder" / "predictions" / "new.parquet").is_file()
    assert (tmp_path / "state" / "feature-c" / "transcripts" / "first").is_dir()


def _tables(folder: Path) -> None:
    """The tables that the hosts' files describe, 80 records to train on and 20 new ones."""
    draw = random.Random(1)
    columns = {"label-holder": ["income", "age"], "feature-b": ["calls", "months"], "feature-c": ["basket", "visits"]}
    people = {f"c{i:03}": [draw.gauss(0, 1) for _ in range(6)] for i in range(100)}
    for number, (party, names) in enumerate(columns.items()):
        (folder / "tables" / party).mkdir(parents=True)
        for table, ids in (("train", list(people)[:80]), ("predict", list(people)[80:])):
            rows = [[i, *people[i][2 * number : 2 * number + 2]] for i in draw.sample(ids, len(ids))]
            header = ["id", *names]
            if party == "label-holder" and table == "train":
                header.append("repaid")
                rows = [[*row, int(sum(people[row[0]][::2]) > 0)] for row in rows]
            with (folder / "tables" / party / f"{table}.csv").open("w", newline="") as file:
                csv.writer(file).writerows([header, *rows])
    (folder / "tables" / "coordinator").mkdir()


def _folder(tmp_path: Path, host: str) -> Path:
    """What is copied to a host: its configuration and, in tls, its certificate."""
    folder = tmp_path / "etc" / host
    shutil.copytree(HOSTS / host, folder)
    issue(folder / "tls", host, role_of(host), ca_folder=tmp_path / "authority")
    for file in ("ca.crt", "crl.pem"):
        shutil.copy(tmp_path / "authority" / file, folder / "tls")
    return folder


def _start(
    composed: Composed, network: Any, host: str, command: list[str], binds: dict[str, Any], **changes: Any
) -> Any:
    """A container with a host's name, as the user whose files it mounts."""
    container = composed.client.containers.create(
        IMAGE,
        command,
        name=f"{network.name}-{host}",
        volumes=binds,
        user=f"{os.getuid()}:{os.getgid()}",
        network="none",
        read_only=True,
        **changes,
    )
    composed.client.networks.get("none").disconnect(container)
    network.connect(container, aliases=[f"{host}.{DOMAIN}"])
    container.start()
    return container


def _run(container: Any, command: list[str]) -> tuple[int, str]:
    status, output = container.exec_run(command, workdir="/operator")
    return status, output.decode()
