"""Sums of a tree, and their key's holder.

- Encrypted candidate sums against plaintext sums.
- The key owner's batches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from tests.library.ciphertexts import integers
from tests.library.engines import workers
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import BadInput, Conflict, Malformed, PlaintextOverflow
from treetap.trees.candidates import Kind, Shape
from treetap.trees.slots import Slots, width_for
from treetap.workers.engines import Engine

pytestmark = pytest.mark.real_time

KEY = SecretKey.generate(1024)
LARGEST = 1000
SLOTS = Slots((20, 30))
RNG = np.random.default_rng(3)
COLUMNS = [RNG.integers(-(2**18), 2**18, 100), RNG.integers(-(2**28), 2**28, 100)]


def table(rng: np.random.Generator, records: int, shapes: Sequence[tuple[int, bool]]):
    """Random bins (low ones more often, so that some are empty), and g, h, 1 per record."""
    codes = np.zeros((records, len(shapes)), dtype=np.uint8)
    for place, (bins, missing, _) in enumerate(Shape(*each) for each in shapes):
        codes[:, place] = np.minimum(rng.geometric(0.4, records) - 1, bins - 1)
        if missing:
            codes[rng.random(records) < 0.3, place] = bins
    columns = [
        rng.integers(-LARGEST, LARGEST + 1, records),
        rng.integers(0, LARGEST + 1, records),
        np.ones(records, int),
    ]
    return codes, [column.astype(np.int64) for column in columns]


def plain_candidates(codes, columns, shapes, rows) -> np.ndarray:
    """Left sums in canonical order by numpy, shape (candidates, slots)."""
    values, codes = np.stack(columns, axis=1)[rows], codes[rows]
    sums = []
    for place, (bins, missing, kind) in enumerate(Shape(*each) for each in shapes):
        code = codes[:, place]
        if kind is not Kind.NUMBERS:
            for v in range(bins):
                others = (code != v) & (code < bins)
                sums.append(values[code == v if kind is Kind.PARTITIONS else code != v].sum(axis=0))
                if missing and kind is Kind.ONE_HOT:
                    sums.append(values[others].sum(axis=0))
            continue
        for v in range(bins if missing else bins - 1):
            sums.append(values[(code <= v) & (code < bins)].sum(axis=0))
            if missing and v < bins - 1:
                sums.append(values[(code <= v) | (code == bins)].sum(axis=0))
    return np.array(sums, dtype=np.int64).reshape(-1, len(columns))


async def encrypted(engine, codes, columns, shapes, joint_cells=True, sampled=None, block=64, key=KEY):
    """A feature party's sums with every (sampled) record's ciphertext added, and the owner."""
    records = len(codes)
    slots = Slots((width_for(records, LARGEST), width_for(records, LARGEST), width_for(records, 1)))
    owner = KeyHolder(engine, key, slots, "short-exponent")
    await owner.start()
    sums = EncryptedSums(engine, key.public, slots, codes, shapes, joint_cells=joint_cells)
    sampled = np.arange(records) if sampled is None else sampled
    async for start, blob in owner.encrypt_blocks([column[sampled] for column in columns], block):
        count = len(blob) // key.public.ciphertext_bytes
        await sums.add_block(sampled[start : start + count], blob)
    return owner, sums


SHAPES = [
    [(4, False), (3, True), (2, False)],
    [(7, True)],
    [(2, False)] * 6 + [(5, True), (1, True)],
    [(1, False), (6, False)],
    [(4, True, Kind.ONE_HOT), (3, False), (5, False, Kind.PARTITIONS), (3, False, Kind.ONE_HOT)],
    [(6, True, Kind.PARTITIONS), (1, True, Kind.ONE_HOT), (2, True), (7, False, Kind.ONE_HOT)],
]


@pytest.mark.second_tier(but=9)
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("joint_cells", [True, False])
async def test_sums_equal_plaintext_sums(shapes, joint_cells):
    """Root and several nodes, empty bins, missing values and an empty node give exactly numpy's sums."""
    rng = np.random.default_rng(len(shapes))
    codes, columns = table(rng, 150, shapes)
    sampled = np.flatnonzero(rng.random(150) < 0.8)
    async with workers(0) as engine:
        key = SecretKey.generate(1024)
        owner, sums = await encrypted(engine, codes, columns, shapes, joint_cells, sampled, key=key)
        order = rng.permutation(sums.n_candidates)
        root = await owner.open(await sums.candidates(None, order), sums.n_candidates)
        assert np.array_equal(root, plain_candidates(codes, columns, shapes, sampled)[order])
        sides = rng.integers(0, 4, 150)
        nodes = [np.flatnonzero(sides == side) for side in range(3)] + [np.array([], dtype=np.int64)]
        packed = await sums.candidates(nodes, order)
        opened = await owner.open(packed, len(nodes) * sums.n_candidates)
        expected = [plain_candidates(codes, columns, shapes, np.intersect1d(node, sampled))[order] for node in nodes]
        assert np.array_equal(opened, np.concatenate(expected))


@pytest.mark.parametrize("number", [1, 2])
async def test_worker_lanes_give_the_same_sums(number):
    """One and two threads open to what numpy sums, at the root and below."""
    rng = np.random.default_rng(7)
    shapes = [(4, True), (5, False), (2, False), (2, True)]
    codes, columns = table(rng, 300, shapes)
    async with workers(number) as engine:
        owner, sums = await encrypted(engine, codes, columns, shapes)
        order = rng.permutation(sums.n_candidates)
        root = await owner.open(await sums.candidates(None, order), sums.n_candidates)
        assert np.array_equal(root, plain_candidates(codes, columns, shapes, np.arange(300))[order])
        nodes = [np.arange(0, 300, 3), np.arange(1, 300, 3)]
        opened = await owner.open(await sums.candidates(nodes, order), 2 * sums.n_candidates)
        expected = [plain_candidates(codes, columns, shapes, node)[order] for node in nodes]
        assert np.array_equal(opened, np.concatenate(expected))
        await sums.close()
        await owner.close()


async def test_refused_blocks_leave_the_sums_whole():
    """A block of the wrong length, an unknown or repeated record or a bad number is refused and changes nothing."""
    rng = np.random.default_rng(1)
    shapes = [(3, True)]
    codes, columns = table(rng, 40, shapes)
    async with workers(0) as engine:
        owner, sums = await encrypted(engine, codes, columns, shapes, sampled=np.arange(30))
        width = KEY.public.ciphertext_bytes
        for rows, blob, kind in (
            ([30, 31], bytes(width), Malformed),
            ([30, 31], bytes(2 * width), Malformed),
            ([40], b"\x01" * width, Malformed),
            ([-1], b"\x01" * width, Malformed),
            ([5], b"\x01" * width, Conflict),
            ([31, 31], b"\x01" * (2 * width), Conflict),
        ):
            with pytest.raises(kind):
                await sums.add_block(np.array(rows), blob)
        order = np.arange(sums.n_candidates)
        root = await owner.open(await sums.candidates(None, order), sums.n_candidates)
        assert np.array_equal(root, plain_candidates(codes, columns, shapes, np.arange(30)))


async def test_a_bad_block_under_way_is_raised_later():
    """With two workers a bad block may be accepted first, but neither the next sums nor a caller that goes on
    miss it.
    """
    slots = Slots((20, 20, 10))
    codes = np.zeros((4, 1), dtype=np.uint8)
    good = KEY.encrypt_many(slots.encode([np.ones(2, dtype=np.int64)] * 3), "standard")
    async with workers(2) as engine:
        sums = EncryptedSums(engine, KEY.public, slots, codes, [(2, False)])
        await sums.add_block(np.arange(2), bytes(len(good)))
        with pytest.raises(Malformed):
            await sums.candidates(None, np.arange(1))
        await sums.add_block(np.arange(2), good)
        await sums.add_block(np.arange(2, 4), good)
        owner = KeyHolder(engine, KEY, slots, "standard")
        await owner.start()
        assert (await owner.open(await sums.candidates(None, np.arange(1)), 1)).tolist() == [[4, 4, 4]]
        assert (await owner.open(await sums.candidates([np.array([1, 2])], np.arange(1)), 1)).tolist() == [[2, 2, 2]]


async def test_parties_without_features_or_records():
    """No feature gives no candidates; no record gives encryptions of zero, never missing ones."""
    async with workers(0) as engine:
        slots = Slots((20, 20, 10))
        none = EncryptedSums(engine, KEY.public, slots, np.zeros((5, 0), dtype=np.uint8), [])
        await none.add_block(np.arange(2), KEY.encrypt_many([1, 2], "standard"))
        assert none.n_candidates == 0
        assert await none.candidates(None, np.arange(0)) == b""
        assert await none.candidates([np.arange(2)], np.arange(0)) == b""
        owner = KeyHolder(engine, KEY, slots, "standard")
        await owner.start()
        empty = EncryptedSums(engine, KEY.public, slots, np.zeros((5, 1), dtype=np.uint8), [(4, True)])
        blob = await empty.candidates(None, np.arange(7))
        assert np.array_equal(await owner.open(blob, 7), np.zeros((7, 3)))
        assert await empty.candidates([], np.arange(7)) == b""


async def test_every_answer_is_freshly_obfuscated():
    """The same sums asked twice are different ciphertexts, and none is the trivial one."""
    rng = np.random.default_rng(2)
    codes, columns = table(rng, 30, [(6, True)] * 8)
    async with workers(0) as engine:
        _, sums = await encrypted(engine, codes, columns, [(6, True)] * 8)
        order = np.arange(sums.n_candidates)
        first = integers(KEY.public, await sums.candidates(None, order))
        second = integers(KEY.public, await sums.candidates(None, order))
        assert len(first) > 1
        assert len({1, *first, *second}) == 1 + len(first) + len(second)
        assert sums.operations["obfuscators"] == sums.operations["packings"] == 2 * len(first)


async def test_joint_cells_cost_fewer_additions():
    """Twelve binary features of 400 records need less than half the additions with joint cells; the count is one."""
    rng = np.random.default_rng(4)
    shapes = [(2, False)] * 12
    codes, columns = rng.integers(0, 2, (400, 12)), [np.ones(400, dtype=np.int64)] * 3
    counts = {}
    for joint_cells in (True, False):
        async with workers(0) as engine:
            _, sums = await encrypted(engine, codes, columns, shapes, joint_cells)
            await sums.candidates(None, np.arange(sums.n_candidates))
            counts[joint_cells] = sums.products
            assert sums.products < sums.operations["additions"] == 12 * 400 + 12
    assert counts[False] >= 12 * 398
    assert counts[True] < counts[False] / 2


async def test_wrong_use_of_sums_is_refused():
    """Bins outside their range, shapes of another number and orders that are no permutation."""
    async with workers(0) as engine:
        slots = Slots((20, 20, 10))
        for codes, shapes in (([[3]], [(3, False)]), ([[4]], [(3, True)]), ([[-1]], [(3, True)]), ([[0]], [])):
            with pytest.raises(ValueError, match=r"bin|column"):
                EncryptedSums(engine, KEY.public, slots, np.array(codes), shapes)
        sums = EncryptedSums(engine, KEY.public, slots, np.array([[0]]), [(3, False)])
        for order in ([0], [0, 0], [1, 2]):
            with pytest.raises(ValueError, match="permutation"):
                await sums.candidates(None, np.array(order))


class CountingEngine(Engine):
    """In-process workers that answer late and count how many calls are under way."""

    def __init__(self, workers=1):
        super().__init__()
        self.workers = workers
        self.under_way = self.most = self.calls = 0

    async def call(self, worker, kernel, *args, us=0.0):
        self.under_way += 1
        self.calls += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            return await super().call(0, kernel, *args, us=us)
        finally:
            self.under_way -= 1


async def collect(owner, block):
    return [item async for item in owner.encrypt_blocks(COLUMNS, block)]


@pytest.mark.parametrize("number", [0, 2])
async def test_blocks_come_in_order_and_open_to_the_records(number):
    """Blocks cover all records in order, and the owner reads back each record, signs included."""
    async with workers(number) as engine:
        owner = KeyHolder(engine, KEY, SLOTS, "short-exponent")
        await owner.start()
        blocks = await collect(owner, 32)
    assert [start for start, _ in blocks] == [0, 32, 64, 96]
    opened = KEY.decrypt_many(b"".join(blob for _, blob in blocks))
    assert [SLOTS.decode(plain, 1)[0].tolist() for plain in opened] == np.stack(COLUMNS, axis=1).tolist()


async def test_small_tables_are_cut_for_all_lanes():
    """A hundred records on two workers make two blocks, though a block could hold them all."""
    owner = KeyHolder(CountingEngine(workers=2), KEY, SLOTS, "standard")
    await owner.start()
    assert [start for start, _ in await collect(owner, 2048)] == [0, 50]


async def test_blocks_under_way_are_bounded():
    """However many blocks there are, at most two per worker are computed ahead of the reader."""
    engine = CountingEngine()
    owner = KeyHolder(engine, KEY, SLOTS, "short-exponent")
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
    groups = SLOTS.groups_per_plaintext(1022)
    plains = SLOTS.encode(COLUMNS)
    packed = [
        sum(plain << (SLOTS.bits * place) for place, plain in enumerate(plains[start : start + groups]))
        for start in range(0, 100, groups)
    ]
    blob = KEY.encrypt_many(packed, "short-exponent")
    async with workers(2) as engine:
        owner = KeyHolder(engine, KEY, SLOTS, "standard")
        await owner.start()
        assert (await owner.open(blob, 100)).tolist() == np.stack(COLUMNS, axis=1).tolist()
        empty = await owner.open(b"", 0)
        assert (empty.shape, empty.dtype) == ((0, 2), np.int64)
        with pytest.raises(Malformed, match="candidates"):
            await owner.open(blob, 1)
        with pytest.raises(Malformed, match="above the last slot"):
            await owner.open(blob, 100 - 1)


async def test_values_that_do_not_fit_are_refused():
    """An overflow in a later block reaches the caller and leaves nothing under way."""
    engine = CountingEngine()
    owner = KeyHolder(engine, KEY, Slots((8, 30)), "short-exponent")
    await owner.start()
    with pytest.raises(PlaintextOverflow, match="slot 0"):
        await collect(owner, 10)
    assert engine.under_way == 0


async def test_lanes_forget_the_key():
    """After close the worker cannot open anything; unknown obfuscations are refused at the start."""
    engine = Engine()
    owner = KeyHolder(engine, KEY, SLOTS, "standard")
    await owner.start()
    await owner.close()
    with pytest.raises(IndexError):
        await owner.open(KEY.encrypt_many([0], "standard"), 1)
    with pytest.raises(BadInput, match="one of"):
        await KeyHolder(engine, KEY, SLOTS, "none").start()
