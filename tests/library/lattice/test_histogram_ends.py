"""Encrypted histograms between a label holder and a feature party, each on workers of its own: sums equal integers."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Coroutine
from io import BytesIO
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.library.lattice.histogram_tables import (
    LARGEST,
    SEED,
    SHAPES,
    Ends,
    drawn,
    ends,
    plain_sums,
    second_halves,
    sizes,
)
from treetap.errors import Malformed, PlaintextOverflow
from treetap.lattice import histogram_key_holder, histogram_scheme, histogram_sums
from treetap.lattice.histogram_key_holder import BLOCK_BYTES, HistogramKeyHolder
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import NONCE_BYTES, commitment, first_halves_bytes, radices, seed_of
from treetap.lattice.histogram_sets import HistogramSets
from treetap.lattice.histogram_sums import HistogramSums
from treetap.native.histogram_arrays import DEGREE, Binned
from treetap.native.histograms import WORD_BYTES, Secrets
from treetap.trees.candidates import Shape
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine

pytestmark = pytest.mark.real_time

SMALL = [Shape(3, True), Shape(2, False)]


def seed(number: int) -> bytes:
    """That of a query."""
    return number.to_bytes(32, "little")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


async def some_queries(both: Ends, codes: np.ndarray, values: np.ndarray, shapes: list[Shape], number: int) -> None:
    """Nodes of random records, of none and of all, each opened to the sums of integers, in a secret order."""
    rng = np.random.default_rng(number)
    order = rng.permutation(both.places)
    per_half = both.holder.parameters.queries_per_second_half
    for query in range(number):
        there = rng.random(len(codes)) < (0.0, 1.0, 0.5)[query % 3]
        of_node = np.where(there[:, None], values, 0)
        await both.ask(of_node, seed(query))
        if not query % per_half:
            await both.renew(order)
        opened = await both.answer(order, seed(query))
        assert np.array_equal(opened, plain_sums(codes, of_node, shapes)[order])


@pytest.mark.parametrize("records", [1, 300])
async def test_sums_of_every_kind_of_column_are_those_of_integers(records: int) -> None:
    """More queries than one second half serves: the second halves are drawn anew, and the sums stay exact."""
    codes, values = drawn(np.random.default_rng(records), records, SHAPES)
    async with ends(codes, SHAPES) as both:
        most = both.holder.parameters.queries_per_second_half
        await some_queries(both, codes, values, SHAPES, most + 2)
        assert both.sums.operations == {
            "additions": (most + 2) * records * len(SHAPES),
            "hidden": 2 * both.places,
            "answered": (most + 2) * both.places,
        }


@pytest.mark.second_tier
@pytest.mark.parametrize(
    ("holding", "summing", "records"),
    [(2, 3, 2 * DEGREE + 17), (0, 2, DEGREE), (1, 1, DEGREE + 1), (3, 2, 3 * DEGREE - 1), (2, 0, 3 * DEGREE)],
)
async def test_blocks_on_worker_processes(holding: int, summing: int, records: int) -> None:
    """Several blocks and a rest, dealt out to workers of either end: the sums of integers."""
    codes, values = drawn(np.random.default_rng(5), records, SHAPES[:6])
    async with ends(codes, SHAPES[:6], holding=holding, summing=summing) as both:
        await some_queries(both, codes, values, SHAPES[:6], 3)


async def test_sums_over_many_workers_and_bins_are_carried() -> None:
    """64 workers with words for each of 255 bins: uncarried sums would be beyond 64 bits, and their carries lost."""
    bins, workers, each = 255, 64, 256
    records, slots = workers * each, Slots((49, 49, 20))
    codes, values = np.arange(records)[:, np.newaxis] % each % bins, np.ones((records, 3), dtype=np.int64)
    agreed = HistogramParameters.choose(records, slots.widths, bins + 1, bins - 1, 4)
    assert agreed.word_bits >= 39  # narrower words would not show it
    holder = HistogramKeyHolder(Engine(), agreed, slots, SEED)
    sets, order = HistogramSets(Engine(workers), agreed, SEED), np.arange(bins - 1)
    await sets.start()
    async for first, count, words in holder.encrypt(values, seed(1)):
        width = len(words) // count
        for at in range(0, count, each):
            await sets.add_block(first + at, each, words[at * width : (at + each) * width])
    firsts, seconds = await sets.answer(np.arange(records), codes, [Shape(bins, False)], order)
    await holder.keep_second_halves("b", BytesIO(seconds), len(order))
    opened = await holder.open("b", firsts, len(order), seed(1))
    assert np.array_equal(opened, plain_sums(codes, values, [Shape(bins, False)]))


@pytest.mark.parametrize("keeps", [True, False])
def test_a_worker_has_what_it_needs_of_a_group(keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products until the last of its calls; sums of a·I until they are hidden, or for good, where they are few."""
    monkeypatch.setattr(histogram_sums, "MOST_KEPT", 2048 if keeps else 0)
    monkeypatch.setattr(histogram_sums, "CELLS_AT_ONCE" if keeps else "CELLS_ANEW", 8)
    codes, _ = drawn(np.random.default_rng(9), 60, SHAPES)
    parameters, _ = sizes(60, SHAPES)
    features = range(len(SHAPES))
    binned = Binned(codes.T.astype(np.uint8), tuple(radices(SHAPES)))
    columns = histogram_sums.Columns(parameters, SEED, binned, SHAPES, features)
    for group in range(len(columns.groups)):
        calls, products = 1, weakref.ref(columns._products)
        while columns.multiply(group):
            calls += 1
        assert calls == 1
        assert products() is None
        assert not columns.multiply(group)
        columns.hide(group, SEED)
        assert (group in columns.sums) == keeps


@pytest.mark.second_tier
async def test_more_blocks_than_one_transform_takes() -> None:
    """Products of 65 blocks come in two steps."""
    records, shapes = 64 * DEGREE + 3, [Shape(2, True), Shape(2, False)]
    codes, values = drawn(np.random.default_rng(6), records, shapes)
    async with ends(codes, shapes) as both:
        await some_queries(both, codes, values, shapes, 1)


@pytest.mark.second_tier
async def test_words_of_many_outputs_come_in_parts_that_a_message_holds() -> None:
    """A block of more than 1.5 MiB is handed over in parts, its zeros too."""
    outputs = 15
    codes, values = drawn(np.random.default_rng(8), DEGREE, SMALL)
    values = np.concatenate([np.tile(values[:, :2], outputs), values[:, 2:]], axis=1)
    async with ends(codes, SMALL, outputs=outputs) as both:
        assert both.holder.parameters.words * DEGREE * WORD_BYTES > BLOCK_BYTES
        parts = [part async for part in both.holder.encrypt(values, seed(1))]
        assert max(len(data) for *_, data in parts) <= BLOCK_BYTES
        assert [first for first, *_ in parts] == [sum(count for _, count, _ in parts[:at]) for at in range(len(parts))]
        for part in parts:
            await both.sums.add_block(*part)
        order = np.arange(both.places)
        await both.renew(order)
        assert np.array_equal(await both.answer(order, seed(1)), plain_sums(codes, values, SMALL))


async def test_a_party_without_columns_answers_nothing() -> None:
    """Words are taken, and there is no half to send."""
    codes, values = np.zeros((5, 0), dtype=np.int64), np.ones((5, 3), dtype=np.int64)
    async with ends(codes, []) as both:
        await both.ask(values, seed(1))
        order = np.arange(0)
        assert await second_halves(both.sums, order) == b""
        assert await both.sums.answer(order) == b""
        await both.holder.keep_second_halves("b", BytesIO(), 0)
        assert (await both.holder.open("b", b"", 0, seed(1))).shape == (0, 3)


async def test_words_come_of_the_querys_seed() -> None:
    """The same seed gives the same bytes: a block computed again is no second encryption; another gives others."""
    codes, values = drawn(np.random.default_rng(2), 40, SMALL)

    async def words(holder: Any, query: bytes) -> list[tuple[int, int, bytes]]:
        return [part async for part in holder.encrypt(values, query)]

    async with ends(codes, SMALL) as both, ends(codes, SMALL, holding=2) as others:
        parts = await words(both.holder, seed(1))
        assert [(first, count) for first, count, _ in parts] == [(0, 40 + DEGREE)]
        assert len(parts[0][2]) == (40 + DEGREE) * both.holder.parameters.words * WORD_BYTES
        assert parts == await words(both.holder, seed(1)) == await words(others.holder, seed(1))
        assert not {data for *_, data in parts} & {data for *_, data in await words(both.holder, seed(2))}


async def test_answers_and_second_halves_are_drawn_anew() -> None:
    """The same query answered twice, and the same candidates hidden twice, share no bytes but open alike."""
    codes, values = drawn(np.random.default_rng(2), 40, SMALL)
    async with ends(codes, SMALL) as both:
        order = np.arange(both.places)
        firsts, seconds = [], []
        for _ in range(2):
            await both.ask(values, seed(1))
            seconds.append(await second_halves(both.sums, order))
            firsts.append(await both.sums.answer(order))
            await both.holder.keep_second_halves("b", BytesIO(seconds[-1]), both.places)
            opened = await both.holder.open("b", firsts[-1], both.places, seed(1))
            assert np.array_equal(opened, plain_sums(codes, values, SMALL))
        assert firsts[0] != firsts[1]
        width = both.holder.parameters.second_half_bytes
        halves = [data[at : at + width] for data in seconds for at in range(0, len(data), width)]
        assert len(set(halves)) == 2 * both.places


# ---- what does not fit


async def test_words_out_of_place_are_refused() -> None:
    """Later ones first, some twice, too many, of other lengths, a query that is not whole; some come with zeros."""
    records = DEGREE + 100
    codes, values = drawn(np.random.default_rng(1), records, SMALL)
    async with ends(codes, SMALL) as both:
        order = np.arange(both.places)
        ((_, _, whole),) = [part async for part in both.holder.encrypt(values, seed(3))]
        width = both.holder.parameters.words * WORD_BYTES
        zeros = (records, DEGREE, whole[records * width :])
        block = (0, DEGREE, whole[: DEGREE * width])
        rest = (DEGREE, 100, whole[DEGREE * width : records * width])

        async def refused(*blocks: tuple[int, int, bytes]) -> None:
            for first, count, data in blocks:
                with pytest.raises(
                    Malformed, match=f"words of {count} records from {first} on are not those that are due"
                ):
                    await both.sums.add_block(first, count, data)

        await refused(
            rest, zeros, (0, DEGREE, block[2][:-1]), (0, DEGREE - 1, block[2]), (0, 0, b""), (1, 1, bytes(width))
        )
        await refused((0, records + DEGREE + 1, bytes((records + DEGREE + 1) * width)))
        await both.sums.add_block(*block)
        await refused(block, zeros, (DEGREE, 100, rest[2] + b"\0"))
        with pytest.raises(Malformed, match=f"a query has {DEGREE} words, not {records + DEGREE}"):
            await both.sums.answer(order)
        await both.sums.add_block(DEGREE, 200, rest[2] + zeros[2][: 100 * width])
        await refused(rest, zeros, (records + 100, DEGREE - 99, zeros[2][99 * width :]))
        await both.sums.add_block(records + 100, DEGREE - 100, zeros[2][100 * width :])
        await refused(zeros, (records + DEGREE, 1, bytes(width)))
        await both.renew(order)
        opened = await both.answer(order, seed(3))
        assert np.array_equal(opened, plain_sums(codes, values, SMALL))
        with pytest.raises(Malformed, match="a query has 0 words"):
            await both.sums.answer(order)


async def test_halves_that_are_no_sums_are_refused() -> None:
    """Of other lengths or candidates, random ones, those of another query, and second halves of other candidates."""
    codes, values = drawn(np.random.default_rng(4), 60, SMALL)
    async with ends(codes, SMALL) as both:
        order = np.arange(both.places)
        holder, places = both.holder, both.places
        await both.ask(values, seed(1))
        seconds, firsts = await second_halves(both.sums, order), await both.sums.answer(order)
        await holder.keep_second_halves("b", BytesIO(seconds), places)
        noisy = "more noise than sums|bits left above the last slot"
        for data, message in (
            (firsts[:-1], "candidates have other sizes"),
            (firsts + b"\0", "candidates have other sizes"),
            (b"\xff" * len(firsts), "cannot be read|" + noisy),
            (bytes(len(firsts)), noisy),
        ):
            with pytest.raises(Malformed, match=message):
                await holder.open("b", data, places, seed(1))
        with pytest.raises(Malformed, match=noisy):
            await holder.open("b", firsts, places, seed(2))
        turned = np.frombuffer(seconds, dtype=np.uint8).reshape(places, -1)[::-1].tobytes()
        await holder.keep_second_halves("b", BytesIO(turned), places)
        with pytest.raises(Malformed, match=noisy):
            await holder.open("b", firsts, places, seed(1))
        for short in (seconds[:-1], seconds + b"\0", b""):
            with pytest.raises(Malformed, match="second halves of 6 candidates have other sizes"):
                await holder.keep_second_halves("b", BytesIO(short), places)
        fewer = bytes(first_halves_bytes(holder.parameters, places - 1))
        with pytest.raises(Malformed, match="not of as many candidates as the second ones"):
            await holder.open("b", fewer, places - 1, seed(1))
        await holder.keep_second_halves("b", BytesIO(seconds), places)
        assert np.array_equal(await holder.open("b", firsts, places, seed(1)), plain_sums(codes, values, SMALL))


def test_codes_that_are_none_of_the_columns() -> None:
    """Another number of records or columns, a bin below or above the column's, too many bins."""
    parameters, _ = sizes(2, SMALL)
    for codes, shapes in (
        ([[0, 0]], SMALL),
        ([[0], [0]], SMALL),
        ([[4, 0], [0, 0]], SMALL),
        ([[0, 2], [0, 0]], SMALL),
        ([[-1, 0], [0, 0]], SMALL),
        ([[0], [0]], [Shape(256, True)]),
    ):
        with pytest.raises(ValueError, match="bin"):
            asyncio.run(HistogramSums(Engine(), parameters, SEED, np.array(codes), shapes).start())


async def test_a_value_that_does_not_fit_is_not_encrypted() -> None:
    """Under way in a worker too; other blocks of the query are dropped, and the next one is whole."""
    codes, values = drawn(np.random.default_rng(4), 2 * DEGREE, SMALL)
    async with ends(codes, SMALL) as both:
        large = values.copy()
        large[-1, 0] = LARGEST << 20
        with pytest.raises(PlaintextOverflow, match="slot 0 of"):
            await both.ask(large, seed(1))
        parts = [part async for part in both.holder.encrypt(values, seed(2))]
        assert [(first, count) for first, count, _ in parts] == [(0, 3 * DEGREE)]


# ---- what is forgotten


def test_secrets_are_forgotten_after_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a call fails; memory of workers has no query's seed, and nothing at all after the end."""
    made: list[Secrets] = []
    kernels = histogram_scheme.kernels()

    class Remembering:
        def __getattr__(self, name: str) -> Any:
            return getattr(kernels, name)

        def secrets(self, query: bytes, words: int) -> Secrets:
            made.append(kernels.secrets(query, words))
            return made[-1]

    monkeypatch.setattr(histogram_key_holder, "kernels", Remembering)

    async def main() -> None:
        codes, values = drawn(np.random.default_rng(4), 60, SMALL)
        async with ends(codes, SMALL) as both:
            await some_queries(both, codes, values, SMALL, 2)
            await both.ask(values, query := b"\x5a" * 32)
            with pytest.raises(Malformed):
                await both.holder.open(
                    "b", bytes(len(await both.sums.answer(np.arange(both.places)))), both.places, query
                )
            assert len(made) == 2 * 2 + 2
            for secrets in made:
                assert not any(
                    np.asarray(part).any() for part in vars(secrets).values() if isinstance(part, np.ndarray)
                )
            assert query not in vars(both.holder).values()
        assert both.sums._parts == []

    run(main())


# ---- the seed that no party chooses


def test_a_joint_seed_depends_on_every_nonce_and_on_the_attempt() -> None:
    """The order of the parties does not matter; a commitment binds a party and its nonce."""
    nonces = {name: bytes([place] * NONCE_BYTES) for place, name in enumerate(("a", "b", "c"))}
    whole = seed_of("job", 1, nonces)
    assert len(whole) == 32
    assert whole == seed_of("job", 1, dict(reversed(nonces.items())))
    others = [{**nonces, name: b"\xff" * NONCE_BYTES} for name in nonces]
    swapped = {"a": nonces["b"], "b": nonces["a"], "c": nonces["c"]}
    seeds = [whole, seed_of("job", 2, nonces), seed_of("other", 1, nonces), seed_of("job", 1, swapped)]
    seeds += [seed_of("job", 1, other) for other in others]
    assert all(one != other for at, one in enumerate(seeds) for other in seeds[:at])
    bound = [commitment(name, nonces[by]) for name in nonces for by in nonces]
    assert len(set(bound)) == 9
    assert all(one != two for one, two in pairwise(bound))
    assert not {len(each) for each in bound} - {32}
