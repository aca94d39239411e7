"""A feature party's account of cells in small groups: against all subsets of few records, over jobs, through kills."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from party.defences import column_account
from party.defences.checks import check_own
from party.defences.column_account import LEFT_SETS, SUMS, WAYS, AccountFile, ColumnAccount
from party.defences.settings import Defences, IdLmid
from party.policy import Policy
from party.runtime.metrics import PartyMetrics
from tests.boosting.categories import categorical_world
from tests.campaign.cipher import KeysMade, ciphers
from tests.commands.command import refused, treetap
from tests.oracle import OracleSplit
from tests.simulator import Federation, run
from tests.trainings import jobs_of
from tests.worlds import PARTIES, Tables, World, spec, world
from treetap.errors import DataError, Refused
from treetap.tables.record_ids import Ids
from treetap.trees.binning import bin_table
from treetap.trees.candidates import column_goes_left
from treetap.trees.params import BoostingParams, ForestParams, TreeParams
from treetap.trees.tree_bins import Bins, GlobalBins, NodeBins
from treetap.wire.frame import name_of
from treetap.wire.v2.exchange_pb2 import PeerMessage

pytestmark = pytest.mark.filterwarnings("ignore:a 512-bit")
HOLDER, FEATURE, OTHER = PARTIES
Mask = npt.NDArray[np.bool_]
#: Way → (N, C): the cells that are counted.
Counted = dict[str, Mask]
BOOSTING = BoostingParams(n_estimators=3, max_depth=3, max_bin=5, min_child_weight=0.0)
FOREST = ForestParams(n_estimators=3, max_depth=3, max_bin=5, bootstrap=True)
HERE = world(24, (1, 2, 1), seed=3)


@dataclass
class Sums:
    """The nodes whose sums a feature party was asked for and sent, as (tree, node), and the splits whose sets it sent."""

    built: list[tuple[int, int]]
    divided: list[tuple[int, int]]


class Watched(Federation):
    """A federation that notes what has reached the label holder from `FEATURE`."""

    def __init__(self, folder: Path, tables: Tables, **more: Any) -> None:
        super().__init__(folder, tables, **more)
        self.sent = Sums([], [])
        self.tamper = self._note

    def _note(self, sender: str, to: str, parcel: PeerMessage) -> PeerMessage:
        if sender == FEATURE and name_of(parcel) == "candidate_sums":
            self.sent.built += [(parcel.round, node) for node in parcel.growth.candidate_sums.nodes]
        if sender == FEATURE and name_of(parcel) == "children":
            self.sent.divided += [(parcel.round, child.node) for child in parcel.growth.children.children]
        return parcel


def _job(params: TreeParams, **changes: Any) -> Any:
    return spec(params, key_bits=512, obfuscation="standard", **changes)


def _train(folder: Path, here: World, params: TreeParams, job: str = "job", **more: Any) -> tuple[Any, Watched]:
    async def main() -> tuple[Any, Watched]:
        federation = Watched(folder, here.tables, **more)
        status = await federation.train(_job(params), job)
        await federation.close()
        return status, federation

    with ciphers(KeysMade(), transparent=True):
        return run(main())


def counted(state: Path, ids: list[str], columns: list[str], table: str = "train") -> Counted:
    """What a feature party has counted of its cells, as its disk has it; nothing without a file."""
    cells = AccountFile(state, HOLDER, table).read()
    places, of_columns = cells.places(Ids.of(ids), columns)
    return {way: np.array([cells.flags(way, c)[places] == 1 for c in of_columns]).T for way in WAYS}


def _ids(here: World) -> list[str]:
    return [f"r{i:05d}" for i in range(len(here.y))]


# --- an independent count: all sets of few records whose sum is a combination of sums that were sent


def _bins(here: World, params: TreeParams, tree: int, values: Any) -> Bins:
    """The bins of the feature party's columns in a tree."""
    kept = params.columns(tree, FEATURE, values.shape[1])
    if isinstance(params, ForestParams) and params.bins_per_node:
        return NodeBins(values, kept, params.drawn(tree, len(values)), params.max_bin)
    columns = here.tables[FEATURE][0]
    categories = {columns[j]: count for (party, j), count in here.categories.items() if party == FEATURE}
    below = params.one_hot_below
    return GlobalBins(bin_table(values, columns, params.max_bin, categories=categories, max_cat_to_onehot=below), kept)


def _left_sets(bins: Bins, node: int, rows: Any, f: int) -> Iterator[Any]:
    """The records of a node that each candidate of a column sums."""
    if isinstance(bins, NodeBins):
        bins.see(node, rows)
    listed = bins.candidates
    for k in range(int(listed.first[f]), int(listed.first[f + 1])):
        codes = bins.column(node, rows, f)
        single = listed.grouped[k]
        n_bins = listed.shapes[f].n_bins
        yield rows[codes == listed.bin[k] if single else column_goes_left(codes, listed.at(k), n_bins)]


def brute_force(here: World, params: TreeParams, sent: Sums) -> Counted:
    """All sets of up to three drawn records whose sums follow from those of one tree and column, and small sides."""
    values, n = here.blocks[1], len(here.y)
    found = {way: np.zeros(values.shape, dtype=bool) for way in WAYS}
    subsets = [set for size in (1, 2, 3) for set in combinations(range(n), size)]
    hot = np.array([[float(i in chosen) for i in range(n)] for chosen in map(frozenset, subsets)])
    for t, tree in enumerate(here.oracle(params)):
        drawn, bins, members = params.drawn(t, n).astype(float), _bins(here, params, t, values), here.members(tree)
        of_drawn = hot[:, drawn == 0].sum(axis=1) == 0
        built = sorted({node for at, node in sent.built if at == t})
        for f, column in enumerate(bins.kept):
            if not bins.candidates.shapes[f].sums:
                continue
            known = [rows for node in built for rows in (members[node], *_left_sets(bins, node, members[node], f))]
            vectors = np.zeros((len(known), n))
            for vector, rows in zip(vectors, known, strict=True):
                vector[rows] = drawn[rows]
            base = np.linalg.svd(vectors, full_matrices=False)
            span = base.Vh[base.S > 1e-9]
            wanted = hot * drawn
            follows = of_drawn & (np.abs(wanted - wanted @ span.T @ span).max(axis=1) < 1e-9)
            found[SUMS][:, column] |= hot[follows].any(axis=0)
        for number, node in sent.divided:
            split = tree.nodes[node] if number == t else None
            if isinstance(split, OracleSplit) and split.owner == FEATURE:
                for child in (2 * node, 2 * node + 1):
                    rows = members[child]
                    few = rows if len(rows) <= 3 else rows[drawn[rows] > 0]
                    if len(few) <= 3:
                        found[LEFT_SETS][few, split.feature] = True
    return found


#: The case of which each kind of categories is one: one against the rest, and to be partitioned.
CATEGORIES = {HOLDER: (0,), FEATURE: (5, 3, 0), OTHER: (0,)}
CASES: dict[str, tuple[Callable[[], World], TreeParams]] = {
    "boosting": (lambda: world(24, (1, 2, 1), seed=3), BOOSTING),
    "sampled, missing values": (
        lambda: world(24, (1, 2, 1), missing=0.3, seed=5),
        replace(BOOSTING, subsample=0.7, colsample_bytree=0.6, max_bin=4),
    ),
    "several outputs": (
        lambda: world(24, (1, 2, 1), objective="multi:softprob", classes=3),
        replace(BOOSTING, objective="multi:softprob", n_estimators=1, max_depth=2),
    ),
    "lossguide": (
        lambda: world(24, (1, 2, 1), seed=7),
        replace(BOOSTING, max_depth=4, max_leaves=6, grow_policy="lossguide"),
    ),
    "a party that sits out": (lambda: world(24, (1, 2, 1), seed=9), replace(BOOSTING, party_dropout={FEATURE: 0.5})),
    "categories": (lambda: categorical_world(26, CATEGORIES, missing=0.2, seed=1), replace(BOOSTING, n_estimators=2)),
    "forest": (lambda: world(24, (1, 2, 1), seed=4), replace(FOREST, max_depth=4)),
    "forest, bins per node": (
        lambda: world(24, (1, 2, 1), seed=6, missing=0.2),
        replace(FOREST, binning="per-node", bootstrap=False),
    ),
}


@pytest.mark.parametrize(("made", "params"), CASES.values(), ids=CASES)
def test_the_account_is_that_of_all_subsets(made: Callable[[], World], params: TreeParams, tmp_path: Path) -> None:
    """Cell for cell, at a party that wins splits, in jobs whose models are the oracle's."""
    here = made()
    more: dict[str, Any] = {}
    if here.categories:
        more = {"policies": dict.fromkeys(PARTIES, {"category_partitions": True}), "encode": "categorical"}
    status, federation = _train(tmp_path, here, params, **more)
    assert status.state == "finished", status.error
    expected = brute_force(here, params, federation.sent)
    own = counted(federation.state(FEATURE), _ids(here), here.tables[FEATURE][0])
    assert 0 < expected[SUMS].mean() < 1
    for way in WAYS:
        np.testing.assert_array_equal(own[way], expected[way], err_msg=way)
