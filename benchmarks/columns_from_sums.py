"""Cells of a feature party's columns that a curious label holder reads off the candidate sums of a whole training.

    python benchmarks/columns_from_sums.py [--set breast_cancer diabetes credit synthetic] [--records N]
        [--trees 100] [--depth 6] [--bins 32] [--min-child-weight 1] [--fraction-bits N] [--links-given-only]
        [--seconds 120] [--json]

breast_cancer and diabetes come with scikit-learn, synthetic is drawn, and credit needs TREETAP_DATA (the folder with
credit_default.parquet). The label holder has the first columns (10 of 20, 4 of 10, 12 of 23 of credit), a feature party
the others; the centralised trainer gives the federation's trees and hence its sums.

Beyond docs/measure_linking.py, which attacks one tree by differences of one record, all trees are attacked, by
differences of up to three records: a difference is decoded where exactly one set of records of the node has its Σ g,
Σ h and count. A cell (record, column) counts as read if its bin and its column, which has no name, are right.

- linked: within each tree the candidates of a column are linked by the sums alone; columns of two trees are compared by
  the auditor.
- given: the links are given, and cells that are known are subtracted from later sums: a bound for an attacker who links
  trees as well.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from treetap import terminal
from treetap.trees.binning import BinnedTable, bin_table
from treetap.trees.candidates import CandidateList, column_goes_left
from treetap.trees.centralised import CentralModel, train
from treetap.trees.ensemble import Split, Tree, route
from treetap.trees.loss import FRACTION_BITS, loss_for
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import left_sums

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs.measure_linking import at_or_below, next_lower

HOLDER, PARTY = "label-holder", "feature-party"
#: Number of records of a difference → most records of a node whose sets of that size are listed.
LISTED = {1: 10**9, 2: 1500, 3: 60}
#: Most records of the credit table and of a drawn one, unless --records says otherwise.
RECORDS = 3000
#: Numbers of trees after which figures are kept, beside the last.
STEPS = (1, 5, 10, 20, 30, 50, 70, 100)
#: Odd factors of g and h, by which a pair becomes one number modulo 2^64: sums of keys are keys of sums.
FACTORS = np.array([0x9E3779B97F4A7C15, 0xD1342543DE82EF95], dtype=np.uint64)

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]


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
    count = records or RECORDS
    if name == "synthetic":
        inputs, labels = datasets.make_classification(count, 20, n_informative=12, random_state=1)
        return Case(name, 10, inputs, labels)
    if "TREETAP_DATA" not in os.environ:
        sys.exit("columns_from_sums: set TREETAP_DATA to the folder with credit_default.parquet")
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "credit_default.parquet").slice(0, count)
    *columns, label = table.column_names
    inputs = np.stack([table.column(column).to_numpy() for column in columns], axis=1).astype(np.float64)
    return Case(name, 12, inputs, table.column(label).to_numpy())


def keys_of(sums: Ints) -> Keys:
    """A key of each pair Σ g, Σ h of sums (…, 2 or more)."""
    keys: Keys = (sums[..., :2].astype(np.uint64) * FACTORS).sum(axis=-1, dtype=np.uint64)
    return keys


class Decoder:
    """The sets of few records of a node by their sums."""

    def __init__(self, rows: Ints, values: Ints) -> None:
        self._rows = rows
        self._keys = keys_of(values[rows])
        self._listed: dict[int, tuple[Keys, Ints] | None] = {}

    def records(self, sums: Ints) -> Ints | None:
        """The one set whose Σ g, Σ h and count are these (3,); None if there are several, or they are not listed."""
        count, key = int(sums[2]), keys_of(sums)
        if count not in self._listed:
            self._listed[count] = self._list(count)
        listed = self._listed[count]
        if listed is None:
            return None
        first, after = (int(np.searchsorted(listed[0], key, side)) for side in ("left", "right"))
        if after - first != 1:
            return None
        rows: Ints = self._rows[listed[1][first]]
        return rows

    def _list(self, count: int) -> tuple[Keys, Ints] | None:
        if len(self._rows) > LISTED[count]:
            return None
        sets = np.array(list(combinations(range(len(self._rows)), count)), dtype=np.int64).reshape(-1, count)
        keys = self._keys[sets].sum(axis=1, dtype=np.uint64)
        order = np.argsort(keys, kind="stable")
        return keys[order], sets[order]


@dataclass
class Reader:
    """The label holder: cells that it has read so far by each way.

    Attributes:
        codes: (N, d) the true bins, by which cells are scored.
        linked: (N, d) cells that were read by linked candidates; of all `claims` so far `wrong` were wrong.
        given: (N, d) bins that follow with the links given, −1 where none does.
    """

    codes: npt.NDArray[np.integer[Any]]
    candidates: CandidateList
    linked: Bools
    given: Ints
    claims: int = 0
    wrong: int = 0

    @classmethod
    def of(cls, table: BinnedTable) -> Reader:
        """A reader that has read nothing of a table."""
        nothing = np.zeros(table.codes.shape, dtype=bool)
        return cls(table.codes, CandidateList(table.shapes), nothing, np.full(table.codes.shape, -1, dtype=np.int64))

    def read_linked(self, sums: Ints, decoders: list[Decoder], generator: np.random.Generator) -> None:
        """Read differences of linked candidates, from sums (nodes, candidates, 3) in a secret order."""
        order = generator.permutation(len(self.candidates))
        offered = sums[:, order]
        lower = next_lower(offered)
        follows = lower != np.arange(len(order))
        differences = offered - np.where(follows[None, :, None], offered[:, lower], 0)
        for node, place in np.argwhere(_few(differences)):
            rows = decoders[node].records(differences[node, place])
            if rows is not None:
                column, code = self.candidates.feature[order[place]], self.candidates.bin[order[place]]
                right = self.codes[rows, column] == code
                self.claims += len(rows)
                self.wrong += int((~right).sum())
                self.linked[rows[right], column] = True

    def read_given(self, sums: Ints, nodes: list[Ints], decoders: list[Decoder], values: Ints) -> None:
        """Read the bins of each column and node, less what is known of them."""
        first = self.candidates.first
        for number, rows in enumerate(nodes):
            total = values[rows].sum(axis=0)
            for column in range(self.codes.shape[1]):
                known = self.given[rows, column]
                left = rows[known < 0]
                if not len(left):
                    continue
                own = sums[number, int(first[column]) : int(first[column + 1])]
                bins = np.diff(np.vstack([np.zeros((1, 3), dtype=np.int64), own, total[None]]), axis=0)
                np.subtract.at(bins, known[known >= 0], values[rows[known >= 0]])
                few = np.flatnonzero(_few(bins))
                decoder = decoders[number] if len(left) == len(rows) or not len(few) else Decoder(left, values)
                for code in few:
                    records = decoder.records(bins[code])
                    if records is not None:
                        self.given[records, column] = code

    def shares(self, trees: int) -> dict[str, float]:
        """Shares of all cells that were read after a number of trees, and of the claims that were wrong."""
        claimed = self.given >= 0
        right = self.given == self.codes
        return {
            "trees": trees,
            "linked": float(self.linked.mean()),
            "linked_wrong": self.wrong / max(1, self.claims),
            "given": float((claimed & right).mean()),
            "given_wrong": float((claimed & ~right).sum() / max(1, claimed.sum())),
        }


def _few(sums: Ints) -> Bools:
    """Sums (…, 3) over one to three records."""
    few: Bools = (sums[..., 2] >= 1) & (sums[..., 2] <= max(LISTED))
    return few


def attack(case: Case, params: BoostingParams, *, linked: bool, bits: int, seconds: float) -> dict[str, Any]:
    """Train, and read the feature party's columns tree by tree until the time is over.

    `linked`: link candidates too, whose cost grows with the cube of their number. `bits`: binary places of g and h that
    are sent, for what a coarser fixed point would show; trees are those of all places.
    """
    columns = {HOLDER: case.inputs[:, : case.own], PARTY: case.inputs[:, case.own :]}
    tables = {
        name: bin_table(part, [str(number) for number in range(part.shape[1])], params.max_bin)
        for name, part in columns.items()
    }
    model = train(list(tables.items()), case.labels, params)
    loss = loss_for(params.objective, 2)
    scores = np.full((len(case.labels), 1), loss.base_margin(None, case.labels)[0])
    reader, generator = Reader.of(tables[PARTY]), np.random.default_rng(1)
    begun, steps = time.perf_counter(), []
    for count, tree in enumerate(model.ensemble.trees, start=1):
        fixed = loss.quantise(*loss.gradients(scores, case.labels))
        values = np.c_[_rounded(fixed.g, bits), _rounded(fixed.h, bits), np.ones(len(scores), dtype=np.int64)]
        reached = _leaf_of(model, tree, tables)
        nodes = [at_or_below(reached, node) for node in _summed(tree, params.max_depth)]
        sums = left_sums(reader.codes, reader.candidates, values, nodes)
        decoders = [Decoder(rows, values) for rows in nodes]
        if linked:
            reader.read_linked(sums, decoders, generator)
        reader.read_given(sums, nodes, decoders, values)
        scores[:, 0] += tree.values(reached)[:, 0]
        over = count == len(model.ensemble.trees) or time.perf_counter() - begun > seconds
        if over or count in STEPS:
            steps.append(reader.shares(count))
        if over:
            break
    return {
        "set": case.name,
        "records": len(case.labels),
        "columns": reader.codes.shape[1],
        "claims": reader.claims,
        "wrong": reader.wrong,
        "seconds": time.perf_counter() - begun,
        "steps": steps,
    }


def _rounded(values: Ints, bits: int) -> Ints:
    """Fixed-point values with the given number of binary places, half up."""
    spare = FRACTION_BITS - bits
    return values if not spare else (values + (1 << (spare - 1))) >> spare << spare


def _leaf_of(model: CentralModel, tree: Tree, tables: dict[str, BinnedTable]) -> Ints:
    """The leaf that each record reaches."""

    def goes_left(split: Split, rows: Ints) -> Bools:
        candidate, table = model.entry(split)[0], tables[split.owner]
        bins = table.features[candidate.feature].n_bins
        return column_goes_left(table.codes[rows, candidate.feature], candidate, bins)

    return route(tree.splits, len(tables[PARTY].codes), goes_left)


def _summed(tree: Tree, max_depth: int) -> list[int]:
    """The nodes whose candidates are summed: the split ones, and their children above the last level."""
    split = {each.node for each in tree.splits}
    return sorted(split | {child for node in split for child in (2 * node, 2 * node + 1) if child < 2**max_depth})


def report(rows: list[dict[str, Any]]) -> None:
    """The figures for a person."""
    table = terminal.table("set", "records", "columns", "trees", "linked", "of claims wrong", "links given", "wrong")
    for row in rows:
        for step in row["steps"]:
            shares = (f"{step[name]:.1%}" for name in ("linked", "linked_wrong", "given", "given_wrong"))
            table.add_row(row["set"], str(row["records"]), str(row["columns"]), str(step["trees"]), *shares)
    terminal.out.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ("breast_cancer", "diabetes", "credit", "synthetic")
    parser.add_argument("--set", nargs="+", default=["breast_cancer"], choices=sets, dest="sets")
    parser.add_argument("--records", type=int)
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--min-child-weight", type=float, default=1.0)
    parser.add_argument("--fraction-bits", type=int, default=FRACTION_BITS)
    parser.add_argument("--links-given-only", action="store_true", help="do not link candidates, which takes longest")
    parser.add_argument("--seconds", type=float, default=120.0, help="attack no further tree after these")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    rows = []
    for case in (case_of(name, given.records) for name in given.sets):
        params = BoostingParams(
            n_estimators=given.trees,
            max_depth=given.depth,
            max_bin=given.bins,
            min_child_weight=given.min_child_weight,
            objective=case.objective,
        )
        linked, bits = not given.links_given_only, given.fraction_bits
        rows.append(attack(case, params, linked=linked, bits=bits, seconds=given.seconds))
    if given.as_json:
        print(json.dumps({"depth": given.depth, "bins": given.bins, "rows": rows}, indent=1))
    else:
        report(rows)


if __name__ == "__main__":
    main()
