"""A training by boosting as far as its costs depend on it: columns, trees, key, and what each level splits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice

import numpy as np

from party.boosting.layout import layout
from treetap.additive.sums.counted_products import CountedProducts, candidate_products
from treetap.additive.sums.joint_cells import Codes
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of, rounded_up
from treetap.lattice.histogram_ways import Needs, built_nodes
from treetap.protocols.growth import PlannedTree, TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.protocols.messages import Members
from treetap.trees.candidates import Shape
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots

HOLDER = "label holder"


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
    params: BoostingParams
    own: PartyColumns  # the label holder's
    others: Mapping[str, PartyColumns]  # of each feature party
    levels: tuple[Level, ...]  # of a tree, from the root
    key: KeyKind
    obfuscation: str
    agreed: HistogramParameters | None = None  # of a lattice

    @property
    def drawn(self) -> int:
        """Records that a tree draws."""
        return round(self.records * self.params.subsample)

    @cached_property
    def slots(self) -> Slots:
        """The layout of a record's plaintext."""
        return layout(self.params, self.records, 1)

    @cached_property
    def candidates_per_ciphertext(self) -> int:
        """Candidates that one packed ciphertext holds."""
        return self.slots.groups_per_plaintext(self.key.plain_bits)

    @cached_property
    def sizes(self) -> TreeSizes:
        """The numbers from which the lengths of a tree's messages follow."""
        numbers = {name: number for number, name in enumerate(self.others, 1)}
        below = [*(level.parents for level in self.levels[1:]), ()]  # the nodes that a level's splits make
        planned = PlannedTree(
            built=[len(level.built) for level in self.levels],
            won={name: [level.owners.count(number) for level in self.levels] for name, number in numbers.items()},
            relayed={
                name: [0] + [len(made) - made.count(number) for made in below[:-1]] for name, number in numbers.items()
            },
            leaves=2 ** len(self.levels),
        )
        return TreeSizes(
            members=Members("coordinator", HOLDER, tuple(self.others)),
            key=self.key,
            params=self.params,
            records=self.records,
            drawn=self.drawn,
            per_ciphertext=1 if self.agreed else self.candidates_per_ciphertext,
            offered={name: (0, columns.candidates) for name, columns in self.others.items()},
            handles=self.params.n_estimators << len(self.levels),
            planned=planned,
            counted=True,
        )

    def operations(self, counts: Mapping[str, PartyCounts]) -> dict[str, dict[str, int]]:
        """Operations of all trees by party and by the names of its account."""
        trees = self.params.n_estimators
        packings = {name: trees * sum(level.packings for level in party.levels) for name, party in counts.items()}
        totals = {HOLDER: {"decryptions": sum(packings.values()), "encryptions": trees * self.drawn}}
        for name, party in counts.items():
            additions = trees * sum(level.additions for level in party.levels)
            totals[name] = {"additions": additions, "obfuscators": packings[name], "packings": packings[name]}
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


def agreed_sizes(params: BoostingParams, records: int, parties: Iterable[PartyColumns]) -> HistogramParameters:
    """The sizes that the parties of a job on a lattice agree on, where no policy asks for more; one tree a round.

    Raises:
        BadInput: none fit.
    """
    candidates = rounded_up(max(columns.candidates for columns in parties))
    queries = rounded_up(params.n_estimators * built_nodes(params, Needs.of(params)))
    return parameters_of(records, layout(params, records, 1), params.max_bin, candidates, queries, 1)


@dataclass(frozen=True)
class LevelCounts:
    """Operations of one feature party at one level."""

    additions: int  # products by layout, as the party's account counts them
    products: int  # those that each worker computes for its bins
    merging: int  # those for merged bins and candidates, of all workers
    packings: int  # packed ciphertexts, each with an obfuscator; as many are decrypted


class PartyCounts:
    """Operations on a tree of one feature party with some workers; `groups`: of columns that share joint cells."""

    def __init__(self, job: Training, columns: PartyColumns, workers: int) -> None:
        counted = CountedProducts(columns.shapes, columns.codes, job.drawn // workers)
        self.groups, self.levels = len(counted.root_groups), list[LevelCounts]()
        for level in job.levels:
            nodes, per_worker = len(level.built), [-(-records // workers) for records in level.built]
            additions = candidate_products(job.drawn, columns.shapes, nodes, workers)
            products = sum(map(counted.below, per_worker)) if self.levels else counted.at_root(per_worker[0])
            packings = -(-nodes * columns.candidates // job.candidates_per_ciphertext)
            merging = additions - job.drawn * len(columns.shapes)
            self.levels.append(LevelCounts(additions, products, merging, packings))
