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
from party.runtime.workers import PartyWorkers
from party.server.workers import start_workers
from tests.cluster.memory import forms_of, held_by
from tests.ray_cluster import RayCluster
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.slots import Slots
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.psi import kernels
from treetap.psi.backends import group
from treetap.psi.exponents import Exponent
from treetap.psi.group import uniform_bytes
from treetap.workers.cluster.config import ClusterConfig

pytestmark = [
    pytest.mark.xdist_group("ray"),
    pytest.mark.skipif(os.geteuid() != 0, reason="no user but root can read the memory of actors"),
]
KEY = SecretKey.generate(1024)
EXPONENT = Exponent.draw()
RECORDS, BINS = 600, 5


def _forms() -> dict[bytes, str]:
    p, q = int(KEY._p), int(KEY._q)
    secrets = {"p": p, "q": q, "p - 1": p - 1, "q - 1": q - 1, "lambda": math.lcm(p - 1, q - 1)}
    secrets |= {"exponent": EXPONENT._number, "scalar": int.from_bytes(EXPONENT.for_kernel(), "little")}
    return {form: name for secret, number in secrets.items() for form, name in forms_of(secret, number).items()}


async def _used(workers: PartyWorkers, cluster: RayCluster) -> dict[str, set[str]]:
    """What the search finds while a key is in use: records encrypted, summed by bins and opened, ids blinded."""
    try:
        await workers.ready()
        engine, key_engine = workers.lease()
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
        return held_by(cluster, _forms())
    finally:
        await workers.close()


@pytest.mark.parametrize("entrusted", [False, True], ids=["kept here", "entrusted"])
def test_the_cluster_holds_a_key_only_where_the_policy_says_so(
    ray_cluster: RayCluster, tmp_path: Path, entrusted: bool
) -> None:
    """A search for a key in use finds nothing in the cluster; with `cluster_holds_key` it finds it in an actor."""
    cluster = ClusterConfig(address=ray_cluster.address, cpus=0.5)
    config = PartyConfig(name="party", insecure=True, state=tmp_path, engine="ray", workers=1, cluster=cluster).under(
        Policy(cluster_holds_key=entrusted)
    )
    found = asyncio.run(_used(start_workers(config), ray_cluster))
    assert {"object store", "memory of an actor", "log"} == set(found)
    if not entrusted:
        assert not any(found.values()), found
        return
    assert {"p, little-endian", "q, little-endian"} <= found["memory of an actor"]
