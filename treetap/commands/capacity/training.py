"""A training by boosting as far as its costs depend on it: columns, trees, key, and what each level splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

import numpy as np

from treetap.additive.sums.counted_products import CountedProducts
from treetap.additive.sums.joint_cells import Codes
from treetap.additive.sums.layout_counts import candidate_products
from treetap.additive.sums.slots import Slots
from treetap.protocols.key_options import KeyKind
from treetap.trees.shapes import Shape


@dataclass(frozen=True)
class Level:
    """Events at one level of a tree; a party is a number, 0 is the label holder."""

    built: tuple[int, ...]  # drawn records of each node whose sums the feature parties make
    parents: tuple[int, ...]  # for each node that may be split, the party that made it; empty at the root
    owners: tuple[int, ...]  # the party that wins each node that splits


@dataclass(frozen=True)
class PartyColumns:
    """The columns of one party.

    `codes`: (n, d) bins of the first records, from which joint cells follow; None: columns that are independent and
    have equally full bins.
    """

    shapes: tuple[Shape, ...]
    codes: Codes | None = None

    @property
    def candidates(self) -> int:
        """Split candidates of a node."""
        return sum(shape.sums for shape in self.shapes)

    @property
    def row_bytes(self) -> int:
        """Bytes of a record's bins, all in the narrowest type that holds the largest."""
        largest = max((shape.n_bins for shape in self.shapes), default=0)
        return len(self.shapes) * np.min_scalar_type(largest).itemsize

    @property
    def bins(self) -> int:
        """Bins of all columns."""
        return sum(shape.n_bins + shape.has_missing for shape in self.shapes)


@dataclass(frozen=True)
class Training:
    """A boosting job on aligned records."""

    records: int
    drawn: int  # by a tree
    own: PartyColumns  # the label holder's
    others: Mapping[str, PartyColumns]  # of each feature party
    levels: tuple[Level, ...]  # of a tree, from the root
    trees: int
    key: KeyKind
    obfuscation: str
    slots: Slots  # of a record's plaintext

    @cached_property
    def candidates_per_ciphertext(self) -> int:
        """Candidates that one packed ciphertext holds."""
        return self.slots.groups_per_plaintext(self.key.plain_bits)

    def packings(self, columns: PartyColumns, level: Level) -> int:
        """Packed ciphertexts of a feature party at a level; each has an obfuscator and is decrypted."""
        return -(-len(level.built) * columns.candidates // self.candidates_per_ciphertext)

    def operations(self, counts: Mapping[str, PartyCounts]) -> dict[str, dict[str, int]]:
        """Operations of all trees by party and by the names of its account."""
        packings = {name: sum(each.packings for each in party.levels) for name, party in counts.items()}
        own = {"decryptions": self.trees * sum(packings.values()), "encryptions": self.trees * self.drawn}
        totals = {"label holder": own}
        for name, party in counts.items():
            additions, packed = self.trees * sum(each.additions for each in party.levels), self.trees * packings[name]
            totals[name] = {"additions": additions, "obfuscators": packed, "packings": packed}
        return totals


def full_levels(drawn: int, depth: int, columns: Sequence[int], smaller_share: float) -> tuple[Level, ...]:
    """Levels of a tree of `drawn` records in which every node above the depth splits.

    `columns`: of each party, the label holder first; a party wins splits in proportion. `smaller_share`: part of a
    node's records that its smaller child has, the one that is summed.
    """
    places = [((k + 0.5) / count, party) for party, count in enumerate(columns) for k in range(count)]
    owners = cycle([party for _, party in sorted(places)])  # each as often as it has columns, evenly spread
    levels: list[Level] = []
    built, sizes, parents = [drawn], [drawn], tuple[int, ...]()
    for level in range(depth):
        won = tuple(islice(owners, 2**level))
        levels.append(Level(tuple(built), parents, won))
        built = [int(size * smaller_share) for size in sizes]
        sizes = [part for size, small in zip(sizes, built, strict=True) for part in (small, size - small)]
        parents = tuple(owner for owner in won for _ in range(2))
    return tuple(levels)


@dataclass(frozen=True)
class LevelCounts:
    """Operations of one feature party at one level."""

    additions: int  # products by layout, as the party's account counts them
    products: int  # those that each worker computes for its bins
    merging: int  # those for merged bins and candidates, of all workers
    packings: int


class PartyCounts:
    """Operations of one feature party with so many workers on a tree; `groups`: of columns that share joint cells."""

    def __init__(self, training: Training, columns: PartyColumns, workers: int) -> None:
        self.training, self.columns, self.workers = training, columns, workers
        self._counted = CountedProducts(columns.shapes, columns.codes, training.drawn // workers)
        self.groups = len(self._counted.root_groups)
        self.levels = [self._level(number, level) for number, level in enumerate(training.levels)]

    def _level(self, number: int, level: Level) -> LevelCounts:
        training, shapes = self.training, self.columns.shapes
        additions = candidate_products(training.drawn, shapes, len(level.built), self.workers)
        per_worker = [-(-records // self.workers) for records in level.built]
        products = sum(map(self._counted.below, per_worker)) if number else self._counted.at_root(per_worker[0])
        merging = additions - training.drawn * len(shapes)
        return LevelCounts(additions, products, merging, training.packings(self.columns, level))
