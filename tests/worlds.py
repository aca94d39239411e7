"""Small federations with a planted truth, and how a model that lies in shards is compared with the oracle's."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.forest.oracle import forest_train
from tests.oracle import (
    AFT,
    COX,
    LOGARITHMIC,
    QUANTILE,
    OracleLeaf,
    OracleModel,
    OracleSplit,
    OracleTree,
    oracle_predict,
    oracle_train,
)
from treetap.models.store import read_model
from treetap.protocols.job_spec import put_params
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.protocols.registry import training, training_name
from treetap.trees.job_params import JobParams
from treetap.trees.params import ForestParams, TreeParams
from treetap.wire.v2 import setup_pb2

PARTIES = ("label-holder", "feature-b", "feature-c")
#: With more feature parties, for worlds of more blocks.
FOUR = (*PARTIES, "feature-d")
SIX = (*FOUR, "feature-e", "feature-f")
Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Tables = dict[str, tuple[list[str], dict[str, pa.Table]]]
#: The scheme of jobs that name none.
default_scheme = PAILLIER


@dataclass(frozen=True)
class World:
    """Tables by party, the raw blocks X^m (N, d_m) in order of sorted ids, labels (N,), and blocks of new records.

    Every party has a table `train` and a table `predict` with the new records; ids of the two differ.
    `owners`: (N,) the place of the party that labels each record; None: the first labels all. `weights`: (N,).
    """

    tables: Tables
    blocks: list[Floats]
    y: npt.NDArray[Any]
    new: list[Floats]
    classes: int
    owners: Rows | None = None
    weights: Floats | None = None
    #: What scores begin with: exposures and base margins of the records and of the new ones.
    exposure: Floats | None = None
    margins: Floats | None = None
    #: (party, column) → the number of categories, which the blocks have by their codes and the tables as text.
    categories: Mapping[tuple[str, int], int] = field(default_factory=dict)

    @property
    def ownership(self) -> dict[str, Rows]:
        """The records that each party labels, of parties that label some."""
        owners = np.zeros(len(self.y), dtype=np.int64) if self.owners is None else self.owners
        return {name: np.flatnonzero(owners == m) for m, name in enumerate(self.tables) if (owners == m).any()}

    @property
    def parties(self) -> list[tuple[str, Floats]]:
        """Blocks as the oracle wants them, the label holder first."""
        return list(zip(SIX, self.blocks, strict=False))

    @property
    def newcomers(self) -> list[tuple[str, Floats]]:
        """Blocks of the new records."""
        return list(zip(SIX, self.new, strict=False))

    def oracle(self, params: TreeParams, fewest: Mapping[str, int] = MappingProxyType({})) -> OracleModel:
        """The model that the federation must find. `fewest`: see `oracle_train`."""
        if isinstance(params, ForestParams):
            return forest_train(self.parties, list(self.y), params, self.classes, fewest=fewest)
        weights = None if self.weights is None else list(self.weights)
        more: dict[str, Any] = {"weights": weights, "categories": self.categories, "fewest": fewest}
        n = len(self.y)
        given = {"exposure": self.exposure, "margins": self.margins}
        more |= {key: values[:n].tolist() for key, values in given.items() if values is not None}
        return oracle_train(self.parties, list(self.y), params, self.classes, **more)

    @property
    def begins(self) -> Floats:
        """What is added to the scores of the records, and of the new ones behind them."""
        margins = np.zeros(len(self.y) + len(self.new[0])) if self.margins is None else self.margins
        return margins if self.exposure is None else margins + np.log(self.exposure)

    def members(self, tree: OracleTree) -> dict[int, Rows]:
        """The records, sampled or not, of every node of an oracle's tree."""
        columns = dict(self.parties)
        found: dict[int, Rows] = {1: np.arange(len(self.y), dtype=np.int64)}
        for node in sorted(tree.nodes):
            split = tree.nodes[node]
            if isinstance(split, OracleSplit):
                values = columns[split.owner][found[node], split.feature]
                there = ~np.isin(values, split.cut) if isinstance(split.cut, tuple) else values < split.cut
                left = np.where(np.isnan(values), split.missing_left, there)
                found[2 * node], found[2 * node + 1] = found[node][left], found[node][~left]
        return found


def world(
    n: int = 60,
    dims: tuple[int, ...] = (2, 2, 1),
    *,
    objective: str = "binary:logistic",
    classes: int = 2,
    missing: float = 0.0,
    levels: int = 0,
    zeros: float = 0.0,
    fresh: int = 12,
    sentinel: float | None = None,
    seed: int = 0,
) -> World:
    """A world of n records.

    `missing` is the share of missing cells in every column but the last, whose training cells are all there;
    `levels` rounds values so that features tie; a share `zeros` of them is 0; among the `fresh` new records a quarter
    of all cells is missing. `sentinel` is written in place of every second missing cell.
    """
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n + fresh, sum(dims)))
    if levels:
        x = np.floor(x * levels) / levels
    if zeros:
        x[rng.random(x.shape) < zeros] = 0.0
    truth = x @ rng.normal(size=x.shape[1]) + 0.5 * np.sign(x[:, 0] * x[:, -1])
    if objective in ("reg:squarederror", QUANTILE):
        y: npt.NDArray[Any] = 10 * truth + rng.normal(size=n + fresh)
    elif objective == COX:  # by days, of which many are the same
        times = np.ceil(10 * rng.exponential(np.exp(-truth / 3)))
        y = np.where(rng.random(n + fresh) < 0.4, -times, times)
    elif objective == AFT:  # events, intervals, and records that were censored
        lower, kind = np.exp(truth / 3) * rng.weibull(2.0, n + fresh), rng.integers(0, 3, n + fresh)
        y = np.stack([lower, np.choose(kind, [lower, 1.5 * lower, np.full(n + fresh, np.inf)])], axis=1)
    elif objective in LOGARITHMIC:
        means = np.exp(truth / 3)
        y = {"count:poisson": rng.poisson(means), "reg:gamma": means}.get(objective, rng.poisson(means) * means)
    elif objective == "multi:softprob":
        noisy = truth + 0.3 * rng.normal(size=n + fresh)
        y = np.digitize(noisy, np.quantile(truth, np.arange(1, classes) / classes))
    else:
        y = (truth + 0.3 * rng.normal(size=n + fresh) > 0).astype(np.int64)
    gone = rng.random(x.shape) < missing
    gone[:, -1] = False
    gone[n:] = rng.random((fresh, x.shape[1])) < 0.25
    x[gone] = np.nan
    orders = {"train": rng.permutation(n), "predict": n + rng.permutation(fresh)}
    tables: Tables = {}
    starts = np.cumsum([0, *dims])
    for m, name in enumerate(SIX[: len(dims)]):
        block = x[:, starts[m] : starts[m + 1]]
        columns = [f"{name[-1]}{j}" for j in range(block.shape[1])]
        tables[name] = (columns, {})
        for table, shuffled in orders.items():
            order = np.roll(shuffled, m)  # no two parties keep the records in the same order
            content: dict[str, Any] = {"id": [f"r{i:05d}" for i in order]}
            content |= {column: _marked(block[order, j], sentinel) for j, column in enumerate(columns)}
            if m == 0 and table == "train":
                content["y"] = y[order] if y.ndim == 1 else y[order, 0]
                content |= {"upper": y[order, 1]} if y.ndim > 1 else {}
            tables[name][1][table] = pa.table(content)
    blocks = [x[:n, a:b] for a, b in pairwise(starts)]
    new = [x[n:, a:b] for a, b in pairwise(starts)]
    return World(tables, blocks, y[:n], new, classes)


def weighted(here: World, weights: Floats) -> World:
    """The same world, whose label holder has a column `w` of sample weights (N,)."""
    name = next(iter(here.tables))
    columns, content = here.tables[name]
    of = {f"r{i:05d}": weight for i, weight in enumerate(weights.tolist())}
    cells = pa.array([of[i] for i in content["train"].column("id").to_pylist()], type=pa.float64())
    tables = {**here.tables, name: (columns, {**content, "train": content["train"].append_column("w", cells)})}
    return replace(here, tables=tables, weights=weights)


def begun(here: World, *, exposure: bool = True, margins: bool = False, seed: int = 0) -> World:
    """The same world, whose label holder has columns of exposures or of base margins in all tables."""
    rng, n = np.random.default_rng(seed), len(here.y) + len(here.new[0])
    given = {"exposure": rng.uniform(0.1, 3.0, n)} if exposure else {}
    given |= {"margins": rng.normal(size=n)} if margins else {}
    name = next(iter(here.tables))
    columns, content = here.tables[name]
    for key, values in given.items():
        of = {f"r{i:05d}": value for i, value in enumerate(values.tolist())}
        content = {
            table: rows.append_column(key, pa.array([of[i] for i in rows.column("id").to_pylist()], type=pa.float64()))
            for table, rows in content.items()
        }
    return replace(here, tables={**here.tables, name: (columns, content)}, **given)


def spread(here: World, owners: Sequence[int] | Rows) -> World:
    """The same world, in which each record's label is known to one party: `owners` (N,) are places of parties.

    In the tables of the others that label is an empty cell; a party that labels none has a column of empty cells.
    """
    places = np.asarray(owners, dtype=np.int64)
    known = {f"r{i:05d}": label for i, label in enumerate(here.y.tolist())}
    kind = pa.array(here.y).type
    tables: Tables = {}
    for m, (name, (columns, content)) in enumerate(here.tables.items()):
        own = {f"r{i:05d}" for i in np.flatnonzero(places == m)}
        table = content["train"]
        cells = pa.array([known[i] if i in own else None for i in table.column("id").to_pylist()], type=kind)
        table = table.drop_columns("y") if "y" in table.column_names else table
        tables[name] = (columns, {**content, "train": table.append_column("y", cells)})
    return replace(here, tables=tables, owners=places)


def _marked(column: Floats, sentinel: float | None) -> Floats:
    """A column in which every second missing cell holds the sentinel."""
    marked = column.copy()
    if sentinel is not None:
        marked[np.flatnonzero(np.isnan(column))[::2]] = sentinel
    return marked


def spec(params: JobParams, parties: int = 3, **changes: Any) -> setup_pb2.JobSpec:
    """A job over the first parties of the world, with a short key if its scheme has any."""
    given: dict[str, Any] = {
        "scheme": default_scheme,
        "key_bits": 1024,
        "obfuscation": "short-exponent",
        "alignment": "sorted-ids",
        "table": "train",
        "aggregator": PARTIES[0],
        "feature_parties": SIX[1:parties],
    }
    made = setup_pb2.JobSpec()
    put_params(made, params)
    if not training(training_name(made)).grows_trees:
        del given["scheme"], given["key_bits"], given["obfuscation"]
    given |= changes
    if given.get("scheme") == LATTICE:
        own = changes if "scheme" in changes else {}  # a test that means another scheme's keys does not get them
        given |= {"key_bits": own.get("key_bits", 0), "obfuscation": own.get("obfuscation", "")}
    made.MergeFrom(setup_pb2.JobSpec(**given))
    return made


def manifest(state: Path, job: str = "job") -> dict[str, Any]:
    """The manifest of a party's model."""
    content: dict[str, Any] = json.loads((state / "models" / job / "manifest.json").read_text())
    return content


def joined_model(states: dict[str, Path], job: str = "job") -> list[dict[int, tuple[Any, ...]]]:
    """Each tree as node → ("split", owner, feature, threshold, missing_left, gain) or ("leaf", weights).

    In the place of a threshold a split of categories has those that go right.

    Where all parties have one role no party stores gains: each is None; and a leaf's weights are those of its keeper.
    A subtree that the label holder alone knows is in the place of the leaf that it is to the others.
    """
    shards = {name: read_model(state / "models" / job)[1] for name, state in states.items()}
    splits = {
        (name, split["handle"]): split
        for name, shard in shards.items()
        for tree in shard
        for split in tree.get("splits", tree.get("own"))
    }
    trees = []
    for tree, line in enumerate(shards[PARTIES[0]]):
        nodes: dict[int, tuple[Any, ...]] = {}
        parts = [line["tree"], *line["tree"].get("local", ())] if "nodes" not in line else []
        leaves = [each for part in parts for each in part["leaves"]] if parts else _kept_leaves(shards, tree)
        for leaf in leaves:
            nodes[leaf["node"]] = ("leaf", tuple(leaf["weights"]))
        for split in [each for part in parts for each in part["splits"]] if parts else _divisions(shards, tree):
            own = splits.pop((split["owner"], split["handle"]))
            assert own["node"] == split["node"]
            alone = -math.inf if own["missing_left"] else math.inf  # the missing values, on one side
            threshold = alone if own["threshold"] is None else own["threshold"]
            threshold = tuple(own["categories"]) if "categories" in own else threshold
            meaning = (own["feature"], threshold, own["missing_left"])
            nodes[split["node"]] = ("split", split["owner"], *meaning, split["gain"])
        trees.append(nodes)
    assert not splits, f"splits that no tree uses: {sorted(splits)}"
    return trees


def _divisions(shards: dict[str, Any], tree: int) -> list[dict[str, Any]]:
    """The splits of a tree, which all parties know alike."""
    lines = [shard[tree] for shard in shards.values()]
    assert all((line["nodes"], line["leaves"]) == (lines[0]["nodes"], lines[0]["leaves"]) for line in lines)
    return [{**node, "owner": node["source"], "gain": None} for node in lines[0]["nodes"]]


def _kept_leaves(shards: dict[str, Any], tree: int) -> list[dict[str, Any]]:
    """The leaves of a tree with their weights: of each its keeper has one, and no other party."""
    keepers = {leaf["node"]: leaf["keeper"] for line in shards.values() for leaf in line[tree]["leaves"]}
    kept = [(party, each) for party, shard in shards.items() for each in shard[tree]["weights"]]
    assert {each["node"]: party for party, each in kept} == keepers
    assert len(kept) == len(keepers)
    return [{"node": each["node"], "weights": each["weight"]} for _, each in kept]


def assert_oracles_model(states: dict[str, Path], oracle: OracleModel, job: str = "job") -> None:
    """The joined shards are the oracle's trees, node for node; thresholds exactly, weights and gains to 1e-9."""
    trees = joined_model(states, job)
    assert len(trees) == len(oracle)
    for tree, expected in zip(trees, oracle, strict=True):
        assert set(tree) == set(expected.nodes)
        for number, node in tree.items():
            other = expected.nodes[number]
            if isinstance(other, OracleSplit):
                assert node[:5] == ("split", other.owner, other.feature, other.cut, other.missing_left)
                assert node[5] is None or node[5] == pytest.approx(other.gain, rel=1e-7, abs=1e-7)
            else:
                assert node[0] == "leaf"
                assert node[1] == pytest.approx(other.weights, abs=1e-9)


def assert_oracles_scores(
    path: str,
    oracle: OracleModel,
    parties: list[tuple[str, Floats]],
    first: int,
    within: float | Floats = 1e-9,
    begins: float | Floats = 0.0,
) -> None:
    """A file of predictions holds the oracle's scores of the records r00000+first…, in order of ids.

    `within`: the largest difference, of all or of each output. `begins`: what is added to the score of each record.
    """
    table = pq.read_table(path)
    expected = np.array(oracle_predict(oracle, parties)) + np.reshape(begins, (-1, 1))
    assert table.column("id").to_pylist() == [f"r{first + i:05d}" for i in range(len(expected))]
    names = [name for name in table.column_names if name.startswith("score")]
    scores = np.column_stack([table.column(name).to_numpy() for name in names])
    assert scores.shape == expected.shape
    assert (np.abs(scores - expected) <= within).all()


def lattice_tolerance(oracle: OracleModel, share: float = 1e-4) -> Floats:
    """The error bound of a lattice prediction: for each output a share of the range that its scores can have."""
    used = len(oracle) if oracle.best_round is None else (oracle.best_round + 1) * oracle.trees_per_round
    widths = np.zeros(len(oracle.base_margin))
    for tree in oracle[:used]:
        weights = np.array([node.weights for node in tree.nodes.values() if isinstance(node, OracleLeaf)])
        widths[list(tree.outputs)] += np.ptp(weights, axis=0)
    return share * widths / (used if oracle.averaged else 1) + 1e-12


def lacking(here: World, share: float, seed: int = 0) -> World:
    """The same world, in which each party but the first lacks a share of the records, other ones than the next.

    Its tables are without their rows, and its blocks have missing cells there: the world of a left join.
    """
    rng, n = np.random.default_rng(seed), len(here.y)
    tables, blocks, new = dict(here.tables), [here.blocks[0]], [here.new[0]]
    for m, (name, (columns, content)) in enumerate(list(here.tables.items())[1:], start=1):
        gone = rng.random(n + len(here.new[m])) < share
        known = {f"r{i:05d}" for i in np.flatnonzero(~gone)}
        kept = {
            table: rows.filter(pa.array([i in known for i in rows.column("id").to_pylist()]))
            for table, rows in content.items()
        }
        tables[name] = columns, kept
        blocks.append(np.where(gone[:n, np.newaxis], np.nan, here.blocks[m]))
        new.append(np.where(gone[n:, np.newaxis], np.nan, here.new[m]))
    return replace(here, tables=tables, blocks=blocks, new=new)
