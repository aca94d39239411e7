"""The entries of Shapley values along the chain of a Fed-EINI prediction; see `treetap.trees.shapley`.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as chained
from itertools import combinations

import numpy as np

from treetap.arrays import Bools, Floats, Ints
from treetap.trees.ensemble import Ensemble, Split, Tree
from treetap.trees.leaf_entries import binary_places
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import candidate_bits, candidate_leaves, output_bits, paths
from treetap.trees.shapley import Parties, masked_terms


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
        self.players = (*map(_own, sorted(own)), *self._chain)
        fixed = {0: False}
        numbers: list[dict[object, int]] = [{} for _ in range(len(self._chain) + 1)]
        self._terms = [list(self._terms_of(tree, numbers, fixed)) for tree in self._trees]
        self.constant = np.array([entry for entry in sorted(fixed) if fixed[entry]], dtype=np.int64)
        self.varying = np.array([entry for entry in sorted(fixed) if not fixed[entry]], dtype=np.int64)
        self._measure()

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

    def spare(self, goes_left: GoesLeft, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed all the sums together, and each player's alone: (n,).

        Each value is one more equation about the masks, besides the score's; that of a player concerns only the trees
        in which it has a split. Trees that add to different columns are counted apart, and the least counts
        (`paths.spare_bits`).
        """
        groups: defaultdict[tuple[int, ...], list[Tree]] = defaultdict(list)
        for tree in self._trees:
            groups[tree.outputs].append(tree)

        def own(split: Split) -> Bools | None:
            return goes_left(split.handle) if split.owner == self._party else None

        margins = []
        for trees in groups.values():
            # The scores and every player's values are equations about the masks of the same trees: their bits add up.
            bits = [candidate_bits([candidate_leaves(tree, n, own)]) for tree in trees]
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

    def _measure(self) -> None:
        """Fraction bits and tolerance, from the leaf weights and the number of entries."""
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
        return _own(self._feature_of[split.handle]) if split.owner == self._party else split.owner

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
        whole: Ints = sums.astype(np.int64)
        return whole

    def _masks(self, tree: Tree, goes_left: GoesLeft, n: int) -> dict[str, Bools]:
        """The candidate leaves of n records by each own player's splits in a tree (n, leaves)."""

        def under(player: str) -> Bools:
            return candidate_leaves(tree, n, lambda s: goes_left(s.handle) if self._player(s) == player else None)

        return {player: under(player) for player in {self._player(s) for s in tree.splits if s.owner == self._party}}


def _own(feature: str) -> str:
    """A player that is a feature of the label holder; no party is called so, because names have no colon."""
    return f"own:{feature}"


def _value_bits(trees: Iterable[Tree], fraction_bits: int) -> float:
    """log2 of the number of values that one player may have by these trees: each lies between ± the leaves' spread."""
    spread: defaultdict[int, float] = defaultdict(float)
    for tree in trees:
        weights = np.array([leaf.weights for leaf in tree.leaves])
        for column, output in enumerate(tree.outputs):
            spread[output] += float(np.ptp(weights[:, column]))
    return math.fsum(math.log2(math.ldexp(2 * width, fraction_bits) + 1.0) for width in spread.values())
