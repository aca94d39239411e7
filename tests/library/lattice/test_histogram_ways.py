"""The way to sum nodes on a lattice: by time, which follows from layout and the line, and by what settings need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from treetap.errors import BadInput
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of, rounded_up
from treetap.lattice.histogram_ways import Needs, Way, built_nodes, once_an_attempt, way_of
from treetap.party.boosting.ciphers import layout
from treetap.protocols.key_options import LINE
from treetap.trees.params import BoostingParams, ForestParams

PARAMS = BoostingParams(n_estimators=5, max_depth=3, max_bin=32)
#: A line on which bytes alone count, and one on which they count next to nothing.
SLOW, FAST = 1, 10**12


def _agreed(records: int, columns: int, params: BoostingParams, needs: Needs) -> tuple[HistogramParameters, int]:
    built = built_nodes(params, needs)
    candidates, queries = columns * (params.max_bin - 1), built * params.n_estimators
    sizes = rounded_up(candidates), rounded_up(queries)
    return parameters_of(records, layout(params, records, 1), params.max_bin, *sizes, 1), built


def _way(
    records: int,
    columns: int,
    params: BoostingParams = PARAMS,
    needs: Needs = Needs(),  # noqa: B008
    line: int = SLOW,
) -> Way:
    return way_of(*_agreed(records, columns, params, needs), needs, line)


def test_the_way_of_fewer_bytes() -> None:
    """Many records for each candidate speak for sets, few for queries; deep trees do not change that."""
    assert _way(30_000, 11) is Way.QUERIES
    assert _way(1_000_000, 25) is Way.SETS
    assert _way(1_000_000, 25, replace(PARAMS, max_depth=6)) is Way.SETS
    assert _way(1_000_000, 25, replace(PARAMS, max_bin=255)) is Way.QUERIES
    assert _way(10_000_000, 20) is Way.SETS
    assert _way(100, 1, replace(PARAMS, max_bin=2)) is Way.SETS


def test_the_way_of_less_time() -> None:
    """Sets send fewer bytes of a million records and take more transforms: what the line is decides."""
    assert [_way(1_000_000, 25, line=line) for line in (SLOW, 10**8, LINE, FAST)] == [
        *(Way.SETS, Way.SETS),
        *(Way.QUERIES, Way.QUERIES),
    ]
    assert {_way(30_000, 11, line=line) for line in (SLOW, LINE, FAST)} == {Way.QUERIES}


def test_transforms_of_columns_that_every_tree_draws_are_counted_anew() -> None:
    """By queries they serve all trees of the same columns; by sets those of every node are made in any case."""
    needs, often = Needs(), Needs.of(replace(PARAMS, colsample_bytree=0.5))
    assert often == Needs(redrawn=True)
    line = next(bits for bits in range(10**8, 10**10, 10**7) if _way(600_000, 10, line=bits) is Way.QUERIES)
    assert _way(600_000, 10, needs=needs, line=line - 10**7) is Way.SETS
    assert _way(600_000, 10, needs=often, line=line) is Way.SETS


def test_bytes_are_counted_as_they_are_sent() -> None:
    """Queries are taken if both ways cost the same; with one candidate's half less, sets are."""
    agreed, built = _agreed(1_000_000, 25, PARAMS, Needs())
    halves = agreed.candidates * agreed.second_half_bytes
    assert agreed.queries_per_second_half == built == 4
    # 4 queries and the halves once against one query and the halves four times
    assert (way_of(agreed, 4, Needs(), SLOW) is Way.SETS) == (3 * halves < 3 * agreed.query_bytes)
    assert agreed.query_bytes > halves


def test_what_is_kept_over_trees_counts_by_its_share() -> None:
    """Second halves of all trees, and words of all trees, each of 100, where secrets may serve all of their nodes."""
    params = replace(PARAMS, n_estimators=100)
    records = next(n for n in range(50_000, 2_000_000, 25_000) if _way(n, 11, params) is Way.SETS)
    assert _way(records, 11, params, Needs(kept=True)) is Way.QUERIES
    assert _way(records - 25_000, 11, params, Needs(once=True)) is Way.QUERIES
    few = replace(PARAMS, n_estimators=4)
    records = next(n for n in range(50_000, 2_000_000, 25_000) if _way(n, 11, few) is Way.SETS)
    assert _way(records - 25_000, 11, few, Needs(once=True)) is Way.SETS
    for trees, once in ((4, True), (100, False)):
        agreed, _ = _agreed(records, 11, replace(PARAMS, n_estimators=trees), Needs())
        assert once_an_attempt(agreed, Needs(once=True)) == once == (agreed.queries <= agreed.nodes_per_secret)
        assert not once_an_attempt(agreed, Needs())


def test_words_that_come_anew_are_counted() -> None:
    """A tree of more nodes than secrets may serve: its root is encrypted as often as that takes."""
    agreed, _ = _agreed(1_000_000, 100, replace(PARAMS, max_depth=6), Needs())
    halves, served = agreed.candidates * agreed.second_half_bytes, agreed.nodes_per_secret
    assert 1 < served < 32
    for built in (served, served + 1, 32):
        sets = -(-built // served) * agreed.query_bytes + built * halves
        queries = built * agreed.query_bytes + -(-built // agreed.queries_per_second_half) * halves
        assert (way_of(agreed, built, Needs(), SLOW) is Way.SETS) == (sets < queries)


def test_settings_go_before_bytes() -> None:
    """Bins of a node are by sets alone, unknown records by queries alone; both children are then summed."""
    for needs in (Needs(merged=True), Needs(own_bins=True)):
        assert _way(30_000, 11, needs=needs) is Way.SETS
        assert built_nodes(PARAMS, needs) == 1 + 2 + 4
        with pytest.raises(BadInput, match="bins of a node follow from records that it is not to know"):
            way_of(*_agreed(1_000, 2, PARAMS, needs), replace(needs, withheld=True), SLOW)
    assert built_nodes(PARAMS, Needs()) == 1 + 1 + 2
    assert built_nodes(replace(PARAMS, grow_policy="lossguide", max_leaves=5), Needs(merged=True)) == 1 + 3 * 2
    assert built_nodes(ForestParams(max_depth=4), Needs()) == 1 + 1 + 2 + 4
    assert _way(1_000_000, 25, needs=Needs(withheld=True)) is Way.QUERIES
