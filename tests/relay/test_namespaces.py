"""A job of hosts that cannot reach each other: each has one way, to a relay, and listens on its own loopback alone."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.namespaces import (
    await_line,
    inside,
    ip,
    made_spaces,
    space,
    start,
    tls_of,
    train_and_predict,
    write_files,
)
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, world
from treetap.commands.certs.authority import issue
from treetap.commands.local_federation import to_toml
from treetap.trees.params import BoostingParams
from treetap.wire.roles import Role

pytestmark = pytest.mark.second_tier

HERE = world(60, (2, 1, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)
HOSTS = [*PARTIES, "coordinator"]
#: The relay's one address, which each host reaches by a line of its own.
RELAY = "10.214.0.1"
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


@pytest.mark.long
def test_a_job_of_hosts_that_cannot_reach_each_other(hosts: None, tmp_path: Path) -> None:
    """They train and predict the oracle's model, and all that they dial is the relay's port."""
    at = f"{RELAY}:443"
    listen = {name: f"127.0.0.1:{7101 + number}" for number, name in enumerate(HOSTS)}
    write_files(tmp_path, HERE, listen, dict.fromkeys(HOSTS, at), {"relay": at})
    tls = tls_of(issue(tmp_path / "certs", "relay", Role.RELAY))
    (tmp_path / "relay.toml").write_text(to_toml({"listen": at, "tls": tls}))
    processes = [start(tmp_path, "relay", "relay", str(tmp_path / "relay.toml"))]
    try:
        assert await_line(processes[0])["address"] == at
        for number, name in enumerate(HOSTS):
            assert _reached(name, RELAY, 443)
            assert not _reached(name, _own((number + 1) % len(HOSTS)), 443)
            kind = "coordinator" if name == "coordinator" else "party"
            processes.append(start(tmp_path, name, kind, "--config", str(tmp_path / f"{name}.toml")))
            await_line(processes[-1])
        deadline = time.monotonic() + 15
        while (log := (tmp_path / "relay.log").read_text()).count(" registers, from 10.214.") < len(HOSTS):
            assert time.monotonic() < deadline, log
            time.sleep(0.05)
        predictions = train_and_predict(tmp_path)
    finally:
        for process in processes[::-1]:
            process.terminate()
        codes = [process.wait(20) for process in processes]
    assert codes == [0] * len(processes)
    states = {party: tmp_path / f"{party}-state" for party in PARTIES}
    assert_oracles_model(states, HERE.oracle(PARAMS))
    assert_oracles_scores(predictions, HERE.oracle(PARAMS), HERE.newcomers, len(HERE.y))
