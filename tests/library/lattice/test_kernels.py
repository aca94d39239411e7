"""Owner and member on workers."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.library.engines import workers
from tests.library.lattice.budgets import noise_budget
from treetap.errors import Malformed, OutOfOrder, PlaintextOverflow
from treetap.lattice.columns import FixedPoint, label_columns
from treetap.lattice.kernels import IN_FLIGHT_PER_WORKER, LatticeKeyHolder, LatticeMember
from treetap.lattice.parameters import PARTIAL_SUMS, Parameters
from treetap.lattice.scheme import LatticeKey
from treetap.workers.engines import Engine

pytestmark = pytest.mark.real_time

PARAMETERS = Parameters(8192, 4, 20, 12, 1)
KEY = LatticeKey(PARAMETERS)
RNG = np.random.default_rng(3)


async def federation(engines, blocks, masks, outputs):
    """Masked sums (blocks, outputs, n) through an owner and a member on their own workers."""
    owner = LatticeKeyHolder(engines[0], KEY)
    member = LatticeMember(engines[1], PARAMETERS, KEY.public_bytes(), outputs)
    await member.start()
    sums = []
    for number, (values, kept) in enumerate(zip(blocks, masks, strict=True)):
        groups = [values[at : at + 2 * outputs] for at in range(0, len(values), 2 * outputs)]
        turn = 0
        async for ciphertexts in owner.encrypt(groups):
            places = [(column, output) for column in range(2) for output in range(outputs)]
            await member.add(number, list(kept[turn : turn + 2]), ciphertexts, places)
            turn += 2
        sums.append(await owner.open(await member.finish(number), values.shape[1]))
    await asyncio.gather(owner.close(), member.close())
    return np.array(sums)


async def test_a_sum_has_parts_of_no_more_workers_than_it_may():
    """Each worker's part has an encryption of zero, of which the noise's bound knows 128."""
    taken = []

    class Many(Engine):
        async def call(self, worker, kernel, *args, us=0.0):
            taken.append(worker)

    member = LatticeMember(Many(2 * PARTIAL_SUMS), PARAMETERS, KEY.public_bytes(), 1)
    member._parts = [None] * member._engine.workers
    for _ in range(3 * PARTIAL_SUMS):
        await member.add(0, [], [], [])
    assert set(taken) == set(range(PARTIAL_SUMS))


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("threads", [0, 2])
async def test_sums_over_lanes_are_right(threads):
    """Two blocks of two outputs, dealt out to one worker at once or to two threads, open to the sums."""
    blocks = RNG.integers(-500, 500, (2, 12, 40))
    masks = RNG.random((2, 6, 40)) < 0.5
    expected = (blocks.reshape(2, 6, 2, 40) * masks[:, :, None]).sum(axis=1)
    async with workers(threads) as own, workers(threads) as others:
        assert (await federation((own, others), blocks, masks, 2)).tolist() == expected.tolist()


async def test_the_owner_reads_only_a_little_ahead():
    """However many columns there are, at most two groups per worker are taken before the first is asked for."""
    taken = []

    def groups():
        for place in range(20):
            taken.append(place)
            yield np.full((1, 3), place)

    owner = LatticeKeyHolder(Engine(), KEY)
    stream = owner.encrypt(groups())
    await anext(stream)
    assert len(taken) <= IN_FLIGHT_PER_WORKER + 1
    await stream.aclose()


async def test_a_chain_over_lanes():
    """A first member passes columns on for two outputs in order."""
    engine = Engine()
    member = LatticeMember(engine, PARAMETERS, KEY.public_bytes(), 2)
    await member.start()
    columns = RNG.integers(-500, 500, (4, 30))
    masks = RNG.random((2, 30)) < 0.5
    passed = await member.pass_on(masks, [KEY.encrypt(column) for column in columns], [0, 0, 1, 1])
    assert [KEY.decrypt(data, 30).tolist() for data in passed] == [
        (column * masks[place // 2]).tolist() for place, column in enumerate(columns)
    ]


async def test_a_dropped_block_begins_anew():
    """Ciphertexts added to a block that broke off are in no later sum, on either of two workers."""
    async with workers(2) as engine:
        member = LatticeMember(engine, PARAMETERS, KEY.public_bytes())
        await member.start()
        mask, data = np.ones(3, dtype=bool), KEY.encrypt(np.arange(3))
        for _ in range(3):
            await member.add(7, [mask], [data], [(0, 0)])
        await member.drop(7)
        for _ in range(2):
            await member.add(7, [mask], [data], [(0, 0)])
        (answer,) = await member.finish(7, 3, 1)
        assert KEY.decrypt(answer, 3).sum() % KEY.modulus == 6


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("threads", [0, 2])
async def test_randomness_that_is_drawn_ahead_is_in_one_sum_only(threads):
    """Sums with noise drawn ahead, sums without and dropped ones open alike; two of the same column differ."""
    async with workers(threads) as engine:
        member = LatticeMember(engine, PARAMETERS, KEY.public_bytes(), 2)
        member.prepare()  # before the key is there: nothing to draw for
        await member.start()
        mask, data = np.ones(3, dtype=bool), KEY.encrypt(np.arange(3))
        answers = []
        for block in range(5):
            if block % 2:
                member.prepare()
                member.prepare()
            await member.add(block, [mask], [data, data], [(0, 0), (0, 1)])
            if block == 3:
                await member.drop(block)
            else:
                answers += await member.finish(block)
        assert [KEY.decrypt(answer, 3).tolist() for answer in answers] == [[0, 1, 2]] * 8
        assert [noise_budget(KEY, answer) for answer in answers] == [1] * 8
        assert len(set(answers)) == 8
        await member.close()
        member.prepare()


def test_an_ensemble_is_scored_within_tolerance():
    """Sixty random trees over a label holder and one member score 50 records within 1e-4 of the range of scores."""
    trees, n = 60, 50
    parameters = Parameters.choose(trees, 4 * trees, 1)
    key = LatticeKey(parameters)
    weights = [RNG.normal(3.0, 1.0, 4) for _ in range(trees)]
    fixed = FixedPoint(weights, key.modulus)
    exact, base = np.zeros(n), np.zeros(n, dtype=np.int64)
    columns, masks = [], []
    for tree, integers in zip(weights, fixed.integers, strict=True):
        # the label holder's root above two nodes of the member
        left = {node: RNG.random(n) < 0.5 for node in (1, 2, 3)}
        start, found = label_columns({4 + j: int(integers[j]) for j in range(4)}, [2, 3], {1: left[1]}, n)
        base += start
        columns.append(fixed.wrap(np.array([found[2], found[3]])))
        masks.append([left[2], left[3]])
        exact += tree[np.where(left[1], 1 - left[2], 3 - left[3])]

    async def run():
        owner = LatticeKeyHolder(Engine(), key)
        member = LatticeMember(Engine(), parameters, key.public_bytes())
        await member.start()
        place = 0
        async for ciphertexts in owner.encrypt(columns):
            await member.add(0, masks[place], ciphertexts, [(0, 0), (1, 0)])
            place += 1
        return (await owner.open(await member.finish(0), n))[0]

    scores = fixed.decode(fixed.wrap(asyncio.run(run()) + base))
    assert np.abs(scores - exact).max() <= 1e-4 * sum(np.ptp(tree) for tree in weights)


async def test_errors_come_back_from_a_lane():
    """What does not fit, a wrong count, a broken ciphertext and too many columns raise here as they do there."""
    async with workers(1) as engine:
        owner = LatticeKeyHolder(engine, KEY)
        member = LatticeMember(engine, PARAMETERS, KEY.public_bytes())
        await member.start()
        with pytest.raises(PlaintextOverflow):
            await anext(owner.encrypt([np.array([[2**40]])]))
        mask = np.ones((1, 3), dtype=bool)
        with pytest.raises(Malformed, match="0 ciphertexts"):
            await member.add(0, mask, [], [(0, 0)])
        with pytest.raises(Malformed):
            await member.add(0, mask, [b"\x00" * 500], [(0, 0)])
        data = KEY.encrypt(np.arange(3))
        with pytest.raises(OutOfOrder, match="columns"):
            await member.add(1, np.ones((13, 3), dtype=bool), [data] * 13, [(j, 0) for j in range(13)])
