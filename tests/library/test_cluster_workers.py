"""Workers in actors of a cluster of Ray: the same properties as workers in processes, and the faults of a cluster."""

from __future__ import annotations

import asyncio
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

from tests import worker_contract
from tests.library.additive.sums.test_tree_sums import KEY, LARGEST, plain_candidates, table
from tests.ray_cluster import RayCluster
from tests.worker_kernels import doze, remember, work_slowly
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import BadInput, Interrupted
from treetap.trees.slots import Slots, width_for
from treetap.workers.cluster import engine as engine_module
from treetap.workers.cluster.addresses import exposed
from treetap.workers.cluster.engine import ClusterEngine
from treetap.workers.cluster.report import fault_of, own_report
from treetap.workers.engines import Engine, InProcessEngine, ProcessEngine, await_workers
from treetap.workers.settings import ClusterConfig

pytestmark = [pytest.mark.second_tier, pytest.mark.xdist_group("ray")]
MODULES = ["treetap.psi"]
#: Long enough for Ray to notice a loss first.
SILENCE_S = 3.0


def closed(engine: ClusterEngine) -> None:
    asyncio.run(engine.close())


@pytest.fixture(scope="module")
def engine(ray_cluster: RayCluster) -> Iterator[ClusterEngine]:
    """Two workers on a cluster of two nodes, which the tests of this module share."""
    made = ClusterEngine(ClusterConfig(address=ray_cluster.address, cpus=0.4), 2, 20.0, MODULES)
    made.start()
    try:
        asyncio.run(await_workers(made))
        yield made
    finally:
        closed(made)


@pytest.mark.parametrize(
    "scenario", [*worker_contract.PEACEFUL, *worker_contract.FATAL], ids=lambda each: each.__name__
)
def test_contract(engine: ClusterEngine, scenario: Any) -> None:
    """Actors have the properties that worker processes have."""
    asyncio.run(scenario(engine))


def test_encrypted_sums_are_the_same(engine: ClusterEngine) -> None:
    """Actors compute the products that worker processes compute, byte for byte; candidates decrypt to numpy's sums."""
    rng = np.random.default_rng(0)
    shapes = [(5, True), (3, False), (7, False)]
    codes, columns = table(rng, 300, shapes)
    nodes = [np.arange(0, 300, 3), np.arange(1, 300, 3)]

    width = width_for(300, LARGEST)
    slots = Slots((width, width, width_for(300, 1)))

    async def sums_on(each: Engine, owner: KeyHolder, blocks: list[tuple[int, bytes]]) -> Any:
        sums = EncryptedSums(each, KEY.public, slots, codes, shapes, "same")
        try:
            for start, blob in blocks:
                await sums.add_block(np.arange(start, start + len(blob) // KEY.public.ciphertext_bytes), blob)
            packed = await sums.candidates(nodes, np.arange(sums.n_candidates))
            products = [await sums._sum_bins(which, None) for which in (None, nodes)]
            return products, await owner.open(packed, 2 * sums.n_candidates)
        finally:
            await sums.close()

    async def run() -> None:
        owner = KeyHolder(InProcessEngine(), KEY, slots, "short-exponent", "t")
        await owner.start()
        blocks = [block async for block in owner.encrypt_blocks(columns, 64)]
        processes = ProcessEngine(2, 20.0)
        processes.start()
        try:
            there, here = [await sums_on(each.lease(), owner, blocks) for each in (engine, processes)]
        finally:
            await processes.close()
        assert there[0] == here[0]
        expected = np.concatenate([plain_candidates(codes, columns, shapes, rows) for rows in nodes])
        assert np.array_equal(there[1], expected)
        assert np.array_equal(here[1], expected)

    asyncio.run(run())


async def refused(config: ClusterConfig, workers: int = 1) -> str:
    """The error with which an engine does not start."""
    made = ClusterEngine(config, workers, 20.0)
    try:
        made.start()
        with pytest.raises(BadInput) as caught:
            await await_workers(made)
    finally:
        await made.close()
    return str(caught.value)


def test_fewer_processors_than_workers(ray_cluster: RayCluster) -> None:
    """The error names the field, what each worker needs and what the cluster has, after `start_s`."""
    config = ClusterConfig(address=ray_cluster.address, cpus=1.5, resources={"rack": 1.0}, start_s=1.0)
    found = asyncio.run(refused(config, 3))
    assert "workers = 3 need 1.5 CPU and 1 rack each (cluster.cpus" in found
    assert "within cluster.start_s = 1 s: its 2 nodes have 2 CPU" in found
    assert "0 rack (0 free)" in found


def test_an_address_where_nothing_listens() -> None:
    """The deadline passes, and the error names the address and the command that starts a head there."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    start = time.monotonic()
    found = asyncio.run(refused(ClusterConfig(address=f"127.0.0.1:{port}", start_s=0.5)))
    assert f"no cluster answers at 127.0.0.1:{port} within cluster.start_s = 0.5 s (Connection refused)" in found
    assert f"ray start --head --port={port}" in found
    assert time.monotonic() - start < 15


def test_an_address_that_takes_connections_and_never_speaks() -> None:
    """The process that would connect is killed at the deadline, and the error names the address."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        found = asyncio.run(refused(ClusterConfig(address=address, start_s=1.0)))
    assert f"{address} takes connections, but no cluster of Ray answered there within cluster.start_s = 1 s" in found


def test_a_node_elsewhere_needs_encryption(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address of another machine is refused before anything connects, unless Ray or the network encrypts."""
    config = ClusterConfig(address="198.51.100.7:6379")
    with pytest.raises(BadInput, match=r"node 198\.51\.100\.7 is another machine, and Ray does not encrypt"):
        ClusterEngine(config, 1, 20.0).start()
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


def test_a_report_of_another_treetap_stops_the_start(ray_cluster: RayCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of actors are checked before they get a call."""
    fake = {**own_report(), "treetap": "9.9.9"}
    monkeypatch.setattr(engine_module, "own_report", lambda: fake)
    found = asyncio.run(refused(ClusterConfig(address=ray_cluster.address, cpus=0.1)))
    assert re.search(r"node .* of the cluster has treetap .*, this party 9\.9\.9: install treetap 9\.9\.9 there", found)


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A party whose installation lacks Ray does not start."""
    monkeypatch.setattr("treetap.workers.cluster.engine.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"ray is not installed: \S*pip install -e '\S*\[cluster\]'"):
        ClusterEngine(ClusterConfig(), 1, 20.0).start()


def test_the_party_imports_no_ray(engine: ClusterEngine) -> None:
    """Ray is a matter of the bridge: this process, which has used the engine, has not imported it."""
    assert engine.started
    assert not [name for name in sys.modules if name.partition(".")[0] == "ray"]


@pytest.mark.campaign
def test_losses_are_named_and_made_good() -> None:
    """A hung worker or bridge, a node, the head: each loss is named; the next attempt has workers."""

    async def run(cluster: RayCluster) -> None:
        engine = ClusterEngine(ClusterConfig(address=cluster.address, start_s=5.0), 2, SILENCE_S, MODULES)
        engine.start()
        try:
            await await_workers(engine)
            await worker_contract.a_suspended_worker_is_ended(engine, SILENCE_S)
            await suspend_the_bridge(engine)
            await lose_a_node(engine, cluster)
            await lose_the_head(engine, cluster)
        finally:
            await engine.close()

    with RayCluster(nodes=2) as cluster:
        asyncio.run(run(cluster))


async def suspend_the_bridge(engine: ClusterEngine) -> None:
    """Suspend the process that relays all calls: it is replaced, and the next attempt does not wait for it."""
    mine = engine.lease()
    assert engine._cluster is not None
    assert engine._cluster._bridge is not None
    os.kill(engine._cluster._bridge._process.pid or 0, signal.SIGSTOP)
    with pytest.raises(Interrupted, match=f"no unit of work for {SILENCE_S:g} s"):
        await mine.call(0, doze, 0)
    assert await asyncio.wait_for(engine.lease().call(0, doze, 0), 20) == 0


async def lose_a_node(engine: ClusterEngine, cluster: RayCluster) -> None:
    """Kill the second of two nodes in the middle of calls."""
    mine = engine.lease()
    busy = [asyncio.ensure_future(mine.call(worker, work_slowly, 60)) for worker in range(2)]
    await asyncio.sleep(0.3)
    cluster.kill(1)
    done, working = await asyncio.wait(busy, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(Interrupted, match=r"compute worker \d \(process \d+ on node .*\) was lost with its node"):
        await done.pop()
    assert len(working) == 1  # its node lives
    with pytest.raises(Interrupted, match=r"workers = 2 need 1 CPU each .* had no room for all of them within"):
        await engine.lease().call([each in working for each in busy].index(False), doze, 0)
    working.pop().cancel()
    cluster.add()


async def lose_the_head(engine: ClusterEngine, cluster: RayCluster) -> None:
    """Kill the head in the middle of calls, and start another one at its address."""
    await engine.lease().call(0, doze, 0)
    mine = engine.lease()
    call = asyncio.ensure_future(mine.call(0, work_slowly, 60))
    await asyncio.sleep(0.3)
    cluster.kill(0)
    with pytest.raises(
        Interrupted, match=rf"compute worker 0 .* was lost with its cluster: the head at {cluster.address}"
    ):
        await asyncio.wait_for(call, 10)
    with pytest.raises(Interrupted, match=rf"{cluster.address}.* \(Connection refused\)"):
        await engine.lease().call(0, doze, 0)
    cluster.start_again(cpus=2)
    for _ in range(5):  # the bridge may yet be about to end with its old head
        with suppress(Interrupted):
            assert await engine.lease().call(0, remember, "a", 1) == [1]
            return
    raise AssertionError("the engine has not come back")
