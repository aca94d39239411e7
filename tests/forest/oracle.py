"""An independent, naive random forest: what the federated one must equal, node for node.

Plain Python loops over raw columns, as in `tests.oracle`: no histogram, no subtraction, no array arithmetic. From the
library it takes the parameters, the number of fraction bits and the shared draws, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from tests import draws
from tests.oracle import ONE, OracleLeaf, OracleModel, OracleSplit, OracleTree, Parties, bin_cuts, parted, within
from treetap.trees.params import ForestParams

#: A gain that is not above this is none.
LEAST = 1e-12
Candidate = tuple[int, int, float, bool]


def forest_train(
    parties: Parties,
    labels: Sequence[Any],
    params: ForestParams,
    classes: int = 2,
    xi: float | None = None,
    own_trees: int = 0,
    counts_drawn: bool = False,
    fewest: Mapping[str, int] = MappingProxyType({}),
) -> OracleModel:
    """Train on raw columns (N, d) of each party, NaN for missing, parties in tie order.

    Of the rest see `tests.oracle.oracle_train`.
    """
    columns = [(name, [[float(v) for v in X[:, j]] for j in range(X.shape[1])]) for name, X in parties]
    n = len(labels)
    centre, scale = 0.0, 1.0
    if params.criterion == "gini":
        rows = [[1 if label == c else 0 for c in range(classes)] for label in labels]
    else:
        y = [float(label) for label in labels]
        centre = math.fsum(y) / n
        far = max(abs(v - centre) for v in y)
        while scale < far:
            scale *= 2.0
        while far > 0 and scale / 2.0 >= far:
            scale /= 2.0
        rows = [[round((v - centre) / scale * ONE)] for v in y]
    model = OracleModel([0.0] * len(rows[0]), 1)
    model.averaged = True
    for index in range(params.n_estimators):
        drawn = draws.drawn(params.seed, index, n, params.subsample, bootstrap=params.bootstrap)
        tree = OracleTree(tuple(range(len(rows[0]))), {})
        grower = _Tree(columns, rows, drawn, params, index)
        grower.centre, grower.scale = centre, scale
        grower.labels, grower.xi, grower.fewest = list(labels), xi, fewest
        grower.counted = [not counts_drawn or bool(times) for times in drawn]
        alone = index < own_trees
        tree.withdrawn |= {1} if alone else set()
        grower.grow(1, list(range(n)), 0, tree, model, alone=alone)
        model.append(tree)
    return model


class _Tree:
    """Grows one tree by trying every candidate on every drawn record, each as often as it was drawn."""

    centre: float
    scale: float
    labels: list[Any]
    counted: list[bool]
    fewest: Mapping[str, int] = MappingProxyType({})
    xi: float | None = None

    def __init__(self, columns: Any, rows: list[list[int]], drawn: list[int], params: ForestParams, index: int) -> None:
        self.columns, self.rows, self.drawn, self.params = columns, rows, drawn, params
        self.kept = [
            draws.columns(params.seed, index, name, len(part), params.colsample_bytree)
            if draws.takes_part(params.seed, index, name, params.party_dropout.get(name, 0.0))
            else []
            for name, part in columns
        ]

    def candidates(self, node: list[int]) -> list[Candidate]:
        """(party, feature, cut, missing left) in the order of ties, with the cuts of the job or of the node."""
        found: list[Candidate] = []
        for party, (_, part) in enumerate(self.columns):
            for f in self.kept[party]:
                has_missing = any(math.isnan(v) for v in part[f])
                per_node = self.params.binning == "per-node"
                seen = [part[f][i] for i in node for _ in range(self.drawn[i])] if per_node else part[f]
                for cut in bin_cuts(seen, self.params.max_bin):
                    found.append((party, f, cut, False))
                    if has_missing:
                        found.append((party, f, cut, True))
                if has_missing:
                    found.append((party, f, math.inf, False))
        return found

    def means(self, node: list[int]) -> tuple[list[float], int]:
        """Mean of each output over the draws of a node, and their number: whole numbers until the division."""
        n = sum(self.drawn[i] for i in node)
        unit = 1.0 if self.params.criterion == "gini" else 1.0 / ONE
        sums = [sum(self.rows[i][k] * self.drawn[i] for i in node) for k in range(len(self.rows[0]))]
        return [float(total) * unit / float(n) for total in sums], n

    def purity(self, node: list[int]) -> float:
        total = 0.0
        for mean in self.means(node)[0]:
            total += mean * mean
        return total

    def shown(self, *parts: list[int]) -> bool:
        """Eq. 6 of ID-LMID for sets of records."""
        xi = self.xi
        return xi is None or all(within([i for i in rows if self.counted[i]], self.labels, xi) for rows in parts)

    def grow(
        self, node: int, rows: list[int], depth: int, tree: OracleTree, model: OracleModel, *, alone: bool = False
    ) -> None:
        means, n = self.means(rows)
        best = self.best(rows, model, alone=alone) if depth < self.params.max_depth else None
        if best is None:
            tree.nodes[node] = OracleLeaf(tuple(mean * self.scale + self.centre for mean in means), float(n))
            return
        gain, (party, feature, cut, missing_left) = best
        name, part = self.columns[party]
        tree.nodes[node] = OracleSplit(name, feature, cut, missing_left, gain * self.scale**2, float(n))
        left, right = parted(rows, part[feature], cut, missing_left)
        if not alone and not self.shown(left, right):
            tree.withdrawn.add(node)
            alone = True
        self.grow(2 * node, left, depth + 1, tree, model, alone=alone)
        self.grow(2 * node + 1, right, depth + 1, tree, model, alone=alone)

    def best(self, rows: list[int], model: OracleModel, *, alone: bool = False) -> tuple[float, Candidate] | None:
        """The first candidate with the largest gain, if that is a gain."""
        whole = [i for i in rows if self.drawn[i]]
        n = sum(self.drawn[i] for i in whole)
        before = self.purity(whole)
        best: tuple[Fraction, float, Candidate] | None = None
        seen: list[tuple[Fraction, frozenset[int]]] = []
        for candidate in self.candidates(whole):
            party, feature, cut, missing_left = candidate
            column = self.columns[party][1][feature]
            left, right = parted(whole, column, cut, missing_left)
            n_l, n_r = sum(self.drawn[i] for i in left), sum(self.drawn[i] for i in right)
            if min(n_l, n_r) < max(self.params.min_samples_leaf, self.fewest.get(self.columns[party][0], 0)):
                continue
            if party and (alone or (self.xi is not None and not self.shown(*parted(rows, column, cut, missing_left)))):
                continue
            purity = float(n_l) / float(n) * self.purity(left) + float(n_r) / float(n) * self.purity(right)
            exact = (self.squares(left) + self.squares(right) - self.squares(whole)) / n
            seen.append((exact, frozenset(left if whole[0] in left else right)))
            if best is None or exact > best[0]:
                best = (exact, purity - before, candidate)
        if best is None or not best[0] > (0 if self.params.criterion == "gini" else LEAST):
            return None
        winner = next(part for gain, part in seen if gain == best[0])
        model.ties += any(gain == best[0] and part != winner for gain, part in seen)
        return best[1:]

    def squares(self, rows: list[int]) -> Fraction:
        """n times the squares of the means, which is compared: as a fraction."""
        unit = 1 if self.params.criterion == "gini" else ONE
        n, sums = 0, [0] * len(self.rows[0])
        for i in rows:
            n += self.drawn[i]
            sums = [total + own * self.drawn[i] for total, own in zip(sums, self.rows[i], strict=True)]
        return Fraction(sum(total * total for total in sums), n * unit * unit)
