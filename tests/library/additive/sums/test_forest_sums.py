"""Sums over ciphertexts that stay in the workers for many trees, against plaintext sums."""

from __future__ import annotations

import numpy as np
import pytest

from tests.library.additive.sums.test_tree_sums import KEY, LARGEST, plain_candidates, table
from tests.library.engines import workers
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import NodeTask, PooledSums
from treetap.errors import Conflict, Malformed
from treetap.trees.slots import Slots, width_for

pytestmark = pytest.mark.real_time

RECORDS = 120
WIDTH = KEY.public.ciphertext_bytes


async def pooled(engine, columns):
    """A pool with every record's ciphertext, and the owner of the key."""
    slots = Slots((width_for(2 * RECORDS, LARGEST), width_for(2 * RECORDS, LARGEST), width_for(2 * RECORDS, 1)))
    owner = KeyHolder(engine, KEY, slots, "short-exponent")
    await owner.start()
    pool = PooledSums(engine, KEY.public, slots, RECORDS)
    async for first, blob in owner.encrypt_blocks(columns, 32):
        await pool.add_block(first, blob)
    return owner, pool


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("number", [0, 1, 2])
async def test_trees_with_other_bins_and_draws_open_to_what_numpy_sums(number):
    """Two trees over one pool: other columns, an order per node, records drawn twice, an empty node."""
    rng = np.random.default_rng(3)
    async with workers(number) as engine:
        _, columns = table(rng, RECORDS, [(2, False)])
        owner, pool = await pooled(engine, columns)
        for shapes in ([(4, True), (5, False)], [(2, False), (3, True), (1, True)]):
            codes, _ = table(rng, RECORDS, shapes)
            count = len(plain_candidates(codes, columns, shapes, np.arange(3)))
            drawn = [np.repeat(np.arange(RECORDS), rng.integers(0, 3, RECORDS)), np.arange(0, RECORDS, 7)]
            drawn.append(np.array([], dtype=np.int64))
            tasks = [NodeTask(rows, codes[rows], rng.permutation(count)) for rows in drawn]
            opened = await owner.open(await pool.candidates(tasks, shapes, len(tasks[0].rows)), len(tasks) * count)
            expected = [plain_candidates(codes, columns, shapes, task.rows)[task.order] for task in tasks]
            assert np.array_equal(opened, np.concatenate(expected))
        assert pool.operations["packings"] == pool.operations["obfuscators"] > 0
        await pool.close()
        await owner.close()


async def test_what_does_not_fit_is_refused_and_changes_nothing():
    """Half a ciphertext, one too many, one out of turn, numbers that are none, and sums before all are there."""
    async with workers(0) as engine:
        columns = [np.ones(RECORDS, dtype=np.int64)] * 3
        owner, _ = await pooled(engine, columns)
        slots = Slots((20, 20, 20))
        pool = PooledSums(engine, KEY.public, slots, 2)
        good = KEY.encrypt_many(slots.encode([np.array([1, 2])] * 3), "standard")
        task = NodeTask(np.array([0, 1]), np.array([[0], [1]]), np.array([0]))
        for first, blob, kind in (
            (0, good[:-1], Malformed),
            (0, good + good, Malformed),
            (1, good[:WIDTH], Conflict),
            (0, bytes(WIDTH), Malformed),
        ):
            with pytest.raises(kind):
                await pool.add_block(first, blob)
        await pool.add_block(0, good[:WIDTH])
        with pytest.raises(ValueError, match="1 of 2 ciphertexts"):
            await pool.candidates([task], [(2, False)], 3)
        await pool.add_block(1, good[WIDTH:])
        for wrong, message in (
            (NodeTask(task.rows, task.codes, np.array([1])), "not a permutation"),
            (NodeTask(task.rows, task.codes + 1, np.array([0])), "outside its feature's range"),
        ):
            with pytest.raises(ValueError, match=message):
                await pool.candidates([wrong], [(2, False)], 3)
        await owner.close()
        owner = KeyHolder(engine, KEY, slots, "standard")
        await owner.start()
        assert (await owner.open(await pool.candidates([task], [(2, False)], 3), 1)).tolist() == [[1, 1, 1]]
        assert await pool.candidates([], [(2, False)], 3) == b""
        await pool.close()


async def test_empty_sums_do_not_look_empty():
    """A node without records leaves as fresh ciphertexts of zero: two requests share none."""
    async with workers(0) as engine:
        owner, pool = await pooled(engine, [np.ones(RECORDS, dtype=np.int64)] * 3)
        nobody = np.array([], dtype=np.int64)
        task = NodeTask(nobody, np.empty((0, 1), dtype=np.int64), np.array([0]))
        packed = [await pool.candidates([task], [(2, False)], 3) for _ in range(2)]
        assert packed[0] != packed[1]
        assert [(await owner.open(each, 1)).tolist() for each in packed] == [[[0, 0, 0]]] * 2
