"""Workers on a cluster of Ray: memories that outlive a loss, sums that are those of one machine, faults by name."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tests.library.lattice.histogram_tables import SEED, SHAPES, drawn, sizes
from tests.ray_cluster import RayCluster
from tests.shards_here import ShardsHere
from tests.worker_kernels import doze, imported, process, refuse, remember, size_of, work_slowly
from treetap.errors import BadInput, Defect, Interrupted
from treetap.lattice.histogram_shards import Shards
from treetap.workers.cluster.driver import exposed
from treetap.workers.cluster.engine import Cluster, ClusterHost
from treetap.workers.cluster.nodes import fault_of, own_report
from treetap.workers.settings import ClusterConfig

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("ray")]
MODULES = ["treetap.psi"]
#: Long enough for Ray to notice a loss first.
SILENCE_S = 3.0
Lists = list[list[Any]]


def at_once(answers: Lists) -> Lists:
    """The answers of all workers."""
    return answers


@pytest.fixture(scope="module")
def host(ray_cluster: RayCluster) -> Iterator[ClusterHost]:
    """Two workers on a cluster of two nodes, which the tests of this module share."""
    made = ClusterHost(ClusterConfig(address=ray_cluster.address, workers=2, cpus=0.4), 20.0, MODULES)
    try:
        asyncio.run(made.lease().connect())
        yield made
    finally:
        asyncio.run(made.close())


async def of_all(cluster: Cluster, kernel: Any, *args: Any, **more: Any) -> Any:
    """What a kernel returns in each worker."""
    return await cluster.run(kernel, dict.fromkeys(range(cluster.workers), args), total=at_once, **more)


def test_memories_are_the_workers_own(host: ClusterHost) -> None:
    """Workers are on both nodes, import what they are told, take long messages, forget what is over."""

    async def main() -> None:
        cluster = host.lease()
        await cluster.run(remember, {0: ("own/a", 1), 1: ("own/a", 2)}, keep="own/")
        assert await of_all(cluster, remember, "own/a", 3) == [[1, 3], [2, 3]]
        content = os.urandom(20_000_000)
        assert await of_all(cluster, size_of, content) == [len(content)] * 2
        assert await of_all(cluster, imported, "treetap.psi") == [True, True]
        cluster.forget("own/")
        assert await of_all(cluster, remember, "own/a", 4) == [[4], [4]]
        assert sorted(host.usage()) == ["cluster driver", "cluster worker 0", "cluster worker 1"]
        assert all(used.peak_rss_mb > 20 for used in host.usage().values())

    asyncio.run(main())


def test_bytes_are_counted(host: ClusterHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of every call and answer, and of what is repeated."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(host, "traffic", lambda sent, received: told.append((sent, received)))

    async def main() -> None:
        cluster = host.lease()
        await cluster.run(remember, {0: ("bytes", b"x" * 50_000)}, keep="bytes")
        await of_all(cluster, size_of, b"")
        os.kill((await of_all(cluster, process))[0], signal.SIGKILL)
        await cluster.run(size_of, {0: (b"",)})
        cluster.forget("bytes")

    asyncio.run(main())
    (kept, answer), (asked, answers), _, (again, _) = told
    assert 50_000 < kept < again < 51_000
    assert 0 < answer < 60_000 > answers
    assert 0 < asked < 1000


def test_a_lost_worker_is_what_it_was(host: ClusterHost, caplog: pytest.LogCaptureFixture) -> None:
    """Killed at rest or amid a call: another one repeats what it kept, then the call, and the other worker none."""

    async def main() -> None:
        cluster = host.lease()
        for value in (1, 2):
            await cluster.run(remember, {0: ("lost", value), 1: ("lost", value)}, keep="lost")
        await cluster.run(remember, {0: ("lost", 3), 1: ("lost", 3)})  # which is not kept
        pids = await of_all(cluster, process)
        os.kill(pids[0], signal.SIGKILL)
        assert await of_all(cluster, remember, "lost", 4) == [[1, 2, 4], [1, 2, 3, 4]]
        pids = await of_all(cluster, process)
        call = asyncio.ensure_future(of_all(cluster, doze, 1.5))
        await asyncio.sleep(0.5)
        os.kill(pids[1], signal.SIGKILL)
        assert await call == [1.5, 1.5]
        assert await of_all(cluster, remember, "lost", 5) == [[1, 2, 4, 5], [1, 2, 5]]
        await cluster.run(remember, {0: ("lost", 6), 1: ("lost", 6)}, keep="lost", anew=True)
        os.kill((await of_all(cluster, process))[0], signal.SIGKILL)
        assert (await of_all(cluster, remember, "lost", 7))[0] == [6, 7]
        cluster.forget("lost")

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert re.search(
        r"worker 1 of the cluster \(process \d+ on node .*\) died: .*; its shard is summed anew", caplog.text
    )


def test_words_of_a_cluster_are_not_the_partys(host: ClusterHost) -> None:
    """An error that leaves the party is its own sentence; what the worker said stands in its notes, for the log."""
    with pytest.raises(Defect) as caught:
        asyncio.run(of_all(host.lease(), refuse))
    assert re.fullmatch(
        r"worker 0 of the cluster \(process \d+ on node .*\) failed \(Malformed\): the log has its words",
        str(caught.value),
    )
    assert "not a ciphertext" in caught.value.__notes__[0]
    assert "worker_kernels.py" in "".join(caught.value.__notes__)


def test_sums_of_shards_are_those_of_one_machine(host: ClusterHost) -> None:
    """Actors sum words and products as this process does, bit by bit, also where one is killed between two calls."""
    records, rng = 5000, np.random.default_rng(0)
    codes, _ = drawn(rng, records, SHAPES)
    parameters, _ = sizes(records, SHAPES)
    words = rng.bytes(records * parameters.words * 13)

    async def totals(cluster: Any, *, lose: bool) -> list[Any]:
        shards = Shards(cluster, parameters, SEED, "same")
        await shards.start(codes, SHAPES)
        for at in range(0, records, 1000):
            width = parameters.words * 13
            await shards.take(at, words[at * width : (at + 1000) * width])
        await shards.enter(np.arange(0, records, 3), np.arange(len(SHAPES)), SHAPES)
        if lose:
            os.kill((await of_all(cluster, process))[0], signal.SIGKILL)
        found = [await shards.words(), *[products async for products in shards.products(SHAPES)]]
        shards.close()
        return found

    async def main() -> None:
        here = await totals(ShardsHere(1), lose=False)
        for lose in (False, True):
            there = await totals(host.lease(), lose=lose)
            assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))

    asyncio.run(main())


def refused(**config: Any) -> str:
    """The error with which a party does not start."""

    async def main() -> str:
        made = ClusterHost(ClusterConfig(**{"workers": 1, **config}), 20.0, [])
        try:
            with pytest.raises(BadInput) as caught:
                await made.lease().connect()
        finally:
            await made.close()
        return str(caught.value)

    return asyncio.run(main())


def test_fewer_processors_than_workers(ray_cluster: RayCluster) -> None:
    """The error names the field, what each worker needs and what the cluster has, after `start_s`."""
    found = refused(address=ray_cluster.address, workers=3, cpus=1.5, resources={"rack": 1.0}, start_s=1.0)
    assert "cluster.workers = 3 need 1.5 CPU and 1 rack each (cluster.cpus" in found
    assert "within cluster.start_s = 1 s: its 2 nodes have 2 CPU" in found
    assert "0 rack (0 free)" in found


def test_an_address_where_nothing_listens() -> None:
    """The deadline passes, and the error names the address and the command that starts a head there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    start = time.monotonic()
    found = refused(address=f"127.0.0.1:{port}", start_s=0.5)
    assert f"no cluster answers at 127.0.0.1:{port} within cluster.start_s = 0.5 s (Connection refused)" in found
    assert f"ray start --head --port={port}" in found
    assert time.monotonic() - start < 15


def test_an_address_that_takes_connections_and_never_speaks() -> None:
    """The process that would connect is killed at the deadline, and the error names the address."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        found = refused(address=address, start_s=1.0)
    assert f"{address} takes connections, but no cluster of Ray answered there within cluster.start_s = 1 s" in found


def test_a_node_elsewhere_needs_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of another machine is refused before anything connects, unless Ray or the network encrypts."""
    config = ClusterConfig(address="198.51.100.7:6379", workers=1)
    with pytest.raises(BadInput, match=r"node 198\.51\.100\.7 is another machine, and Ray does not encrypt"):
        ClusterHost(config, 20.0, [])
    assert exposed("198.51.100.7", unencrypted=True) == ""
    assert exposed("127.0.0.1", unencrypted=False) == ""
    assert exposed("no.such.host.invalid", unencrypted=False) != ""
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert exposed("198.51.100.7", unencrypted=False) == ""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"python": "3.9.1"}, r"node N of the cluster runs Python 3\.9\.1, this party Python .*: start Ray there"),
        ({"treetap": "0.0.9"}, r"node N .* has treetap 0\.0\.9, this party .*: install treetap"),
        (
            {"sources": "f" * 64},
            r"node N .* has other sources of treetap .* \(digests f{12} and .*\): install the same",
        ),
        ({"missing": "No module named 'treetap'"}, r"node N .* has no treetap .*: install treetap .* there"),
        ({}, ""),
    ],
)
def test_other_software_of_a_node(change: dict[str, str], message: str) -> None:
    """A node's report is compared with the party's own software; the error names both and the remedy."""
    own = own_report()
    assert re.match(message, fault_of({**own, "node": "N", **change}, own))


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party whose installation lacks Ray does not start."""
    monkeypatch.setattr("treetap.workers.cluster.engine.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"ray is not installed: \S*pip install -e '\S*\[cluster\]'"):
        ClusterHost(ClusterConfig(workers=1), 20.0, [])


def test_the_party_imports_no_ray(host: ClusterHost) -> None:
    """Ray is a matter of the driver: this process, which has used the cluster, has not imported it."""
    assert host.nodes
    assert not [name for name in sys.modules if name.partition(".")[0] == "ray"]


@pytest.mark.campaign
def test_losses_are_named_and_made_good() -> None:
    """A hung worker or driver, a node, the head: each loss is named, and the next attempt has workers."""

    async def main(cluster: RayCluster) -> None:
        config = ClusterConfig(address=cluster.address, workers=2, start_s=5.0)
        host = ClusterHost(config, SILENCE_S, MODULES)
        try:
            await host.lease().connect()
            await suspend_a_worker(host)
            await suspend_the_driver(host)
            await lose_a_node(host, cluster)
            await lose_the_head(host, cluster)
        finally:
            await host.close()

    with RayCluster(nodes=2) as cluster:
        asyncio.run(main(cluster))


async def suspend_a_worker(host: ClusterHost) -> None:
    """It finishes no unit of work, and another one takes its place; one that finishes units is let be."""
    cluster = host.lease()
    assert await of_all(cluster, work_slowly, 2 * SILENCE_S) == ["done"] * 2
    os.kill((await of_all(cluster, process))[0], signal.SIGSTOP)
    assert await asyncio.wait_for(of_all(cluster, doze, 0), 4 * SILENCE_S) == [0, 0]


async def suspend_the_driver(host: ClusterHost) -> None:
    """The attempt ends by its name, and the next one does not wait for it."""
    cluster = host.lease()
    await of_all(cluster, doze, 0)
    os.kill(host.driver.pid, signal.SIGSTOP)
    with pytest.raises(Interrupted, match=f"the connection to the cluster .* no unit of work for {SILENCE_S:g} s"):
        await of_all(cluster, doze, 0)
    assert await asyncio.wait_for(of_all(host.lease(), doze, 0), 30) == [0, 0]


async def lose_a_node(host: ClusterHost, cluster: RayCluster) -> None:
    """Without room elsewhere the attempt ends; with room its worker is placed there."""
    mine = host.lease()
    busy = asyncio.ensure_future(of_all(mine, work_slowly, 10))
    await asyncio.sleep(1.0)
    cluster.kill(1)
    with pytest.raises(Interrupted, match=r"workers = 2 need 1 CPU each .* had no room for all of them within"):
        await busy
    cluster.add()
    assert await asyncio.wait_for(of_all(host.lease(), doze, 0), 60) == [0, 0]


async def lose_the_head(host: ClusterHost, cluster: RayCluster) -> None:
    """Kill the head in the middle of calls, and start another one at its address."""
    call = asyncio.ensure_future(of_all(host.lease(), work_slowly, 60))
    await asyncio.sleep(1.0)
    cluster.kill(0)
    with pytest.raises(Interrupted, match=rf"(connection to|lost with) the cluster {cluster.address}|its cluster"):
        await asyncio.wait_for(call, 30)
    for _ in range(3):  # the driver may yet be about to end with its head
        with pytest.raises(Interrupted) as caught:
            await of_all(host.lease(), doze, 0)
    assert str(caught.value) == "the cluster cannot be used any more; details are in this party's log"
    cluster.start_again(cpus=2)
    for _ in range(5):
        with suppress(Interrupted):
            assert await of_all(host.lease(), remember, "a", 1) == [[1], [1]]
            return
    raise AssertionError("the workers have not come back")
