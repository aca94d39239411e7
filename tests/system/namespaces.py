"""Network namespaces that stand for hosts, and a federation's files and processes in them."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import role_of
from tests.system.federations import settings
from tests.worlds import PARTIES, World
from treetap.commands.certs.authority import create_authority, issue
from treetap.lab.local_federation import to_toml
from treetap.party.policy import merged
from treetap.wire.tls import TlsFiles

PORT = 7443


def ip(*words: str) -> None:
    """Carry out a command of iproute2."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=10)


def space(name: str) -> str:
    """The namespace of a host, of this process's own."""
    return f"treetap-{os.getpid()}-{name}"


@contextmanager
def made_spaces(hub: str, *names: str) -> Iterator[None]:
    """A namespace `hub` and others, each with its own loopback; the test is skipped where none can be made."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip (iproute2)")
    try:
        ip("netns", "add", space(hub))
    except subprocess.CalledProcessError as failure:
        pytest.skip(f"no network namespace can be made here: {failure.stderr.strip()}")
    made = [space(hub)]
    try:
        for name in names:
            ip("netns", "add", space(name))
            made.append(space(name))
        for namespace in made:
            ip("-n", namespace, "link", "set", "lo", "up")
        yield
    finally:
        for namespace in made:
            ip("netns", "delete", namespace)


def inside(name: str, *words: str) -> list[str]:
    """The command that runs another on a host."""
    return ["ip", "netns", "exec", space(name), *words]


def treetap_at(name: str, *words: str) -> list[str]:
    """The command `treetap …` on a host."""
    return inside(name, sys.executable, "-m", "treetap", *words)


def tls_of(files: TlsFiles) -> dict[str, str]:
    """The table `[tls]` of files."""
    return {"ca": str(files.ca), "certificate": str(files.certificate), "key": str(files.key)}


def write_files(
    folder: Path,
    world: World,
    listen: Mapping[str, str],
    reached: Mapping[str, str],
    more: Mapping[str, Any] | None = None,
) -> None:
    """Certificates, and everybody's configuration.

    Args:
        folder: where they go.
        world: the parties' tables.
        listen: party or coordinator → the address at which it listens.
        reached: the same → the address that others call.
        more: further keys of the parties' and the coordinator's files.
    """
    create_authority(folder / "certs")
    tables = settings(folder, {"train": world})
    for name in [*listen, "operator"]:
        hosts = [listen.get(name, listen["coordinator"]).rpartition(":")[0]]
        tls = tls_of(issue(folder / "certs", name, role_of(name), hosts=hosts))
        if name == "operator":
            content: dict[str, Any] = {"coordinator": reached["coordinator"], "tls": tls}
        else:
            content = {"name": name, "listen": listen[name], "state": f"{name}-state", "tls": tls, **(more or {})}
        if name in PARTIES:
            policy = merged(
                {"people": {"label_holders": PARTIES[:1], "peers": PARTIES[1:]}}, tables[name].pop("policy")
            )
            (folder / f"{name}-policy.toml").write_text(to_toml(policy))
            content |= {**tables[name], "policy": f"{name}-policy.toml"}
        elif name == "coordinator":
            content["parties"] = {party: reached[party] for party in PARTIES}
        (folder / f"{name}.toml").write_text(to_toml(content))
    job = {"label_holder": PARTIES[0], "feature_parties": PARTIES[1:], "key_bits": 1024, "max_bin": 8}
    job |= {"n_estimators": 2, "max_depth": 2}
    (folder / "job.toml").write_text(to_toml({"name": "job", "job": job}))


def start(folder: Path, name: str, *words: str) -> subprocess.Popen[str]:
    """Start a process of `treetap` on a host, with its log in the folder."""
    with (folder / f"{name}.log").open("w") as log:
        return subprocess.Popen(treetap_at(name, *words), stdout=subprocess.PIPE, stderr=log, text=True)


def await_line(process: subprocess.Popen[str], seconds: float = 30.0) -> dict[str, str]:
    """The line that a process prints when it serves."""
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.2)[0]:
            line: dict[str, str] = json.loads(process.stdout.readline())
            return line
    raise AssertionError(f"did not serve within {seconds:g} s")


def train_and_predict(folder: Path) -> str:
    """The operator's job, at the coordinator's host; returns the predictions' file."""
    operator = ["--operator", str(folder / "operator.toml"), "--json"]
    for words in (["train", str(folder / "job.toml")], ["predict", "job", "--table", "train-new"]):
        command = treetap_at("coordinator", *words, *operator)
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert outcome.returncode == 0, outcome.stderr
    return str(json.loads(outcome.stdout)["predictions"])
