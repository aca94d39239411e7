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
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

import numpy as np

from treetap.arrays import Bools, Floats
from treetap.errors import DataError
from treetap.trees.ensemble import Ensemble, Split, Tree, cover_shares, deciding_tree
from treetap.trees.missing_party import reaching
from treetap.trees.paths import paths

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
    for group in chain.from_iterable(combinations(far, size) for size in range(len(far) + 1)):
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
