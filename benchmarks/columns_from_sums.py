"""Cells of a feature party's columns that a curious label holder reads from the sums of a whole training.

    python benchmarks/columns_from_sums.py [--set breast_cancer diabetes credit obesity synthetic] [--records N]
        [--trees 1 10 100] [--depth 6] [--bins 32] [--min-child-weight 1] [--subsample 1]
        [--min-cell-records M] [--epsilon E] [--json]

breast_cancer and diabetes come with scikit-learn, synthetic is drawn, and credit and obesity need TREETAP_DATA (the
folder with credit_default.parquet and obesity.parquet); texts are numbered. The label holder has the first columns, a
feature party the others. The centralised trainer gives the federation's trees and hence its sums; the attack is that of
`treetap audit` (attacks/sums), which gets nothing but these.

A line for each number of trees: cells that were placed in their bins by left sets alone, by differences of few records,
by all equations together, and with the links between candidates given; then the share of cells right by the best guess
of all, and the variance of places that is explained. --epsilon: the party's sums have noise (column_privacy, δ 10⁻⁶),
and are read with links given alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from treetap import terminal
from treetap.attacks.sums.attack import SumsEvidence, read_columns
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.schema import ColumnFigures, SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.opened_sums import LeftSet, OpenedSums, OpenedTree, WonSplit
from treetap.privacy.column_privacy import ColumnPrivacy, drawn_sums
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.candidates import CandidateList, column_goes_left
from treetap.trees.cell_merging import bins_of
from treetap.trees.centralised import CentralModel, train
from treetap.trees.ensemble import Split, Tree, route
from treetap.trees.noised_sums import NoisedParty, SumNoise
from treetap.trees.params import BoostingParams, TreeParams
from treetap.trees.tree_bins import GlobalBins, left_sums_of

HOLDER, PARTY = "label-holder", "feature-party"
#: Most records of the credit table and of a drawn one, unless --records says otherwise.
RECORDS = 5000

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A table that is divided between the two: the first `own` columns are the label holder's."""

    name: str
    own: int
    inputs: npt.NDArray[np.float64] = field(repr=False)
    labels: npt.NDArray[Any] = field(repr=False)
    objective: str = "binary:logistic"


def case_of(name: str, records: int | None) -> Case:
    """A case by name, of its first `records`."""
    from sklearn import datasets

    if name == "breast_cancer":
        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        return Case(name, 10, inputs[:records, :20], labels[:records])
    if name == "diabetes":
        inputs, labels = datasets.load_diabetes(return_X_y=True)
        return Case(name, 4, inputs[:records], labels[:records].astype(np.float64), "reg:squarederror")
    if name == "synthetic":
        inputs, labels = datasets.make_classification(records or RECORDS, 20, n_informative=12, random_state=1)
        return Case(name, 10, inputs, labels)
    if "TREETAP_DATA" not in os.environ:
        sys.exit("columns_from_sums: set TREETAP_DATA to the folder with credit_default.parquet and obesity.parquet")
    file, own, objective = {
        "credit": ("credit_default.parquet", 12, "binary:logistic"),
        "obesity": ("obesity.parquet", 8, "multi:softprob"),
    }[name]
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / file).slice(0, records or RECORDS)
    *columns, label = [_numbered(table.column(column)) for column in table.column_names]
    return Case(name, own, np.stack(columns, axis=1), label.astype(np.int64), objective)


def _numbered(column: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A column as numbers; texts by their order."""
    values = column.to_numpy()
    return (np.unique(values, return_inverse=True)[1] if values.dtype == object else values).astype(np.float64)


@dataclass(frozen=True, eq=False)
class DrawnNoise:
    """A feature party's noise, and what it drew: by tree and node (candidates, S), in the canonical order."""

    privacy: ColumnPrivacy
    noise: SumNoise
    drawn: dict[tuple[int, int], Ints] = field(default_factory=dict, repr=False)

    def party(self, table: BinnedTable, params: TreeParams) -> NoisedParty:
        """The party, which draws for each node, in a tree's columns."""

        def of(tree: int, node: int) -> Ints:
            if (tree, node) not in self.drawn:
                kept = params.columns(tree, PARTY, len(table.features))
                candidates = CandidateList([table.features[j].shape for j in kept])
                self.drawn[tree, node] = drawn_sums(candidates, self.noise, 1)[0]
            return self.drawn[tree, node]

        return self.noise, of


def opened_sums(
    case: Case,
    params: BoostingParams,
    least: int = 0,
    rounds: type[BoostingRounds] = BoostingRounds,
    privacy: ColumnPrivacy | None = None,
) -> tuple[OpenedSums, BinnedTable]:
    """The label holder's view of a training: sums in a new order for each tree; and the party's bins.

    `least`: `min_cell_records` of the feature party. `rounds`: what draws the summands. `privacy`: of its noise.
    """
    columns = {HOLDER: case.inputs[:, : case.own], PARTY: case.inputs[:, case.own :]}
    tables = {
        name: bin_table(part, [str(number) for number in range(part.shape[1])], params.max_bin)
        for name, part in columns.items()
    }
    merged = {PARTY: least} if least else None
    classes = max(2, len(np.unique(case.labels)))
    noise = None if privacy is None else DrawnNoise(privacy, privacy.noise(params, params.outputs_per_tree(classes)))
    noised = {} if noise is None else {PARTY: noise.party(tables[PARTY], params)}
    begun = rounds(params, classes, case.labels)
    model = train(list(tables.items()), case.labels, params, min_cell_records=merged, rounds=begun, noised=noised)
    return view_of(model, tables, case.labels, params, least, noise=noise, rounds=rounds), tables[PARTY]


def view_of(
    model: CentralModel,
    tables: dict[str, BinnedTable],
    labels: npt.NDArray[Any],
    params: BoostingParams,
    least: int = 0,
    *,
    noise: DrawnNoise | None = None,
    rounds: type[BoostingRounds] = BoostingRounds,
) -> OpenedSums:
    """The label holder's view of the training of a model; `noise`: of the party's sums.

    `least`: `min_cell_records` of the feature party.
    """
    binned, classes = tables[PARTY], model.ensemble.classes
    again, generator = rounds(params, classes, labels), np.random.default_rng(1)
    opened = []
    for index, tree in enumerate(model.ensemble.trees):
        values, _, _ = again.derivatives(index)
        reached = leaf_of(model, tree, tables)
        bins = bins_of(binned, params.columns(index, PARTY, len(binned.features)), least)
        drawn = None if noise is None else noise.drawn
        opened.append(_opened(index, tree, values, reached, params, bins, model, generator, drawn))
        again.add(tree, tree.values(reached))
    answers = [
        LeftSet(tree.index, split.node, PARTY, split.left, tree.nodes[split.node])
        for tree in opened
        for split in tree.won
    ]
    noised = {} if noise is None else {PARTY: noise.privacy}
    return OpenedSums(tuple(opened), (PARTY,), len(labels), params, tuple(answers), noised=noised)


def _opened(
    index: int,
    tree: Tree,
    values: Ints,
    reached: Ints,
    params: BoostingParams,
    columns: GlobalBins,
    model: CentralModel,
    generator: np.random.Generator,
    noise: dict[tuple[int, int], Ints] | None,
) -> OpenedTree:
    """One tree as the label holder has it."""
    candidates, kept, least = columns.candidates, columns.kept, columns.min_cell_records
    split = {one.node for one in tree.splits}
    children = {child for node in split for child in (2 * node, 2 * node + 1)}
    nodes = {node: at_or_below(reached, node) for node in sorted(split | children)}
    summed = [node for node in nodes if node < 2**params.max_depth and (noise is None or (index, node) in noise)]
    order = generator.permutation(len(candidates))
    drawn = {node: nodes[node][values[nodes[node], -1] > 0] for node in summed}
    sums = left_sums_of(columns, values, summed, [drawn[node] for node in summed])
    if noise is not None:
        sums = sums + np.stack([noise[index, node] for node in summed])
    sums = sums[:, order]
    won = []
    for one in tree.splits:
        if one.owner == PARTY:
            chosen, _ = model.entry(one)
            same = (kept[candidates.feature] == chosen.feature) & (candidates.bin == chosen.bin)
            at = np.flatnonzero((same & (candidates.missing_left == chosen.missing_left))[order])
            won.append(WonSplit(one.node, PARTY, tuple(at.tolist()), nodes[2 * one.node]))
    opened = dict(zip(summed, sums, strict=True))
    return OpenedTree(index, values, nodes, {PARTY: opened}, tuple(won), {}, {PARTY: least} if least else {})


def leaf_of(model: CentralModel, tree: Tree, tables: dict[str, BinnedTable]) -> Ints:
    """The leaf that each record reaches."""

    def goes_left(split: Split, rows: Ints) -> npt.NDArray[np.bool_]:
        candidate, table = model.entry(split)[0], tables[split.owner]
        bins = table.features[candidate.feature].n_bins
        return column_goes_left(table.codes[rows, candidate.feature], candidate, bins)

    return route(tree.splits, len(tables[PARTY].codes), goes_left)


def at_or_below(reached: Ints, node: int) -> Ints:
    """Records whose leaf is the node or below it."""
    up = reached.copy()
    while (up > node).any():
        up = np.where(up > node, up >> 1, up)
    return np.flatnonzero(up == node)


def attacked(
    case: Case, params: BoostingParams, steps: list[int], least: int = 0, privacy: ColumnPrivacy | None = None
) -> list[dict[str, Any]]:
    """The figures after each number of trees, and after all."""
    opened, binned = opened_sums(case, params, least, privacy=privacy)
    values = case.inputs[:, case.own :]
    names = [str(number) for number in range(values.shape[1])]
    truth = TrueColumns.of_numbers(names, values, params.max_bin)
    assert (truth.codes == binned.codes).all()
    rows = []
    for trees in sorted({min(step, len(opened.trees)) for step in steps}):
        sets = tuple(it for it in opened.left_sets if it.tree < trees)
        part = replace(opened, trees=opened.trees[:trees], left_sets=sets)
        figures = read_columns(SumsEvidence(PARTY, part, truth, SumsSettings(), lambda _: None, Kept()))
        rows.append({"set": case.name, "trees": trees, **_row(figures)})
    return rows


def _row(figures: ColumnFigures) -> dict[str, Any]:
    return figures.model_dump(exclude={"picture", "party", "trees"})


def report(rows: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    heads = ("set", "records", "columns", "trees", "left sets", "differences", "together", "of claims wrong")
    table = terminal.table(
        *heads, "links given", "links right", "guessed", "explained", "best column", "given", "CPU s"
    )
    for row in rows:
        ways = ("left_sets", "differences", "together", "given")
        *shares, given = (f"{row[way]['placed']:.1%}" if row[way] else "–" for way in ways)
        read = row["together"] or row["given"]
        both = [f"{row[name]['reached']:.1%}" if row[name] else "–" for name in ("compared", "explained")]
        rest = (f"{read['wrong'] / max(1, read['claims']):.1%}", given, f"{row['links'] or 0:.1%}", *both)
        best = [f"{row[name] or 0:.3f}" for name in ("rank_correlation", "given_correlation")]
        counts = (str(row[name]) for name in ("records", "columns", "trees"))
        table.add_row(row["set"], *counts, *shares, *rest, *best, f"{row['seconds']:.0f}")
    terminal.out.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ("breast_cancer", "diabetes", "credit", "obesity", "synthetic")
    parser.add_argument("--set", nargs="+", default=["breast_cancer"], choices=sets, dest="sets")
    parser.add_argument("--records", type=int)
    parser.add_argument("--trees", type=int, nargs="+", default=[100], help="numbers of rounds; the largest are grown")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--min-child-weight", type=float, default=1.0)
    parser.add_argument("--subsample", type=float, default=1.0)
    parser.add_argument("--min-cell-records", type=int, default=0)
    parser.add_argument("--epsilon", type=float, help="of noise on the feature party's sums")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    rows = []
    for case in (case_of(name, given.records) for name in given.sets):
        params = BoostingParams(
            n_estimators=max(given.trees),
            max_depth=given.depth,
            max_bin=given.bins,
            min_child_weight=given.min_child_weight,
            subsample=given.subsample,
            objective=case.objective,
        )
        of_round = params.trees_per_round(len(np.unique(case.labels)))
        steps = [of_round * trees for trees in given.trees]
        privacy = ColumnPrivacy(given.epsilon, 1e-6, max(steps)) if given.epsilon else None
        rows += attacked(case, params, steps, given.min_cell_records, privacy)
    if given.as_json:
        print(json.dumps({"depth": given.depth, "bins": given.bins, "rows": rows}, indent=1))
    else:
        report(rows)


if __name__ == "__main__":
    main()
