"""What a private job tells beside left sets: owners, that nothing beat the winner, lies of a label holder, seconds.

    python benchmarks/private_leaks.py [--set credit obesity] [--records N] [--trees 10 20 50 100] [--depth 6]
        [--least 1] [--seconds 20]

Sets, columns and trees are those of `left_sets.py`; `--least` is min_child_weight. Of each cell the bins in which it
can be are an interval. The attacker is given the column and the bin of each left set, more than it has; a cell is
placed if its interval is one bin. A line of JSON for each number of rounds:

- owned, gain: the feature party's share of the splits, which owners tell, and of the gain, which they do not;
- left_sets: cells placed by left sets, unbeaten: and by "nothing beat the winner". The label holder knows a node's
  records, g and h; a cut whose left records would score more than the winner is not there. Where the side of at most
  `MOST` records of a node is open, all divisions of these are tried;
- all: by the sides of all records, of a label holder that chooses them all as those of every node;
- crafted: by left sets of a label holder that draws g anew for each tree; crafted_all: and chooses all records.

With --seconds in their place: a federation of drawn records that trains so many trees in this process, and the
correlation of ranks of a stage's processor time, of all roles, more than a peer sees, with the number of records in its
nodes, among stages of as many nodes; and in how many random orders it is as large.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from columns_from_sums import HOLDER, PARTY, Case, at_or_below, case_of, leaf_of

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.simulator import DEALER, Federation, run
from tests.worlds import spec, world
from treetap.arrays import Bools, Ints
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import BoostingRounds
from treetap.trees.centralised import train
from treetap.trees.exact_rule import ExactRule
from treetap.trees.params import BoostingParams

#: Records of unknown side that are tried, at most, and times that all nodes are gone through.
MOST, PASSES = 8, 3


class CraftedRounds(BoostingRounds):
    """Records' g are drawn and their h equal, so that ever other cuts win."""

    def derivatives(self, tree: int) -> tuple[Ints, float, Bools]:
        """See `BoostingRounds.derivatives`."""
        values, scale, sampled = super().derivatives(tree)
        values[:, 0] = np.random.default_rng(tree).integers(-(1 << 31), 1 << 31, len(values))
        values[:, 1] = 1 << 30
        return values, scale, sampled


class Cells:
    """The lowest and the highest bin (columns, N) in which each cell can be."""

    def __init__(self, codes: Ints, bins: list[int]) -> None:
        self.codes, self.low = codes.T, np.zeros_like(codes.T)
        self.high = self.low + np.array(bins)[:, None] - 1

    def placed(self) -> float:
        """The share of cells that are placed, none of them wrong."""
        assert ((self.low <= self.codes) & (self.high >= self.codes)).all()
        return float((self.low == self.high).mean())

    def divide(self, column: int, cut: int, left: Ints, right: Ints) -> None:
        """Take the records on either side of the cut behind a bin."""
        self.high[column, left] = np.minimum(self.high[column, left], cut)
        self.low[column, right] = np.maximum(self.low[column, right], cut + 1)

    def unbeaten(self, rows: Ints, values: Ints, rule: ExactRule, best: float) -> None:
        """Take that no cut of a node scores more than `best`; `values` of its records, (n, 2)."""
        whole, least = values.sum(axis=0, dtype=np.float64), rule.lightest + rule.penalty
        for column, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            cuts = np.arange(low[rows].min(), high[rows].max())
            inside, there = high[rows] <= cuts[:, None], low[rows] <= cuts[:, None]
            count = there.sum(axis=1) - inside.sum(axis=1)
            for place in np.flatnonzero((count > 0) & (count <= MOST)):
                unknown = np.flatnonzero(there[place] & ~inside[place])
                tried = (np.arange(1 << len(unknown))[:, None] >> np.arange(len(unknown))) & 1
                x, y = (values[inside[place]].sum(axis=0) + tried @ values[unknown].astype(np.float64)).T
                sides = np.maximum(np.stack([y, whole[1] - y]) + rule.penalty, 1.0)
                score = x * x / sides[0] + (whole[0] - x) ** 2 / sides[1]
                left = tried[(sides.min(axis=0) < least) | (score <= best * (1 + 1e-9))].mean(axis=0)
                self.divide(column, int(cuts[place]), rows[unknown[left == 1]], rows[unknown[left == 0]])


def columns(case: Case, params: BoostingParams, steps: list[int], *, crafted: bool) -> list[dict[str, Any]]:
    """The shares after each number of rounds; one that crafts wants no split of its own."""
    blocks = {HOLDER: case.inputs[:, : 0 if crafted else case.own], PARTY: case.inputs[:, case.own :]}
    tables = {name: bin_table(it, [str(j) for j in range(it.shape[1])], params.max_bin) for name, it in blocks.items()}
    kind, classes = CraftedRounds if crafted else BoostingRounds, max(2, len(np.unique(case.labels)))
    model = train(list(tables.items()), case.labels, params, rounds=kind(params, classes, case.labels))
    again, codes, rows = kind(params, classes, case.labels), tables[PARTY].codes.astype(np.int64), []
    by_sets, by_all, both = (Cells(codes, [feature.n_bins for feature in tables[PARTY].features]) for _ in range(3))
    nodes, won, gains = [], [], {HOLDER: 0.0, PARTY: 0.0}
    for tree in model.ensemble.trees:
        reached, (values, scale, _) = leaf_of(model, tree, tables), again.derivatives(tree.index)
        again.add(tree, tree.values(reached))
        rule, splits = BoostingCriterion(scale, params).exact_rule(3), {split.node: split for split in tree.splits}
        assert rule is not None
        for node in [*splits, *(leaf.node for leaf in tree.leaves if leaf.node >> params.max_depth == 0)]:
            here, split = at_or_below(reached, node), splits.get(node)
            if split:
                won.append(split.owner == PARTY)
                gains[split.owner] += split.gain
            if split and split.owner == PARTY:
                (chosen, _), everyone = model.entry(split), np.arange(len(codes))
                left = codes[:, chosen.feature] <= chosen.bin
                for cells, of in ((by_sets, here), (both, here), (by_all, everyone)):
                    cells.divide(chosen.feature, chosen.bin, of[left[of]], of[~left[of]])
            if 2 * rule.lightest <= values[here, 1].sum():
                bound = rule.bound(values[here].sum(axis=0))
                num, den = rule.score(bound, values[at_or_below(reached, 2 * node)].sum(axis=0)) if split else bound[3:]
                nodes.append((here, values[here, :2], rule, num / den))
        rounds, rest = divmod(tree.index + 1, params.trees_per_round(classes))
        if rest or rounds not in steps:
            continue
        row = {"crafted": by_sets.placed(), "crafted_all": by_all.placed()}
        if not crafted:
            for it in nodes * PASSES:
                both.unbeaten(*it)
            row = {"owned": float(np.mean(won)), "gain": gains[PARTY] / sum(gains.values())}
            row |= {"left_sets": by_sets.placed(), "unbeaten": both.placed(), "all": by_all.placed()}
        rows.append({"set": case.name, "rounds": rounds, **row})
    return rows


def seconds(trees: int) -> dict[str, Any]:
    """Of stages below the root, three levels of each tree."""
    here = world(2000, (2, 3, 3))
    params = BoostingParams(n_estimators=trees, max_depth=4, max_bin=32, instance_spaces="withheld")
    times = list[tuple[str, float]]()

    def hook(message: Any) -> None:
        if not message.served and message.word in ("deal", "store_tree"):
            times.append((message.word, time.process_time()))

    async def train(folder: Path) -> Federation:
        federation = Federation(folder, here.tables, dealer=True)
        federation.hook = hook
        await federation.train(spec(params, scheme="lattice", sums="shared", dealer=DEALER))
        return federation

    with tempfile.TemporaryDirectory(prefix="treetap-seconds-") as folder:
        federation = run(train(Path(folder)))
    spent = [later - now for (word, now), (_, later) in pairwise(times) if word == "deal"]
    asked = [it for what, _, it in federation.conducted if what == "begin" and it.growth.HasField("deal")]
    members = [here.members(tree) for tree in here.oracle(params)]
    sizes = [sum(len(members[it.round][node]) for node in it.growth.deal.nodes) for it in asked]
    alike = np.array([100 * len(it.growth.deal.nodes) + it.stage for it in asked])
    table, rng = np.array([spent, sizes]), np.random.default_rng(3)
    for group in np.unique(alike):
        table[:, alike == group] -= np.median(table[:, alike == group], axis=1, keepdims=True)
    one, other = table[:, table[1] != 0].argsort().argsort()
    found, *drawn = (abs(np.corrcoef(it, other)[0, 1]) for it in (one, *(rng.permutation(one) for _ in range(2000))))
    return {"stages": len(one), "correlation": float(found), "by_chance": float(np.mean(np.array(drawn) >= found))}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", nargs="+", default=["credit", "obesity"], dest="sets")
    parser.add_argument("--records", type=int)
    parser.add_argument("--trees", type=int, nargs="+", default=[10, 20, 50, 100], help="numbers of rounds")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--least", type=float, default=1.0)
    parser.add_argument("--seconds", type=int, metavar="TREES")
    given = parser.parse_args()
    if given.seconds:
        print(json.dumps(seconds(given.seconds)))
        return
    for case in (case_of(name, given.records) for name in given.sets):
        job = {"max_bin": 32, "min_child_weight": given.least, "objective": case.objective}
        params = BoostingParams(n_estimators=max(given.trees), max_depth=given.depth, **job)
        honest, crafting = (columns(case, params, given.trees, crafted=it) for it in (False, True))
        for one, other in zip(honest, crafting, strict=True):
            print(json.dumps(one | other), flush=True)


if __name__ == "__main__":
    main()
