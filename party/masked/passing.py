"""What every party of a masked prediction does: exchange keys, pass records on, and mask its share of the scores.

The way of records through a model's trees from party to party, and the records of a block on that way.

Every stored line of a party names the source of each split and the keeper of each leaf of its tree
(`treetap.party.pivodl.growing_tree`), so all parties know who passes records on to whom on each level. The routes do
not depend on a record.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.arrays import Bools
from treetap.errors import DataError, Malformed
from treetap.models.keyed_ids import TRAINED_IDS, any_trained
from treetap.models.own_split import OwnSplit
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.runtime.context import REMEDY, Rows, batches, required
from treetap.party.runtime.step_order import Next, step
from treetap.privacy.masks import MaskKey, PairwiseMasks, Ring, encode
from treetap.protocols.masked import MaskedSizes
from treetap.trees.ensemble import ROOT
from treetap.wire.records import pack_bits, unpack_bits
from treetap.wire.v2 import masked_pb2

#: (number of the tree, heap number of the node).
Place = tuple[int, int]


class Routes:
    """Nodes and their holders: of a split its source, of a leaf the keeper of its weight.

    Attributes:
        trees: the number of trees.
        levels: the levels on which some tree has a split, at least 1.
    """

    def __init__(self, shard: Sequence[Mapping[str, Any]]) -> None:
        """`shard`: the lines of a party, tree by tree."""
        self.trees = len(shard)
        self._sources = {
            (t, split["node"]): str(split["source"]) for t, line in enumerate(shard) for split in line["nodes"]
        }
        self._keepers = {
            (t, leaf["node"]): str(leaf["keeper"]) for t, line in enumerate(shard) for leaf in line["leaves"]
        }
        self._holders = self._sources | self._keepers
        self.levels = max((level_of(node) + 1 for _, node in self._sources), default=1)

    def roots(self, party: str) -> list[Place]:
        """The roots that a party holds."""
        return [(t, ROOT) for t in range(self.trees) if self._holders[t, ROOT] == party]

    def splits(self, party: str, level: int) -> list[Place]:
        """The splits of a party on a level, in order."""
        return sorted(
            place for place, source in self._sources.items() if source == party and level_of(place[1]) == level
        )

    def children(self, source: str, holder: str, level: int) -> list[Place]:
        """The children, held by `holder`, of the splits of `source` on a level, in order."""
        below = ((t, child) for t, node in self.splits(source, level) for child in (2 * node, 2 * node + 1))
        return [place for place in below if self._holders[place] == holder]

    def most_children(self, holder: str) -> int:
        """The most nodes of one level that a party holds."""
        levels = Counter(level_of(node) for (_, node), held in self._holders.items() if held == holder)
        return max(levels.values(), default=0)

    def hidden_bits(self, reader: str) -> float:
        """log2 of the combinations of leaves, one of each tree, that `reader` cannot tell apart by itself, at least.

        It sees which of its nodes a record passes, and to which side.
        """
        return math.fsum(math.log2(min(self._alike(t, reader).values())) for t in range(self.trees))

    def path_bits(self) -> float:
        """log2 of all combinations of leaves, one of each tree."""
        leaves = Counter(t for t, _ in self._keepers)
        return math.fsum(math.log2(count) for count in leaves.values())

    def _alike(self, tree: int, reader: str) -> Counter[tuple[tuple[int, int], ...]]:
        """The numbers of leaves that look the same to a party, by the own nodes on the way and the node after each."""
        alike: Counter[tuple[tuple[int, int], ...]] = Counter()
        for t, leaf in self._keepers:
            if t == tree:
                way = [leaf >> up for up in range(leaf.bit_length() - 1, -1, -1)]
                steps = zip(way, [*way[1:], 0], strict=True)
                alike[tuple((at, to) for at, to in steps if self._holders[t, at] == reader)] += 1
        return alike


def level_of(node: int) -> int:
    """The level of a node, that of the root being 0."""
    return node.bit_length() - 1


#: The mask (n,) of the block's records that go left at an own split.
GoesLeft = Callable[[Place], Bools]


class Standing:
    """Masks (n,) of the records that arrive at this party's nodes, for one block of n records."""

    def __init__(self, routes: Routes, party: str, records: int) -> None:
        self._routes, self._party, self._records = routes, party, records
        self._at: dict[Place, Bools] = {place: np.ones(records, dtype=bool) for place in routes.roots(party)}
        self._passed: dict[Place, npt.NDArray[np.uint8]] = {}  # to other parties' nodes, bits packed

    def split(self, level: int, goes_left: GoesLeft) -> None:
        """Split the records at the own nodes of a level: `outgoing` has what others get of them."""
        self._sides: dict[Place, Bools] = {}
        for tree, node in self._routes.splits(self._party, level):
            here, left = self._at.pop((tree, node)), goes_left((tree, node))
            self._sides[tree, 2 * node], self._sides[tree, 2 * node + 1] = here & left, here & ~left
        own = set(self._routes.children(self._party, self._party, level))
        for place, side in self._sides.items():
            if place in own:
                self._at[place] = side
            else:
                self._passed[place] = np.packbits(side)

    def outgoing(self, to: str, level: int) -> list[tuple[Place, Bools]]:
        """The nodes of another party below the own splits of a level, each with the records that arrive there."""
        return [(place, self._sides[place]) for place in self._routes.children(self._party, to, level)]

    def take(self, sender: str, level: int, passed: Iterable[tuple[Place, Bools]]) -> None:
        """Take the records that another party passes on.

        Raises:
            Malformed: they are not about the nodes that this party holds below the sender's splits, or not among the
                records that this party has passed on above.
        """
        arrived = list(passed)
        expected = self._routes.children(sender, self._party, level)
        if [place for place, _ in arrived] != expected:
            raise Malformed(f"{sender} passes on records of other nodes than those of {self._party} below its splits")
        for (tree, node), mask in arrived:
            above = next((up for k in range(1, node.bit_length()) if (up := (tree, node >> k)) in self._passed), None)
            if above is not None and (np.packbits(mask) & ~self._passed[above]).any():
                raise Malformed(
                    f"{sender} passed on, to node {node} of tree {tree}, records that {self._party} did not pass on to "
                    f"node {above[1]} above; {REMEDY.format(sender)}"
                )
        self._at.update(arrived)

    def check(self) -> None:
        """`Malformed` if a record has come to two of this party's nodes of one tree."""
        for tree in {tree for tree, _ in self._at}:
            times = np.sum([mask for (t, _), mask in self._at.items() if t == tree], axis=0)
            if (times > 1).any():
                raise Malformed(f"a party has passed on the same record to two nodes of tree {tree}")

    def sums(self, weights: Mapping[Place, Ring], outputs: int) -> Ring:
        """Sums of weights (outputs,) of the own leaves that each record has reached: (n, outputs), modulo 2^64."""
        sums: npt.NDArray[np.uint64] = np.zeros((self._records, outputs), dtype=np.uint64)
        for place, weight in weights.items():
            sums[self._at[place]] += weight
        return sums


log = logging.getLogger(__name__)
#: Fractional bits of weights and scores: a sum of a hundred weights is exact to 10^-10, and reaches ±4 million.
FRACTION = 40
#: The purpose of the masks: each block is a round of it.
SCORES = "scores"
#: Outcomes of `pass_records`.
MORE_LEVELS = "some tree has splits on the next level"
LAST_LEVEL = "every record has reached its leaves"


def masked_sizes(job: PredictionJob) -> MaskedSizes:
    """The sizes of a masked prediction, as far as they follow from its opening."""
    return MaskedSizes(members=job.members, block=max(1, job.opening.block))


class Passing:
    """One party's nodes, records and masks in one attempt; `outputs`: columns of a score."""

    def __init__(self, job: PredictionJob, opened: OpenedModel, sizes: MaskedSizes) -> None:
        """Raises DataError where noised weights are asked for and the training released none."""
        context, opening = job.context, job.opening
        self._context, self._opening, self._opened = context, opening, opened
        self.routes = Routes(opened.shard)
        self.outputs = len(opened.manifest["base_margin"])
        self._parties = [opening.recipient, *opening.feature_parties]
        self._others = [party for party in self._parties if party != context.party]
        self._splits = {
            (t, split.node): split
            for t, line in enumerate(opened.shard)
            for split in map(OwnSplit.from_dict, line["splits"])
        }
        opened.compare(split.feature for split in self._splits.values())
        self._weights = self._encoded_weights()
        sizes.held, sizes.stages = self.routes.most_children(context.party), self.routes.levels
        sizes.outputs = self.outputs
        self._masks: PairwiseMasks | None = None
        self._rows: Rows = np.zeros(0, dtype=np.int64)
        self._standing: Standing | None = None

    @step(Next("pass_records"))
    async def exchange_mask_keys(self) -> None:
        """Check the own policy, then exchange the keys of this attempt with every other party.

        Raises:
            Refused: a record is one of the training, or too few paths explain a score.
            Malformed: a party sends no key.
        """
        self._check_policy()
        if len(self._parties) == 2:
            log.warning("job %s has two parties: masks do not hide the other's share", self._context.job)
        key, keys = MaskKey(), {}
        own = masked_pb2.MaskKey(key=key.public)
        await self._context.outbox.send_each("mask_key", dict.fromkeys(self._others, (own,)))
        for party in self._others:
            async for message in self._context.mailbox.series(party, "mask_key", 0, 0):
                keys[party] = message.protocol.masked.mask_key.key
        context = f"{self._context.job}/{self._context.attempt}".encode()
        self._masks = PairwiseMasks(self._context.party, key, keys, context)

    def begin(self, rows: Rows) -> None:
        """Begin a block: `rows` (n,) are places in the aligned order."""
        self._rows = rows
        self._standing = Standing(self.routes, self._context.party, len(rows))

    async def pass_on(self, block: int, level: int) -> str:
        """Split the records at the own nodes of a level; send each side to the child's holder, take others' sides.

        Returns the outcome of the step.
        """
        standing, values = required(self._standing), self._opened.values

        def goes_left(place: Place) -> Bools:
            split = self._splits[place]
            return split.goes_left(values.column(self._rows, split.feature))

        await self._context.offload(lambda: standing.split(level, goes_left))
        bodies = {party: self._bodies(party, level) for party in self._others}
        await self._context.outbox.send_each("arrived_records", bodies, block, level)
        for party in self._others:
            standing.take(party, level, await self._taken(party, block, level))
        standing.check()
        return MORE_LEVELS if level + 1 < self.routes.levels else LAST_LEVEL

    def share(self, block: int) -> Ring:
        """The own share of the scores of a block, (n, outputs), under this block's masks."""
        values = required(self._standing).sums(self._weights, self.outputs)
        masks = required(self._masks)
        share = masks.masked(values.reshape(-1), SCORES, block, self._parties)
        masks.close_before(SCORES, block + 1)
        return share.reshape(-1, self.outputs)

    def end(self, block: int) -> None:
        """Forget the block."""
        self._standing = None
        self._context.mailbox.forget(block)

    def _check_policy(self) -> None:
        policy, party, model = self._context.policy, self._context.party, self._opening.model
        if not policy.labels.score_training_records:
            try:
                trained = any_trained(self._opened.manifest.get(TRAINED_IDS), self._opened.aligned.ids)
            except DataError as failure:
                raise DataError(f"model {model}: {failure}").at(party) from None
            policy.check(party, "score_training_records", trained, model=model)
        reader = self._opening.recipient
        hidden = self.routes.hidden_bits(reader)
        known = min(self.routes.path_bits(), 64.0 * self.outputs)
        fault = (
            f"the nodes of {reader} leave {hidden:.1f} bits of a record's paths open, and a score has up to {known:.1f}"
        )
        policy.check_paths(party, np.array([hidden - known]), fault)

    def _encoded_weights(self) -> Mapping[Place, Ring]:
        """Leaf → its weight (outputs,) in fixed point, of leaves that this party keeps."""
        noised = self._opening.parameters.masked.prediction_weights == "noised"
        weights = {}
        for t, line in enumerate(self._opened.shard):
            for leaf in line["weights"]:
                # no party gets the weight of a root with noise: it has no source above it
                if noised and leaf["source"] and "released" not in leaf:
                    raise DataError(
                        f"prediction_weights = 'noised': model {self._opening.model} was trained without epsilon, and "
                        "has exact weights only; leave it out"
                    ).at(self._context.party)
                weight = np.array(leaf.get("released", leaf["weight"]) if noised else leaf["weight"])
                try:
                    weights[t, int(leaf["node"])] = encode(weight, self.routes.trees, FRACTION)
                except DataError as failure:
                    fault = f"model {self._opening.model}: of the weight of a leaf {failure}; train on a scaled label"
                    raise DataError(fault).at(self._context.party) from None
        return weights

    def _bodies(self, to: str, level: int) -> Iterator[masked_pb2.ArrivedRecords]:
        nodes = (
            masked_pb2.NodeArrivals(tree=tree, node=node, records=pack_bits(mask))
            for (tree, node), mask in required(self._standing).outgoing(to, level)
        )
        return (masked_pb2.ArrivedRecords(nodes=batch) for batch in batches(nodes))

    async def _taken(self, sender: str, block: int, level: int) -> list[tuple[Place, Bools]]:
        arrived = []
        async for message in self._context.mailbox.series(sender, "arrived_records", block, level):
            for node in message.protocol.masked.arrived_records.nodes:
                try:
                    bits = unpack_bits(node.records, len(self._rows))
                except Malformed as failure:
                    raise Malformed(f"{sender}, tree {node.tree}, node {node.node}: {failure}") from failure
                arrived.append(((node.tree, node.node), bits))
        return arrived
