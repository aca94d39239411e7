"""No key lies anywhere in a cluster, unless the party's policy entrusts it with keys: searched by content."""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path

import numpy as np
import pytest

from party.config import PartyConfig
from party.policy import Policy
from party.server.main import OF_WORKERS, start_workers
from tests.memory import forms_of, held_by
from tests.ray_cluster import RayCluster
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.process.fork_server import ForkServer
from treetap.psi import kernels
from treetap.psi.group import Exponent, uniform_bytes
from treetap.psi.kernels import group
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, FitForKeys, KeyEngine
from treetap.workers.settings import ClusterConfig

pytestmark = [
    pytest.mark.second_tier,
    pytest.mark.xdist_group("ray"),
    pytest.mark.long,
    pytest.mark.skipif(os.geteuid() != 0, reason="no user but root can read the memory of actors"),
]
KEY = SecretKey.generate(1024)
EXPONENT = Exponent.draw()
RECORDS, BINS = 600, 5
FACTORS = {"p, little-endian", "q, little-endian"}


def _forms() -> dict[bytes, str]:
    p, q = int(KEY._p), int(KEY._q)
    secrets = {"p": p, "q": q, "p - 1": p - 1, "q - 1": q - 1, "lambda": math.lcm(p - 1, q - 1)}
    secrets |= {"exponent": EXPONENT._number, "scalar": int.from_bytes(EXPONENT.for_kernel(), "little")}
    return {form: name for secret, number in secrets.items() for form, name in forms_of(secret, number).items()}


def _factors() -> dict[bytes, str]:
    return {form: name for form, name in _forms().items() if name in FACTORS}


async def _use(engine: Engine, key_engine: KeyEngine) -> None:
    """Encrypt records, sum them by bins, open the sums and raise a point; the key is held on."""
    slots = Slots((40, 20))
    holder = KeyHolder(key_engine, KEY, slots, "standard", "t")
    await holder.start()
    codes = np.arange(RECORDS).reshape(-1, 1) % BINS
    sums = EncryptedSums(engine, KEY.public, slots, codes, [(BINS, False)], "t")
    values = [np.arange(RECORDS), np.ones(RECORDS, dtype=np.int64)]
    async for first, block in holder.encrypt_blocks(values):
        count = len(block) // KEY.public.ciphertext_bytes
        await sums.add_block(np.arange(first, first + count), block)
    packed = await sums.candidates(None, np.arange(sums.n_candidates))
    opened = await holder.open(packed, sums.n_candidates)
    left = [codes[:, 0] <= cut for cut in range(BINS - 1)]
    assert opened.tolist() == [[int(values[0][rows].sum()), int(rows.sum())] for rows in left]
    point = group().hash_points(uniform_bytes(b"1"))
    await key_engine.call(0, kernels.raise_points, EXPONENT.for_kernel(), point)


def _config(cluster: RayCluster, state: Path, *, entrusted: bool) -> PartyConfig:
    here = ClusterConfig(address=cluster.address, cpus=0.5)
    config = PartyConfig(name="party", insecure=True, state=state, engine="ray", workers=1, cluster=here)
    return config.under(Policy(cluster_holds_key=entrusted))


def test_no_key_that_stays_here_is_in_the_cluster(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """A search for a key in use finds nothing in object stores, actors and logs; given to an actor, it is found."""

    async def main() -> None:
        workers = start_workers(_config(ray_cluster, tmp_path, entrusted=False), ForkServer(OF_WORKERS))
        try:
            await workers.ready()
            engine, key_engine = workers.lease()
            await _use(engine, key_engine)
            found = held_by(ray_cluster, _forms())
            assert {"object store", "memory of an actor", "log"} == set(found)
            assert not any(found.values()), found
            await KeyHolder(FitForKeys(engine), KEY, Slots((40, 20)), "standard", "t").start()
            assert held_by(ray_cluster, _factors())["memory of an actor"] == FACTORS
        finally:
            await workers.close()

    asyncio.run(main())


def test_a_key_is_in_the_cluster_that_the_policy_entrusts(ray_cluster: RayCluster, tmp_path: Path) -> None:
    """With `cluster_holds_key = true` the same computation leaves the key in an actor, and none in a process here."""

    async def main() -> None:
        workers = start_workers(_config(ray_cluster, tmp_path, entrusted=True), ForkServer(OF_WORKERS))
        try:
            await workers.ready()
            await _use(*workers.lease())
            assert held_by(ray_cluster, _factors())["memory of an actor"] == FACTORS
            assert [*workers.usage()] == ["cluster worker 0"]
        finally:
            await workers.close()

    asyncio.run(main())
