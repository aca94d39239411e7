"""AUC (RMSE of numbers) of boosted models whose feature party merges bins of few drawn records (`min_cell_records`).

    python benchmarks/cell_records.py [--set breast_cancer credit diabetes obesity] [--own N] [--trees 50] [--bins 32]
        [--least 2 3 5 10]
    python benchmarks/cell_records.py --equations --set breast_cancer --own 10 --trees 100

The trainer on the joined table, which a federation equals; five folds. breast_cancer (569 × 20) is of scikit-learn,
credit (5,000 × 23) and obesity (2,111 × 16, macro AUC) need TREETAP_DATA, the folder of the tables; diabetes (442 × 10)
is of scikit-learn too. The label holder has the first columns, of breast_cancer 2, of credit 5, of diabetes 4, of
obesity 8, the feature party all others; "alone" is the label holder without the feature party.

--equations: which share of the party's borders has as many linear equations in its N unknowns, left or right of each
record, as there are records. A node gives one in g and one in h wherever a border divides it and is seen to.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
from columns_from_sums import Case, case_of
from rich.table import Table
from sklearn.model_selection import KFold, StratifiedKFold

from treetap import terminal
from treetap.trees import metrics
from treetap.trees.binning import bin_table, encode
from treetap.trees.candidates import column_goes_left
from treetap.trees.cell_merging import bins_of
from treetap.trees.centralised import train
from treetap.trees.ensemble import ROOT
from treetap.trees.job_params import REGRESSIONS
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import left_sums_of

#: Set → records at most, and columns of the label holder.
SETS = {"breast_cancer": (None, 2), "credit": (5_000, 5), "diabetes": (None, 4), "obesity": (None, 8)}
FOLDS = 5


def measured(case: Case, own: int, params: BoostingParams, least: int | None) -> tuple[float, float, float, float]:
    """AUC or RMSE and its deviation over the folds, share of splits that the feature party wins, processor seconds.

    `least`: `min_cell_records`, 0: none; None: without the feature party.
    """
    blocks = {"holder": case.inputs[:, :own], "party": case.inputs[:, own:]}
    if least is None:
        del blocks["party"]
    aucs, won, begun = [], [], time.process_time()
    folds = KFold if params.objective in REGRESSIONS else StratifiedKFold
    for before, after in folds(FOLDS, shuffle=True, random_state=0).split(case.inputs, case.labels):
        tables = [
            (name, bin_table(block[before], [f"{name} {j}" for j in range(block.shape[1])], params.max_bin))
            for name, block in blocks.items()
        ]
        cells = {"party": least} if least else None
        model = train(tables, case.labels[before], params, min_cell_records=cells)
        asked = [(name, encode(blocks[name][after], table.features)) for name, table in tables]
        outcome = model.ensemble.outcome(model.predict(asked))
        reached = metrics.evaluate(params.objective, outcome, case.labels[after])
        aucs.append(reached.get("auc", reached.get("rmse", 0.0)))
        won += [split.owner == "party" for tree in model.ensemble.trees for split in tree.splits]
    return float(np.mean(aucs)), float(np.std(aucs)), float(np.mean(won)), time.process_time() - begun


def equations(case: Case, own: int, params: BoostingParams, least: int) -> dict[int, float]:
    """The share of borders with at least N equations after 20, 50 and all trees; `least` 0: no bins are merged."""
    blocks = {"holder": case.inputs[:, :own], "party": case.inputs[:, own:]}
    tables = {
        name: bin_table(block, [f"{name} {j}" for j in range(block.shape[1])], params.max_bin)
        for name, block in blocks.items()
    }
    model = train(list(tables.items()), case.labels, params, min_cell_records={"party": least} if least else None)
    table, records = tables["party"], len(case.labels)
    ones, steps = np.ones((records, 1), dtype=np.int64), {}
    bins = bins_of(table, np.arange(len(table.features)), least)
    counted = np.zeros(len(bins.candidates), dtype=np.int64)
    for count, tree in enumerate(model.ensemble.trees, start=1):
        nodes = {ROOT: np.arange(records)}
        for split in sorted(tree.splits, key=lambda split: split.node):
            candidate, _ = model.entry(split)
            codes = tables[split.owner].codes[nodes[split.node], candidate.feature]
            left = column_goes_left(codes, candidate, tables[split.owner].features[candidate.feature].n_bins)
            nodes |= {2 * split.node: nodes[split.node][left], 2 * split.node + 1: nodes[split.node][~left]}
        summed = sorted(model.divisible[count - 1])
        if not least:  # the sibling's sums follow
            summed = sorted({node ^ side for node in summed for side in (0, 1)} & nodes.keys())
        bins = bins_of(table, np.arange(len(table.features)), least)
        sums = left_sums_of(bins, ones, summed, [nodes[node] for node in summed])[:, :, 0]
        divides = (sums > 0) & (sums < np.array([[len(nodes[node])] for node in summed]))
        if least:  # a repeated sum may be that of a merged bin
            first = np.isin(np.arange(sums.shape[1]), bins.candidates.first)
            divides[:, 1:] &= (np.diff(sums, axis=1) != 0) | first[1:]
        counted += 2 * divides.sum(axis=0)
        if count in (20, 50, len(model.ensemble.trees)):
            steps[count] = float((counted >= records).mean())
    return steps


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", default=list(SETS), choices=list(SETS), dest="sets")
    parser.add_argument("--own", type=int, help="columns of the label holder")
    parser.add_argument("--trees", type=int, default=50)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--least", type=int, nargs="+", default=[2, 3, 5, 10])
    parser.add_argument("--equations", action="store_true")
    given = parser.parse_args()
    params = BoostingParams(n_estimators=given.trees, max_bin=given.bins)
    table = Table("set", "min_cell_records", "AUC or RMSE", "± over folds", "splits won", "CPU s")
    if given.equations:
        for name in given.sets:
            records, own = SETS[name]
            for least in (0, *given.least):
                shares = equations(case_of(name, records), given.own or own, params, least)
                said = ", ".join(f"{share:.0%} after {count} trees" for count, share in shares.items())
                terminal.out.print(f"{name}, min_cell_records {least or 'none'}: N equations for {said}")
        return
    for name in given.sets:
        records, own = SETS[name]
        for least in (0, *given.least, None):
            case = case_of(name, records)
            of_case = replace(params, objective=case.objective)
            auc, deviation, won, seconds = measured(case, given.own or own, of_case, least)
            said = "alone" if least is None else str(least or "none")
            table.add_row(name, said, f"{auc:.4f}", f"{deviation:.4f}", f"{won:.0%}", f"{seconds:.1f}")
    terminal.out.print(table)


if __name__ == "__main__":
    main()
