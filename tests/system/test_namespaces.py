"""A job across network namespaces: every party on an address of its own, as on hosts of its own."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import role_of
from tests.system.federations import settings
from tests.worlds import PARTIES, assert_oracles_model, assert_oracles_scores, world
from treetap.commands.certs.authority import create_authority, issue
from treetap.commands.local_federation import to_toml
from treetap.trees.params import BoostingParams

pytestmark = pytest.mark.second_tier

HERE = world(60, (2, 1, 1), seed=8, missing=0.1)
PARAMS = BoostingParams(n_estimators=2, max_depth=2, max_bin=8)
#: A host per party, and one more for coordinator and operator.
ADDRESSES = {name: f"10.213.77.{number}" for number, name in enumerate([*PARTIES, "coordinator"], start=1)}
PORT = 7443


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=10)


def _space(name: str) -> str:
    return f"treetap-{os.getpid()}-{name}"


@pytest.fixture(scope="module")
def hosts() -> Iterator[None]:
    """Namespaces joined by a bridge in one more of them; nothing of it is on the machine's own network."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    hub = _space("hub")
    try:
        _ip("netns", "add", hub)
    except subprocess.CalledProcessError as failure:
        pytest.skip(f"no network namespace can be made here: {failure.stderr.strip()}")
    made = [hub]
    try:
        _ip("-n", hub, "link", "add", "bridge", "type", "bridge")
        _ip("-n", hub, "link", "set", "bridge", "up")
        for number, (name, address) in enumerate(ADDRESSES.items()):
            space = _space(name)
            _ip("netns", "add", space)
            made.append(space)
            _ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{number}", "netns", hub)
            _ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")
            _ip("-n", space, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
            _ip("-n", space, "link", "set", "lo", "up")
        yield
    finally:
        for space in made:
            _ip("netns", "delete", space)


def _treetap(name: str, *words: str) -> list[str]:
    return ["ip", "netns", "exec", _space(name), sys.executable, "-m", "treetap", *words]


def _write(folder: Path) -> None:
    """Certificates for the hosts' addresses, and everybody's configuration."""
    create_authority(folder / "certs")
    tables = settings(folder, {"train": HERE})
    for name, address in {**ADDRESSES, "operator": ADDRESSES["coordinator"]}.items():
        files = issue(folder / "certs", name, role_of(name), hosts=[address])
        tls = {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)}
        content = {"name": name, "listen": f"{address}:{PORT}", "state": f"{name}-state", "tls": tls}
        if name in PARTIES:
            policy = {"label_holders": PARTIES[:1], "peers": PARTIES[1:], **tables[name].pop("policy")}
            (folder / f"{name}-policy.toml").write_text(to_toml(policy))
            content |= {**tables[name], "policy": f"{name}-policy.toml"}
        elif name == "coordinator":
            content["parties"] = {party: f"{ADDRESSES[party]}:{PORT}" for party in PARTIES}
        else:
            content = {"coordinator": f"{ADDRESSES['coordinator']}:{PORT}", "tls": tls}
        (folder / f"{name}.toml").write_text(to_toml(content))
    job = {"label_holder": PARTIES[0], "feature_parties": PARTIES[1:], "key_bits": 1024, "max_bin": 8}
    job |= {"n_estimators": 2, "max_depth": 2}
    (folder / "job.toml").write_text(to_toml({"name": "job", "job": job}))


def _await_line(process: subprocess.Popen[str], seconds: float = 20.0) -> dict[str, str]:
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.2)[0]:
            line: dict[str, str] = json.loads(process.stdout.readline())
            return line
    raise AssertionError(f"did not serve within {seconds:g} s")


@pytest.mark.long
def test_a_job_across_hosts(hosts: None, tmp_path: Path) -> None:
    """Four hosts that reach each other by their addresses only train and predict the oracle's model."""
    _write(tmp_path)
    processes = []
    try:
        for name, address in ADDRESSES.items():
            kind = "coordinator" if name == "coordinator" else "party"
            command = _treetap(name, kind, "--config", str(tmp_path / f"{name}.toml"))
            with (tmp_path / f"{name}.log").open("w") as log:
                process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            processes.append(process)
            assert _await_line(process)["address"] == f"{address}:{PORT}"
        operator = ["--operator", str(tmp_path / "operator.toml"), "--json"]
        for words in (["train", str(tmp_path / "job.toml")], ["predict", "job", "--table", "train-new"]):
            command = _treetap("coordinator", *words, *operator)
            outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert (outcome.returncode, outcome.stderr) == (0, "")
        predictions = Path(json.loads(outcome.stdout)["predictions"])
    finally:
        for process in processes:
            process.terminate()
        codes = [process.wait(20) for process in processes]
    assert codes == [0] * len(processes)
    states = {party: tmp_path / f"{party}-state" for party in PARTIES}
    assert_oracles_model(states, HERE.oracle(PARAMS))
    assert_oracles_scores(predictions, HERE.oracle(PARAMS), HERE.newcomers, len(HERE.y))
