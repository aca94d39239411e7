"""Parameters of the lattice, and its columns.

- Sizes: security, hiding, precision.
- What is in the columns of a model, how they lie in ciphertexts, and what their masked sums mean.
"""

from __future__ import annotations

import math
from dataclasses import fields, replace

import gmpy2
import numpy as np
import pytest

from tests.library.lattice.budgets import noise_budget
from treetap.errors import BadInput, DataError, Malformed
from treetap.lattice.columns import ColumnShape, FixedPoint, NodeColumns, Page, TreeShape, shape_of, widest
from treetap.lattice.kernels import MaskedSum, Member, blinds
from treetap.lattice.parameters import STATISTICAL_BITS, TOTAL_BITS, Parameters, plain_bits_for
from treetap.lattice.scheme import LatticeKey, scheme_of
from treetap.trees.ensemble import Ensemble, Leaf, Split, Tree, route
from treetap.trees.paths import deciding, reachable

T = 4_079_617  # a prime of 22 bits
RNG = np.random.default_rng(5)


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8])
def test_chosen_parameters_hide_and_build(members):
    """For one to eight members the choice reaches the statistical bits, and the library has the sizes assumed."""
    chosen = Parameters.choose(100, 1600, members)
    assert chosen.statistical_bits >= STATISTICAL_BITS
    assert chosen.modulus.bit_length() == 30 * chosen.data_primes <= TOTAL_BITS[chosen.degree]
    assert 3 * 2**chosen.plain_bits / 4 <= chosen.plain < 2**chosen.plain_bits
    every = [*chosen.primes, chosen.plain]
    assert len(set(every)) == len(every)
    assert all(prime % (2 * chosen.degree) == 1 and gmpy2.is_prime(prime) for prime in every)
    assert scheme_of(chosen).modulus == chosen.plain
    # flooding plus masked noise leaves two bits of q/t: one to decrypt, one of budget
    assert 4 * chosen.plain * (chosen.flood + chosen.masked_noise) <= chosen.modulus


@pytest.mark.parametrize(
    ("members", "sizes", "hidden"),
    [(1, (8192, 4, 22), 40.3), (2, (8192, 5, 20), 42.3), (3, (8192, 6, 20), 40.3), (4, (16384, 8, 22), 53.5)],
)
def test_the_sizes_of_a_hundred_trees(members, sizes, hidden):
    """Those that the documents name, with the bits by which they hide the masks."""
    chosen = Parameters.choose(100, 1600, members)
    assert (chosen.degree, chosen.data_primes, chosen.plain_bits) == sizes
    assert chosen.statistical_bits == pytest.approx(hidden, abs=0.1)


def test_a_plaintext_of_thirty_bits_has_a_prime_of_its_own():
    """The largest prime of 30 bits is t there, and none of q's."""
    parameters = Parameters(8192, 6, 30, 8, 1)
    assert parameters.plain > max(parameters.primes)
    assert Parameters(8192, 6, 29, 8, 1).primes[0] == parameters.plain
    key = LatticeKey(parameters)
    half = key.modulus // 2
    assert key.decrypt(key.encrypt(np.array([half, -half])), 3).tolist() == [half, -half, 0]


def test_more_of_anything_hides_less():
    """The argument's bits fall with columns, with members and with plaintext bits, and rise with primes."""
    base = Parameters(8192, 6, 20, 100, 1)
    assert replace(base, columns=1000).statistical_bits < base.statistical_bits
    assert replace(base, members=2).statistical_bits < base.statistical_bits
    assert replace(base, plain_bits=22).statistical_bits < base.statistical_bits
    assert replace(base, data_primes=4).statistical_bits < base.statistical_bits


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"degree": 4096}, "degree"),
        ({"data_primes": 8}, "128-bit"),
        ({"data_primes": 2}, "hidden"),
        ({"members": 4}, "hidden"),
        ({"plain_bits": 40}, "plaintexts"),
        ({"columns": 0}, "column"),
    ],
)
def test_weak_parameters_are_refused(change, word):
    """A set below 128 bits, or one that would not hide the masks, cannot be made."""
    good = Parameters(8192, 6, 20, 1600, 1)
    with pytest.raises(BadInput, match=word):
        replace(good, **change)


@pytest.mark.parametrize("name", [field.name for field in fields(Parameters)])
def test_every_boundary_of_a_field_is_refused_at_once(name):
    """Parameters from a peer are compared before use: a computation with 2^40 members would not end."""
    agreed = Parameters(8192, 6, 20, 1600, 1)
    own = getattr(agreed, name)
    for value in sorted({0, 1, own - 1, own + 1, 2 * own, *(1 << k for k in (16, 31, 32, 40, 63)), 2**64 - 1} - {own}):
        forged = object.__new__(Parameters)
        forged.__dict__.update({**vars(agreed), name: value})
        with pytest.raises(Malformed, match="other lattice parameters than this job agreed on"):
            Member(agreed, forged.to_bytes() + bytes(100))
        if value > 1 << 31 or not value:
            with pytest.raises(BadInput):
                replace(agreed, **{name: value})


def test_what_cannot_fit_is_refused():
    """Too many members, or a tolerance finer than any plaintext, end in one message."""
    with pytest.raises(BadInput, match="Paillier"):
        Parameters.choose(100, 1600, 20)
    with pytest.raises(BadInput, match="larger plaintexts"):
        Parameters.choose(100, 1600, 1, tolerance=1e-9)


@pytest.mark.parametrize(("centre", "spread"), [(0.0, 0.1), (5000.0, 300.0), (-1e-6, 1e-7)])
def test_scores_keep_their_tolerance_and_never_wrap(centre, spread):
    """Whichever leaf each tree contributes, also far from zero and at the extremes, the score is within 1e-4."""
    rng = np.random.default_rng(5)
    trees = [rng.normal(centre, spread, rng.integers(2, 17)) for _ in range(200)]
    modulus = 3 * 2 ** plain_bits_for(200, 1e-4) // 4 + 1
    fixed = FixedPoint(trees, modulus)
    span = sum(tree.max() - tree.min() for tree in trees)
    picks = [
        [int(tree.argmax()) for tree in trees],
        [int(tree.argmin()) for tree in trees],
        *([int(rng.integers(len(tree))) for tree in trees] for _ in range(50)),
    ]
    sums = np.array([sum(int(part[j]) for part, j in zip(fixed.integers, pick, strict=True)) for pick in picks])
    exact = np.array([sum(tree[j] for tree, j in zip(trees, pick, strict=True)) for pick in picks])
    assert np.abs(sums).max() <= fixed.limit <= (modulus - 1) // 2
    assert np.abs(fixed.decode(sums) - exact).max() <= 1e-4 * span
    assert fixed.limit > 0.9 * (modulus - 1) / 2  # the plaintext is used


def test_a_scale_that_cannot_hold_is_refused():
    """Too small a modulus, a weight that is not finite and a sum beyond the model are errors, never a wrong score."""
    with pytest.raises(BadInput, match="larger plaintext"):
        FixedPoint([np.array([0.0, 1.0])] * 1000, 2**20)
    with pytest.raises(DataError, match="finite"):
        FixedPoint([np.array([0.0, np.nan])], 2**20)
    fixed = FixedPoint([np.array([0.0, 1.0])], 2**20)
    with pytest.raises(Malformed, match="exceeds"):
        fixed.decode(np.array([fixed.limit + 1]))
    assert FixedPoint([np.array([3.0])], 2**20).decode(np.array([0])).tolist() == [3.0]  # a tree of one leaf


def test_differences_that_wrap_come_back_exactly():
    """Terms beyond t/2 may be sent as their representatives, if the whole sum is a score."""
    fixed = FixedPoint([np.array([0.0, 1.0])], 1009, tolerance=1e-2)
    low, high = sorted(fixed.integers[0].tolist())
    terms = fixed.wrap(np.array([high - low, low]))
    assert np.abs(terms).max() <= 504
    assert high - low > 504
    assert int(fixed.wrap(terms.sum())) == high


def random_tree(index, outputs, handles):
    """Three levels, nodes owned at random; handles are numbered through the model."""
    splits, leaves, open_nodes = [], [], [1]
    while open_nodes:
        node = open_nodes.pop(0)
        if node < 8 and (node == 1 or RNG.random() < 0.85):
            splits.append(Split(node, str(RNG.choice(["a", "b", "c"])), len(handles), 0.0, 0.0))
            handles.append(node)
            open_nodes += [2 * node, 2 * node + 1]
        else:
            leaves.append(Leaf(node, tuple(RNG.normal(1.0, 2.0, len(outputs))), 0.0))
    return Tree(index, outputs, tuple(splits), tuple(leaves))


def model_of(outputs):
    handles = []
    trees = tuple(random_tree(index, each, handles) for index, each in enumerate(outputs))
    margin = (0.0,) * (1 + max(max(each) for each in outputs))
    return Ensemble("multi:softprob", len(margin), margin, trees, 1), len(handles)


@pytest.mark.parametrize("outputs", [[(0,)] * 4, [(0,), (1,), (2,)] * 2, [(0, 1, 2)] * 3])
@pytest.mark.parametrize("degree", [50, 64, 399, 8192])
def test_masked_pages_add_up_to_the_scores(outputs, degree):
    """For 50 records, a column per ciphertext or many, with a tree per class or vector leaves, summed in the clear."""
    model, handles = model_of(outputs)
    n = 50
    left = RNG.random((handles, n)) < 0.5
    columns = NodeColumns(model, "a", T)
    shape = shape_of(model, "a", 2)
    pages = shape.pages(n, degree)
    base = np.zeros((shape.outputs, n), dtype=np.int64)
    ways = {name: [way for tree in columns.ways(name) for way in tree] for name in "bc"}
    sums = np.zeros((shape.outputs, widest(pages), n), dtype=np.int64)
    for page, numbers in zip(pages, columns.pages(lambda handle: left[handle], n, pages, base), strict=True):
        side_by_side = page.last - page.first
        assert numbers.shape == (len(page.outputs), side_by_side * n)
        assert side_by_side * n <= degree
        assert np.abs(numbers).max() <= T // 2
        kept = np.ones(side_by_side * n, dtype=bool)
        for name in "bc":
            kept &= reachable(ways[name][page.first : page.last], n, lambda h: left[h]).T.reshape(-1)
        for output, row in zip(page.outputs, numbers, strict=True):
            sums[output, :side_by_side] += (row * kept).reshape(side_by_side, n)
    found = columns.weights(sums.reshape(shape.outputs, -1), base)
    reached = [route(tree.splits, n, lambda split, rows: left[split.handle][rows]) for tree in model.trees]
    exact = model.summed((tree.values(nodes) for tree, nodes in zip(model.trees, reached, strict=True)), n)
    for k in range(shape.outputs):
        reach = sum(
            np.ptp([leaf.weights[tree.outputs.index(k)] for leaf in tree.leaves])
            for tree in model.trees
            if k in tree.outputs
        )
        assert np.abs(found[:, k] - exact[:, k]).max() <= 1e-5 * reach


def test_pages_hold_columns_of_the_same_outputs():
    """Neighbouring trees share pages, those of other outputs begin a new one; the last may have room left."""
    shape = ColumnShape([TreeShape((0,), 3), TreeShape((0,), 2), TreeShape((1,), 0), TreeShape((1, 2), 3)], 3, 1)
    assert shape.columns == 8
    assert shape.pages(30, 128) == [Page(0, 4, (0,)), Page(4, 5, (0,)), Page(5, 8, (1, 2))]
    assert shape.pages(65, 128) == [Page(j, j + 1, (0,) if j < 5 else (1, 2)) for j in range(8)]
    assert widest(shape.pages(30, 128)) == 4
    assert widest([]) == 1


@pytest.mark.parametrize(("limit", "records"), [(1000, 128), (70, 64), (23, 21), (10, 8), (1, 1)])
def test_a_block_has_as_many_records_as_its_ciphertexts_allow(limit, records):
    """Of 128 slots: all of them, a half, down to one; no more ciphertexts than allowed, or one page each."""
    shape = ColumnShape([TreeShape((0,), 60), TreeShape((0, 1), 35)], 2, 1)
    assert shape.records(128, limit) == records
    needed = sum(len(page.outputs) for page in shape.pages(records, 128))
    assert needed <= max(limit, 3)


def test_parameters_follow_from_the_output_with_the_most_columns():
    """Whoever knows the shape finds the same sizes; trees that add to other outputs are not counted twice."""
    shape = ColumnShape([TreeShape((k,), 7) for k in (0, 0, 0, 1)], 2, 2)
    assert shape.parameters() == Parameters.choose(3, 21, 2)
    assert ColumnShape([TreeShape((0,), 0)], 1, 1).parameters() == Parameters.choose(1, 1, 1)
    with pytest.raises(BadInput, match="fewer feature parties"):
        ColumnShape([TreeShape((0,), 2)], 1, 40).parameters()


def test_the_margin_counts_what_the_sums_show():
    """Spare bits are those of the candidate leaves less log2 of how many sums the rounded weights can have."""
    tree = Tree(
        0,
        (0,),
        (Split(1, "a", 0, 0.0, 0.0), Split(2, "b", 1, 0.0, 0.0)),
        (Leaf(4, (0.0,), 0.0), Leaf(5, (1.0,), 0.0), Leaf(3, (5.0,), 0.0)),
    )
    model = Ensemble("reg:squarederror", 1, (0.0,), (tree,) * 3, 1)
    columns = NodeColumns(model, "a", T)
    spare = columns.spare(deciding("a", lambda _: np.array([True, False])), 2)
    bits = math.log2(FixedPoint([np.array([0.0, 1.0, 5.0])] * 3, T).span + 1)
    assert spare == pytest.approx([3 - bits, -bits])
    assert 21 < bits < 22


def test_a_sum_that_cannot_be_is_refused():
    """A record's sum beyond the model's own range is an error, not a score."""
    model, _ = model_of([(0,)] * 2)
    columns = NodeColumns(model, "a", T)
    with pytest.raises(Malformed, match="exceeds the largest that the model's weights can make") as refused:
        columns.weights(np.array([[T // 2]]), np.zeros((1, 1), dtype=np.int64))
    assert not any(letter.isdigit() for letter in str(refused.value))


def test_blinds_cancel_and_are_uniform():
    """Over the columns they sum to zero modulo t; each by itself, the last too, is spread evenly."""
    ring = scheme_of(Parameters(8192, 4, 20, 8, 1)).ring
    half = ring.plain // 2
    drawn = blinds(ring, 5, 2000).reshape(5, 2000)
    assert (drawn.sum(axis=0) % ring.plain == 0).all()
    for row in drawn:
        assert -half <= row.min() < -0.99 * half
        assert 0.99 * half < row.max() <= half
        counts = np.histogram(row, bins=8, range=(-half, half))[0]
        assert ((counts - 250) ** 2 / 250).sum() < 40  # χ² of 7 degrees of freedom
    assert blinds(ring, 1, 3).tolist() == [0, 0, 0]


def test_the_owner_reads_sums_over_columns_side_by_side_and_nothing_else():
    """Of five columns in one ciphertext the opened slots are uniform, and add up to the masked sum of each record."""
    parameters = Parameters(8192, 4, 20, 8, 1)
    key = LatticeKey(parameters)
    member = Member(parameters, key.public_bytes())
    n = 1000
    values, masks = RNG.integers(-500, 500, (5, n)), RNG.random((5, n)) < 0.5
    total = MaskedSum(member)
    total.add(masks.reshape(-1), [key.encrypt(values.reshape(-1))])
    (answer,) = total.finish(5, n)
    assert noise_budget(key, answer) == 1
    opened = key.decrypt(answer, 5 * n).reshape(5, n)
    half = key.modulus // 2
    assert ((opened.sum(axis=0) + half) % key.modulus - half).tolist() == (values * masks).sum(axis=0).tolist()
    assert np.abs(opened).max() > 0.98 * half
    assert abs(np.corrcoef(opened[0], masks[0] * values[0])[0, 1]) < 0.15


def test_trees_of_other_outputs_add_to_their_own_sums_only():
    """A column with one of three outputs leaves the other two at zero, and each output counts its own columns."""
    parameters = Parameters(8192, 4, 20, 2, 1)
    key = LatticeKey(parameters)
    total = MaskedSum(Member(parameters, key.public_bytes()), outputs=3)
    for output in (0, 2, 0, 2):
        total.add(np.array([True, False]), [key.encrypt(np.array([7 + output, 1]))], [output])
    assert [key.decrypt(data, 2).tolist() for data in total.finish()] == [[14, 0], [0, 0], [18, 0]]
