"""Exact Shapley values of an ensemble whose players are features, or whole parties.

The game of one record: v(S) is the score when the splits of the players in S are decided, and at any other split the
record goes both ways, weighted by the children's covers (path-dependent TreeSHAP, Lundberg et al. 2020, Algorithm 1;
with one feature per player it equals XGBoost's `pred_contribs`). Interventional values would instead need the
decisions of all parties on background records, hence further disclosures; covers the label holder has.

In one leaf the game is a product: with z_p the product of cover ratios at the player's splits on the path, and o_p = 1
if the record agrees with all of them, v(S) = w · Π_{p∈S} o_p · Π_{p∉S} z_p. A player that occurs on the path several
times is thus one factor. By Owen's multilinear extension (1972)

    φ_p = w · (o_p − z_p) · ∫_0^1 Π_{q≠p} ((1−t)·z_q + t·o_q) dt,

a polynomial of degree P−1, which Gauss–Legendre quadrature with ⌈P/2⌉ points integrates exactly. That is polynomial in
depth, has no subtraction that could cancel, and does not depend on the total number of players.

Disclosure. o_p of a feature party is its candidate mask (`paths.candidate_leaves`). Computing φ in the
clear therefore reveals to the label holder, for each leaf of each tree, whether the record agrees with all of that
party's splits above it. That is more than SPLIT_DIRECTION gives, which names one path. `masked_terms` writes φ as a sum
over leaves of known numbers times products of masks, so that masked sums, as for the score, can deliver φ without the
masks. The remaining leak: every attribution is one more equation about the masks.

The entries of Shapley values along the chain of a Fed-EINI prediction; see `treetap.trees.shapley`.

φ_p = Σ_F Σ_leaves terms[F][p] · Π_{m∈F} o_m: of each leaf and each set F of feature parties on the way to it, a number
that the label holder knows, times the masks of the parties in F. On its way to member h of the chain it is still to be
multiplied with the masks of the members h, h+1, … in F. A mask is the party's branches on the way to the leaf, so all
(F, leaf) of a tree with the same remaining branches are one *entry*: only their sum matters, whatever F they began
with. After the last member one entry remains, the sum over all F; the sums of single sets are never computed.

An entry holds a value for each player and column of the score. Unlike the entries of a score, several of a tree are not
zero at once: z factors stand in the place of the label holder's own mask.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as chained
from itertools import combinations

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.errors import DataError
from treetap.trees.ensemble import Ensemble, Split, Tree, cover_shares, deciding_tree
from treetap.trees.leaf_entries import binary_places
from treetap.trees.paths import (
    Decide,
    GoesLeft,
    candidate_bits,
    candidate_leaves,
    output_bits,
    paths,
    reaching,
)

PlayerOf = Callable[[Split], str]
#: A set of feature parties whose masks are multiplied, in alphabetical order.
Parties = tuple[str, ...]


def expected_score(ensemble: Ensemble) -> Floats:
    """v(∅): the base margin plus the cover-weighted mean of each tree, averaged as scores are, (outputs,)."""
    expected = np.array(ensemble.base_margin, dtype=np.float64)
    for tree in ensemble.used_trees:
        shares = reaching(tree, {split.owner for split in tree.splits})
        for leaf in tree.leaves:
            expected[list(tree.outputs)] += shares[leaf.node] * np.array(leaf.weights)
    return expected / ensemble.divisor


@dataclass(frozen=True)
class Attributions:
    """`values` (n, players, outputs) add up, with `expected` (outputs,), to the scores (n, outputs)."""

    expected: Floats
    values: Floats


def attributions(
    ensemble: Ensemble,
    player_of: PlayerOf,
    goes_left: Callable[[Split], Bools],
    players: Sequence[str],
    n: int,
) -> Attributions:
    """Shapley values of n records whose decisions at every split are known, `goes_left(split)` (n,).

    Local subtrees stand in the place of what all parties know there, as they do in scores. `players`: all that
    `player_of` names, in the order of the result. Raises DataError if a split has no cover.
    """
    place = {player: number for number, player in enumerate(players)}
    values = np.zeros((len(ensemble.base_margin), n, len(players)))
    used = tuple(deciding_tree(tree) for tree in ensemble.used_trees)
    for tree in used:
        decided = {split.node: goes_left(split) for split in tree.splits}
        shares = cover_shares(tree)
        for leaf, path in zip(tree.leaves, paths(tree).values(), strict=True):
            if not path:
                continue
            zero, agrees = dict[str, float](), dict[str, Bools]()
            for split, left in path:
                player, own = player_of(split), decided[split.node] if left else ~decided[split.node]
                zero[player] = zero.get(player, 1.0) * shares[split.node][0 if left else 1]
                agrees[player] = agrees[player] & own if player in agrees else own
            of_leaf, columns = _leaf_values(zero, agrees, n), [place[player] for player in zero]
            for output, weight in zip(tree.outputs, leaf.weights, strict=True):
                values[output][:, columns] += weight * of_leaf
    expected = expected_score(replace(ensemble, trees=used, best_round=None))
    return Attributions(expected, np.moveaxis(values, 0, 2) / ensemble.divisor)


def _leaf_values(zero: Mapping[str, float], agrees: Mapping[str, Bools], n: int) -> Floats:
    """φ_p/w (n, players) of one leaf; records that agree with the same players have the same values."""
    code = np.zeros(n, dtype=np.int64)
    for bit, player in enumerate(zero):
        code |= agrees[player].astype(np.int64) << bit
    patterns = np.arange(1 << len(zero)) if 1 << len(zero) <= n else np.unique(code)
    ones = {player: ((patterns >> bit) & 1).astype(np.float64) for bit, player in enumerate(zero)}
    terms = _leaf_terms(zero, ones, len(patterns))[()]
    table = np.stack([terms[player] for player in zero], axis=1)
    return table[np.searchsorted(patterns, code)]


def masked_terms(
    tree: Tree, player_of: PlayerOf, known: Mapping[str, Bools], remote: Collection[str], n: int
) -> dict[Parties, dict[str, Floats]]:
    """One tree's Shapley values as a form in the masks of the `remote` parties, which need not be known.

    Of a forest this is a term of the sum over trees, not of their mean.
    With o_m (n, leaves) the mask of party m, φ_p = Σ_F Σ_leaves terms[F][p] · Π_{m∈F} o_m; terms[F][p] is (n, leaves,
    outputs of the tree). F = () is the part that the holder of `known`, the other players' masks (n, leaves), computes
    alone; with one remote party there is one more set, so its values are as many masked sums as there are players.
    Raises DataError if a split has no cover or a known player's mask is missing.
    """
    shares = cover_shares(tree)
    terms: dict[Parties, dict[str, Floats]] = {}
    for column, (leaf, path) in enumerate(zip(tree.leaves, paths(tree).values(), strict=True)):
        zero: dict[str, float] = {}
        for split, left in path:
            player = player_of(split)
            zero[player] = zero.get(player, 1.0) * shares[split.node][0 if left else 1]
        near = [player for player in zero if player not in remote]
        if missing := [player for player in near if player not in known]:
            raise DataError(f"tree {tree.index}: {missing[0]!r} has splits there, and its candidate mask is not given")
        ones = {player: known[player][:, column].astype(np.float64) for player in near}
        weights = np.array(leaf.weights)
        for group, by_player in _leaf_terms(zero, ones, n).items():
            for player, value in by_player.items():
                mine = terms.setdefault(group, {})
                if player not in mine:
                    mine[player] = np.zeros((n, len(tree.leaves), len(weights)))
                mine[player][:, column] = value[:, None] * weights
    return terms


def _leaf_terms(zero: Mapping[str, float], ones: Mapping[str, Floats], n: int) -> dict[Parties, dict[str, Floats]]:
    """φ_p/w (n,) of one leaf for the players on its path, by the set of remote masks that a term is multiplied with."""
    # points and weights on [0, 1] that are exact for polynomials of degree players − 1
    points, weights = np.polynomial.legendre.leggauss(max(1, -(-len(zero) // 2)))
    t, weight = (points + 1) / 2, weights / 2
    own = list(ones)
    far = sorted(player for player in zero if player not in ones)
    factors = [(1 - t) * zero[player] + t * ones[player][:, None] for player in own]  # each (n, points)
    before, after = _products(factors, n, len(t))
    whole = before[-1]
    terms: dict[Parties, dict[str, Floats]] = {}
    for group in chained.from_iterable(combinations(far, size) for size in range(len(far) + 1)):
        of_group = terms[group] = {}
        for k, player in enumerate(own):
            others = before[k] * after[k + 1] * _far(t, zero, far, group)
            of_group[player] = (ones[player] - zero[player]) * (others @ weight)
        for player in far:  # (o_p − z_p) · …: with o_p the group holds p, with −z_p it does not
            rest = [other for other in far if other != player]
            inside = player in group
            others = whole * _far(t, zero, rest, [other for other in group if other != player])
            of_group[player] = (1.0 if inside else -zero[player]) * (others @ weight)
    return terms


def _far(t: Floats, zero: Mapping[str, float], far: Collection[str], group: Collection[str]) -> Floats:
    """The factors of remote players at the points: t of those in the group, (1−t)·z of the others, (points,)."""
    product = np.ones_like(t)
    for player in far:
        product = product * (t if player in group else (1 - t) * zero[player])
    return product


def _products(factors: Sequence[Floats], n: int, points: int) -> tuple[list[Floats], list[Floats]]:
    """Products of the first k and of the last K−k factors, each (n, points), for k = 0..K."""
    before, after = [np.ones((n, points))], [np.ones((n, points))]
    for factor in factors:
        before.append(before[-1] * factor)
    for factor in factors[::-1]:
        after.append(after[-1] * factor)
    return before, after[::-1]


@dataclass(frozen=True)
class AttributedHop:
    """One tree on one hop: for each entry a leaf whose own branches it depends on (−1: none), and its next entry.

    The entries of a hop are numbered from 1 through all trees; 0 is the one that no later member decides.
    `players`: the places in `AttributionEntries.players` of those that have a split in the tree.
    """

    tree: int
    outputs: tuple[int, ...]
    leaves: tuple[int, ...]
    outgoing: tuple[int, ...]
    players: tuple[int, ...]


@dataclass(frozen=True)
class _Term:
    """The place of a leaf, a set of parties F on the way to it, and the entry on each hop; 0 where no mask remains."""

    place: int
    group: Parties
    entries: tuple[int, ...]


class AttributionEntries:
    """The label holder's side: addends of each player's Shapley value, by entry, in fixed point.

    Args:
        ensemble: the model.
        party: the label holder.
        chain: the feature parties, in the order in which entries travel; players as a whole.
        feature_of: for a handle of the label holder's own, the feature that is the player.
        score_bits: binary places of the scores, which are sent too.

    Attributes:
        players: the label holder's features that the model uses, in alphabetical order, then the chain.
        constant: entries that are the same for every record: the label holder has no split on the way to their leaves.
        varying: the others, ascending; entry 0 is always one of them.
        fraction_bits: binary places of the values: as coarse as an error of 2^ERROR_BITS in a value allows.
        tolerance: how far values may be, added up, from the sum of the exact ones, (outputs,).
    """

    def __init__(
        self, ensemble: Ensemble, party: str, chain: Sequence[str], feature_of: Mapping[int, str], score_bits: int
    ) -> None:
        self._ensemble, self._party, self._feature_of, self.score_bits = ensemble, party, feature_of, score_bits
        self._trees, self._chain, self._outputs = ensemble.used_trees, tuple(chain), len(ensemble.base_margin)
        own = {feature_of[split.handle] for tree in self._trees for split in tree.splits if split.owner == party}
        self.players = (*(f"own:{feature}" for feature in sorted(own)), *self._chain)
        fixed = {0: False}
        numbers: list[dict[object, int]] = [{} for _ in range(len(self._chain) + 1)]
        self._terms = [list(self._terms_of(tree, numbers, fixed)) for tree in self._trees]
        self.constant = np.array([entry for entry in sorted(fixed) if fixed[entry]], dtype=np.int64)
        self.varying = np.array([entry for entry in sorted(fixed) if not fixed[entry]], dtype=np.int64)
        # Fraction bits and tolerance, from the leaf weights and the number of entries.
        added, size, score = (np.zeros(self._outputs) for _ in range(3))
        for tree, terms in zip(self._trees, self._terms, strict=True):
            columns, weights = list(tree.outputs), np.abs([leaf.weights for leaf in tree.leaves])
            added[columns] += len({0} | {term.entries[0] for term in terms})
            # Of one leaf the numbers of all F add up, in size, to twice its weight at most: |o−z| ≤ 1, else |1| + |−z|.
            size[columns] += 2 * weights.sum(axis=0)
            score[columns] += weights.max(axis=0)
        divisor = self._ensemble.divisor
        rounded = max(1.0, float(added.max(initial=0.0)) / divisor)
        self.fraction_bits = binary_places(
            float(score.max(initial=0.0)) / divisor, rounded, float(size.max(initial=0.0))
        )
        self.tolerance: Floats = len(self.players) * np.ldexp(added, -self.fraction_bits - 1) / divisor

    def hops(self) -> list[list[AttributedHop]]:
        """The plan for each member of the chain."""
        return [
            [self._hop(tree, terms, hop) for tree, terms in zip(self._trees, self._terms, strict=True)]
            for hop in range(len(self._chain))
        ]

    def constants(self) -> Ints:
        """Values of the constant entries (entries, players · outputs)."""
        whole: Ints = self._values(self.constant, lambda _: np.zeros(1, dtype=bool), 1)[0]
        return whole

    def values(self, goes_left: GoesLeft, n: int) -> Ints:
        """Values of the varying entries of n records (n, entries, players · outputs)."""
        return self._values(self.varying, goes_left, n)

    def weights(self, sums: Ints) -> Floats:
        """Sums (n, players · outputs) in fixed point as Shapley values (n, players, outputs)."""
        values: Floats = np.ldexp(sums.astype(np.float64), -self.fraction_bits) / self._ensemble.divisor
        return values.reshape(len(sums), len(self.players), self._outputs)

    def spare(self, decide: Decide, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed all the sums together, and each player's alone: (n,).

        Each value is one more equation about the masks, besides the score's; that of a player concerns only the trees
        in which it has a split. Trees that add to different columns are counted apart, and the least counts
        (`paths.spare_bits`).
        """
        groups: defaultdict[tuple[int, ...], list[Tree]] = defaultdict(list)
        for tree in self._trees:
            groups[tree.outputs].append(tree)

        margins = []
        for trees in groups.values():
            # The scores and every player's values are equations about the masks of the same trees: their bits add up.
            bits = [candidate_bits([candidate_leaves(tree, n, decide)]) for tree in trees]
            known = output_bits(trees, self.score_bits)
            for player in self.players:
                places = [k for k, tree in enumerate(trees) if any(self._player(s) == player for s in tree.splits)]
                if places:
                    mine = _value_bits((trees[k] for k in places), self.fraction_bits)
                    margins.append(np.sum([bits[k] for k in places], axis=0) - mine)
                    known += mine
            margins.append(np.sum(bits, axis=0) - known)
        return np.min(margins, axis=0) if margins else np.zeros(n)

    def _terms_of(self, tree: Tree, numbers: list[dict[object, int]], fixed: dict[int, bool]) -> Iterator[_Term]:
        """Each leaf with each set of feature parties on the way to it, ∅ too; entries are numbered as they come up."""
        for place, way in enumerate(paths(tree).values()):
            owners = {split.owner for split, _ in way}
            far = [party for party in self._chain if party in owners]
            for group in chained.from_iterable(combinations(far, size) for size in range(len(far) + 1)):
                # Leaves and sets whose remaining branches are the same are one entry; without any left it is entry 0.
                entries = []
                for hop, numbered in enumerate(numbers):
                    further = frozenset(group) & frozenset(self._chain[hop:])
                    branches = tuple((split.node, left) for split, left in way if split.owner in further)
                    entries.append(numbered.setdefault((tree.index, branches), len(numbered) + 1) if branches else 0)
                fixed[entries[0]] = fixed.get(entries[0], True) and self._party not in owners
                yield _Term(place, tuple(sorted(group)), tuple(entries))

    def _hop(self, tree: Tree, terms: Sequence[_Term], hop: int) -> AttributedHop:
        leaves: dict[int, int] = {}
        outgoing: dict[int, int] = {}
        shown = tree.shown_leaves
        for term in terms:
            entry = term.entries[hop]
            if entry:
                leaves.setdefault(entry, shown.index(term.place) if self._chain[hop] in term.group else -1)
                outgoing[entry] = term.entries[hop + 1]
        order = sorted(leaves)
        of_entries = tuple(leaves[entry] for entry in order), tuple(outgoing[entry] for entry in order)
        playing = {self._player(split) for split in tree.splits}
        numbers = tuple(number for number, player in enumerate(self.players) if player in playing)
        return AttributedHop(tree.index, tree.outputs, *of_entries, numbers)

    def _player(self, split: Split) -> str:
        return f"own:{self._feature_of[split.handle]}" if split.owner == self._party else split.owner

    def _values(self, entries: Ints, goes_left: GoesLeft, n: int) -> Ints:
        """Values of some entries (n, entries, players · outputs). They are rounded once, entry by entry."""
        place = {entry: k for k, entry in enumerate(entries.tolist())}
        column = {player: k * self._outputs for k, player in enumerate(self.players)}
        sums = np.zeros((n, len(entries), len(self.players) * self._outputs))
        for tree, known in zip(self._trees, self._terms, strict=True):
            wanted = [(term, place[term.entries[0]]) for term in known if term.entries[0] in place]
            if not wanted:
                continue
            terms = masked_terms(tree, self._player, self._masks(tree, goes_left, n), self._chain, n)
            for term, target in wanted:
                for player, part in terms.get(term.group, {}).items():
                    columns = [column[player] + output for output in tree.outputs]
                    sums[:, target, columns] += part[:, term.place]
        np.rint(np.ldexp(sums, self.fraction_bits, out=sums), out=sums)
        return sums.astype(np.int64)

    def _masks(self, tree: Tree, goes_left: GoesLeft, n: int) -> dict[str, Bools]:
        """The candidate leaves of n records by each own player's splits in a tree (n, leaves)."""

        def under(player: str) -> Bools:
            return candidate_leaves(tree, n, lambda s: goes_left(s.handle) if self._player(s) == player else None)

        return {player: under(player) for player in {self._player(s) for s in tree.splits if s.owner == self._party}}


def _value_bits(trees: Iterable[Tree], fraction_bits: int) -> float:
    """log2 of the number of values that one player may have by these trees: each lies between ± the leaves' spread."""
    spread: defaultdict[int, float] = defaultdict(float)
    for tree in trees:
        weights = np.array([leaf.weights for leaf in tree.leaves])
        for column, output in enumerate(tree.outputs):
            spread[output] += float(np.ptp(weights[:, column]))
    return math.fsum(math.log2(math.ldexp(2 * width, fraction_bits) + 1.0) for width in spread.values())
