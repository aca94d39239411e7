"""Cells that follow from sums exactly: differences of few records, empty and full bins, left sets of won splits.

A chain of candidates divides the records into cells: those left of the first candidate, those between it and the next
one, …, those right of the last. Of each record the label holder keeps the cells that are possible. In a node the sum
over a cell is a difference of two sums; less the records that are known to be in it, it is a sum over few others. Of
records that may be in the cell those are told apart whose sets have this sum: in all of these sets, a record is in the
cell; in none, it is not. So no step guesses, as long as the candidates are linked rightly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from attacks.sums.linking import Identities
from attacks.sums.sketches import Bools, Ints, PartySums

#: Records of a difference that is decoded, at most.
FEW = 3
#: Number of records of a difference → most records that may be in it.
LISTED = {1: 10**9, 2: 30_000, 3: 150}
#: More sets than these that have a sum tell too little of one record.
MOST_SETS = 200
#: Times that all sums are gone through, at most; it ends with the first one that tells nothing new.
PASSES = 6

Keys = npt.NDArray[np.uint64]


@dataclass
class Knowledge:
    """The cells in which records may be.

    Attributes:
        first: (chains + 1,) the number of each chain's first cell.
        possible: (N, cells) of all chains.
        known: (N, chains) the cell of its chain that a record is in, −1: not known.
        contradictions: sums that no set of records had, which shows wrong links.
    """

    first: Ints
    possible: Bools = field(repr=False)
    known: Ints = field(repr=False)
    contradictions: int = 0

    @classmethod
    def nothing(cls, records: int, chains: Sequence[Ints]) -> Knowledge:
        """The knowledge before any sum."""
        sizes = [len(chain) + 1 for chain in chains]
        first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        possible = np.ones((records, int(first[-1])), dtype=bool)
        return cls(first, possible, np.full((records, len(sizes)), -1, dtype=np.int64))

    @classmethod
    def of(cls, first: Ints, possible: Bools, contradictions: int) -> Knowledge:
        """The knowledge that possible cells are."""
        known = np.full((len(possible), len(first) - 1), -1, dtype=np.int64)
        for chain in range(len(first) - 1):
            part = possible[:, first[chain] : first[chain + 1]]
            one = part.sum(axis=1) == 1
            known[one, chain] = part[one].argmax(axis=1)
        return cls(first, possible, known, contradictions)

    def keep(self, rows: Ints, chain: int, mask: Bools) -> None:
        """Keep of the cells of a chain those of `mask` (rows, cells), but none where that would leave no cell."""
        cells = slice(self.first[chain], self.first[chain + 1])
        left = self.possible[rows, cells] & mask
        count = left.sum(axis=1)
        whole = count > 0
        self.contradictions += int((~whole).sum())
        self.possible[rows[whole], cells] = left[whole]
        one = count == 1
        self.known[rows[one], chain] = left[one].argmax(axis=1)


@dataclass(frozen=True, eq=False)
class Linked:
    """The sums of a party's trees, with their candidates linked: the input of both ways of reading.

    Attributes:
        chains: of candidates under common numbers, each from the smallest left set.
    """

    trees: Sequence[PartySums] = field(repr=False)
    identities: Identities = field(repr=False)
    chains: Sequence[Ints] = field(repr=False)

    @property
    def records(self) -> int:
        """N."""
        return len(self.trees[0].values)

    @property
    def digest(self) -> str:
        """A digest of the links."""
        links = [self.identities.places, *self.chains]
        return hashlib.sha256(b"".join(part.tobytes() + b"|" for part in links)).hexdigest()[:16]

    def borders(self, number: int, chain: int) -> tuple[Ints, Ints]:
        """The candidates of a chain that tree `number` in their order offers: positions in the chain, places."""
        places = self.identities.places[number, self.chains[chain]]
        there = np.flatnonzero(places >= 0)
        return there, places[there]


def left_sets(linked: Linked, knowledge: Knowledge) -> None:
    """Use the exact left set of every split that the party won, with the place of the candidate that won."""
    where = {int(k): (c, p) for c, chain in enumerate(linked.chains) for p, k in enumerate(chain)}
    for number, tree in enumerate(linked.trees):
        if tree.by_category:
            continue  # a partition of categories may have tied with the places that won, and was taken
        equal = tree.equal_places
        common: dict[int, list[int]] = {}
        for k, place in enumerate(linked.identities.places[number]):
            if place >= 0:
                common.setdefault(int(equal[place]), []).append(k)
        for split in tree.won:
            mirrored = [place >= tree.candidates for place in split.places]
            tied = [common.get(int(equal[place % tree.candidates]), []) for place in split.places]
            at = [where[k] for of_place in tied for k in of_place]
            if not all(tied) or len({chain for chain, _ in at}) != 1 or len(set(mirrored)) != 1:
                continue  # tied candidates of two columns: which of them was taken is not known
            chain = at[0][0]
            low, high = min(position for _, position in at), max(position for _, position in at)
            cells = np.arange(len(linked.chains[chain]) + 1)
            left, space = split.left, tree.spaces[split.node]
            if split.everywhere is not None:
                left, space = split.everywhere, np.arange(linked.records)
            right = np.setdiff1d(space, left, assume_unique=True)
            below, above = (right, left) if mirrored[0] else (left, right)
            knowledge.keep(below, chain, np.broadcast_to(cells <= high, (len(below), len(cells))))
            knowledge.keep(above, chain, np.broadcast_to(cells > low, (len(above), len(cells))))


def differences(linked: Linked, knowledge: Knowledge, say: Callable[[str], None], passes: int = PASSES) -> None:
    """Use all sums over and over, until they tell nothing new, `passes` times at most."""
    keys = [keys_of(tree.values) for tree in linked.trees]
    for number in range(passes):
        before = int(knowledge.possible.sum())
        for at in range(len(linked.trees)):
            for chain in range(len(linked.chains)):
                if (knowledge.known[:, chain] < 0).any():
                    _read(linked, at, chain, keys[at], knowledge)
            if at % 10 == 9:
                say(f"differences, pass {number + 1}: {at + 1} of {len(linked.trees)} trees")
        if int(knowledge.possible.sum()) == before:
            return


def _read(linked: Linked, number: int, chain: int, keys: Keys, knowledge: Knowledge) -> None:
    """Read one chain from the sums of one tree."""
    tree, (positions, places) = linked.trees[number], linked.borders(number, chain)
    if not len(places):
        return
    of_chain = slice(int(knowledge.first[chain]), int(knowledge.first[chain + 1]))
    delimited = np.concatenate([[0], positions + 1])  # first cells of what two neighbouring candidates delimit
    lefts = tree.lefts[:, places]
    ends = np.concatenate([lefts, tree.totals[:, None]], axis=1)
    sums = np.diff(ends, axis=1, prepend=0)
    once = int(tree.draws.max(initial=0)) <= 1
    for node, rows in enumerate(tree.drawn):
        known = knowledge.known[rows, chain]
        here = known >= 0
        if here.all():
            continue
        groups = node_groups(sums[node][:, tree.counting].sum(axis=1)) if tree.least else np.arange(len(delimited))
        starts = delimited[groups]
        group_of = np.searchsorted(starts, np.arange(of_chain.stop - of_chain.start), side="right") - 1
        single = len(starts) == len(group_of)  # each group is one cell
        rest = np.add.reduceat(sums[node], groups, axis=0)
        np.subtract.at(rest, group_of[known[here]], tree.values[rows[here]])
        others = rows[~here]
        cells = knowledge.possible[others, of_chain]
        possible = cells if single else np.logical_or.reduceat(cells, starts, axis=1)
        times = possible if once else possible * tree.draws[others, None]
        counts, could = rest[:, tree.counting].sum(axis=1), times.sum(axis=0)
        if (counts < 0).any() or (counts > could).any():
            knowledge.contradictions += 1
            continue
        kept = possible & (counts > 0)
        full = (counts == could) & (counts > 0)
        wanted = keys_of(rest)
        for group in np.flatnonzero((counts >= 1) & (counts <= FEW) & ~full):
            may = np.flatnonzero(possible[:, group])
            inside = _inside(keys[others[may]], wanted[group], int(counts[group]), once=once)
            if inside is None:
                continue
            sure, never = inside
            if sure is None:
                knowledge.contradictions += 1
                continue
            kept[may[never], group] = False
            kept[may[sure]] = False
            kept[may[sure], group] = True
        for group in np.flatnonzero(full):
            may = np.flatnonzero(possible[:, group])
            kept[may] = False
            kept[may, group] = True
        if (kept != possible).any():
            knowledge.keep(others, chain, kept if single else kept[:, group_of])


def node_groups(counts: Ints) -> Ints:
    """The first cell of each group of cells with `counts` records in a node whose bins are merged.

    A cell without records may be one that was merged with cells behind it, or, at the end, before it.
    """
    holds = np.flatnonzero(counts != 0)
    return np.concatenate([[0], holds[:-1] + 1])


def _inside(keys: Keys, key: np.uint64, count: int, *, once: bool) -> tuple[Bools | None, Bools] | None:
    """Of records, those in all sets of `count` draws with this key, and those in none; None: too many to list.

    `once`: each record was drawn once. Without any such set the first is None.
    """
    times, total = np.zeros(len(keys), dtype=np.int64), 0
    for size in [count] if once else range(1, count + 1):
        sets = _sets(keys, key, size)
        if sets is None:
            return None
        np.add.at(times, sets.ravel(), 1)
        total += len(sets)
    if not total:
        return None, times == 0
    return times == total, times == 0


def _sets(keys: Keys, key: np.uint64, size: int) -> Ints | None:
    """The sets (n, size) of records whose keys sum to a key; None if they are too many to be listed."""
    count = len(keys)
    if count > LISTED[size]:
        return None
    if size == 1:
        return np.flatnonzero(keys == key)[:, None]
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if size == 2:
        first: tuple[Ints, ...] = (np.arange(count),)
    else:
        first = np.triu_indices(count, 1)
    wanted = key - sum((keys[part] for part in first), start=np.zeros(len(first[0]), dtype=np.uint64))
    low = np.searchsorted(ordered, wanted, side="left")
    high = np.searchsorted(ordered, wanted, side="right")
    many = high - low
    if int(many.sum()) > MOST_SETS * size:
        return None
    at = np.repeat(np.arange(len(many)), many)
    last = order[np.arange(len(at)) - np.repeat(np.cumsum(many) - many, many) + low[at]]
    ascending = last > first[-1][at]
    sets: Ints = np.stack([*(part[at][ascending] for part in first), last[ascending]], axis=1).astype(np.int64)
    return sets


def keys_of(values: Ints) -> Keys:
    """A key of each row of values (…, S) modulo 2^64: sums of keys are keys of sums."""
    keys: Keys = (values.astype(np.uint64) * _factors(values.shape[-1])).sum(axis=-1, dtype=np.uint64)
    return keys


@lru_cache(maxsize=8)
def _factors(count: int) -> Keys:
    """The same odd numbers (count,) every time."""
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64) | np.uint64(1)
