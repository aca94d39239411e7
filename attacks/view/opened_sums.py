"""The sums over feature parties' columns that a label holder opened, as its own entries in its transcript have them.

They are the input of attacks on the columns. A label holder records them if its policy says `record_sums`; nothing here
is computed from a feature party's table.

The room of a plaintext is the most that sums tell a label holder that crafts what is summed: a feature party adds
whatever numbers the ciphertexts hold. A sum of n bits tells n bits of its records at most, whether they are in it; and
a ciphertext, or the first halves of one candidate on a lattice, what its plaintext holds. That is the only bound on
crafted g and h; it holds for honest trainings too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from treetap.arrays import Ints
from treetap.attacks.schema import Count, Findings
from treetap.attacks.view.kept_messages import MemoryBudget
from treetap.attacks.view.known_trees import TreeView
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.protocols.key_options import KeyKind
from treetap.trees.loss import record_bounds
from treetap.trees.params import BoostingParams, TreeParams
from treetap.trees.slots import Slots, width_for
from treetap.wire.v2 import growth_pb2, setup_pb2, transcript_pb2

#: A message's place in a tree: the feature party's name, stage.
Place = tuple[str, int]
#: Types of the entries that are kept.
ENTRIES = (transcript_pb2.OwnValues, transcript_pb2.OwnSums, growth_pb2.WonSplits)
_BYTES = np.dtype("<i8").itemsize


@dataclass(frozen=True, eq=False)
class WonSplit:
    """A split of a feature party.

    `places`: the tied candidates that won, as in `OpenedTree.sums`; a place k beyond the number of candidates n is the
    mirror image of k − n, of a column with a monotone constraint; none where a partition of categories won.
    `left`: all records of the node, drawn or not, that went left, ascending.
    """

    node: int
    party: str
    places: tuple[int, ...]
    left: Ints = field(repr=False)


@dataclass(frozen=True, eq=False)
class LeftSet:
    """A message of a feature party that won a node, which needs no recorded sums: the records that go left.

    `left`: ascending. `space`: the records of the node; None if the transcript does not tell which these are.
    """

    tree: int
    node: int
    party: str
    left: Ints = field(repr=False)
    space: Ints | None = field(repr=False)


@dataclass(frozen=True, eq=False)
class OpenedTree:
    """One tree as its label holder knows it. Nodes have heap numbers: root 1, children of u are 2u and 2u + 1.

    `values`: (N, S) int64, as they were summed; a record that the tree does not draw has zeros, but in the slots of
    classes that ID-LMID adds at the end. `nodes`: records, ascending, of every node, leaves too; a node that is
    withdrawn from the feature parties is a leaf.
    `sums`: feature party → node whose sums it sent → (candidates, S) int64, in the order that the party drew for the
    tree, or with bins of their own for each node. A candidate's are those of its left side; the last ones, of
    categories that the label holder partitions, are sums over one category each: `categories` has the numbers of these,
    column by column. A party that sat the tree out has none.
    `won`: the splits of feature parties, by node. `least`: the fewest records in a cell, of parties that merge bins.
    """

    index: int
    values: Ints = field(repr=False)
    nodes: Mapping[int, Ints] = field(repr=False)
    sums: Mapping[str, Mapping[int, Ints]] = field(repr=False)
    won: tuple[WonSplit, ...] = field(repr=False)
    categories: Mapping[str, tuple[int, ...]]
    least: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class OpenedSums:
    """The opened sums of a job: of each tree of which feature parties sent sums, in the order of the trees.

    `parties`: the feature parties of the job. `records`: N. `params`: the job's. `left_sets`: of all complete trees,
    also of a label holder that records no sums (`recorded`), which has no `trees` here. `constrained`: the parties
    with monotone constraints. `noised`: those whose sums have noise, with what they say of it.
    """

    trees: tuple[OpenedTree, ...] = field(repr=False)
    parties: tuple[str, ...]
    records: int
    params: TreeParams = field(repr=False)
    left_sets: tuple[LeftSet, ...] = field(default=(), repr=False)
    recorded: bool = True
    constrained: frozenset[str] = frozenset()
    noised: Mapping[str, ColumnPrivacy] = field(default_factory=dict)


@dataclass
class _Numbers:
    """One array, of which parts come in order. `shape`: what its entries say of it."""

    shape: tuple[int, ...]
    nodes: tuple[int, ...] = ()
    categories: tuple[int, ...] = ()
    parts: list[Ints] = field(default_factory=list)

    def take(self, first: int, numbers: bytes) -> None:
        if first != sum(map(len, self.parts)) or (self.parts and not first) or len(numbers) % _BYTES:
            raise Malformed("parts of its numbers are missing, came twice or were cut")
        self.parts.append(np.frombuffer(numbers, dtype="<i8"))

    def whole(self) -> Ints:
        """The array; Malformed if numbers are missing, or there are too many."""
        flat = self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)
        if len(flat) != np.prod(self.shape, dtype=object):
            raise Malformed(f"{len(flat)} numbers are recorded, where there are {' · '.join(map(str, self.shape))}")
        return np.asarray(flat, dtype=np.int64).reshape(self.shape)


@dataclass
class OpenedEntries:
    """The entries of one tree as it was grown in one attempt.

    `received`: the nodes of which a party's encrypted sums were received, by party and stage. `least`: by party with
    merged bins the fewest records in a cell, as it said. `constrained`: the parties with monotone constraints.
    """

    received: dict[Place, set[int]] = field(default_factory=dict)
    least: dict[str, int] = field(default_factory=dict)
    constrained: set[str] = field(default_factory=set)
    _values: _Numbers | None = None
    _sums: dict[Place, _Numbers] = field(default_factory=dict)
    _nodes: dict[Place, _Numbers] = field(default_factory=dict)
    _won: dict[Place, dict[int, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def there(self) -> bool:
        """True if the label holder recorded what the tree sums."""
        return self._values is not None

    @property
    def records(self) -> set[int]:
        """The number of records, N, if an entry says it."""
        return set() if self._values is None else {self._values.shape[0]}

    def take(
        self,
        stage: int,
        entry: transcript_pb2.OwnValues | transcript_pb2.OwnSums | growth_pb2.WonSplits,
        budget: MemoryBudget,
    ) -> None:
        """Take the next entry. Raises Malformed if it does not follow those before it, BadInput beyond the budget."""
        budget.take(entry.ByteSize())
        if isinstance(entry, transcript_pb2.OwnValues):
            shape: tuple[int, ...] = entry.records, entry.slots
            self._values = _same(self._values, _Numbers(shape), "values")
            self._values.take(entry.first, entry.values)
        elif isinstance(entry, transcript_pb2.OwnSums):
            place, nodes, categories = (entry.party, stage), tuple(entry.nodes), tuple(entry.categories)
            shape = len(nodes), entry.candidates, entry.slots
            sums = _same(self._sums.get(place), _Numbers(shape, nodes, categories), f"sums of {entry.party}")
            self._sums[place] = sums
            sums.take(entry.first, entry.sums)
        else:
            won = self._won.setdefault((entry.owner, stage), {})
            for split in entry.splits:
                if won.setdefault(split.node, places := tuple(split.candidates)) != places:
                    raise Malformed(f"node {split.node} was won twice")

    def take_node(self, entry: transcript_pb2.OwnSums, budget: MemoryBudget) -> None:
        """Take sums that a party of PIVODL opened as split party of a source; of the root, under its own name.

        Raises as `take`.
        """
        if len(entry.nodes) != 1 or entry.categories:
            raise Malformed("the sums that a split party recorded are not of one node")
        budget.take(entry.ByteSize())
        place, shape = (entry.party, entry.nodes[0]), (entry.candidates, entry.slots)
        self._nodes[place] = _same(self._nodes.get(place), _Numbers(shape), f"sums of {entry.party}")
        self._nodes[place].take(entry.first, entry.sums)

    @property
    def nodes(self) -> dict[tuple[int, str], Ints]:
        """(node, party) → (candidates, S), of PIVODL. Raises Malformed where numbers are missing."""
        return {(node, party): numbers.whole() for (party, node), numbers in self._nodes.items()}

    def of_tree(
        self,
        tree: TreeView,
        children: Mapping[Place, Collection[int]],
        *,
        padded: bool = False,
        noised: Collection[str] = (),
    ) -> OpenedTree:
        """The complete tree that the entries are of.

        `children`: the nodes whose children a party sent at a stage. `padded`: sums also came of nodes that the tree
        does not have, which are not opened. `noised`: parties whose sums are not exactly those of their splits.

        Raises:
            Malformed: entries are missing, or contradict each other, the tree or its messages.
        """
        assert self._values is not None  # `there`
        values = self._values.whole()
        if len(values) != tree.total:
            raise Malformed(f"its values are of {len(values)} records, its sets of {tree.total}")
        nodes = {node: known.records for node, known in tree.nodes.items()}
        sums: dict[str, dict[int, Ints]] = {}
        categories: dict[str, tuple[int, ...]] = {}
        _agree("sums", self._sums, self.received, fewer=padded)
        for (party, stage), numbers in sorted(self._sums.items()):
            _agree(f"nodes of the sums of {party}", numbers.nodes, self.received[party, stage], fewer=padded)
            if numbers.shape[2] != values.shape[1]:
                raise Malformed(f"sums of {party} have {numbers.shape[2]} slots, the values {values.shape[1]}")
            if categories.setdefault(party, numbers.categories) != numbers.categories:
                raise Malformed(f"{party} changed its number of categories")
            _add(sums.setdefault(party, {}), party, numbers, nodes)
        # an owner of padded trees answers also where it has won nothing
        children = {place: nodes for place, nodes in children.items() if nodes}
        _agree("won splits", self._won, children)
        won = []
        for (party, stage), of_stage in sorted(self._won.items()):
            _agree(f"won splits of {party}", of_stage, children[party, stage])
            won += [WonSplit(node, party, places, nodes[2 * node]) for node, places in of_stage.items()]
        opened = OpenedTree(
            tree.index,
            values,
            nodes,
            sums,
            tuple(sorted(won, key=lambda split: split.node)),
            {party: sizes for party, sizes in categories.items() if sizes},
            dict(self.least),
        )
        for split in opened.won:
            if split.party not in noised:
                _check_won(opened, split)
        return opened


def opened_sums(
    grown: Sequence[tuple[TreeView, OpenedEntries, Mapping[Place, Collection[int]]]],
    parties: Sequence[str],
    params: TreeParams,
    records: int,
    noised: Mapping[str, ColumnPrivacy],
) -> tuple[OpenedSums, list[int]]:
    """The opened sums of the complete trees, and the trees whose sums were received and, unlike others, not recorded.

    `grown`: each tree with its entries and the nodes whose children a party sent at a stage. `noised`: parties whose
    sums have noise.

    Raises:
        Malformed: see `OpenedEntries.of_tree`.
    """
    trees, lost, left_sets = [], [], list[LeftSet]()
    for tree, entries, children in grown:
        try:
            if foreign := sorted({party for party, _ in [*entries.received, *children]} - set(parties)):
                raise Malformed(f"{foreign[0]}, which is no feature party, has sent sums")
            left_sets += [
                LeftSet(
                    *(tree.index, node, party, tree.nodes[2 * node].records),
                    tree.nodes[node].records if node in tree.nodes else None,
                )
                for node, party in sorted((node, party) for (party, _), nodes in children.items() for node in nodes)
            ]
            if entries.there:
                trees.append(entries.of_tree(tree, children, padded=params.pad_trees, noised=noised))
            elif entries.received:
                lost.append(tree.index)
        except Malformed as fault:
            raise Malformed(f"tree {tree.index}, attempt {tree.attempt}: {fault}") from None
    recorded = bool(trees) or not lost
    constrained = frozenset(party for _, entries, _ in grown for party in entries.constrained)
    opened = OpenedSums(
        tuple(trees), tuple(parties), records, params, tuple(left_sets), recorded, constrained, dict(noised)
    )
    return opened, lost if recorded else []


def _same(known: _Numbers | None, said: _Numbers, what: str) -> _Numbers:
    """The array that an entry is a part of. Malformed if another part says otherwise."""
    if known is None:
        return said
    if (known.shape, known.nodes, known.categories) != (said.shape, said.nodes, said.categories):
        raise Malformed(f"parts of the {what} are of different shapes")
    return known


def _agree(what: str, recorded: Iterable[object], received: Iterable[object], *, fewer: bool = False) -> None:
    if not set(recorded) <= set(received) or (not fewer and set(recorded) != set(received)):
        raise Malformed(f"the {what} that it recorded are not those of the messages that it received")


def _add(sums: dict[int, Ints], party: str, numbers: _Numbers, nodes: Mapping[int, Ints]) -> None:
    """Add the sums of a stage to those of the party's other nodes. A node that waits may be summed again."""
    if sum(numbers.categories) > numbers.shape[1]:
        raise Malformed(f"{party} has fewer candidates than categories")
    for node, of_node in zip(numbers.nodes, numbers.whole(), strict=True):
        if node not in nodes:
            raise Malformed(f"{party} has sums of node {node}, which the tree does not have")
        known = next(iter(sums.values()), of_node)
        if known.shape != of_node.shape or not np.array_equal(sums.setdefault(node, of_node), of_node):
            raise Malformed(f"sums of {party} at node {node} do not agree with others of the tree")


def _check_won(tree: OpenedTree, split: WonSplit) -> None:
    """Malformed if no place that won has the sums of the records that went left."""
    sums = _candidates(tree.sums.get(split.party, {}), split.node)
    if sums is None:
        raise Malformed(f"{split.party} won node {split.node}, of which it sent no sums")
    if not split.places:
        return
    if max(split.places) >= 2 * len(sums):
        raise Malformed(f"{split.party} won node {split.node} by a candidate that it has not")
    left, whole = tree.values[split.left].sum(axis=0), tree.values[tree.nodes[split.node]].sum(axis=0)
    count = len(sums)
    offered = [sums[place] if place < count else whole - sums[place - count] for place in split.places]
    # its owner may have taken a partition that tied with them
    if split.party not in tree.categories and not any(np.array_equal(left, one) for one in offered):
        raise Malformed(f"the records that went left at node {split.node} do not have the sums by which it was won")


def _candidates(sums: Mapping[int, Ints], node: int) -> Ints | None:
    """The sums of a node's candidates; of one that was not summed they follow from parent and sibling."""
    if node in sums:
        return sums[node]
    parent, sibling = (_candidates(sums, node >> 1), sums.get(node ^ 1)) if node > 1 else (None, None)
    return None if parent is None or sibling is None else parent - sibling


class Room(Findings):
    """The room of a job's plaintexts.

    `sum_bits`: of a candidate's sum, all slots together. `query_bits`: of a ciphertext or, on a lattice, of a
    candidate's first halves: r words, each of its tb bits and two more by its error. `sums`: in one of these.
    """

    sum_bits: Count
    query_bits: Count
    sums: Count


def room_of(
    spec: setup_pb2.JobSpec, params: TreeParams, records: int, key: setup_pb2.PublicKeyMessage | None
) -> Room | None:
    """The room by the message with the public key, which feature parties receive; None without one."""
    if key is None or not key.slot_widths:
        return None
    return _room(spec, params, records, key.slot_widths, (key.candidates, key.queries, key.hiding))


def room_opened(spec: setup_pb2.JobSpec, params: TreeParams, opened: OpenedSums) -> Room | None:
    """The room by what a label holder of boosting summed; None of another job, and where it recorded nothing.

    On a lattice the sizes are those of a job without further bits of hiding.
    """
    if not isinstance(params, BoostingParams) or not opened.trees:
        return None
    first, records = opened.trees[0], opened.records
    counts = np.flatnonzero((first.values == params.drawn(first.index, records)[:, None]).all(axis=0))
    outputs, (g, h) = int(counts[0]) // 2, record_bounds(params.objective, params.largest_factor)
    bounds = [g] * outputs + [h] * outputs + [1] * (first.values.shape[1] - 2 * outputs)
    candidates = max(
        len(sums) for tree in opened.trees for of_party in tree.sums.values() for sums in of_party.values()
    )
    queries = len(opened.trees) * params.expansion.most_summed(subtract=True)
    return _room(spec, params, records, [width_for(records, bound) for bound in bounds], (candidates, queries, 0))


def _room(
    spec: setup_pb2.JobSpec, params: TreeParams, records: int, widths: Sequence[int], sizes: tuple[int, int, int]
) -> Room:
    """`sizes` of a lattice: candidates of a node, nodes of an attempt that are summed, bits of hiding (0: the fewest).

    Raises Malformed where no plaintext has such a layout.
    """
    key, (candidates, queries, hiding) = KeyKind.of(spec), sizes
    try:
        slots = Slots(tuple(widths))
        if not key.on_lattice:
            sums = slots.groups_per_plaintext(key.plain_bits)
            return Room(sum_bits=slots.bits, query_bits=key.plain_bits + 1, sums=sums)
        from treetap.lattice.histogram_parameters import HIDING, HistogramParameters  # most jobs do without

        least = hiding or HIDING[0]
        sized = HistogramParameters.choose(records, widths, params.max_bin + 1, candidates, queries, hiding=least)
    except (BadInput, PlaintextOverflow) as fault:
        raise Malformed(f"its plaintexts can have no such layout: {fault}") from None
    return Room(sum_bits=slots.bits, query_bits=sized.words * (sized.word_bits + 2), sums=1)
