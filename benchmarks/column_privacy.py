"""AUC of boosted models whose feature party adds noise to its sums: the trial of docs/column-privacy.md.

    python benchmarks/column_privacy.py [--set breast_cancer credit bank credit-2 generated] [--records N]
        [--epsilon 1 4 16 64] [--delta 1e-6] [--trees 20] [--depth 4] [--bins 32] [--seeds 3]

The trainer on the joined table, 80 % of the records drawn by seed, AUC on the others, mean and deviation over seeds.
breast_cancer is of scikit-learn, generated is drawn (--records, 30,000 by default), the others need TREETAP_DATA. The
label holder has the first columns; "alone" is its model without the feature party, "exact" the one without noise.
Noise is NumPy's Gaussian, rounded: enough to see what it costs, and no protection.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))

from treetap import terminal
from treetap.trees import grower, metrics
from treetap.trees.binning import bin_table, encode
from treetap.trees.candidates import CandidateList
from treetap.trees.centralised import train
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT
from treetap.trees.params import BoostingParams
from treetap.trees.tree_bins import Bins, accumulate_cells, goes_left, left_sums_of

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Slots of a tree of one output: g, h and the count; their bounds in units of one record's largest value.
SLOTS, BOUNDS = 3, np.array([UNIT, UNIT / 4, 1.0])
#: Deviations of its noise that Σ h of a side must reach, and the factor of the handicap.
FLOOR, HANDICAP = 3.0, 6.0
#: Set → file, label, columns of the label holder.
FILES = {
    "credit": ("credit_default.parquet", "default.payment.next.month", 5),
    "bank": ("bank_marketing.parquet", "y", 8),
    "credit-2": ("give_me_some_credit.parquet", "SeriousDlqin2yrs", 3),
}
HOLDER, PARTY = "holder", "party"


@dataclass
class Noise:
    """Noise of the multiplier `z` on the feature party's cells; z = 0: none."""

    z: float
    drawn: np.random.Generator
    most_bins: int

    def added(self, sums: Ints, candidates: CandidateList) -> Ints:
        """The left sums (nodes, candidates, S) of noised cells that add up to their node's total."""
        widths = np.diff(candidates.cell)
        cells = self.drawn.normal(size=(SLOTS, len(sums), int(candidates.cell[-1])))
        for start, width in zip(candidates.cell, widths, strict=False):
            part = cells[:, :, start : start + width]
            part -= part.mean(axis=2, keepdims=True)
        cells = np.rint(cells * (self.z * BOUNDS)[:, None, None]).astype(np.int64)
        noised: Ints = sums + accumulate_cells(cells, candidates)
        return noised

    @property
    def deviation(self) -> float:
        """D of a sum in units of a slot's bound."""
        return self.z * math.sqrt(self.most_bins / 4)


class NoisedTree(GrowingTree):
    """A tree whose second party's sums are noised; both children of a node are summed."""

    noise = Noise(0.0, np.random.default_rng(), 1)

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **(more | {"subtract": more.get("subtract", True) and not self.noise.z}))

    def _choice(self, node: int, candidates: Any, gains: Any) -> Any:
        """The choice, after the handicap of noised candidates."""
        if self.noise.z and len(gains) > 1:
            of_h = candidates[1].lefts[:, 1] / UNIT
            sides = np.stack([of_h, self.sums[node][1] / UNIT - of_h])
            deviation = self.noise.deviation
            fair = gains[1] - HANDICAP * deviation**2 * (1 / (np.maximum(sides, 0) + 1.0)).sum(axis=0)
            allowed = (sides >= FLOOR * deviation / 4).all(axis=0) & np.isfinite(gains[1])
            gains = [gains[0], np.where(allowed, fair, -np.inf), *gains[2:]]
        return super()._choice(node, candidates, gains)


def grow(tree: GrowingTree, bins: Sequence[Bins], enter: grower.Enter) -> None:
    """The growth of a tree with the second party's sums noised, and children by their exact sums."""
    noise = NoisedTree.noise
    while tree.build:
        sums = [left_sums_of(own, tree.values, tree.build, tree.summed()) for own in bins]
        if noise.z and len(sums) > 1:
            sums[1] = noise.added(sums[1], bins[1].candidates)
        tree.take_candidates(sums, [own.candidates.groups for own in bins])
        for choice in tree.choose():
            own, node = bins[choice.party], choice.node
            candidate = own.at_border(node, own.candidate(choice.tied[0]))
            entry = replace(candidate, feature=int(own.kept[candidate.feature])), own.cut(node, candidate)
            mask = goes_left(own, node, tree.rows[node], candidate)
            exact = tree.values[tree.rows[node][mask]].sum(axis=0)
            tree.divide(node, enter(choice.party, node, entry), mask, exact)
        tree.next_stage()


def multiplier(epsilon: float, delta: float, params: BoostingParams) -> float:
    """The z that has this ε and δ in one attempt."""
    least = -math.log(delta)
    rho = (math.sqrt(least + epsilon) - math.sqrt(least)) ** 2
    return math.sqrt(SLOTS * params.max_depth * params.n_estimators / rho)


def case(name: str, records: int) -> tuple[Floats, Ints, int]:
    """Columns (n, d), labels (n,) and the number of the label holder's columns."""
    from sklearn import datasets

    if name == "breast_cancer":
        inputs, labels = datasets.load_breast_cancer(return_X_y=True)
        return inputs[:, :20], labels, 2
    if name == "generated":
        shape = {"n_informative": 12, "random_state": 1, "flip_y": 0.1, "class_sep": 0.7}
        inputs, labels = datasets.make_classification(records, 20, **shape)
        return inputs, labels, 10
    file, label, own = FILES[name]
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / file)
    columns = [_numbered(table.column(column)) for column in table.column_names if column != label]
    return np.stack(columns, axis=1), _numbered(table.column(label)).astype(np.int64), own


def _numbered(column: Any) -> Floats:
    values = column.to_numpy(zero_copy_only=False)
    return (np.unique(values, return_inverse=True)[1] if values.dtype == object else values).astype(np.float64)


def aucs(inputs: Floats, labels: Ints, own: int, params: BoostingParams, z: float | None, seeds: int) -> list[float]:
    """AUC by seed; z None: without the feature party."""
    reached = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(labels))
        before, after = np.split(order, [int(0.8 * len(labels))])
        blocks = {HOLDER: inputs[:, :own]} | ({} if z is None else {PARTY: inputs[:, own:]})
        tables = [
            (name, bin_table(block[before], [f"{name} {j}" for j in range(block.shape[1])], params.max_bin))
            for name, block in blocks.items()
        ]
        most = max(feature.n_bins + feature.has_missing for _, table in tables for feature in table.features)
        NoisedTree.noise = Noise(z or 0.0, np.random.default_rng(100 + seed), most)
        model = train(tables, labels[before], params)
        asked = [(name, encode(blocks[name][after], table.features)) for name, table in tables]
        outcome = model.ensemble.outcome(model.predict(asked))
        reached.append(metrics.evaluate(params.objective, outcome, labels[after])["auc"])
    return reached


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ["breast_cancer", *FILES, "generated"]
    parser.add_argument("--set", nargs="+", default=sets, choices=sets, dest="sets")
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--bins", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    params = BoostingParams(n_estimators=given.trees, max_depth=given.depth, max_bin=given.bins)
    grower.grow = grow
    sys.modules["treetap.trees.centralised"].GrowingTree = NoisedTree  # type: ignore[attr-defined]
    table = terminal.table("set", "records", "alone", "exact", *(f"ε {epsilon:g}" for epsilon in given.epsilon))
    for name in given.sets:
        inputs, labels, own = case(name, given.records)
        said: Callable[[list[float]], str] = lambda found: f"{np.mean(found):.3f} ± {np.std(found):.3f}"  # noqa: E731
        ways = [None, 0.0, *(multiplier(epsilon, given.delta, params) for epsilon in given.epsilon)]
        cells = [said(aucs(inputs, labels, own, params, z, given.seeds)) for z in ways]
        table.add_row(name, f"{len(labels):,}", *cells)
        terminal.out.print(table)
    terminal.out.print("z: " + ", ".join(f"{multiplier(it, given.delta, params):.1f}" for it in given.epsilon))


if __name__ == "__main__":
    main()
