"""Sums of words on a cluster: shards of every party's records, workers of which are lost, find the same models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.boosting import test_lattice
from tests.forest import test_protocol as test_forest
from tests.growth import test_cell_merging, test_column_noise, test_withheld
from tests.lattice_ways import carry_out, in_own_loop
from tests.shards_here import ShardsHere
from tests.simulator import Federation
from tests.worlds import PARTIES, assert_oracles_model, spec, world
from treetap.lattice.histogram_ways import Way
from treetap.trees.params import BoostingParams

LABEL_HOLDER = PARTIES[0]
#: What a worker of a cluster does: it gets bins, words and members of nodes, and returns sums of both kinds.
KERNELS = {"make", "take_bins", "take_words", "enter", "sum_all", "multiply_all", "give"}
#: Tests of features that train on a lattice, and what they are given beside a folder.
JOBS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "queries": (
        test_lattice.test_the_federation_finds_the_oracles_model,
        {"case": "second halves that are drawn anew", "way": Way.QUERIES},
    ),
    "sets": (
        test_lattice.test_the_federation_finds_the_oracles_model,
        {"case": "two blocks of records", "way": Way.SETS},
    ),
    "words of all trees": (
        test_forest.test_the_federation_finds_the_oracles_forest,
        {"target": "two classes", "shape": "three parties", "binning": "global", "way": Way.SETS},
    ),
    "bins of each node": (
        test_forest.test_the_federation_finds_the_oracles_forest,
        {"target": "two classes", "shape": "three parties", "binning": "per-node", "way": Way.SETS},
    ),
    "noise": (
        test_column_noise.test_the_federation_finds_the_forest_of_the_drawn_noise,
        {"case": "words of each tree"},
    ),
    "spaces withheld": (
        test_withheld.test_the_federation_finds_and_uses_the_oracles_model,
        {"case": next(iter(test_withheld.CASES))},
    ),
}


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> dict[str, ShardsHere]:
    """The cluster of each party of a federation: three workers, one of which is lost at every seventh call."""
    made: dict[str, ShardsHere] = {}
    begin = Federation.__init__

    def with_clusters(federation: Federation, *args: Any, **more: Any) -> None:
        begin(federation, *args, cluster=lambda name: made.setdefault(name, ShardsHere(3, lost_every=7)), **more)

    monkeypatch.setattr(Federation, "__init__", with_clusters)
    return made


def _check(clusters: dict[str, ShardsHere]) -> None:
    """Feature parties alone have used their clusters, for sums alone, and left nothing there."""
    asked = {name: {kernel for _, kernel in cluster.asked} for name, cluster in clusters.items()}
    assert not asked.pop(LABEL_HOLDER)
    assert any(asked.values())
    for name, kernels in asked.items():
        assert kernels <= KERNELS
        assert not kernels or clusters[name].lost
        assert not any(clusters[name].memories)


@pytest.mark.second_tier(but=1)
@pytest.mark.parametrize("job", JOBS)
def test_models_are_those_of_one_machine(
    job: str, clusters: dict[str, ShardsHere], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By either way, with bins of the job and of nodes, noise and withheld spaces: as the tests of these features."""
    in_own_loop(*JOBS[job], tmp_path, monkeypatch)
    _check(clusters)


@pytest.mark.second_tier
def test_merged_bins_come_with_each_node(
    clusters: dict[str, ShardsHere], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`min_cell_records` gives nodes bins of their own."""
    feature = test_cell_merging.test_the_federation_finds_the_joined_tables_trees
    carry_out(feature, {"case": next(iter(test_cell_merging.CASES))}, Way.SETS, tmp_path, monkeypatch)
    _check(clusters)


async def test_a_job_by_another_scheme_says_that_it_is_computed_here(
    clusters: dict[str, ShardsHere], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By its name, in every party's log; the cluster gets nothing."""
    here, params = world(40, (1, 2, 2)), BoostingParams(n_estimators=1, max_depth=2, max_bin=4)

    federation = Federation(tmp_path, here.tables)
    assert (await federation.train(spec(params))).state == "finished"
    assert_oracles_model(federation.states, here.oracle(params))
    await federation.close()
    for name in PARTIES:
        assert f"job job is computed by the processes of {name}: a cluster sums the words of scheme" in caplog.text
    assert not any(cluster.asked for cluster in clusters.values())
