"""Joint cells: the plan and the products it leads to."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given, settings
from hypothesis import strategies as st

from treetap.additive.paillier.public_key import residues
from treetap.additive.residues.gmpy2_residues import Gmpy2Residues
from treetap.additive.sums import joint_cells as module
from treetap.additive.sums.joint_cells import RootCells, bin_products, joint, plan

MODULUS = mpz(2**61 - 1)
RING = residues(MODULUS)


def uniform(rows, radices, seed=0):
    rng = np.random.default_rng(seed)
    return np.stack([rng.integers(0, radix, rows) for radix in radices], axis=1)


def test_two_features_of_32_bins_share_their_cells():
    """With 8,000 records two 32-bin features form pairs: 1,024 cells each instead of 8,000 products twice."""
    groups = plan(uniform(8000, [32] * 4), [32] * 4)
    assert sorted(len(group) for group in groups) == [2, 2]


def test_fine_features_stay_alone():
    """Where a joint cell would hold one record each, nothing is grouped."""
    assert plan(uniform(500, [250] * 3), [250] * 3) == [(0,), (1,), (2,)]


def test_one_hot_columns_of_one_field_form_one_group():
    """Ten one-hot columns have ten joint cells, far fewer than the 1,024 that their bins would allow."""
    codes = np.eye(10, dtype=np.int64)[np.random.default_rng(1).integers(0, 10, 400)]
    assert len(plan(codes, [2] * 10)) == 1


def test_small_nodes_are_planned_for_their_size():
    """The same features pair in a large node and stay apart in a small one."""
    codes = uniform(6000, [32, 32])
    assert len(plan(codes, [32, 32])) == 1
    assert len(plan(codes[:100], [32, 32])) == 2
    assert len(plan(codes, [32, 32], rows=100)) == 2


def test_groups_are_a_partition():
    """Every feature is in exactly one group, also when the cells of all would not fit 62 bits."""
    groups = plan(np.zeros((50, 80), dtype=np.int64), [200] * 80)
    assert sorted(feature for group in groups for feature in group) == list(range(80))
    assert all(200 ** len(group) < 2**62 for group in groups)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 6), max_size=8),
    st.integers(0, 200),
    st.booleans(),
    st.integers(0, 99),
    st.sampled_from([1, 150, module.BATCH]),
    st.sampled_from([1, 30, module.DENSE]),
)
def test_products_per_bin_are_exact(radices, rows, joint_cells, seed, size, dense):
    """Every bin of every feature holds the product of its records, joint cells or not, in batches of any size, in one
    node or the two halves of one, and in a root that grew by blocks, with a table of its cells or without; empty bins
    are 1.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BATCH", size)
        patch.setattr(module, "DENSE", dense)
        check_products(radices, rows, joint_cells, seed)


def check_products(radices, rows, joint_cells, seed):
    """See the test above."""
    codes = uniform(rows, radices, seed) if radices else np.zeros((rows, 0), dtype=np.int64)
    values = [mpz(int(value)) for value in np.random.default_rng(seed).integers(1, 2**60, rows)]
    batch, half = RING.batch(values), rows // 2
    nodes = [np.arange(rows), np.arange(half), np.arange(half, rows)]
    found = bin_products(RING, batch, [(rows, codes[rows]) for rows in nodes], radices, joint_cells)
    expected = [naive(values, codes, node, radices) for node in nodes]
    assert RING.numbers(found.values) == [number for node in expected for number, _ in node]
    assert (found.factors > 0).tolist() == [there for node in expected for _, there in node]
    root = RootCells(RING, plan(codes, radices), radices)
    for first in range(0, rows, 30):
        root.add(batch[first : first + 30], codes[first : first + 30])
    grown = root.bins()
    assert RING.numbers(grown.values) == [number for number, _ in expected[0]]
    assert (grown.factors > 0).tolist() == [there for _, there in expected[0]]


def test_a_block_touches_the_cells_of_its_own_records_only():
    """At the root the products of a block do not depend on how many cells the blocks before it have filled."""
    taken = []

    class Watched:
        def __getattr__(self, name):
            return getattr(RING, name)

        def multiply_into(self, products, values, cells):
            taken.append((len(values), len(np.unique(cells.numbers))))
            return RING.multiply_into(products, values, cells)

    radices, rows = [64, 64], 6000
    codes = uniform(rows, radices)
    root = RootCells(Watched(), [(0, 1)], radices)
    batch = RING.batch(range(1, rows + 1))
    for first in range(0, rows, 50):
        root.add(batch[first : first + 50], codes[first : first + 50])
    assert len(taken) == rows // 50
    assert max(values for values, _ in taken) <= 50
    assert max(cells for _, cells in taken) <= 50


def naive(values, codes, rows, radices):
    """(product, occupied) of every bin of every feature."""
    found = []
    for place, radix in enumerate(radices):
        for code in range(radix):
            held = [values[row] for row in rows.tolist() if codes[row, place] == code]
            product = mpz(1)
            for value in held:
                product = product * value % MODULUS
            found.append((product, bool(held)))
    return found


@pytest.mark.parametrize("radices", [[2] * 12, [32] * 6, [4] * 8, [2, 2, 3, 8, 16, 32]])
def test_joint_cells_save_products(radices):
    """On 4,000 records the plan needs at most two thirds of the products of one pass per feature."""
    codes = uniform(4000, radices)
    values, node = RING.batch([3] * 4000), (np.arange(4000), codes)
    plain = bin_products(RING, values, [node], radices, joint_cells=False).computed
    shared = bin_products(RING, values, [node], radices).computed
    assert plain == 4000 * len(radices) - sum(radices)
    assert 3 * shared < 2 * plain


def test_joint_numbers_are_mixed_radix():
    """The cell of features 2 and 0 is code_2 · radix_0 + code_0."""
    assert joint(np.array([[3, 9, 1], [0, 9, 4]]), (2, 0), [5, 10, 7]).tolist() == [8, 20]


@pytest.mark.parametrize("features", [4, 16])
def test_memory_of_sums_grows_by_records_and_not_by_features_too(features, monkeypatch):
    """Beside ciphertexts and bins the sums of a node take less than 96 bytes a record, however many features it has:
    the places and cells of all features at once would take 32 bytes for each.

    Numbers of gmpy2 lie where tracemalloc does not see them.
    """
    monkeypatch.setattr(module, "BATCH", 1000)
    radices, rows, ring = [16] * features, 5000, Gmpy2Residues(MODULUS)
    codes, batch = uniform(rows, radices), ring.batch(range(1, rows + 1))
    places = np.arange(rows)
    tracemalloc.start()
    try:
        found = bin_products(ring, batch, [(places, codes)], radices, joint_cells=False)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.computed == features * rows - np.count_nonzero(found.factors)
    assert peak < 96 * rows
