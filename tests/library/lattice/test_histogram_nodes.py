"""One query for all nodes of a tree, between the twin in Python integers and the kernels; openings that are refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.lattice.histogram_twin import Twin, at_end, centred, combined, errors, flood, half_of, sizes, ternary, whole
from tests.library.lattice.histogram_tables import SHAPES, drawn, ends, plain_sums
from treetap.errors import Malformed
from treetap.lattice.histogram_scheme import kernels, moduli_of
from treetap.native.histogram_arrays import DEGREE, HALF_BITS, ZERO_BLOCK, Binned
from treetap.trees.slots import Slots

pytestmark = pytest.mark.real_time

N, SEED, OTHER = DEGREE, bytes(range(32)), b"\x07" * 32
LOW = (1 << HALF_BITS) - 1


def joined(halves):
    """Numbers of pairs (n, 2) of 52 bits."""
    return whole(int(low) | int(high) << HALF_BITS for low, high in halves.tolist())


def pairs(numbers):
    """Pairs (n, 2) of numbers modulo q."""
    return np.array([[x & LOW, x >> HALF_BITS] for x in map(int, numbers)], dtype=np.uint64)


def public(block):
    """The public polynomial of a block that the kernels make of the seed."""
    return whole(
        sum(int(x) << 26 * k for k, x in enumerate(row)) % (1 << 104) for row in kernels().limbs(SEED, block, 1)[0]
    )


def nodes(rng, first):
    """A root, a child, and a grandchild of the other side whose place follows from the root's opened sum of g."""
    root = np.ones(N, bool)
    child = half_of(rng)
    return [root, child, ~child & (half_of(rng) if first > 0 else ~half_of(rng))]


class Table:
    """Records with g, h and a count; one candidate, the records of bin 1."""

    def __init__(self, rng):
        self.job = sizes(N, 1, 4)
        self.twin, self.slots = Twin.of(self.job), Slots(self.job.widths)
        self.columns = [rng.integers(-(1 << 32), 1 << 32, N), rng.integers(0, 1 << 30, N), np.ones(N, int)]
        self.plain = whole(self.slots.encode(self.columns))
        self.codes = rng.integers(0, 2, N).astype(np.uint8)

    def sums(self, places):
        """Of the candidate in a node."""
        inside = places & (self.codes == 1)
        return [int(column[inside].sum()) for column in self.columns]


def test_the_twin_answers_for_nodes_of_the_kernels_words():
    """The kernels encrypt a root once, the twin sums its words over nodes, and the kernels open each; noise is in V."""
    rng = np.random.default_rng(31)
    table, k = Table(rng), kernels()
    job, twin, moduli = table.job, table.twin, moduli_of(table.job)
    secrets = k.secrets(OTHER, job.words)
    values = np.array([[int(x) >> 64 * row & (1 << 64) - 1 for x in table.plain] for row in (0, 1)], dtype=np.uint64)
    made = [
        k.unpack(k.encrypt(k.public(SEED, number, 1), number, secrets, OTHER, moduli, what)[0].reshape(-1), job.words)
        for number, what in ((0, values), (ZERO_BLOCK, N))
    ]
    words, zeros = ([joined(block[:, word]) for word in range(job.words)] for block in made)
    a, a0, first = public(0), public(ZERO_BLOCK), table.columns[0][table.codes == 1].sum()
    for places in nodes(rng, first):
        inside, u, error = places & (table.codes == 1), ternary(rng, N), errors(rng, N)
        second = twin.second_half([a], [inside], (a0, u, error))
        exact = [twin.first_half(word, inside, (b0, u)) for word, b0 in zip(words, zeros, strict=True)]
        for number, t, small in zip(exact, job.moduli, secrets.small, strict=True):
            opened = number + at_end(second, small.astype(int)) - int(table.plain[inside].sum()) % t * twin.q // t
            assert abs(centred(whole([opened]), 104)[0]) <= job.noise
        firsts = [twin.reply(number + int(flood(rng, 1, job.flood_bits)[0])) for number in exact]
        halves = [np.array([list(map(int, numbers))], dtype=np.uint64) for numbers in (twin.reply(second), firsts)]
        residues, noise = k.open(*halves, secrets, job.reply_bits, moduli)
        assert noise < job.noise_share
        opened = combined([int(x) for x in residues[0]], job.moduli)
        assert table.slots.decode(opened, 1)[0].tolist() == table.sums(places)


def test_the_kernels_answer_for_nodes_of_the_twins_words():
    """The twin encrypts a root once, the kernels sum its words over the places of nodes, and the twin opens each."""
    rng = np.random.default_rng(32)
    table, k = Table(rng), kernels()
    job, twin = table.job, table.twin
    a, a0 = public(0), public(ZERO_BLOCK)
    secrets = [ternary(rng, N) for _ in job.moduli]
    encoded = [twin.encoded(table.plain, t, rng) for t in job.moduli]
    words = np.stack(
        [pairs(twin.words(a, s, errors(rng, N), own)) for s, own in zip(secrets, encoded, strict=True)], axis=1
    )
    zeros = np.stack([pairs(twin.words(a0, s, errors(rng, N))) for s in secrets], axis=1)
    binned, zero = Binned(table.codes[np.newaxis], (2,)), k.public(SEED, ZERO_BLOCK, 1)
    seen = []
    for number, places in enumerate(nodes(rng, table.columns[0][table.codes == 1].sum())):
        sums, products = np.zeros((2, job.words, 2), np.uint64), np.zeros((2, 2, N), np.uint64)
        rows = np.flatnonzero(places)
        k.sum_words(words[rows], Binned(table.codes[np.newaxis, rows], (2,)), 0, sums)
        k.cells(k.public(SEED, 0, 1), binned, 0, range(2), products, places.astype(np.uint8))
        u, seconds, _ = k.hide(products[1:], zero, job.reply_bits, OTHER, number)
        firsts = k.answer(sums[1:], zeros, u, job.flood_bits, job.reply_bits, OTHER, number)
        opened = [
            twin.opened(int(first), seconds[0].astype(np.int64), s, t)
            for first, s, t in zip(firsts[0], secrets, job.moduli, strict=True)
        ]
        assert max(error for _, error in opened) < job.noise_share
        plain = combined([residue for residue, _ in opened], job.moduli)
        assert table.slots.decode(plain, 1)[0].tolist() == table.sums(places)
        seen.append(u.tobytes())
    assert len(set(seen)) == 3


async def test_an_opening_with_more_noise_than_honest_ones_is_refused_though_it_would_be_right():
    """One first half is shifted further and further: before its sum becomes another, its noise is no honest one."""
    codes, values = drawn(np.random.default_rng(4), 60, SHAPES)
    async with ends(codes, SHAPES) as both:
        holder, order, query = both.holder, np.arange(both.places), b"\x01" * 32
        agreed = holder.parameters
        await both.ask(values, query)
        await both.renew(order)
        shape, bits = (both.places, agreed.words), agreed.reply_bits
        firsts = kernels().read(await both.sums.answer(order), shape, bits)
        wanted, ended = plain_sums(codes, values, SHAPES), []
        for share in np.arange(0, 1.6, 0.04):
            shifted = firsts.copy()
            shifted[0, 0] = (int(firsts[0, 0]) + int(share * 2 ** (bits - agreed.word_bits - 1))) % (1 << bits)
            try:
                opened = await holder.open("b", kernels().write(shifted, bits), both.places, query)
                assert np.array_equal(opened, wanted)
                ended.append("")
            except Malformed as failure:
                ended.append(str(failure))
        assert ended[0] == ""
        assert next(filter(None, ended)) == "a sum has more noise than sums of words can have"


@pytest.mark.parametrize("word", [0, 1, 2])
async def test_a_refused_opening_does_not_say_which_word_it_was(word):
    """The same text for each word and candidate."""
    codes, values = drawn(np.random.default_rng(4), 60, SHAPES)
    async with ends(codes, SHAPES) as both:
        order, query = np.arange(both.places), b"\x01" * 32
        bits, agreed = both.holder.parameters.reply_bits, both.holder.parameters
        await both.ask(values, query)
        await both.renew(order)
        firsts = kernels().read(await both.sums.answer(order), (both.places, agreed.words), bits)
        half = 1 << (bits - agreed.word_bits - 1)
        for candidate in (0, both.places - 1):
            shifted = firsts.copy()
            shifted[candidate, word] = (int(firsts[candidate, word]) + half) % (1 << bits)
            with pytest.raises(Malformed) as refused:
                await both.holder.open("b", kernels().write(shifted, bits), both.places, query)
            assert str(refused.value) == "a sum has more noise than sums of words can have"
