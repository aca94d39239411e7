"""A training by boosting as far as its costs depend on it: columns, trees, key, and what each level splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import cycle, islice

import numpy as np

from treetap.additive.sums.counted_products import CountedProducts
from treetap.additive.sums.joint_cells import Codes
from treetap.additive.sums.slots import Slots
from treetap.protocols.key_options import KeyKind
from treetap.trees.shapes import Shape

#: A child that is built has at most half of its parent's drawn records, since the smaller one is.
LARGEST_SHARE = 0.5


@dataclass(frozen=True)
class Level:
    """Events at one level of a tree.

    Attributes:
        built: drawn records of each node whose sums the feature parties make.
        parents: for each node that may be split, the party that made it; empty at the root. 0 is the label holder.
        owners: the party that wins each node that splits.
    """

    built: tuple[int, ...]
    parents: tuple[int, ...]
    owners: tuple[int, ...]


@dataclass(frozen=True)
class PartyColumns:
    """The columns of one party.

    Attributes:
        shapes: one each.
        codes: (n, d) bins of the first records, from which joint cells follow; None: columns that are independent and
            have equally full bins.
    """

    shapes: tuple[Shape, ...]
    codes: Codes | None = None

    @classmethod
    def alike(cls, count: int, bins: int, *, missing: bool = False) -> PartyColumns:
        """Columns of numbers with this many bins each."""
        return cls((Shape(bins, missing),) * count)

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
    """A boosting job on aligned records.

    Attributes:
        records: those that are aligned.
        drawn: those that a tree draws.
        own: the label holder's columns.
        others: those of each feature party, by name.
        levels: of a tree, from the root.
        trees: their number.
        key: scheme and length.
        obfuscation: of the label holder's ciphertexts.
        slots: the layout of a record's plaintext.
    """

    records: int
    drawn: int
    own: PartyColumns
    others: Mapping[str, PartyColumns]
    levels: tuple[Level, ...]
    trees: int
    key: KeyKind
    obfuscation: str
    slots: Slots

    @cached_property
    def candidates_per_ciphertext(self) -> int:
        """Candidates that one packed ciphertext holds."""
        return self.slots.groups_per_plaintext(self.key.plain_bits)


def full_levels(
    drawn: int, depth: int, columns: Sequence[int], smaller_share: float = LARGEST_SHARE
) -> tuple[Level, ...]:
    """Levels of a tree in which every node above the depth splits.

    Args:
        drawn: the records of a tree.
        depth: levels of splits.
        columns: of each party, the label holder first; a party wins splits in proportion to its columns.
        smaller_share: part of a node's records that its smaller child has; the others have what remains.
    """
    levels: list[Level] = []
    owners = islice(_in_turn(columns), 2**depth)
    nodes = [(drawn, drawn)]  # drawn records of both children, the built one first
    parents: tuple[int, ...] = ()
    sizes = [drawn]
    for level in range(depth):
        won = tuple(islice(owners, 2**level))
        levels.append(Level(tuple(built for built, _ in nodes), parents, won))
        nodes = [(int(size * smaller_share), size - int(size * smaller_share)) for size in sizes]
        sizes = [size for pair in nodes for size in pair]
        parents = tuple(owner for owner in won for _ in range(2))
    return tuple(levels)


def grown_levels(owners: Mapping[int, int], drawn: Mapping[int, int], depth: int) -> tuple[Level, ...]:
    """Levels of a tree that is known: node → the party that won it, and node → its drawn records.

    Every child above `depth` counts as one that may be split.
    """
    levels: list[Level] = []
    nodes: list[int] = [1]
    parents: tuple[int, ...] = ()
    while nodes and len(levels) < depth:
        split = [node for node in nodes if node in owners]
        pairs = zip(nodes[::2], nodes[1::2], strict=False)
        built = [min(pair, key=lambda child: drawn[child]) for pair in pairs] if levels else nodes
        levels.append(Level(tuple(drawn[node] for node in built), parents, tuple(owners[node] for node in split)))
        nodes = [2 * node + side for node in split for side in range(2)]
        parents = tuple(owners[node >> 1] for node in nodes)
    return tuple(levels)


def _in_turn(columns: Sequence[int]) -> cycle[int]:
    """Parties' numbers, each as often as it has columns, evenly spread."""
    places = [((k + 0.5) / count, party) for party, count in enumerate(columns) for k in range(count)]
    return cycle([party for _, party in sorted(places)])


@dataclass
class LevelCounts:
    """Operations of one feature party at one level.

    Attributes:
        additions: products by layout, as the party's account counts them.
        products: those that each worker computes for its bins.
        merging: those for merged bins and candidates, of all workers.
        packings: packed ciphertexts, each with an obfuscator; as many are decrypted.
    """

    additions: int
    products: int
    merging: int
    packings: int


@dataclass
class PartyCounts:
    """Operations of one feature party on a tree, level by level; `workers`: its own."""

    training: Training
    columns: PartyColumns
    workers: int
    levels: list[LevelCounts] = field(init=False)
    groups: int = field(init=False)  # of columns that share joint cells

    def __post_init__(self) -> None:
        training, shapes = self.training, self.columns.shapes
        counted = CountedProducts(shapes, self.columns.codes, training.drawn // self.workers)
        self.groups = len(counted.root_groups)
        self.levels = [self._level(number, level, counted) for number, level in enumerate(training.levels)]

    def _level(self, number: int, level: Level, counted: CountedProducts) -> LevelCounts:
        from treetap.additive.sums.layout_counts import candidate_products

        training, nodes, workers = self.training, len(level.built), self.workers
        additions = candidate_products(training.drawn, self.columns.shapes, nodes, workers) if self._sums else 0
        per_worker = [-(-records // workers) for records in level.built]
        products = sum(map(counted.below, per_worker)) if number else counted.at_root(per_worker[0])
        merging = additions - training.drawn * len(self.columns.shapes)
        packings = -(-nodes * self.columns.candidates // training.candidates_per_ciphertext)
        return LevelCounts(additions, products, merging, packings)

    @property
    def _sums(self) -> bool:
        return self.columns.candidates > 0

    def totals(self) -> dict[str, int]:
        """Operations of all trees, by the names of a party's account."""
        trees = self.training.trees
        packings = trees * sum(level.packings for level in self.levels)
        additions = trees * sum(level.additions for level in self.levels)
        return {"additions": additions, "obfuscators": packings, "packings": packings}


def label_holder_totals(training: Training) -> dict[str, int]:
    """Operations of the label holder on all trees, by the names of its account."""
    per_ciphertext = training.candidates_per_ciphertext
    opened = sum(
        -(-len(level.built) * columns.candidates // per_ciphertext)
        for columns in training.others.values()
        for level in training.levels
    )
    return {"decryptions": training.trees * opened, "encryptions": training.trees * training.drawn}
