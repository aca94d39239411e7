"""What a party keeps to itself: it cannot be pickled, and its splits mean what training meant."""

from __future__ import annotations

import copy
import json
import math
import pickle
import tracemalloc

import numpy as np
import pytest

from treetap.errors import Malformed
from treetap.models.own_split import OwnSplit
from treetap.party.growth.split_table import SplitTable, TreeColumns
from treetap.trees.binning import bin_table
from treetap.trees.candidates import Candidate, Partition
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import NodeBins

NAN = float("nan")
#: Two columns of six records; only the second one has missing values.
RAW = np.array([[0.0, 5.0], [1.0, NAN], [2.0, 6.0], [0.0, 5.0], [1.0, NAN], [2.0, 6.0]])
COLUMNS = ["age", "income"]
ALL = np.arange(len(RAW))


def _split_table() -> SplitTable:
    return SplitTable("feature-b", COLUMNS, bin_table(RAW, COLUMNS, 8))


def _split(threshold: float, *, missing_left: bool) -> OwnSplit:
    return OwnSplit(handle=0, node=1, feature=0, bin=0, threshold=threshold, missing_left=missing_left)


def test_it_cannot_be_pickled() -> None:
    """Neither the table nor what a tree sees of it passes through pickle or copy, the way to workers and files."""
    table = _split_table()
    for secret in (table, table.columns_of_tree(0, BoostingParams(), permuted=True)):
        with pytest.raises(TypeError, match="a split table does not leave its process"):
            pickle.dumps(secret)
        with pytest.raises(TypeError, match="a split table does not leave its process"):
            copy.deepcopy(secret)


def test_its_repr_shows_nothing() -> None:
    """A log line that has a table in it shows whose it is and no column."""
    assert repr(_split_table()) == "<SplitTable of feature-b>"


def test_a_tree_of_all_columns_copies_no_bins() -> None:
    """The bins of all records are held once, however many trees use all columns; a drawn column is copied."""
    table = _split_table()
    assert np.shares_memory(table.columns_of_tree(0, BoostingParams(), permuted=True).codes, table.binned.codes)
    drawn = table.columns_of_tree(0, BoostingParams(colsample_bytree=0.5), permuted=True)
    assert drawn.codes.shape == (len(RAW), 1)


@pytest.mark.parametrize("missing_left", [False, True])
def test_which_way_values_go(missing_left: bool) -> None:
    """Below the threshold goes left, the threshold itself right, and a missing value where training sent it."""
    ways = {1.5: [True, False, False, missing_left, True], math.inf: [True, True, True, missing_left, True]}
    for threshold, expected in ways.items():
        left = _split(threshold, missing_left=missing_left).goes_left(np.array([1.0, 1.5, 1e300, NAN, -np.inf]))
        assert left.tolist() == expected


@pytest.mark.parametrize("place", range(2 + 3))
def test_a_kept_split_means_what_training_meant(place: int) -> None:
    """For every candidate the raw values part as their bins did, on the column that the candidate was about."""
    columns = _split_table().columns_of_tree(0, BoostingParams(), permuted=False)
    assert len(columns.candidates) == 5
    split, left = columns.split(1, ALL, [place])
    candidate = columns.candidates.at(place)
    assert (split.feature, split.bin, split.missing_left) == (candidate.feature, candidate.bin, candidate.missing_left)
    assert np.flatnonzero(split.goes_left(RAW[:, split.feature])).tolist() == left.tolist()
    assert 0 < len(left) < len(RAW)


def test_the_last_bin_has_no_cut_above_it() -> None:
    """Present left, missing right: the threshold is +inf."""
    columns = _split_table().columns_of_tree(0, BoostingParams(), permuted=False)
    assert columns.bins.cut(1, Candidate(1, 1, missing_left=False)) == math.inf


def test_of_tied_candidates_the_lowest_is_kept() -> None:
    """Whatever the permutation of the tree, ties are broken by the canonical order, which no message shows."""
    seen = set()
    for _ in range(20):
        columns = _split_table().columns_of_tree(0, BoostingParams(), permuted=True)
        place = {int(canonical): at for at, canonical in enumerate(columns.order(1))}
        split, _ = columns.split(1, ALL, [place[4], place[1], place[3]])
        assert (split.feature, split.bin) == (0, 1)
        seen.add(tuple(columns.order(1).tolist()))
        assert columns.order(2).tolist() == columns.order(1).tolist()
    assert len(seen) > 1


#: A column of numbers between two whose categories are partitioned.
MIXED = np.array([[0.0, 3.0, 1.0], [1.0, 4.0, NAN], [2.0, 3.0, 2.0], [3.0, 4.0, 0.0]])
MIXED_NAMES = ["city", "age", "plan"]


def _mixed(*, permuted: bool) -> TreeColumns:
    binned = bin_table(MIXED, MIXED_NAMES, 8, categories={"city": 4, "plan": 3}, max_cat_to_onehot=2)
    return SplitTable("feature-b", MIXED_NAMES, binned).columns_of_tree(0, BoostingParams(), permuted=permuted)


def test_sums_over_categories_are_sent_last_column_by_column() -> None:
    """The columns in a secret order, the categories of each in that of their codes, by which the label holder ties."""
    seen = set()
    for _ in range(20):
        columns = _mixed(permuted=True)
        order, sizes = columns.order(1).tolist(), columns.group_sizes
        assert order[0] == 4
        assert order[1:] == ([0, 1, 2, 3, 5, 6, 7] if sizes == [4, 3] else [5, 6, 7, 0, 1, 2, 3])
        seen.add(tuple(sizes))
    assert seen == {(4, 3), (3, 4)}
    assert _mixed(permuted=False).order(1).tolist() == list(range(8))


def test_a_partition_is_kept_as_its_categories() -> None:
    """The owner finds the column by its place in the order that it sent; the split parts raw values as told."""
    columns = _mixed(permuted=True)
    city = columns.group_sizes.index(4)
    split, left = columns.split(1, np.arange(4), [], [Partition(city, (1, 3), missing_left=True)])
    assert (split.feature, split.categories, split.missing_left, split.threshold) == (0, (1, 3), True, math.inf)
    assert left.tolist() == [0, 2]
    assert split.goes_left(np.array([0.0, 1.0, 2.0, 3.0, 4.0, NAN])).tolist() == [True, False, True, False, True, True]
    assert OwnSplit.from_dict(split.to_dict()) == split


def test_of_a_tied_cut_and_partitions_the_first_column_is_kept() -> None:
    """A partition of a later column does not win over a cut, nor a cut over a partition of an earlier one."""
    columns = _mixed(permuted=True)
    city, plan = columns.group_sizes.index(4), columns.group_sizes.index(3)
    tied = [Partition(plan, (0,), missing_left=True), Partition(city, (3,), missing_left=False)]
    assert columns.split(1, np.arange(4), [0], tied[:1])[0].feature == 1
    assert columns.split(1, np.arange(4), [0], tied)[0].feature == 0


def test_the_sum_over_a_category_is_no_winner() -> None:
    """A decision for the place of such a sum is refused."""
    with pytest.raises(Malformed, match="the winning candidates are not among those that were offered"):
        _mixed(permuted=True).split(1, np.arange(4), [3])


def test_a_permutation_only_where_candidates_leave() -> None:
    """The label holder's own candidates stay where they are, and keep the canonical order."""
    columns = _split_table().columns_of_tree(0, BoostingParams(), permuted=False)
    assert columns.order(1).tolist() == list(range(5))


@pytest.mark.parametrize("places", [[], [5], [0, 99]])
def test_winners_that_were_not_offered(places: list[int]) -> None:
    """A decision about candidates that do not exist is the other side's fault, and keeps no split."""
    table = _split_table()
    columns = table.columns_of_tree(0, BoostingParams(), permuted=True)
    with pytest.raises(Malformed, match="node 1: the winning candidates are not among those that were offered"):
        columns.split(1, ALL, places)
    assert table.keep(1, Candidate(0, 0, missing_left=False), 0.5).handle == 0


def test_bins_of_a_node_part_as_their_thresholds_do() -> None:
    """With bins of its own every node has an order of its own, and each kept split parts raw values as its bins did."""
    drawn = np.array([1, 1, 2, 0, 1, 1])[: len(RAW)]
    rows = np.arange(len(RAW))
    orders = set()
    for place in range(5):
        columns = _split_table().fresh_columns_of_tree(0, BoostingParams(), RAW, drawn, permuted=True)
        assert isinstance(columns.bins, NodeBins)
        for node in (1, 2):
            columns.bins.see(node, rows)
            split, left = columns.split(node, rows, [place])
            assert np.flatnonzero(split.goes_left(RAW[:, split.feature])).tolist() == left.tolist()
        orders |= {tuple(columns.order(node).tolist()) for node in range(1, 9)}
    assert len(orders) > 5


WIDE = np.random.default_rng(3).integers(0, 20, (5000, 200)).astype(float)
WIDE[::7, ::3] = NAN
WIDE_NAMES = [f"x{j}" for j in range(200)]


def _wide(*, fresh: bool) -> TreeColumns:
    """5000 records of 200 columns in the bins of the job or of node 1."""
    table = SplitTable("feature-b", WIDE_NAMES, bin_table(WIDE, WIDE_NAMES, 8))
    if not fresh:
        return table.columns_of_tree(0, BoostingParams(), permuted=False)
    drawn = np.ones(len(WIDE), dtype=np.int64)
    columns = table.fresh_columns_of_tree(0, BoostingParams(max_bin=8), WIDE, drawn, permuted=False)
    assert isinstance(columns.bins, NodeBins)
    columns.bins.see(1, np.arange(len(WIDE)))
    return columns


@pytest.mark.parametrize("fresh", [False, True], ids=["bins of the job", "bins of the node"])
def test_a_split_takes_one_column(fresh: bool) -> None:
    """Memory that a split takes grows with the records of the node, not with the columns beside its own."""
    columns, rows = _wide(fresh=fresh), np.arange(len(WIDE))
    columns.split(1, rows[:1], [0])  # the order of the candidates is made once
    tracemalloc.start()
    columns.split(1, rows, [len(columns.candidates) // 2])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * WIDE.itemsize * len(rows)  # eight columns of the table, of 200


@pytest.mark.parametrize("fresh", [False, True], ids=["bins of the job", "bins of the node"])
def test_a_split_parts_by_its_column_of_the_whole_table(fresh: bool) -> None:
    """The rows that go left are those that the codes of all columns say, of every tenth candidate of 200 columns."""
    columns, rows = _wide(fresh=fresh), np.arange(0, len(WIDE), 3)
    codes = columns.bins.codes(1, rows)
    for place in range(0, len(columns.candidates), 10):
        expected = columns.candidates.goes_left(codes, columns.candidates.at(place))
        split, left = columns.split(1, rows, [place])
        assert left.tolist() == rows[expected].tolist()
        assert left.tolist() == rows[split.goes_left(WIDE[rows, split.feature])].tolist()


def test_features_are_numbered_among_all_columns() -> None:
    """A tree that sees one sampled column still stores its number among all of them."""
    features = set()
    for seed in range(20):
        columns = _split_table().columns_of_tree(0, BoostingParams(seed=seed, colsample_bytree=0.5), permuted=True)
        split, left = columns.split(1, ALL, [0])
        assert np.flatnonzero(split.goes_left(RAW[:, split.feature])).tolist() == left.tolist()
        features.add(split.feature)
    assert features == {0, 1}


def test_handles_go_on_where_they_are_told() -> None:
    """A tree that is grown again numbers its splits as it did the first time."""
    table = _split_table()
    candidate = Candidate(0, 0, missing_left=False)
    assert [table.keep(1, candidate, 0.5).handle for _ in range(3)] == [0, 1, 2]
    table.next_handle_is(1)
    assert table.keep(1, candidate, 0.5).handle == 1


@pytest.mark.parametrize("threshold", [0.5, -1e300, math.inf])
def test_splits_come_back_from_plain_json(threshold: float) -> None:
    """What a shard holds is JSON that every reader takes, and means what it meant."""
    split = _split(threshold, missing_left=False)
    text = json.dumps(split.to_dict(), allow_nan=False)
    assert OwnSplit.from_dict(json.loads(text)) == split
