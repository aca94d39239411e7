"""The key owner's batches."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, KeyHolder
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.trees.slots import Slots
from treetap.workers.engines import InProcessEngine, ProcessEngine

pytestmark = pytest.mark.real_time

KEY = SecretKey.generate(1024)
SLOTS = Slots((20, 30))
RNG = np.random.default_rng(3)
COLUMNS = [RNG.integers(-(2**18), 2**18, 100), RNG.integers(-(2**28), 2**28, 100)]


class CountingEngine(InProcessEngine):
    """In-process workers that answer late and count how many calls are under way."""

    def __init__(self, workers=1):
        super().__init__()
        self.workers = workers
        self.under_way = self.most = self.calls = 0

    async def call(self, worker, kernel, *args):
        self.under_way += 1
        self.calls += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return await super().call(0, kernel, *args)
        finally:
            self.under_way -= 1


async def collect(owner, block):
    return [item async for item in owner.encrypt_blocks(COLUMNS, block)]


def test_blocks_come_in_order_and_open_to_the_records():
    """Blocks cover all records in order, and the owner reads back each record, signs included."""

    async def run(engine):
        owner = KeyHolder(engine.lease(), KEY, SLOTS, "short-exponent", "t")
        await owner.start()
        blocks = await collect(owner, 32)
        assert [start for start, _ in blocks] == [0, 32, 64, 96]
        opened = KEY.decrypt_many(b"".join(blob for _, blob in blocks))
        assert [SLOTS.decode(plain, 1)[0].tolist() for plain in opened] == np.stack(COLUMNS, axis=1).tolist()
        await owner.close()
        await engine.close()

    asyncio.run(run(InProcessEngine()))
    workers = ProcessEngine(2, 20.0)
    workers.start()
    asyncio.run(run(workers))


async def test_small_tables_are_cut_for_all_lanes():
    """A hundred records on two workers make two blocks, though a block could hold them all."""
    owner = KeyHolder(CountingEngine(workers=2), KEY, SLOTS, "standard", "t")
    await owner.start()
    assert [start for start, _ in await collect(owner, 2048)] == [0, 50]


async def test_blocks_under_way_are_bounded():
    """However many blocks there are, at most two per worker are computed ahead of the reader."""
    engine = CountingEngine()
    owner = KeyHolder(engine, KEY, SLOTS, "short-exponent", "t")
    await owner.start()
    engine.calls = 0
    blocks = owner.encrypt_blocks(COLUMNS, 5)
    await anext(blocks)
    await asyncio.sleep(0.05)
    assert engine.calls <= IN_FLIGHT_PER_WORKER
    assert engine.most <= IN_FLIGHT_PER_WORKER
    await blocks.aclose()
    assert engine.under_way == 0


async def test_packed_candidates_open():
    """Candidates packed several to a ciphertext open in order, the last ciphertext partly filled."""
    workers = ProcessEngine(2, 20.0)
    workers.start()
    owner = KeyHolder(workers.lease(), KEY, SLOTS, "standard", "t")
    await owner.start()
    groups = SLOTS.groups_per_plaintext(1022)
    plains = SLOTS.encode(COLUMNS)
    packed = [
        sum(plain << (SLOTS.bits * place) for place, plain in enumerate(plains[start : start + groups]))
        for start in range(0, 100, groups)
    ]
    blob = KEY.encrypt_many(packed, "short-exponent")
    assert (await owner.open(blob, 100)).tolist() == np.stack(COLUMNS, axis=1).tolist()
    empty = await owner.open(b"", 0)
    assert (empty.shape, empty.dtype) == ((0, 2), np.int64)
    with pytest.raises(Malformed, match="candidates"):
        await owner.open(blob, 1)
    with pytest.raises(Malformed, match="above the last slot"):
        await owner.open(blob, 100 - 1)
    await workers.close()


async def test_values_that_do_not_fit_are_refused():
    """An overflow in a later block reaches the caller and leaves nothing under way."""
    engine = CountingEngine()
    owner = KeyHolder(engine, KEY, Slots((8, 30)), "short-exponent", "t")
    await owner.start()
    with pytest.raises(PlaintextOverflow, match="slot 0"):
        await collect(owner, 10)
    assert engine.under_way == 0


async def test_lanes_forget_the_key():
    """After close the worker cannot open anything; unknown obfuscations are refused at the start."""
    engine = InProcessEngine()
    owner = KeyHolder(engine, KEY, SLOTS, "standard", "t")
    await owner.start()
    await owner.close()
    with pytest.raises(KeyError):
        await owner.open(KEY.encrypt_many([0], "standard"), 1)
    with pytest.raises(BadInput, match="one of"):
        await KeyHolder(engine, KEY, SLOTS, "none", "t").start()
