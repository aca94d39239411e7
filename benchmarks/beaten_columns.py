"""The audit's attack on columns beside independent ones: status 1 where one of them reads more.

    python benchmarks/beaten_columns.py [--set breast_cancer credit] [--records N] [--columns 4]
        [--trees 20] [--depth 4] [--epsilon 4 16] [--least 20] [--sweeps 30]

Two questions of each set, links given on both sides, 32 bins, cells of the first --columns of the feature party:

- noised sums: the cells that a plain Gibbs sampler names rightly, which draws record by record and column by column;
  it knows the party's secret orders, which the audit has to find;
- bins of --least records (min_cell_records): the variance of bins that a line through expected places explains.

A line has the audit's figure, the other's, and their difference. More than 2 points of cells or .02 of R² are too much.
Breast cancer comes with scikit-learn; credit needs TREETAP_DATA. Noise is drawn anew in each run.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from column_privacy import Trained, blocks, case, trained
from columns_from_sums import PARTY, Case, opened_sums, view_of

from attacks.sums import attack
from attacks.sums.attack import SumsEvidence, read_columns
from attacks.sums.kept import Kept
from attacks.sums.propagation import PASSES, Linked
from attacks.sums.schema import SumsSettings
from attacks.sums.scoring import TrueColumns, Truth
from attacks.sums.sketches import sums_of
from attacks.view.opened_sums import OpenedSums
from treetap import terminal
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees.candidates import CandidateList
from treetap.trees.params import BoostingParams

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: The most by which another attack may read more: shares of cells, of variance.
CELLS, EXPLAINED = 0.02, 0.02


class Row(NamedTuple):
    """A comparison. `allowed`: how much better the other attack may be."""

    question: str
    audit: float
    other: float
    allowed: float
    seconds: float

    @property
    def beaten(self) -> bool:
        """True if the other attack reads more than is allowed."""
        return self.other - self.audit > self.allowed


def on_noise(name: str, records: int, kept: int, params: BoostingParams, epsilon: float, sweeps: int) -> Row:
    """The plain sampler beside the audit's attack on noised sums; `kept`: columns of the feature party."""
    begun = time.process_time()
    inputs, labels, own = case(name, records)
    inputs = inputs[:, : own + kept]
    here = trained(inputs, labels, own, params, ColumnPrivacy(epsilon, 1e-6, params.n_estimators), 0)
    opened = view_of(here.model, here.tables, here.labels[here.before], params, noise=here.noise)  # type: ignore[arg-type]
    values = blocks(inputs, own)[PARTY][here.before]
    truth = TrueColumns.of_numbers([str(j) for j in range(values.shape[1])], values, params.max_bin)
    figures = read_columns(SumsEvidence(PARTY, opened, truth, SumsSettings(), lambda _: None, Kept()))
    other = float(np.mean([_sampled(here, opened, column, sweeps) for column in range(values.shape[1])]))
    question = f"{name}, cells at ε {epsilon:g}"
    return Row(question, figures.named[attack.NOISED], other, CELLS, time.process_time() - begun)


def _sampled(here: Trained, opened: OpenedSums, column: int, sweeps: int) -> float:
    """The share of a column's cells that sampling each record's bin names rightly, from exact orders of the sums."""
    assert here.noise is not None
    table, rng = here.tables[PARTY], np.random.default_rng(5)
    candidates = CandidateList([it.shape for it in table.features])
    cuts = np.flatnonzero(candidates.feature == column)
    unit = np.sqrt(float(here.noise.noise.variance)) * np.array(here.noise.noise.bounds, dtype=np.float64)
    orders = np.random.default_rng(1)  # as `view_of` draws them
    seen, inside, numbers = list[Floats](), list[Ints](), list[Floats]()
    for tree in opened.trees:
        places = np.argsort(orders.permutation(len(candidates)))[cuts]
        for node, sums in tree.sums[PARTY].items():
            rows = tree.nodes[node]
            ends = np.vstack([sums[places], tree.values[rows].sum(axis=0)])
            seen.append(np.diff(ends, axis=0, prepend=0) / unit)
            inside.append(rows)
            numbers.append(tree.values / unit)
    rest, width = np.array(seen), len(cuts) + 1
    member = np.zeros((len(opened.trees[0].values), len(inside)), dtype=bool)
    for equation, rows in enumerate(inside):
        member[rows, equation] = True
    share = np.maximum(rest[[rows.size == len(member) for rows in inside]][..., -1].mean(axis=0), 1e-3)
    share /= share.sum()
    of_record = [np.flatnonzero(row) for row in member]
    value = [np.stack([numbers[e][i] for e in of_record[i]]) for i in range(len(member))]
    bins = rng.choice(width, len(member), p=share)
    for i, code in enumerate(bins):
        rest[of_record[i], code] -= value[i]
    chances = np.zeros((len(member), width))
    for sweep in range(sweeps):
        heat = max(1.0, 6.0 * (1 - sweep / (0.4 * sweeps)))
        for i in rng.permutation(len(member)):
            rest[of_record[i], bins[i]] += value[i]
            odds = np.einsum("ews,es->w", rest[of_record[i]], value[i]) / heat + np.log(share)
            chance = np.exp(odds - odds.max())
            chance /= chance.sum()
            bins[i] = min(int(np.searchsorted(np.cumsum(chance), rng.random())), width - 1)
            rest[of_record[i], bins[i]] -= value[i]
            if sweep >= sweeps // 2:
                chances[i] += chance
    return float((chances.argmax(axis=1) == table.codes[:, column]).mean())


def on_order(name: str, records: int, kept: int, params: BoostingParams, least: int) -> Row:
    """A line through expected places with links given beside the audit's explained variance, of merged bins."""
    begun = time.process_time()
    inputs, labels, own = case(name, records)
    here = Case(name, own, inputs[:, : own + kept], labels)
    opened, _ = opened_sums(here, params, least)
    truth = TrueColumns.of_numbers([str(j) for j in range(kept)], here.inputs[:, own:], params.max_bin)
    settings = SumsSettings(seconds=40.0)
    figures = read_columns(SumsEvidence(PARTY, opened, truth, settings, lambda _: None, Kept()))
    trees = sums_of(PARTY, opened.trees, lambda tree: params.drawn(tree, opened.records))
    known = Truth.of(truth, trees, PARTY)
    linked = Linked(trees, *known.given_links())
    steps = attack.Steps(settings, PASSES, lambda _: None, Kept())
    _, claims, _ = attack.claims_of(linked, steps, "given")
    squares = np.zeros(kept)
    for place, chain in zip(claims.positions, known.named(linked.identities, linked.chains), strict=True):
        if np.ptp(place) > 0:
            square = np.corrcoef(place, truth.codes[:, chain.column])[0, 1] ** 2
            squares[chain.column] = max(squares[chain.column], square)
    reached = figures.given_explained or 0.0
    question = f"{name}, variance with m {least}"
    return Row(question, reached, float(squares.mean()), EXPLAINED, time.process_time() - begun)


def main() -> None:
    """Run, print and end with status 1 where an attack is beaten."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sets = ("breast_cancer", "credit")
    parser.add_argument("--set", nargs="+", default=sets, choices=sets, dest="sets")
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--columns", type=int, default=4)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--epsilon", type=float, nargs="*", default=[4, 16])
    parser.add_argument("--least", type=int, nargs="*", default=[20])
    parser.add_argument("--sweeps", type=int, default=30)
    given = parser.parse_args()
    params = BoostingParams(n_estimators=given.trees, max_depth=given.depth, max_bin=32)
    rows = []
    for name in given.sets:
        about = name, given.records, given.columns, params
        rows += [on_noise(*about, epsilon, given.sweeps) for epsilon in given.epsilon]
        rows += [on_order(*about, least) for least in given.least]
    table = terminal.table("question", "audit", "other attack", "difference", "", "CPU s")
    for row in rows:
        word = "beaten" if row.beaten else "holds"
        difference = f"{100 * (row.other - row.audit):+.1f} points"
        table.add_row(row.question, f"{row.audit:.1%}", f"{row.other:.1%}", difference, word, f"{row.seconds:.0f}")
    terminal.out.print(table)
    sys.exit(int(any(row.beaten for row in rows)))


if __name__ == "__main__":
    main()
