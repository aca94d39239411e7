"""Cells that follow from the sums of a source's candidates that a split party opened (Zhu et al. 2023, Theorem 2).

The sums of a node come in a secret order. The split party knows its own labelled records' bins and gradients, hence
their part of the difference between two consecutive cuts of a column. Where two opened sums differ by that part and by
what few records of other parties add up to, they are these two cuts: the values have 32 fractional bits each, so that
few other pairs do so. What other parties' records add is read by its kinds.

1. Link: of each two consecutive cuts the pairs of opened sums that fit; one that fits two places, or two cuts, is no
   link.
2. Read: between each two linked cuts of a column, records of other parties that must have one of the bins between, and
   all that cannot.

Sums over few records of a node by their value: which kinds of records, up to three, add up to g and h.

A kind is a score that some record can have: with p of the second class, h = p(1 − p), and g = p − y for its unknown
label y. So a sum of kinds is known but for the number of records of the second class, by which g is less. Many records
share a score after few trees, and a sum then names kinds, not records. A sum counts as read where exactly one choice of
kinds gives it.

Claims of one owner of labels on the columns of the other parties of a PIVODL job.

1. The bins of the records that it labels were sent to it.
2. The sets that other parties' splits send left and right bound the bins of all records
   (`treetap.attacks.pivodl.bin_domains`).
3. As split party it has opened sums, if it recorded them (`treetap.attacks.pivodl.opened_sums`); what they tell narrows
   the sets' columns, scores and sums again.

An `Onlooker` holds no table of another party, and no label of a record that another party labels: claims are scored
elsewhere (`treetap.attacks.pivodl.evidence`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, pairwise

import numpy as np
import numpy.typing as npt

from treetap.arrays import Bools, Floats, Ints
from treetap.attacks.pivodl.bin_domains import BinDomains, KnownCuts, PossibleScores, possible_scores
from treetap.attacks.view.pivodl_view import PivodlView
from treetap.trees.job_params import BINARY
from treetap.trees.loss import UNIT
from treetap.trees.pivodl_rules import SharedLabelLoss
from treetap.trees.tree_bins import left_sums

Keys = npt.NDArray[np.uint64]
#: Most records of a sum → most kinds of which sums of so many are listed.
LISTED = {1: 1_000_000, 2: 700, 3: 90}
#: Odd factors of g and h, by which a pair becomes one number modulo 2^64: sums of keys are keys of sums.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xD1342543DE82EF95], dtype=np.uint64)
#: Bits of the table of keys' beginnings.
_BITS = 23
#: Stands for no sum, or several.
UNREAD = -1


def keys_of(sums: Ints) -> Keys:
    """A key of each pair g, h of sums (…, 2)."""
    return np.asarray((sums.astype(np.uint64) * _FACTORS).sum(axis=-1, dtype=np.uint64))


class SmallSums:
    """All sums over no record to three.

    Args:
        kinds: (K, 2) g and h of records of the first class, distinct.

    Attributes:
        choices: (sums, 3) the kinds of each sum, −1 beyond their number.
    """

    def __init__(self, kinds: Ints) -> None:
        own, none = keys_of(kinds), np.full((1, max(LISTED)), UNREAD, dtype=np.int64)
        keys, choices, largest = [np.zeros(1, dtype=np.uint64)], [none], 0
        for size, most in LISTED.items():
            if not len(kinds) or len(kinds) > most:
                break
            listed = _choices(len(kinds), size)
            of_first = own[listed].sum(axis=1, dtype=np.uint64)
            keys += [of_first - keys_of(np.array([second * UNIT, 0])) for second in range(size + 1)]
            padded = np.pad(listed, ((0, 0), (0, max(LISTED) - size)), constant_values=UNREAD)
            choices += [padded] * (size + 1)
            largest = size
        every, first, times = np.unique(np.concatenate(keys), return_index=True, return_counts=True)
        alone = times == 1
        self._keys, self.choices = every[alone], np.concatenate(choices)[first[alone]]
        # most keys are of no sum: the first bits of a key tell that of nearly all
        self._begun = np.zeros(1 << _BITS, dtype=bool)
        self._begun[(self._keys >> np.uint64(64 - _BITS)).astype(np.int64)] = True
        #: The largest h of a listed sum.
        self.largest = largest * int(kinds[:, 1].max(initial=0))

    def read(self, keys: Keys) -> Ints:
        """Of each key the place among `choices` of the one sum that has it; `UNREAD` of others."""
        places = np.full(len(keys), UNREAD, dtype=np.int64)
        likely = np.flatnonzero(self._begun[(keys >> np.uint64(64 - _BITS)).astype(np.int64)])
        near = np.minimum(np.searchsorted(self._keys, keys[likely]), len(self._keys) - 1)
        right = self._keys[near] == keys[likely]
        places[likely[right]] = near[right]
        return places


def _choices(kinds: int, size: int) -> Ints:
    """(n, size) choices of kinds, in ascending order within each, repetitions included."""
    if size == 1:
        return np.arange(kinds, dtype=np.int64)[:, np.newaxis]
    if size == 2:
        return np.stack(np.triu_indices(kinds), axis=1).astype(np.int64)
    return np.array(list(combinations_with_replacement(range(kinds), size)), dtype=np.int64)


#: Deals of bins to the own records by which fits by chance are counted, and the largest share of these.
DEALS, CHANCE = 3, 0.05


class NodeReader:
    """The attack on one node's opened sums of one source, by what the split party knows of its records.

    Attributes:
        links: candidate, by canonical number → the place of its sum.
    """

    def __init__(
        self,
        sums: Ints,
        own: tuple[Ints, Ints],
        others: Ints,
        possible: PossibleScores,
        threshold: int,
        domains: BinDomains,
        loss: SharedLabelLoss,
    ) -> None:
        """Prepare it.

        Args:
            sums: (M, 2) left sums of g and h in the secret order.
            own: of the n records of the node that the split party labels g and h (n, 2), and bins in the source's
                columns (n, d).
            others: the other records of the node; `possible`: the scores that they can have.
            threshold: fewest own records on either side of a candidate.
        """
        (self._values, self._codes), self._others, self._domains = own, others, domains
        scores = possible.scores[:, np.newaxis]
        self._record = possible.records
        of_first = loss.gradients(scores, np.zeros(len(scores), dtype=np.int64))
        kinds, kind = np.unique(of_first, axis=0, return_inverse=True)
        self._kind: Ints = kind.reshape(-1)
        self._small = SmallSums(kinds.reshape(-1, 2))
        self.sums = np.unique(sums, axis=0)  # equal sums are of the same records
        self._left, count = self._left_of(self._codes)
        permitted = (count >= threshold) & (len(self._codes) - count >= threshold)
        self._cuts = np.array(list(self._consecutive(permitted)), dtype=np.int64).reshape(-1, 2)
        self._between = count[self._cuts[:, 1]] - count[self._cuts[:, 0]]
        # without an own record between them any equal sums would fit
        self._cuts, self._between = self._cuts[self._between > 0], self._between[self._between > 0]
        self.links: dict[int, int] = {}

    def _left_of(self, codes: Ints) -> tuple[Ints, Ints]:
        """Own sums (candidates, 2) left of every candidate, and the number of own records."""
        values = np.concatenate([self._values, np.ones((len(codes), 1), dtype=np.int64)], axis=1)
        sums = left_sums(codes, self._domains.candidates, values, [np.arange(len(codes))])[0]
        return sums[:, :2], sums[:, 2]

    def link(self, generator: np.random.Generator) -> None:
        """Find which candidate each sum is of, where that is plain.

        Bins that are dealt to the own records anew show how many pairs of sums fit by chance. Cuts with so few own
        records between them that chance gives more than `CHANCE` of the fits are left out.
        """
        cut, below, above = self._fits(self._left)
        by_chance = np.zeros(len(self._codes) + 1)
        pairs = below * len(self.sums) + above
        for _ in range(DEALS):
            dealt, lower, upper = self._fits(self._left_of(generator.permutation(self._codes))[0])
            # records that lie alone in a bin fit their true cut in whichever bin they are dealt
            other = ~np.isin(lower * len(self.sums) + upper, pairs)
            by_chance += np.bincount(self._between[dealt[other]], minlength=len(by_chance)) / DEALS
        fits = np.bincount(self._between[cut], minlength=len(by_chance))
        # fits with at least so many own records between, in truth and by chance
        at_least, chance = (np.cumsum(counts[::-1])[::-1] for counts in (fits, by_chance))
        plain = np.flatnonzero((at_least > 0) & (chance <= CHANCE * at_least))
        if not len(plain):
            return
        kept = self._between[cut] >= plain[0]
        lower, upper = self._cuts[cut[kept]].T
        # Keep the links of candidates and places that all pairs agree on.
        both = np.unique(
            np.stack([np.concatenate([lower, upper]), np.concatenate([below[kept], above[kept]])], axis=1), axis=0
        )
        once = [np.bincount(both[:, side])[both[:, side]] == 1 for side in (0, 1)]
        mutual = both[once[0] & once[1]]
        self.links = {int(number): int(where) for number, where in mutual.tolist()}

    @cached_property
    def _pairs(self) -> tuple[Ints, Ints, Ints, Keys]:
        """Places of two sums each, the second with the larger h; h and key of their difference; by this h."""
        below, above = np.nonzero(self.sums[:, 1][:, np.newaxis] < self.sums[:, 1])
        between = self.sums[above] - self.sums[below]
        order = np.argsort(between[:, 1], kind="stable")
        return below[order], above[order], between[order, 1], keys_of(between[order])

    def _fits(self, left: Ints) -> tuple[Ints, Ints, Ints]:
        """Cuts, by number, and the places of two sums each that differ as own sums left of candidates say, and little.

        Of several that fit a cut with one place in common, the nearest.
        """
        below, above, between, keys = self._pairs
        own = left[self._cuts[:, 1]] - left[self._cuts[:, 0]]
        first = np.searchsorted(between, own[:, 1], "left")
        many = np.searchsorted(between, own[:, 1] + self._small.largest, "right") - first
        cut = np.repeat(np.arange(len(own)), many)
        place = np.arange(len(cut)) - np.repeat(np.cumsum(many) - many, many) + first[cut]
        fits = self._small.read(keys[place] - np.repeat(keys_of(own), many)) != UNREAD
        cut, place = cut[fits], place[fits]
        for side in (below, above):
            # pairs come by their h, so that the first one is the nearest
            nearest = np.unique(np.stack([cut, side[place]], axis=1), axis=0, return_index=True)[1]
            cut, place = cut[np.sort(nearest)], place[np.sort(nearest)]
        return cut, below[place], above[place]

    def _consecutive(self, permitted: Bools) -> Iterator[tuple[int, int]]:
        """Pairs of consecutive candidates of a column that the own threshold permits."""
        candidates = self._domains.candidates
        for column in range(len(candidates.shapes)):
            numbers = np.arange(candidates.first[column], candidates.first[column + 1])
            for missing in (False, True):
                of_kind = numbers[(candidates.missing_left[numbers] == missing) & permitted[numbers]]
                yield from pairwise(of_kind.tolist())

    def read(self) -> int:
        """Narrow the cells between linked cuts; returns the number of cells that were narrowed."""
        candidates, narrowed = self._domains.candidates, 0
        for column in range(len(candidates.shapes)):
            for missing in (False, True):
                linked = [
                    number
                    for number in sorted(self.links)
                    if candidates.feature[number] == column and candidates.missing_left[number] == missing
                ]
                for lower, upper in pairwise(linked):
                    narrowed += self._read(column, lower, upper)
        return narrowed

    def _read(self, column: int, lower: int, upper: int) -> int:
        others, domains = self._others, self._domains
        own = self._left[upper] - self._left[lower]
        sums = self.sums[self.links[upper]] - self.sums[self.links[lower]] - own
        read = int(self._small.read(keys_of(sums[np.newaxis]))[0])
        if read == UNREAD:
            return 0
        bins = domains.side(upper) & ~domains.side(lower)
        chosen = self._small.choices[read]
        kinds, times = np.unique(chosen[chosen != UNREAD], return_counts=True)
        can_be = np.zeros(len(domains.possible[column]), dtype=bool)
        can_be[others[domains.can_be(column, others, bins)]] = True
        pools = [np.unique(self._record[(self._kind == kind) & can_be[self._record]]) for kind in kinds]
        if any(len(pool) < many for pool, many in zip(pools, times, strict=True)):
            return 0  # not these records: the link is wrong
        possible = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *pools]))
        certain = [pool for pool, many in zip(pools, times, strict=True) if len(pool) == many]
        narrowed = domains.narrow(column, np.setdiff1d(others, possible, assume_unique=True), ~bins)
        return narrowed + sum(domains.narrow(column, pool, bins) for pool in certain)


#: Most passes over all opened sums.
_PASSES = 3


@dataclass(frozen=True, eq=False)
class Onlooker:
    """The attacker: a party's view of N records, and its labels (m,), as numbers of classes, of those that are its own.

    `labels` None: it has none at hand, or the job is no classification, and opened sums are not attacked.
    """

    view: PivodlView
    records: int
    labels: Ints | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise ValueError for bins or labels of records that the party does not label: it was sent none of these."""
        own = len(self.view.own)
        if wrong := [source for source, bins in self.view.columns.items() if len(bins.codes) != own]:
            raise ValueError(f"the bins of {wrong[0]} are of other records than those that the attacker labels")
        if self.view.party in self.view.columns or (self.labels is not None and len(self.labels) != own):
            raise ValueError("the attacker is to have labels of its own records alone, and bins of other parties")

    @property
    def reads_sums(self) -> bool:
        """True if it can tell what its own records add to a sum, and which g and h others can have."""
        return self.labels is not None and self.view.params.objective in BINARY


@dataclass(frozen=True, eq=False)
class SourceClaims:
    """Claims of an attacker on one source's columns.

    Attributes:
        placed: (N, d) bins, its own records' included; `UNPLACED` where it claims none.
        by_left_sets: those that follow without opened sums.
        expected: (N, d) the mean of the bins that each cell can have.
        possible: of each column (N, bins) those that each cell can have.
        linked: candidates of opened sums that it has named, of `opened` in all.
        contradictions: cells of which two claims left no bin.
    """

    placed: Ints = field(repr=False)
    by_left_sets: Ints = field(repr=False)
    expected: Floats = field(repr=False)
    possible: list[Bools] = field(repr=False)
    opened: int
    linked: int
    contradictions: int


def claims(attacker: Onlooker) -> dict[str, SourceClaims]:
    """Its claims by source, of all sources that sent it bins."""
    view = attacker.view
    domains = {source: BinDomains(attacker.records, view.own, bins) for source, bins in view.columns.items()}
    cuts = KnownCuts(view, domains)
    cuts.learn()
    by_left_sets = {source: it.placed() for source, it in domains.items()}
    linked, generator = dict.fromkeys(domains, 0), np.random.default_rng(0)
    for _ in range(_PASSES if attacker.reads_sums else 0):
        narrowed = 0
        linked = dict.fromkeys(domains, 0)
        for source, reader in _readers(attacker, cuts, domains):
            reader.link(generator)
            linked[source] += len(reader.links)
            narrowed += reader.read()
        if not narrowed + cuts.learn():
            break
    return {
        source: SourceClaims(
            placed=it.placed(),
            by_left_sets=by_left_sets[source],
            expected=it.expected(view.own),
            possible=it.possible,
            opened=sum(len(sums) for tree in view.trees for (_, of), sums in tree.opened.items() if of == source),
            linked=linked[source],
            contradictions=it.contradictions,
        )
        for source, it in domains.items()
    }


def _readers(attacker: Onlooker, cuts: KnownCuts, domains: dict[str, BinDomains]) -> Iterator[tuple[str, NodeReader]]:
    """The attack on each opened node, by its source."""
    view, loss = attacker.view, SharedLabelLoss(attacker.view.params)
    assert attacker.labels is not None
    labels = np.full(attacker.records, -1, dtype=np.int64)
    labels[view.own] = attacker.labels
    scores = possible_scores(view, attacker.records, loss, cuts, domains)
    for tree, before in zip(view.trees, scores, strict=True):
        for (node, source), sums in tree.opened.items():
            rows = tree.records(node)
            if rows is None or source not in domains or not len(sums):
                continue
            own = rows[labels[rows] >= 0]
            mine = before.of(own, attacker.records)
            if not np.array_equal(mine.records, own):  # it lacks a weight that it keeps itself
                continue
            others = rows[labels[rows] < 0]
            codes = view.columns[source].codes[np.searchsorted(view.own, own)]
            known = loss.gradients(mine.scores[:, np.newaxis], labels[own]), codes
            possible = before.of(others, attacker.records)
            threshold = view.params.instance_threshold
            yield source, NodeReader(sums, known, others, possible, threshold, domains[source], loss)
