"""Federations of real processes on the worlds of `tests.worlds`, and what is left of them on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.worlds import World
from treetap.lab.local_federation import LocalFederation, to_toml
from treetap.models.durable import write_whole
from treetap.models.store import TREES
from treetap.party.policy import merged
from treetap.wire.v2 import jobs_pb2


def settings(folder: Path, worlds: Mapping[str, World], **policy: Any) -> dict[str, dict[str, Any]]:
    """Each party's settings, its tables written below `folder`.

    Of world `w` it has the tables `w` to train on and `w-new` to predict; `policy` is every party's.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, world in worlds.items():
        for party, (columns, tables) in world.tables.items():
            policy = merged({"keys": {"min_key_bits": 1024}, "columns": {"min_common_records": 1}}, policy)
            own = found.setdefault(party, {"workers": 1, "policy": policy, "tables": {}})["tables"]
            for kind, table in tables.items():
                path = folder / "tables" / party / f"{name}-{kind}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                pq.write_table(table, path)
                config = {"path": str(path), "id": "id", "columns": columns}
                if "y" in table.column_names:
                    config["label"] = "y"
                own[name if kind == "train" else f"{name}-new"] = config
    return found


def states(federation: LocalFederation, world: World) -> dict[str, Path]:
    """The parties' state folders."""
    return {party: federation.state(party) for party in world.tables}


def write_operator_file(federation: LocalFederation) -> Path:
    """An `operator.toml` for the command line."""
    path = federation.folder / "operator.toml"
    content = {"coordinator": federation.addresses["coordinator"], "tls": federation._tls("operator")}
    write_whole(path, to_toml(content).encode())
    return path


def shards(federation: LocalFederation, world: World, job: str) -> dict[str, bytes]:
    """Every party's half of a model, byte for byte."""
    return {party: (state / "models" / job / TREES).read_bytes() for party, state in states(federation, world).items()}


def has_stored(federation: LocalFederation, party: str, job: str) -> bool:
    """True if a party has stored a tree of a job that is under way."""
    shard = federation.state(party) / "jobs" / job / TREES
    return shard.is_file() and shard.stat().st_size > 0


def ended(federation: LocalFederation, job: str) -> jobs_pb2.JobStatus:
    """The job's status once it does not run any more."""
    return federation.operator.watch(job, lambda _: None)


def until(condition: Callable[[], bool], what: str, seconds: float = 15.0) -> None:
    """Wait for something that another process is about to do."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.02)
