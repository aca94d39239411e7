"""Cells of a feature party's columns that the left sets of its won splits place: what remains in a private job.

    python benchmarks/left_sets.py [--set breast_cancer diabetes credit obesity synthetic] [--records N]
        [--trees 10 20 50 100] [--depth 6] [--json]

The sets, and who has which columns, are those of `columns_from_sums.py`. With privacy = "private" the label holder
opens no sum: of each split that the feature party won it has the records of the node that go left, and nothing else of
its columns. The centralised trainer gives the federation's trees and hence these sets; the attack is that of `treetap
audit`. A line for each number of trees: the cells placed in their bins, the share of cells right by the best guess of
all, and the variance of places that is explained.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from columns_from_sums import HOLDER, PARTY, Case, at_or_below, case_of, leaf_of

from treetap import terminal
from treetap.attacks.sums.attack import SumsEvidence, read_columns
from treetap.attacks.sums.propagation import Kept
from treetap.attacks.sums.schema import SumsSettings
from treetap.attacks.sums.scoring import TrueColumns
from treetap.attacks.view.opened_sums import LeftSet, OpenedSums
from treetap.trees.binning import bin_table
from treetap.trees.centralised import train
from treetap.trees.params import BoostingParams

SETS = ("breast_cancer", "diabetes", "credit", "obesity", "synthetic")


def measured(case: Case, steps: list[int], depth: int) -> list[dict[str, Any]]:
    """The figures after each number of rounds."""
    params = BoostingParams(n_estimators=max(steps), max_depth=depth, max_bin=32, objective=case.objective)
    columns = {HOLDER: case.inputs[:, : case.own], PARTY: case.inputs[:, case.own :]}
    names = {name: [str(number) for number in range(part.shape[1])] for name, part in columns.items()}
    tables = {name: bin_table(part, names[name], params.max_bin) for name, part in columns.items()}
    model = train(list(tables.items()), case.labels, params)
    sets = list[LeftSet]()
    for tree in model.ensemble.trees:
        reached = leaf_of(model, tree, tables)
        won = [split.node for split in tree.splits if split.owner == PARTY]
        sets += [
            LeftSet(tree.index, node, PARTY, at_or_below(reached, 2 * node), at_or_below(reached, node)) for node in won
        ]
    truth, rows = TrueColumns.of_numbers(names[PARTY], columns[PARTY], params.max_bin), []
    of_round = params.trees_per_round(max(2, len(np.unique(case.labels))))
    for rounds in steps:
        told = tuple(it for it in sets if it.tree < rounds * of_round)
        view = OpenedSums((), (PARTY,), len(case.labels), params, told)
        figures = read_columns(SumsEvidence(PARTY, view, truth, SumsSettings(), lambda _: None, Kept()))
        guesses = {"named": figures.compared, "explained": figures.explained}
        row = {"set": case.name, "records": len(case.labels), "rounds": rounds, "left_sets": len(told)}
        row |= {"placed": figures.left_sets.placed, **{name: it and it.reached for name, it in guesses.items()}}
        rows.append(row)
    return rows


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", default=SETS, choices=SETS, dest="sets")
    parser.add_argument("--records", type=int)
    parser.add_argument("--trees", type=int, nargs="+", default=[10, 20, 50, 100], help="numbers of rounds")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    rows = [row for name in given.sets for row in measured(case_of(name, given.records), given.trees, given.depth)]
    if given.as_json:
        print(json.dumps(rows, indent=1))
        return
    table = terminal.table(*rows[0])
    for row in rows:
        table.add_row(
            *("–" if it is None else f"{it:.1%}" if isinstance(it, float) else str(it) for it in row.values())
        )
    terminal.out.print(table)


if __name__ == "__main__":
    main()
