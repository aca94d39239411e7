"""The entries of a chain, of scores or of attributions: laid out by the label holder, checked by each feature party.

A feature party checks them against its own shard: the trees, the branches behind each entry, and the numbers.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.errors import DataError, Malformed
from treetap.party.prediction.opened_model import PredictionJob
from treetap.party.prediction.tree_model import TreeScoring
from treetap.party.runtime.context import StepContext, batches
from treetap.protocols.eini import ChainSizes
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.protocols.prediction import present
from treetap.protocols.registry import prediction_name
from treetap.trees.leaf_entries import SUM_BITS, TreeHop
from treetap.trees.paths import Decide, least_candidate_bits
from treetap.trees.shapley import AttributedHop
from treetap.wire.frame import content_of
from treetap.wire.v2 import attributions_pb2, eini_pb2, exchange_pb2, prediction_pb2

#: Name of the protocol → the module of its cipher; the lattice's needs native kernels.
CIPHERS = {"eini": "treetap.party.eini.entries", "eini-lattice": "treetap.party.eini.lattice"}
#: Shows how many records of the block have been sent.
Advance = Callable[[int], None]


@dataclass(frozen=True)
class ChainPlace:
    """The place of a feature party: the party before it, the one after it, and the label holder."""

    party: str
    before: str
    after: str
    label_holder: str

    @classmethod
    def of(cls, party: str, opening: prediction_pb2.OpenModel) -> ChainPlace:
        """The place of a party in the chain of an opening."""
        chain = [opening.recipient, *present(opening), opening.recipient]
        place = chain.index(party)
        return cls(party, chain[place - 1], chain[place + 1], opening.recipient)

    @property
    def first(self) -> bool:
        """True if ciphertexts come from the label holder."""
        return self.before == self.label_holder

    @property
    def last(self) -> bool:
        """True if sums go to the label holder."""
        return self.after == self.label_holder


def sizes_of(job: PredictionJob) -> ChainSizes:
    """The sizes of a prediction along a chain, as far as they follow from its opening."""
    opening = job.opening
    key = KeyKind(PAILLIER, opening.parameters.eini.key_bits) if prediction_name(opening) == "eini" else None
    return ChainSizes(members=job.members, key=key, block=max(1, opening.block))


def cipher_of(job: PredictionJob) -> Any:
    """The module of the cipher: `LabelHolderEnd` and `FeaturePartyEnd` are what the roles have of it.

    Either end has `scores`, and `attributions` if they are asked for: sums of leaf weights (n, outputs) and Shapley
    values (n, players, outputs) at the label holder, masks of both at a feature party. The label holder's lays the
    values out and makes a key, which is in memory only; a feature party's takes and checks both.
    """
    return importlib.import_module(CIPHERS[prediction_name(job.opening)])


async def check_hidden(
    context: StepContext, scoring: TreeScoring, spare: Callable[[Decide, int], Floats], beside: str = ""
) -> None:
    """Label holder: `Refused` where the own policy wants more leaves left open to some record.

    `spare`: bits by which the leaves open to n records exceed the possible sums, (n,); `beside`: what is sent too.
    """
    if context.policy.columns.min_candidate_bits is not None:
        common = scoring.opened.common
        bits = await context.offload(lambda: scoring.trees.count(scoring.records.wanted, common, spare))
        fault = f"{beside}the candidate leaves of some record have fewer bits to spare than that"
        context.policy.check_paths(context.party, bits, fault)


def check_hides(context: StepContext, spare: float, beyond: str = "a sum") -> None:
    """Feature party: `Refused` where the own policy wants more leaves left open; `spare`: bits `beyond` the sums."""
    fault = f"its own splits of this model leave {spare:.1f} bits beyond those of {beyond}"
    context.policy.check_paths(context.party, np.array([spare]), fault)


#: The branches of one party on the way to a leaf, from the root: (handle of its split, True for left).
Branches = tuple[tuple[int, bool], ...]
#: Most players in a message, more than the features of any model: a bound on a party's memory.
MOST_PLAYERS = 100_000


@dataclass(frozen=True)
class EntryKind:
    """Entries of scores or of attributions, by the names of their messages.

    Attributes:
        called: for errors.
        layout: the entries as one member of the chain gets them.
        constants: those that come once.
        entries: those of a block.
        sums: of a block.
    """

    called: str
    layout: str
    constants: str
    entries: str
    sums: str


SCORES = EntryKind("the entries", "entry_layout", "constant_entries", "leaf_entries", "leaf_sums")
ATTRIBUTIONS = EntryKind(
    "the entries of the attributions",
    "attribution_layout",
    "constant_attributions",
    "attribution_entries",
    "attribution_sums",
)


def score_layout(hop: Sequence[TreeHop], constant: list[int]) -> Iterator[eini_pb2.EntryLayout]:
    """The layout of scores for one member of the chain, in bounded messages."""
    trees = (
        eini_pb2.TreeEntries(
            tree=tree.tree, incoming=tree.incoming.tolist(), outgoing=tree.outgoing.tolist(), outputs=tree.outputs
        )
        for tree in hop
    )
    for number, batch in enumerate(batches(trees)):
        yield eini_pb2.EntryLayout(trees=batch, constant=constant if number == 0 else [])


def attribution_layout(
    hop: Sequence[AttributedHop], constant: list[int], players: int
) -> Iterator[attributions_pb2.AttributionLayout]:
    """The layout of attributions for one member of the chain, in bounded messages."""
    trees = (
        attributions_pb2.AttributedTree(
            tree=tree.tree,
            leaves=[place + 1 for place in tree.leaves],
            outgoing=tree.outgoing,
            outputs=tree.outputs,
            players=tree.players,
        )
        for tree in hop
    )
    for number, batch in enumerate(batches(trees)):
        yield attributions_pb2.AttributionLayout(trees=batch, constant=constant if number == 0 else [], players=players)


def named_tree(
    place: ChainPlace, shard: Sequence[dict[str, Any]], number: int, seen: set[int]
) -> tuple[list[Branches], list[int]]:
    """Of a tree that the label holder names: the own branches on the way to each leaf, and the own splits' nodes.

    `seen`: the trees that it has named before, to which this one is added.

    Raises:
        DataError: there is no such tree.
        Malformed: it was named before.
    """
    if number >= len(shard):
        raise DataError(
            f"{place.label_holder} predicts with tree {number}, this party's shard has "
            f"{len(shard)} trees: the shards are of different jobs"
        ).at(place.party)
    if number in seen:
        raise Malformed(f"{place.label_holder} has named tree {number} twice")
    seen.add(number)
    tree = shard[number]
    ways: list[Branches] = [tuple((handle, bool(left)) for handle, left in leaf) for leaf in tree["leaves"]]
    return ways, [split["node"] for split in tree["splits"]]


@dataclass(frozen=True)
class TreeSplits:
    """Of a tree: the columns of the score it adds to, the own splits' nodes, and of attributions those it involves."""

    outputs: tuple[int, ...]
    nodes: Sequence[int]
    players: frozenset[int] = frozenset()


def spare_of(trees: Sequence[TreeSplits], bits: float) -> float:
    """Bits by which the leaves that one's own splits leave open exceed the possible sums, for any weights.

    Of trees that add to the same columns those of the score and of each player's values together, and of a player
    alone those of its values, by the trees that it splits. `bits`: of a sum, sign included.
    """
    spares = []
    for outputs in {tree.outputs for tree in trees}:
        adding = [tree for tree in trees if tree.outputs == outputs]
        players = frozenset[int]().union(*(tree.players for tree in adding))
        value = bits * len(outputs)
        spares.append(least_candidate_bits(tree.nodes for tree in adding) - value * (1 + len(players)))
        for player in players:
            spares.append(least_candidate_bits(tree.nodes for tree in adding if player in tree.players) - value)
    return min(spares, default=0.0)


@dataclass(frozen=True)
class MemberEntries:
    """The own branches on the way to each entry, and the entry that each goes on as.

    `constant`: entries that come once per prediction. `spare`: bits by which the leaves that the own splits leave open
    in every record's trees exceed any possible sum. `players`: those to whose values the entries add; 0 of a score.
    """

    branches: list[Branches]
    outgoing: Ints
    constant: Ints
    spare: float
    players: int


async def take_layout(
    kind: EntryKind,
    messages: AsyncIterator[exchange_pb2.PeerMessage],
    place: ChainPlace,
    shard: Sequence[dict[str, Any]],
    outputs: int,
    members: int,
) -> MemberEntries:
    """Take the layout for this party and check it against its shard.

    `outputs`: columns of the score; `members`: feature parties of the chain, which are the last players.

    Raises:
        DataError: the trees or leaves differ from those of the shard.
        Malformed: leaves that this party's own branches distinguish are in one entry, an entry depends on a leaf that
            does not exist, a number or a player is wrong, or constant entries do not come from the label holder.
    """
    party, label_holder = place.party, place.label_holder
    branches: dict[int, Branches] = {0: ()}
    outgoing: dict[int, int] = {0: 0}
    constant, players = list[int](), 0
    splits: list[TreeSplits] = []
    seen = set[int]()
    async for message in messages:
        body: Any = content_of(message, kind.layout)
        constant += body.constant
        players = 0 if kind is SCORES else body.players
        for tree in body.trees:
            own, nodes = named_tree(place, shard, tree.tree, seen)
            if not tree.outputs or not set(tree.outputs) <= set(range(outputs)):
                raise Malformed(f"{label_holder} has named columns of the score wrongly")
            if kind is SCORES:
                entries = _entries_of_leaves(tree, own, place)
                splits.append(TreeSplits(tuple(tree.outputs), nodes))
            else:
                entries = _entries_of_sets(tree, own, place, len(branches))
                splits.append(TreeSplits(tuple(tree.outputs), nodes, frozenset(tree.players)))
            # leaves share an entry only where this party's branches do, so that its mask is right for all of them
            for entry, to, way in entries:
                if branches.setdefault(entry, way) != way or outgoing.setdefault(entry, to) != to:
                    raise Malformed(f"{label_holder} has put leaves of tree {tree.tree} in one entry that differ here")
    if set().union(*(tree.outputs for tree in splits)) != set(range(outputs)):
        raise Malformed(f"{label_holder} has laid out {outputs} columns of the score, not all of which have a tree")
    numbers = sorted(branches)
    if numbers != list(range(len(numbers))) or not set(constant) <= set(numbers[1:]) or branches[0]:
        raise Malformed(f"{label_holder} has numbered {kind.called} wrongly")
    if constant and not place.first:
        raise Malformed(f"{label_holder} sends constant entries to the first of the chain only, {party} is not it")
    going = sorted(set(outgoing.values()))
    # as many numbers as there are, not as many as the largest says; behind the last of the chain there is one sum
    if going != list(range(len(going))) or (place.last and going != [0]):
        raise Malformed(f"{label_holder} has numbered {kind.called} that go on wrongly")
    if kind is ATTRIBUTIONS:
        _check_players(label_holder, splits, players, members)
    return MemberEntries(
        [branches[number] for number in numbers],
        np.array([outgoing[number] for number in numbers], dtype=np.int64),
        np.array(sorted(set(constant)), dtype=np.int64),
        spare_of(splits, SUM_BITS + 1),
        players,
    )


def _entries_of_leaves(
    tree: eini_pb2.TreeEntries, own: Sequence[Branches], place: ChainPlace
) -> Iterable[tuple[int, int, Branches]]:
    """Entry, the one that it goes on as, and own branches: of a score, for each leaf of a tree."""
    if not len(own) == len(tree.incoming) == len(tree.outgoing):
        raise DataError(
            f"tree {tree.tree} has {len(tree.incoming)} leaves at {place.label_holder}, {len(own)} in this "
            "party's shard: the shards are of different jobs"
        ).at(place.party)
    return zip(tree.incoming, tree.outgoing, own, strict=True)


def _entries_of_sets(
    tree: attributions_pb2.AttributedTree, own: Sequence[Branches], place: ChainPlace, first: int
) -> Iterable[tuple[int, int, Branches]]:
    """The same of attributions, whose entries are numbered from `first`, each with a leaf or 0 for no own branches."""
    ways: list[Branches] = [(), *own]
    if len(tree.leaves) != len(tree.outgoing) or any(
        leaf >= len(ways) or (leaf and not ways[leaf]) for leaf in tree.leaves
    ):
        raise Malformed(
            f"{place.label_holder} has sent entries of tree {tree.tree} by leaves that {place.party} does not decide"
        )
    return zip(range(first, first + len(tree.leaves)), tree.outgoing, (ways[leaf] for leaf in tree.leaves), strict=True)


def _check_players(label_holder: str, splits: Sequence[TreeSplits], players: int, members: int) -> None:
    """`Malformed` unless every tree that this party splits has players, and each player but parties a tree."""
    if not 1 <= players <= MOST_PLAYERS:
        raise Malformed(f"{label_holder} has announced {players} players")
    if any(not tree.players <= set(range(players)) or (tree.nodes and not tree.players) for tree in splits):
        raise Malformed(f"{label_holder} has sent wrong players of a tree, of {players}")
    playing = set[int]().union(*(tree.players for tree in splits))
    if not set(range(players - members)) <= playing or players < members:
        raise Malformed(f"{label_holder} has announced {players} players, not all of which have a tree")
