"""Columns, of `beaten.py`: independent attacks on a feature party's sums beside the audit's, links given to both.

Attacked are the first four columns of numbers without a missing cell that the feature party has, or as many as there
are; it has no others. 20 trees of depth 4, of merged bins of depth 6 too, 32 bins.

- Sums with noise (`column_privacy`, δ 10⁻⁶), ε 4 and 16: the cells that a plain Gibbs sampler names rightly, which
  draws record by record and column by column; it knows the party's secret orders, which the audit has to find.
- Bins of 20 records and more (`min_cell_records`): the variance of bins that a line explains, through the places which
  the audit expects, or through the mean place of the nodes that a record is in.

The audit's least squares of merged bins, and thus the places, have a tenth of their default time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from beaten_tables import SETS, Best, Floats, Ints, Row, Table
from columns_from_sums import PARTY, Case, opened_sums

from treetap.attacks.sums import attack
from treetap.attacks.sums.attack import SumsEvidence, read_columns
from treetap.attacks.sums.propagation import PASSES, Kept, Linked
from treetap.attacks.sums.schema import SumsSettings
from treetap.attacks.sums.scoring import Named, TrueColumns, Truth
from treetap.attacks.sums.sketches import sums_of
from treetap.attacks.view.opened_sums import OpenedSums
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees.binning import BinnedTable
from treetap.trees.candidates import CandidateList
from treetap.trees.params import BoostingParams

#: Columns that are attacked, ε of noised sums, and records of a merged bin.
MOST, EPSILONS, LEAST, DELTA = 4, (4.0, 16.0), 20, 1e-6
#: Processor seconds of each least squares.
SECONDS = 15.0


def columns_rows(name: str, table: Table, given: argparse.Namespace) -> Iterator[Row]:
    """Cells of noised sums, and the order of merged ones."""
    own = SETS[name].own or table.columns.shape[1] // 2
    attacked = own + np.flatnonzero(table.numbers[own:])[:MOST]
    case = Case(name, own, table.columns[:, [*range(own), *attacked]], table.labels)
    params = BoostingParams(n_estimators=given.cell_trees, max_depth=given.depth, max_bin=32, **table.objective)
    truth = TrueColumns.of_numbers([str(j) for j in attacked], table.columns[:, attacked], params.max_bin)
    about = "boosting", f"first {own} columns"
    for epsilon in EPSILONS:
        yield Row(
            *about, f"cells at ε {epsilon:g}", "cells", 0.02, *on_noise(case, params, truth, epsilon, given.sweeps)
        )
    for depth in given.order_depths:
        deep = replace(params, max_depth=depth)
        question = f"variance of bins of {LEAST}, depth {depth}"
        yield Row(*about, question, "R²", 0.02, *on_order(case, deep, truth))


def on_noise(case: Case, params: BoostingParams, truth: TrueColumns, epsilon: float, sweeps: int) -> tuple[Best, Best]:
    """The plain sampler, and the audit's attack on noised sums."""
    privacy = ColumnPrivacy(epsilon, DELTA, params.n_estimators)
    opened, binned = opened_sums(case, params, privacy=privacy)
    figures = read_columns(SumsEvidence(PARTY, opened, truth, SumsSettings(), lambda _: None, Kept()))
    shares = [sampled(opened, binned, privacy, column, sweeps) for column in range(len(truth.names))]
    audit = {name: figures.named[name] for name in (attack.ALONE, attack.NOISED)}
    return Best.of({"plain sampler": float(np.mean(shares))}), Best.of(audit)


def sampled(opened: OpenedSums, binned: BinnedTable, privacy: ColumnPrivacy, column: int, sweeps: int) -> float:
    """The share of a column's cells that sampling each record's bin names rightly, from exact orders of the sums."""
    rng, candidates = np.random.default_rng(5), CandidateList([it.shape for it in binned.features])
    cuts = np.flatnonzero(candidates.feature == column)
    orders = np.random.default_rng(1)  # as `view_of` draws them
    seen, inside, numbers = list[Floats](), list[Ints](), list[Floats]()
    for tree in opened.trees:
        noise = privacy.noise_of_tree(opened.params, PARTY, tree.values)
        unit = np.sqrt(float(noise.variance)) * np.array(noise.bounds, dtype=np.float64)
        values = tree.values / unit
        places = np.argsort(orders.permutation(len(candidates)))[cuts]
        for node, sums in tree.sums[PARTY].items():
            rows = tree.nodes[node]
            ends = np.vstack([sums[places] / unit, values[rows].sum(axis=0)])
            seen.append(np.diff(ends, axis=0, prepend=0))
            inside.append(rows)
            numbers.append(values)
    rest, width = np.array(seen), len(cuts) + 1
    member = np.zeros((opened.records, len(inside)), dtype=bool)
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
    return float((chances.argmax(axis=1) == binned.codes[:, column]).mean())


def on_order(case: Case, params: BoostingParams, truth: TrueColumns) -> tuple[Best, Best]:
    """The lines, and the audit's explained variance."""
    opened, _ = opened_sums(case, params, LEAST)
    with TemporaryDirectory() as folder:  # the audit's places are not estimated twice
        kept, settings = Kept.of(Path(folder)), SumsSettings(seconds=SECONDS)
        evidence = SumsEvidence(PARTY, opened, truth, settings, lambda _: None, kept)
        figures = read_columns(evidence)
        trees = sums_of(PARTY, opened.trees, lambda tree: params.drawn(tree, opened.records))
        known = Truth.of(truth, trees, PARTY)
        linked = Linked(trees, *known.given_links())
        _, claims, _ = attack.claims_of(linked, "given", evidence, PASSES)
    named = known.named(linked)
    means = [mean_places(linked, chain) for chain in range(len(linked.chains))]
    easy = {
        "a line through expected places": explained(claims.positions, named, truth),
        "a line through means of nodes": explained(means, named, truth),
    }
    return Best.of(easy), Best.of({"links given": figures.given_explained or 0.0})


def mean_places(linked: Linked, chain: int) -> Floats:
    """The mean place (N,) of a chain in the nodes that a record is in, those of n records weighing 1/√n."""
    total, weights = np.zeros(linked.records), np.full(linked.records, 1e-9)
    for number, tree in enumerate(linked.trees):
        there, places = linked.borders(number, chain)
        for node, rows in enumerate(tree.drawn):
            # of records: how many are beyond each border, and so the mean of the places
            beyond = len(rows) - tree.lefts[node, places, tree.counting]
            gaps = np.diff(there, append=len(linked.chains[chain]))
            total[rows] += float(beyond @ gaps) / max(1, len(rows)) / np.sqrt(max(1, len(rows)))
            weights[rows] += 1 / np.sqrt(max(1, len(rows)))
    return np.asarray(total / weights)


def explained(places: Sequence[Floats], named: Sequence[Named], truth: TrueColumns) -> float:
    """The mean over columns of the variance that a line through a chain's places (N,) explains, of the best chain."""
    squares = np.zeros(len(truth.names))
    for place, chain in zip(places, named, strict=True):
        if np.ptp(place) > 0:
            square = np.corrcoef(place, truth.codes[:, chain.column])[0, 1] ** 2
            squares[chain.column] = max(squares[chain.column], square)
    return float(squares.mean())
