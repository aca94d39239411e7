"""Cells that follow from sums exactly: differences of few records, empty and full bins, left sets of won splits.

Results of finished steps are kept in a folder: an audit that was interrupted goes on from them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Array, Bools, Ints
from treetap.attacks.sums.sketches import PartySums

#: Records of a difference that is decoded, at most.
FEW = 3
#: Number of records of a difference → most records that may be in it.
LISTED = {1: 10**9, 2: 30_000, 3: 150}
#: More sets than these that have a sum tell too little of one record.
MOST_SETS = 200
#: Times that all sums are gone through, at most; it ends with the first one that tells nothing new.
PASSES = 6
#: Whole numbers up to this one are exact as numbers with a point of 32 bits.
_WHOLE = 2**24

Keys = npt.NDArray[np.uint64]


@dataclass
class Knowledge:
    """The cells in which records may be.

    Attributes:
        parts: by chain (N, cells) the cells that are possible.
        known: (N, chains) the cell of its chain that a record is in, −1: not known; column by column in memory.
        contradictions: sums that no set of records had, which shows wrong links.
        time: readings of one chain in one node so far.
        changed: (chains, N) the time of the reading that last told anything of a record.
    """

    parts: list[Bools] = field(repr=False)
    known: Ints = field(repr=False)
    contradictions: int = 0
    time: int = 0
    changed: Ints = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.changed = np.zeros(self.known.shape[::-1], dtype=np.int64)

    @classmethod
    def nothing(cls, records: int, chains: Sequence[Ints]) -> Knowledge:
        """The knowledge before any sum."""
        parts = [np.ones((records, len(chain) + 1), dtype=bool) for chain in chains]
        return cls(parts, np.full((records, len(chains)), -1, dtype=np.int64, order="F"))

    @classmethod
    def of(cls, first: Ints, possible: Bools, contradictions: int) -> Knowledge:
        """The knowledge that possible cells (N, cells) of all chains are, each of which begins at `first`."""
        parts = [part.copy() for part in np.split(possible, first[1:-1], axis=1)]
        known = np.full((len(possible), len(parts)), -1, dtype=np.int64, order="F")
        for chain, part in enumerate(parts):
            one = part.sum(axis=1) == 1
            known[one, chain] = part[one].argmax(axis=1)
        return cls(parts, known, contradictions)

    @property
    def first(self) -> Ints:
        """(chains + 1,) the number of each chain's first cell."""
        return np.cumsum([0, *(part.shape[1] for part in self.parts)], dtype=np.int64)

    @property
    def possible(self) -> Bools:
        """(N, cells) of all chains."""
        return np.concatenate([np.zeros((len(self.known), 0), dtype=bool), *self.parts], axis=1)

    def keep(self, rows: Ints, chain: int, mask: Bools) -> None:
        """Keep of the cells of a chain those of `mask` (rows, cells), but none where that would leave no cell."""
        left = self.parts[chain][rows] & mask
        count = left.sum(axis=1)
        whole = count > 0
        self.contradictions += int((~whole).sum())
        self.parts[chain][rows[whole]] = left[whole]
        self.changed[chain, rows[whole]] = self.time
        one = count == 1
        self.known[rows[one], chain] = left[one].argmax(axis=1)


@dataclass(frozen=True, eq=False)
class Linked:
    """The sums of a party's trees, with their candidates linked: the input of both ways of reading.

    Attributes:
        chains: of candidates under common numbers, each from the smallest left set.
    """

    trees: Sequence[PartySums] = field(repr=False)
    places: Ints = field(repr=False)
    chains: Sequence[Ints] = field(repr=False)

    @property
    def records(self) -> int:
        """N."""
        return len(self.trees[0].values)

    @property
    def digest(self) -> str:
        """A digest of the links."""
        links = [self.places, *self.chains]
        return hashlib.sha256(b"".join(part.tobytes() + b"|" for part in links)).hexdigest()[:16]

    def borders(self, number: int, chain: int) -> tuple[Ints, Ints]:
        """The candidates of a chain that tree `number` in their order offers: positions in the chain, places."""
        places = self.places[number, self.chains[chain]]
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
        for k, place in enumerate(linked.places[number]):
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
            right = np.setdiff1d(tree.spaces[split.node], split.left, assume_unique=True)
            below, above = (right, split.left) if mirrored[0] else (split.left, right)
            knowledge.keep(below, chain, np.broadcast_to(cells <= high, (len(below), len(cells))))
            knowledge.keep(above, chain, np.broadcast_to(cells > low, (len(above), len(cells))))


@dataclass(frozen=True, eq=False)
class _Tree:
    """The sums of a tree as counts and keys, in which all that follows from them is told.

    Attributes:
        keys: (N,) of the records' values.
        counts, sums: (nodes, candidates + 1) counted records and keys of sums on the left; those of all records behind.
        once: no record was drawn twice.
        point: numbers with a point that hold each count.
        read: (node, chain) → the time when it was read last, and the contradictions that it showed.
    """

    party: PartySums = field(repr=False)
    keys: Keys = field(repr=False)
    counts: Ints = field(repr=False)
    sums: Keys = field(repr=False)
    once: bool
    point: type[np.floating[Any]]
    read: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, party: PartySums) -> _Tree:
        """The tree of these sums."""
        ends = np.concatenate([party.lefts, party.totals[:, None]], axis=1)
        counts, once = ends[..., party.counting].sum(axis=-1), int(party.draws.max(initial=0)) <= 1
        point = np.float32 if int(party.draws.sum()) < _WHOLE else np.float64
        return cls(party, keys_of(party.values), counts, keys_of(ends), once, point)


def differences(linked: Linked, knowledge: Knowledge, say: Callable[[str], None], passes: int = PASSES) -> None:
    """Use all sums over and over, until they tell nothing new, `passes` times at most."""
    trees = [_Tree.of(tree) for tree in linked.trees]
    for number in range(passes):
        before = sum(map(np.count_nonzero, knowledge.parts))
        for at, tree in enumerate(trees):
            for chain in range(len(linked.chains)):
                if (knowledge.known[:, chain] < 0).any():
                    _read(tree, *linked.borders(at, chain), chain, knowledge)
            if at % 10 == 9:
                say(f"differences, pass {number + 1}: {at + 1} of {len(trees)} trees")
        if sum(map(np.count_nonzero, knowledge.parts)) == before:
            return


def _read(tree: _Tree, positions: Ints, places: Ints, chain: int, knowledge: Knowledge) -> None:
    """Read one chain from the sums of one tree, which offers its candidates `positions` at `places`."""
    if not len(places):
        return
    delimited = np.concatenate([[0], positions + 1])  # first cells of what two neighbouring candidates delimit
    ends = np.append(places, -1)
    counts, sums = tree.counts[:, ends], tree.sums[:, ends]
    counts[:, 1:] -= counts[:, :-1].copy()
    sums[:, 1:] -= sums[:, :-1].copy()
    for node, rows in enumerate(tree.party.drawn):
        last, shown = tree.read.get((node, chain), (0, 0))
        if last and knowledge.changed[chain].take(rows).max(initial=0) < last:  # it would tell the same again
            knowledge.contradictions += shown
            continue
        knowledge.time += 1
        before = knowledge.contradictions
        groups = node_groups(counts[node]) if tree.party.least else np.arange(len(delimited))
        rest = np.add.reduceat(counts[node], groups), np.add.reduceat(sums[node], groups)
        _read_node(tree, rows, chain, delimited[groups], *rest, knowledge)
        tree.read[node, chain] = knowledge.time, knowledge.contradictions - before


def _read_node(
    tree: _Tree, rows: Ints, chain: int, starts: Ints, counts: Ints, sums: Keys, knowledge: Knowledge
) -> None:
    """Read one chain from the counts and keys of groups of its cells, which begin at `starts`, in one node."""
    cell = knowledge.known[:, chain].take(rows)
    placed = np.flatnonzero(cell >= 0)
    if len(placed) == len(rows):
        return
    cells = knowledge.parts[chain]
    group_of = np.searchsorted(starts, np.arange(cells.shape[1]), side="right") - 1
    single = len(starts) == len(group_of)  # each group is one cell
    within, there = group_of.take(cell.take(placed)), rows.take(placed)
    draws = tree.party.draws
    counts = counts - np.bincount(within, draws.take(there), len(counts)).astype(np.int64)
    others = rows[cell < 0]
    possible = cells.take(others, axis=0)
    if not single:
        possible = np.logical_or.reduceat(possible, starts, axis=1)
    # whole numbers, of which the product of numbers with a point is many times faster
    could = draws.take(others).astype(tree.point) @ possible.astype(tree.point)
    if (counts < 0).any() or (counts > could).any():
        knowledge.contradictions += 1
        return
    some = counts > 0
    full = some & (counts == could)
    few = np.flatnonzero(some & (counts <= FEW) & ~full)
    if some.all() and not full.any() and not len(few):
        return
    kept = possible & some
    if len(few):
        np.subtract.at(sums, within, tree.keys.take(there))
        keys = tree.keys.take(others)
        for group in few:
            may = np.flatnonzero(possible[:, group])
            inside = _inside(keys.take(may), sums[group], int(counts[group]), once=tree.once)
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
    changed = kept != possible
    if changed.any():
        told = np.flatnonzero(np.bincount(np.flatnonzero(changed) // changed.shape[1]))
        knowledge.keep(others[told], chain, kept[told] if single else kept[told][:, group_of])


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
        times += np.bincount(np.concatenate(sets), minlength=len(keys))
        total += len(sets[0])
    if not total:
        return None, times == 0
    return times == total, times == 0


def _sets(keys: Keys, key: np.uint64, size: int) -> tuple[Ints, ...] | None:
    """The first, second, … records (n,) of sets whose keys sum to a key; None if they are too many to be listed."""
    count = len(keys)
    if count > LISTED[size]:
        return None
    if size == 1:
        return (np.flatnonzero(keys == key),)
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if size == 2:
        first: tuple[Ints, ...] = (np.arange(count),)
        wanted = key - keys
    else:
        first = _pairs(count)
        wanted = key - keys[first[0]] - keys[first[1]]
    low = np.searchsorted(ordered, wanted)
    some = np.flatnonzero(ordered.take(low, mode="clip") == wanted)  # few of all, which are looked at further
    many = np.searchsorted(ordered, wanted[some], side="right") - low[some]
    if int(many.sum()) > MOST_SETS * size:
        return None
    at = np.repeat(some, many)
    last = order[np.arange(len(at)) - np.repeat(np.cumsum(many) - many, many) + low[at]]
    ascending = last > first[-1][at]
    return *(part[at[ascending]] for part in first), last[ascending]


@lru_cache(maxsize=LISTED[3])
def _pairs(count: int) -> tuple[Ints, Ints]:
    """All pairs of `count` records."""
    first, second = np.triu_indices(count, 1)
    return first, second


def keys_of(values: Ints, part: int = 0) -> Keys:
    """A key of each row of values (…, S) modulo 2^64: sums of keys are keys of sums.

    `part`: of longer rows, of which the values are the part with this number.
    """
    size = values.shape[-1]
    return np.asarray((values.astype(np.uint64) * _factors((part + 1) * size)[-size:]).sum(axis=-1, dtype=np.uint64))


@lru_cache(maxsize=512)
def _factors(count: int) -> Keys:
    """The same odd numbers (count,) every time."""
    return np.random.default_rng(0).integers(0, 2**64, count, dtype=np.uint64) | np.uint64(1)


# Results of finished steps of an attack, kept in a folder: an audit that was interrupted goes on from them.


@dataclass(frozen=True)
class Kept:
    """A folder, None: nothing is kept; `digest`: of all that the steps depend on, by which files are named."""

    folder: Path | None = None
    digest: str = ""

    @classmethod
    def of(cls, folder: Path, *parts: object) -> Kept:
        """Files of an attack on what the parts say."""
        return cls(folder, hashlib.sha256(repr(parts).encode()).hexdigest()[:24])

    def array(self, step: str, make: Callable[[], Array]) -> Array:
        """The array of a step, made unless a run before has kept it."""
        return self._of(step, lambda: {"array": make()})["array"]

    def knowledge(self, step: str, chains: Sequence[Ints], make: Callable[[], Knowledge]) -> Knowledge:
        """The knowledge after a step, made unless a run before has kept it."""

        def made() -> dict[str, Array]:
            new = make()
            return {"possible": np.packbits(new.possible, axis=1), "contradictions": np.array(new.contradictions)}

        arrays = self._of(step, made)
        nothing = Knowledge.nothing(len(arrays["possible"]), chains)
        bits = np.unpackbits(arrays["possible"], axis=1, count=nothing.possible.shape[1]).astype(bool)
        return Knowledge.of(nothing.first, bits, int(arrays["contradictions"]))

    def clear(self) -> None:
        """Delete the files, and the folder with the last of them: the attack is finished."""
        if self.folder is not None:
            for path in self.folder.glob(f"{self.digest}-*.npz"):
                path.unlink(missing_ok=True)
            with suppress(OSError):
                self.folder.rmdir()

    def _of(self, step: str, make: Callable[[], dict[str, Array]]) -> dict[str, Array]:
        if self.folder is None:
            return make()
        path = self.folder / f"{self.digest}-{step}.npz"
        if path.is_file():
            with np.load(path, allow_pickle=False) as kept:
                return {name: kept[name] for name in kept.files}
        arrays = make()
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type] # numpy's stub takes no mapping of arrays
        os.replace(part, path)  # a file under its name is whole
        return arrays
