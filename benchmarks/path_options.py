"""The possible contributions of each tree to a record's score and attributions, and path decoding by both.

The label holder can list them; `treetap attack path-decoding` uses the score alone.

Numbers are integers in units of 2^−fraction_bits, rounded entry by entry as they are encrypted: their sums are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import numpy.typing as npt

from treetap.attacks.predictions.decoding import ROUNDS, WORK, Decoded, Options, decode
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.paths import paths
from treetap.trees.shapley import masked_terms

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Game:
    """The Shapley game: the player of each split, the players in order, those whose masks are unknown."""

    player_of: Callable[[Split], str]
    players: tuple[str, ...]
    remote: tuple[str, ...]


def fixed_point(values: Floats, fraction_bits: int) -> Ints:
    """Values in units of 2^−fraction_bits, half to even."""
    return np.rint(np.ldexp(values, fraction_bits)).astype(np.int64)


def score_options(ensemble: Ensemble, candidates: Sequence[Bools], fraction_bits: int) -> list[Options]:
    """One record's options by its score alone; candidates (leaves,) per used tree.

    One equation per output: the sum of the leaf weights, hence the score without the base margin.
    """
    options = []
    for tree, mask in zip(ensemble.used_trees, candidates, strict=True):
        terms = np.zeros((int(mask.sum()), len(ensemble.base_margin)), dtype=np.int64)
        terms[:, list(tree.outputs)] = _weights(tree, fraction_bits)[mask]
        options.append(Options(_nodes(tree)[mask], terms))
    return options


def explained_options(
    ensemble: Ensemble, game: Game, known: Sequence[Mapping[str, Bools]], fraction_bits: int, most: int
) -> list[Options] | None:
    """One record's options by its score and its attributions: the remote parties' possible masks in each tree.

    `known` holds the other players' masks (leaves,) per used tree. Equations: the outputs, then for each player in
    order the outputs again. None if a tree has more than `most` combinations of masks.
    """
    options = []
    for tree, own in zip(ensemble.used_trees, known, strict=True):
        masks = _combined_masks(tree, game, most)
        if masks is None:
            return None
        count = len(next(iter(masks.values()))) if masks else 1
        terms = explained_terms(ensemble, tree, game, own, masks, count, fraction_bits)
        both = np.unique(np.column_stack([terms.leaves, terms.terms]), axis=0)  # equal leaf and terms
        options.append(Options(both[:, 0], both[:, 1:]))
    return options


def _combined_masks(tree: Tree, game: Game, most: int) -> dict[str, Bools] | None:
    """The combinations of masks that the remote parties can have in a tree; None if there are more than `most`."""
    owners = {game.player_of(split) for split in tree.splits}
    possible = {
        player: _possible_masks(tree, game.player_of, player, most) for player in game.remote if player in owners
    }
    masks = {player: shape for player, shape in possible.items() if shape is not None}
    if len(masks) < len(possible) or np.prod([len(shape) for shape in masks.values()], dtype=np.float64) > most:
        return None
    rows = np.array(list(product(*(range(len(shape)) for shape in masks.values()))), dtype=np.int64)
    return {player: shape[rows[:, m]] for m, (player, shape) in enumerate(masks.items())}


def explained_terms(
    ensemble: Ensemble,
    tree: Tree,
    game: Game,
    known: Mapping[str, Bools],
    remote: Mapping[str, Bools],
    n: int,
    fraction_bits: int,
) -> Options:
    """The contributions of one tree under n given combinations of the remote parties' masks, each (n, leaves)."""
    outputs, count = len(ensemble.base_margin), len(tree.leaves)
    columns = list(tree.outputs)
    here = np.ones((n, count), dtype=bool)
    for mask in (*known.values(), *remote.values()):
        here &= mask
    reached = here.argmax(axis=1)
    terms = np.zeros((n, 1 + len(game.players), outputs), dtype=np.int64)
    terms[:, 0, columns] = _weights(tree, fraction_bits)[reached]
    shown = {player: mask[None] for player, mask in known.items()}
    for group, by_player in masked_terms(tree, game.player_of, shown, game.remote, 1).items():
        both = np.ones((n, count), dtype=np.int64)
        for player in group:
            both *= remote[player]
        first, entry = _entries(tree, game.player_of, group)  # leaves of one entry have the same masks
        for player, part in by_player.items():
            whole = np.zeros((len(first), part.shape[2]))
            np.add.at(whole, entry, part[0])
            terms[:, 1 + game.players.index(player), columns] += both[:, first] @ fixed_point(whole, fraction_bits)
    return Options(_nodes(tree)[reached], terms.reshape(n, -1))


def _entries(tree: Tree, player_of: Callable[[Split], str], group: Collection[str]) -> tuple[list[int], list[int]]:
    """The first leaf of each entry, and the entry of each leaf: leaves by the branches of a set of parties."""
    numbers: dict[object, int] = {}
    entry, first = [], []
    for place, way in enumerate(paths(tree).values()):
        turns = tuple((split.node, left) for split, left in way if player_of(split) in group)
        if turns not in numbers:
            numbers[turns] = len(numbers)
            first.append(place)
        entry.append(numbers[turns])
    return first, entry


def _possible_masks(tree: Tree, player_of: Callable[[Split], str], player: str, most: int) -> Bools | None:
    """The masks (k, leaves) that a player's own splits can give, each once; None if there are more than `most`."""
    splits = {split.node: player_of(split) for split in tree.splits}
    column = {leaf.node: k for k, leaf in enumerate(tree.leaves)}

    def below(node: int) -> Bools | None:
        if node in column:
            only: Bools = np.arange(len(column))[None] == column[node]
            return only
        left, right = below(2 * node), below(2 * node + 1)
        if left is None or right is None:
            return None
        if splits[node] == player:
            return np.concatenate([left, right])
        if len(left) * len(right) > most:
            return None
        pairs: Bools = left[:, None] | right[None]
        return pairs.reshape(-1, len(column))

    return below(1)


def _weights(tree: Tree, fraction_bits: int) -> Ints:
    """Leaf weights (leaves, outputs of the tree)."""
    return fixed_point(np.array([leaf.weights for leaf in tree.leaves]), fraction_bits)


def _nodes(tree: Tree) -> Ints:
    return np.array([leaf.node for leaf in tree.leaves], dtype=np.int64)


def decode_explained(
    scored: Sequence[Options], explained: Sequence[Options], target: Ints, *, work: int = WORK, rounds: int = ROUNDS
) -> Decoded:
    """Decode by the score, then by score and attributions over the masks that the decoded leaves allow.

    `scored` and `explained` are one record's options by `score_options` and `explained_options`; target (equations,)
    is that of the latter, whose first equations are the former's. The result is never weaker than by the score alone;
    `several`: attributions do not determine the path either.
    """
    outputs = scored[0].terms.shape[1] if scored else len(target)
    alone = decode(scored, target[:outputs], work=work, rounds=1)
    if alone.outcome in ("unique", "none"):
        return alone
    left = [_reaching(options, int(leaf)) for options, leaf in zip(explained, alone.leaves, strict=True)]
    both = decode(left, target, work=work, rounds=rounds)
    leaves = np.where(both.leaves >= 0, both.leaves, alone.leaves)
    if (leaves >= 0).all():
        return Decoded("unique", 1, True, leaves)
    return Decoded(both.outcome, both.solutions, both.complete, leaves)


def _reaching(options: Options, leaf: int) -> Options:
    """The options that end in a leaf; all if the leaf is not known (−1)."""
    if leaf < 0:
        return options
    kept = options.leaves == leaf
    return Options(options.leaves[kept], options.terms[kept])
