"""An independent, naive PIVODL without noise: what the federated one must equal, node for node.

Plain Python loops over raw columns, as in `tests.oracle`; gains are exact fractions until they are rounded. From the
library it takes the parameters and the number of fraction bits, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from tests.oracle import ONE, OracleLeaf, OracleModel, OracleSplit, OracleTree, Parties, _left, _probabilities, bin_cuts
from treetap.trees.pivodl_params import PivodlParams

#: Units of a gain in one; gains that round to the same number of units tie.
UNITS = 2**24
#: Largest scaled gradient of a regression.
LARGEST = 4096
Column = list[float]


class Candidate(NamedTuple):
    """A record goes left if its value in `column` is below `cut`, or if it is missing and `missing_left`."""

    feature: int
    column: Column
    cut: float
    missing_left: bool


def pivodl_train(
    parties: Parties,
    labels: Sequence[Any],
    params: PivodlParams,
    classes: int = 2,
    ownership: Mapping[str, Sequence[int]] | None = None,
) -> OracleModel:
    """Train on raw columns (N, d) of each party, NaN for missing, parties in tie order.

    `ownership`: the records that each party labels; None: the first party labels all. Scores of a regression are in
    scaled units.
    """
    labelled = ownership or {parties[0][0]: range(len(labels))}
    owner = {int(i): name for name, rows in labelled.items() for i in rows}
    columns = [(name, [[float(v) for v in X[:, j]] for j in range(X.shape[1])]) for name, X in parties]
    y = [float(value) for value in labels]
    if params.objective == "reg:squarederror":
        base, scale = moments(y, params)
        y = [(value - base) / scale for value in y]
        margin = [0.0]
    elif params.objective == "binary:logistic":
        start = 0.5 if params.base_score is None else params.base_score
        margin = [math.log(start / (1.0 - start))]
    else:
        margin = [0.5 if params.base_score is None else float(params.base_score)] * classes
    model = OracleModel(margin, 1)
    scores = [list(margin) for _ in y]
    for _ in range(params.n_estimators):
        g, h = _derivatives(params.objective, scores, y)
        grower = _Tree(columns, g, h, [owner[i] for i in range(len(y))], params)
        tree, reached = grower.grow(model)
        model.append(tree)
        for i, leaf in reached.items():
            node = tree.nodes[leaf]
            assert isinstance(node, OracleLeaf)
            scores[i] = [score + weight for score, weight in zip(scores[i], node.weights, strict=True)]
    return model


def moments(labels: Sequence[float], params: PivodlParams) -> tuple[float, float]:
    """Base score and scale of a regression's labels: their mean, and the least power of two ≥ their deviation."""
    whole = [round(value * ONE) for value in labels]
    mean = Fraction(sum(whole), len(whole))
    variance = sum((value - mean) ** 2 for value in whole) / len(whole) / ONE**2
    power = Fraction(1)
    if variance:
        while power**2 < variance:
            power *= 2
        while power**2 >= 4 * variance:
            power /= 2
    base = float(mean / ONE) if params.base_score is None else params.base_score
    return base, float(power) if params.label_scale is None else params.label_scale


def _derivatives(objective: str, scores: list[list[float]], y: list[float]) -> tuple[list[list[int]], list[list[int]]]:
    """Fixed-point g and h of every record and output."""
    g: list[list[int]] = []
    h: list[list[int]] = []
    for score, label in zip(scores, y, strict=True):
        if objective == "reg:squarederror":
            g.append([round((score[0] - label) / LARGEST * ONE)])
            h.append([ONE])
            continue
        p = _probabilities(objective, score)
        hits = [label] if objective == "binary:logistic" else [float(c == label) for c in range(len(p))]
        factor = 1.0 if objective == "binary:logistic" else 2.0
        g.append([round((each - hit) * ONE) for each, hit in zip(p, hits, strict=True)])
        h.append([max(round(factor * each * (1.0 - each) * ONE), 1) for each in p])
    return g, h


class _Tree:
    """Grows one tree by trying every candidate on every record."""

    def __init__(
        self,
        columns: list[tuple[str, list[Column]]],
        g: list[list[int]],
        h: list[list[int]],
        owner: list[str],
        params: PivodlParams,
    ) -> None:
        self.g, self.h, self.owner, self.params = g, h, owner, params
        self.owners = sorted(set(owner))
        self.scale = Fraction(LARGEST if params.objective == "reg:squarederror" else 1, ONE)
        self.candidates = {name: self._of(part) for name, part in columns}
        self.sources: dict[int, str] = {}
        self.leaves: set[int] = set()

    def _of(self, part: list[Column]) -> list[Candidate]:
        found: list[Candidate] = []
        for feature, column in enumerate(part):
            has_missing = any(math.isnan(v) for v in column)
            for cut in bin_cuts(column, self.params.max_bin):
                found.append(Candidate(feature, column, cut, False))
                if has_missing:
                    found.append(Candidate(feature, column, cut, True))
            if has_missing:
                found.append(Candidate(feature, column, math.inf, False))
        return found

    def sums(self, rows: Sequence[int]) -> tuple[list[Fraction], list[Fraction]]:
        """G and H, exact."""
        outputs = range(len(self.g[0]))
        return (
            [sum(self.g[i][k] for i in rows) * self.scale for k in outputs],
            [sum(self.h[i][k] for i in rows) * Fraction(1, ONE) for k in outputs],
        )

    def gain(self, rows: Sequence[int]) -> Fraction:
        penalty = Fraction(self.params.reg_lambda)
        return sum((g * g / (h + penalty) for g, h in zip(*self.sums(rows), strict=True)), Fraction(0))

    def grow(self, model: OracleModel) -> tuple[OracleTree, dict[int, int]]:
        """The tree and the leaf that each record reached."""
        tree = OracleTree(tuple(range(len(self.g[0]))), {})
        rows = {1: list(range(len(self.owner)))}
        level = [1] if self.continues(1, rows[1]) else []
        while level:
            best = {node: self.best(node, rows[node], model) for node in level}  # before any node of the level ends
            following = []
            for node, split in best.items():
                if split is None:
                    self.leaves.add(node)
                    continue
                source, candidate, units = split
                self.sources[node] = source
                tree.nodes[node] = OracleSplit(
                    source,
                    candidate.feature,
                    candidate.cut,
                    candidate.missing_left,
                    units / UNITS,
                    float(sum(self.sums(rows[node])[1])),
                )
                rows[2 * node], rows[2 * node + 1] = self.sides(rows.pop(node), candidate)
                following += [2 * node, 2 * node + 1]
            level = [child for child in following if self.continues(child, rows[child])]
            self.leaves |= set(following) - set(level)
        for leaf, here in rows.items():
            G, H = self.sums(here)
            weights = [
                -float(g) / (float(h) + self.params.reg_lambda) * self.params.learning_rate
                for g, h in zip(G, H, strict=True)
            ]
            tree.nodes[leaf] = OracleLeaf(tuple(weights), float(sum(H)))
        return tree, {i: leaf for leaf, here in rows.items() for i in here}

    @staticmethod
    def sides(rows: Sequence[int], candidate: Candidate) -> tuple[list[int], list[int]]:
        left = [i for i in rows if _left(candidate.column[i], candidate.cut, candidate.missing_left)]
        gone = set(left)
        return left, [i for i in rows if i not in gone]

    def continues(self, node: int, rows: Sequence[int]) -> bool:
        """Algorithm 3: neither too deep, nor too few records, nor (here) too few that some party labels."""
        depth = len(f"{node:b}") - 1
        if depth == self.params.max_depth or len(rows) < self.params.min_samples:
            return False
        if self.params.as_published:
            return True
        per_party = [sum(self.owner[i] == name for i in rows) for name in self.owners]
        return all(count == 0 or count >= 2 * self.params.instance_threshold for count in per_party)

    def permitted(self, left: Sequence[int], right: Sequence[int], source: str) -> bool:
        """Algorithm 2, line 24, and this project's both sides of every party that labels records of the node."""
        least = self.params.instance_threshold
        for name in self.owners:
            on_left, on_right = (sum(self.owner[i] == name for i in side) for side in (left, right))
            if self.params.as_published:
                if name != source and on_left < least:
                    return False
            elif on_left + on_right > 0 and min(on_left, on_right) < least:
                return False
        return True

    def offers(self, node: int, source: str) -> bool:
        """Whether some party may open the source's sums: one that could not compute a leaf's exact weight from them."""
        names = set(self.candidates)
        openers = names - {source}
        if not self.params.as_published:
            while node > 1:
                sibling = node + 1 if node % 2 == 0 else node - 1
                if sibling in self.leaves:
                    openers -= {self.sources[node // 2]}
                node //= 2
        return bool(openers)

    def best(self, node: int, rows: Sequence[int], model: OracleModel) -> tuple[str, Candidate, int] | None:
        """The first candidate with the largest rounded gain, if that is large enough."""
        parent = self.gain(rows)
        best: tuple[str, Candidate, int] | None = None
        seen: list[tuple[int, frozenset[int]]] = []
        for source, candidates in self.candidates.items():
            if not self.offers(node, source):
                continue
            for candidate in candidates:
                left, right = self.sides(rows, candidate)
                if not left or not right or not self.permitted(left, right, source):
                    continue
                units = round((self.gain(left) + self.gain(right) - parent) * UNITS)
                seen.append((units, frozenset(left if rows[0] in left else right)))
                if best is None or units > best[2]:
                    best = source, candidate, units
        if best is None or best[2] <= round(1e-6 * UNITS) or best[2] < round(self.params.gamma * UNITS):
            return None
        winner = next(part for units, part in seen if units == best[2])
        model.ties += any(units == best[2] and part != winner for units, part in seen)
        return best
