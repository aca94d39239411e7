"""Masks r of candidates' sums m: the label holder opens m + r modulo each t_j, of which -r makes m again."""

from __future__ import annotations

import math
from io import BytesIO

import numpy as np
import pytest

from tests.library.lattice.histogram_tables import SEED, SHAPES, plain_sums, second_halves
from treetap.lattice.histogram_key_holder import HistogramKeyHolder
from treetap.lattice.histogram_scheme import parameters_of, sum_masks
from treetap.lattice.histogram_sets import HistogramSets
from treetap.lattice.histogram_sums import HistogramSums
from treetap.native import rings
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine

QUERY, RECORDS, PLACES = b"\x11" * 32, 300, sum(shape.sums for shape in SHAPES)


@pytest.mark.parametrize("way", ["queries", "sets"])
@pytest.mark.parametrize("widths", [(49, 47), (54, 53, 21), (20,) * 11], ids=["30,000", "1 M, counted", "classes"])
@pytest.mark.parametrize("sign", [1, -1, 0], ids=["largest", "least", "mixed"])
async def test_masked_sums_open_to_shares(way, widths, sign):
    """Over sums that fill their slots, of either sign, in a secret order; the kept masks are in that order too."""
    rng, slots = np.random.default_rng(len(widths)), Slots(widths)
    agreed = parameters_of(RECORDS, slots, 8, PLACES, 4, 1, noised=True)
    codes = np.stack([rng.integers(0, shape.n_bins, RECORDS) for shape in SHAPES], axis=1)
    largest = np.array([((1 << width - 1) - 1) // RECORDS for width in widths])
    values = largest * rng.choice([sign or 1, sign or -1], (RECORDS, len(widths)))
    order = rng.permutation(PLACES)
    masks, plus = sum_masks(agreed, PLACES)
    holder = HistogramKeyHolder(Engine(), agreed, slots, SEED)
    queries = HistogramSums(Engine(), agreed, SEED, codes, SHAPES)
    party = queries if way == "queries" else HistogramSets(Engine(), agreed, SEED)
    await party.start()
    async for part in holder.encrypt(values, QUERY):
        await party.add_block(*part)
    if way == "queries":
        seconds, firsts = await second_halves(queries, order), await queries.answer(order, plus)
    else:
        firsts, seconds = await party.answer(np.arange(RECORDS), codes, SHAPES, order, plus)
    await holder.keep_second_halves("b", BytesIO(seconds), PLACES)
    opened = await holder.residues("b", firsts, PLACES, QUERY)
    await party.close()
    await holder.close()
    product, w = math.prod(agreed.moduli), -(-math.prod(agreed.moduli).bit_length() // 64)
    sums = plain_sums(codes, values, SHAPES)[order]
    plain = slots.encode(list(sums.T))
    for place, t in enumerate(agreed.moduli):
        assert [(m + int(r)) % t for m, r in zip(plain, masks[:, place], strict=True)] == opened[:, place].tolist()
    held, kept = rings.crt(opened, agreed.moduli, w), rings.crt(masks, agreed.moduli, w, minus=True)
    for m, *shares in zip(plain, held.tolist(), kept.tolist(), strict=True):
        assert sum(word << 64 * k for share in shares for k, word in enumerate(share)) % product == m % product


def test_every_answer_has_masks_of_its_own():
    """Of as many candidates, and none of another answer."""
    agreed = parameters_of(RECORDS, Slots((49, 47)), 8, PLACES, 4, 1, noised=True)
    one, other = (sum_masks(agreed, PLACES)[0] for _ in range(2))
    assert one.shape == (PLACES, agreed.words)
    assert not np.isin(one, other).any()
