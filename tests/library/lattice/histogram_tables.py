"""Tables of codes and values, and both ends of encrypted histograms over them on one engine each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import numpy as np

from tests.library.engines import workers
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of
from treetap.lattice.histogram_sums import HistogramSums
from treetap.trees.candidates import Kind, Shape
from treetap.trees.slots import Slots, width_for

Ints = Any
LARGEST = 1 << 40
SEED = bytes(range(32))
#: Columns of every kind: numbers and categories, with and without missing values, and with a single bin.
SHAPES = [
    Shape(4, False),
    Shape(3, True),
    Shape(1, False),
    Shape(1, True),
    Shape(4, False, Kind.ONE_HOT),
    Shape(3, True, Kind.ONE_HOT),
    Shape(1, True, Kind.ONE_HOT),
    Shape(5, False, Kind.PARTITIONS),
    Shape(6, True, Kind.PARTITIONS),
]


def drawn(rng: np.random.Generator, records: int, shapes: Sequence[Shape]) -> tuple[Ints, Ints]:
    """Codes (records, d), some bins of which are empty, and values (records, 3) of either sign with a count."""
    codes = np.zeros((records, len(shapes)), dtype=np.int64)
    for place, shape in enumerate(shapes):
        codes[:, place] = np.minimum(rng.geometric(0.4, records) - 1, shape.n_bins - 1)
        if shape.has_missing:
            codes[rng.random(records) < 0.3, place] = shape.n_bins
    values = np.ones((records, 3), dtype=np.int64)
    values[:, :2] = rng.integers(-LARGEST, LARGEST + 1, (records, 2))
    return codes, values


def plain_sums(codes: Ints, values: Ints, shapes: Sequence[Shape]) -> Ints:
    """Left sums of every candidate in canonical order, by the definition: (candidates, S)."""
    sums = []
    for place, (bins, missing, kind) in enumerate(shapes):
        code = codes[:, place]
        present = code < bins
        for cut in range(bins - (kind is Kind.NUMBERS and not missing)):
            if kind is Kind.PARTITIONS:
                lefts = [code == cut]
            elif kind is Kind.ONE_HOT:
                lefts = [code != cut, present & (code != cut)] if missing else [code != cut]
            else:
                lefts = [present & (code <= cut)]
                lefts += [(code <= cut) | ~present] if missing and cut < bins - 1 else []
            sums += [values[left].sum(axis=0) for left in lefts]
    return np.array(sums, dtype=values.dtype).reshape(-1, values.shape[1])


def sizes(
    records: int, shapes: Sequence[Shape], queries: int = 16, outputs: int = 1
) -> tuple[HistogramParameters, Slots]:
    """Sizes of a job with these columns, and its slots."""
    slots = Slots((width_for(records, LARGEST),) * 2 * outputs + (width_for(records, 1),))
    candidates = max(1, sum(shape.sums for shape in shapes))
    return parameters_of(
        records, slots, max(shape.n_bins for shape in [*shapes, Shape(2, False)]), candidates, queries, 1
    ), slots


async def second_halves(sums: HistogramSums, order: Ints) -> bytes:
    """New ones, in this order."""
    return b"".join([some async for some in sums.renew(order)])


class Ends:
    """A label holder and a feature party over a table."""

    def __init__(self, holder: HistogramKeyHolder, sums: HistogramSums, places: int) -> None:
        self.holder, self.sums, self.places = holder, sums, places

    async def ask(self, values: Ints, query: bytes) -> None:
        """Encrypt a node's values, and add them up."""
        async for first, count, words in self.holder.encrypt(values, query):
            await self.sums.add_block(first, count, words)

    async def renew(self, order: Ints) -> None:
        """Hand new second halves over."""
        await self.holder.keep_second_halves("b", BytesIO(await second_halves(self.sums, order)), self.places)

    async def answer(self, order: Ints, query: bytes) -> Ints:
        """The opened sums of what was asked last."""
        return await self.holder.open("b", await self.sums.answer(order), self.places, query)


@asynccontextmanager
async def ends(
    codes: Ints, shapes: Sequence[Shape], *, holding: int = 0, summing: int = 0, queries: int = 16, outputs: int = 1
) -> AsyncIterator[Ends]:
    """Both ends on engines with that many workers."""
    parameters, slots = sizes(len(codes), shapes, queries, outputs)
    async with workers(holding) as own, workers(summing) as others:
        holder = HistogramKeyHolder(own, parameters, slots, SEED)
        sums = HistogramSums(others, parameters, SEED, codes, shapes)
        await sums.start()
        yield Ends(holder, sums, sum(shape.sums for shape in shapes))
        await sums.close()
        await holder.close()
