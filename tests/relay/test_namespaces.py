"""A job of hosts that cannot reach each other: each has one way, to a relay, and listens on its own loopback alone."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.federations import until
from tests.system.namespaces import (
    await_line,
    inside,
    ip,
    made_spaces,
    space,
    start,
    tls_of,
    train_and_predict,
    treetap_at,
    write_files,
)
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, world
from treetap.commands.certs.authority import issue
from treetap.lab.local_federation import to_toml
from treetap.models.store import TREES
from treetap.trees.params import BoostingParams
from treetap.wire.ports import Role

pytestmark = pytest.mark.second_tier

HERE = world(60, (2, 1, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)
HOSTS = [*PARTIES, "coordinator"]
#: The relay's one address, which each host reaches by a line of its own.
RELAY = "10.214.0.1"
AT = f"{RELAY}:443"
#: Tries to connect; prints True where a host was reached, by a refusal too.
CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1).close()
except OSError as failure:
    print(isinstance(failure, ConnectionRefusedError))
else:
    print(True)
"""


def _own(number: int) -> str:
    return f"10.214.{number + 1}.2"


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """A namespace for the relay, and one a host, with a route to the relay's address and to no other host."""
    with made_spaces("relay", *HOSTS):
        relay = space("relay")
        ip("-n", relay, "address", "add", f"{RELAY}/32", "dev", "lo")
        for number, name in enumerate(HOSTS):
            near, port = f"10.214.{number + 1}.1", f"port{number}"
            ip("-n", space(name), "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", relay)
            ip("-n", relay, "address", "add", f"{near}/24", "dev", port)
            ip("-n", relay, "link", "set", port, "up")
            ip("-n", space(name), "address", "add", f"{_own(number)}/24", "dev", "eth0")
            ip("-n", space(name), "link", "set", "eth0", "up")
            ip("-n", space(name), "route", "add", f"{RELAY}/32", "via", near)
        yield


def _reached(name: str, host: str, port: int) -> bool:
    command = inside(name, sys.executable, "-c", CONNECT, host, str(port))
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout == "True\n"


class Running:
    """The processes of all hosts, below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, dict[str, subprocess.Popen[str]]()

    def start(self, name: str) -> None:
        """Start a host's process, and wait until it serves."""
        file = str(self.folder / f"{name}.toml")
        kind = {"relay": "relay", "coordinator": "coordinator"}.get(name, "party")
        words = [kind, file] if name == "relay" else [kind, "--config", file]
        self.processes[name] = start(self.folder, name, *words)
        await_line(self.processes[name])

    def await_registered(self) -> None:
        """Wait until all hosts are registered at the relay that runs now."""
        registered = re.compile(r"\w+ '[\w-]+' registers, from 10\.214\.")
        until(lambda: len(set(registered.findall((self.folder / "relay.log").read_text()))) == len(HOSTS), "it")

    def stop(self) -> list[int]:
        """End all, the relay last; their statuses."""
        processes = list(self.processes.values())[::-1]
        for process in processes:
            process.terminate()
        return [process.wait(20) for process in processes]


@pytest.fixture(scope="module")
def running(hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A relay, and hosts that listen on their own loopback and dial the relay's port."""
    folder = tmp_path_factory.mktemp("relayed")
    listen = {name: f"127.0.0.1:{7101 + number}" for number, name in enumerate(HOSTS)}
    write_files(folder, HERE, listen, dict.fromkeys(HOSTS, AT), {"relay": AT, "silence_s": 5.0})
    tls = tls_of(issue(folder / "certs", "relay", Role.RELAY))
    (folder / "relay.toml").write_text(to_toml({"listen": AT, "tls": tls}))
    made = Running(folder)
    try:
        for name in ["relay", *HOSTS]:
            made.start(name)
        made.await_registered()
        yield made
    finally:
        codes = made.stop()
    assert codes == [0] * len(codes)


def _model(folder: Path, params: BoostingParams, job: str) -> None:
    states = {party: folder / f"{party}-state" for party in PARTIES}
    assert_oracles_model(states, HERE.oracle(params), job)


@pytest.mark.long
def test_a_job_of_hosts_that_cannot_reach_each_other(running: Running) -> None:
    """They train and predict the oracle's model; none has a way to another."""
    for number, name in enumerate(HOSTS):
        assert _reached(name, RELAY, 443)
        assert not _reached(name, _own((number + 1) % len(HOSTS)), 443)
    predictions = train_and_predict(running.folder)
    _model(running.folder, PARAMS, "job")
    assert_oracles_scores(predictions, HERE.oracle(PARAMS), HERE.newcomers, len(HERE.y))


@pytest.mark.campaign
@pytest.mark.long
def test_their_relay_is_killed(running: Running) -> None:
    """The operator's command ends with an error that names it; once it is back, the job comes to the oracle's model."""
    folder = running.folder
    job = tomllib.loads((folder / "job.toml").read_text())
    (folder / "long.toml").write_text(to_toml({"name": "long", "job": {**job["job"], "n_estimators": 12}}))
    operator = ["--operator", str(folder / "operator.toml"), "--json"]
    with subprocess.Popen(
        treetap_at("coordinator", "train", str(folder / "long.toml"), *operator), stdout=-1, stderr=-1, text=True
    ) as training:
        shard = folder / "label-holder-state" / "jobs" / "long" / TREES
        until(lambda: shard.is_file() and shard.stat().st_size > 0, "a tree", 60)
        killed = running.processes.pop("relay")
        killed.kill()
        killed.wait(10)
        _, error = training.communicate(timeout=60)
    assert training.returncode == 1
    assert f"{AT}" in error
    running.start("relay")
    running.processes = {"relay": running.processes.pop("relay"), **running.processes}
    running.await_registered()
    resume = treetap_at("coordinator", "resume", "long", *operator)

    def ended() -> bool:  # either the job has outlasted it, or it can be resumed once a silence has passed
        if all((folder / f"{party}-state" / "models" / "long").is_dir() for party in PARTIES):
            return True
        return subprocess.run(resume, capture_output=True, text=True, timeout=120, check=False).returncode == 0

    until(ended, "the job's end", 60)
    _model(folder, BoostingParams(n_estimators=12, max_depth=2, max_bin=8), "long")
