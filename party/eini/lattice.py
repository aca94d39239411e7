"""The second cipher of Fed-EINI, a lattice scheme: a number of thousands of records in one ciphertext.

Columns go out encrypted, are masked on the way and come back as sums (docs/protocol-lattice.md). The branches that
their masks depend on are sent by the label holder, and checked by each feature party.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.arrays import Floats, Ints
from treetap.errors import DataError, Malformed
from treetap.lattice.columns import Branches, ColumnShape, NodeColumns, Page, TreeShape, shape_of, widest
from treetap.lattice.kernels import IN_FLIGHT_PER_WORKER, LatticeKeyHolder, LatticeMember
from treetap.lattice.parameters import PARAMETERS_BYTES, Parameters
from treetap.lattice.scheme import LatticeKey, scheme_of
from treetap.native import lattice as native
from treetap.party.eini.entry_layout import (
    Advance,
    ChainPlace,
    TreeSplits,
    check_hidden,
    check_hides,
    named_tree,
    spare_of,
)
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.steps import blaming
from treetap.party.prediction.tree_model import TreeScoring
from treetap.party.runtime.context import MESSAGE_BYTES, Series, StepContext, batches, required
from treetap.protocols.eini import ChainSizes
from treetap.protocols.messages import BLOCK_BYTES
from treetap.trees.paths import GoesLeft, reachable
from treetap.wire.v2 import exchange_pb2, lattice_pb2, types_pb2

log = logging.getLogger(__name__)
#: Most bytes of ciphertexts in a message: the halves that came in one go on whole in one.
COLUMN_BYTES = 2 * MESSAGE_BYTES - 65_536
#: A ciphertext of a block: its page and its output.
Unit = tuple[Page, int]


@dataclass(frozen=True)
class BlockColumns:
    """The columns of a block of n records, computed page by page as they are sent.

    `base`: D(root), summed over trees (outputs, n), once all pages have been computed.
    """

    pages: Sequence[Page]
    numbers: Iterator[Ints]
    base: Ints


class LabelHolderEnd:
    """The label holder's end: a column for each node of another party, a ciphertext for each of its pages."""

    attributions = None  #: none under this cipher

    def __init__(self, job: PredictionJob, scoring: TreeScoring, sizes: ChainSizes, advance: Advance) -> None:
        """Raises BadInput if the scheme has no sizes for such a model."""
        self._context, self._chain, self._scoring, self._advance = job.context, job.chain, scoring, advance
        self._shape = shape_of(scoring.trees.public, job.config.name, len(job.chain))
        self._parameters = self._shape.parameters()
        _check_policy(job.context, self._parameters)
        sizes.column_sums = self._shape.outputs * self._parameters.ciphertext_bytes
        self._columns: NodeColumns | None = None
        self._owner: LatticeKeyHolder | None = None
        self._block: BlockColumns | None = None  # the one under way

    @property
    def scores(self) -> LabelHolderEnd:
        """This end itself: there is one kind of sums."""
        return self

    def lay_out(self) -> None:
        """Compute the columns of the model."""
        trees, modulus = self._scoring.trees, scheme_of(self._parameters).modulus
        self._columns = NodeColumns(trees.ensemble, self._context.party, modulus, trees.public)

    async def make_keys(self) -> None:
        """Make a key; to each party go its public part, and the own branches that a column depends on."""
        context, parameters, columns = self._context, self._parameters, required(self._columns)
        await check_hidden(context, self._scoring, columns.spare)
        instructions = native.instructions()
        log.info("job %s: %d columns, %s, %s instructions", context.job, self._shape.columns, parameters, instructions)
        key = await context.offload(lambda: LatticeKey(parameters))
        self._owner = LatticeKeyHolder(context.engine, key)
        context.held.push_async_callback(self._owner.close)
        # what the owner encrypts has half the size of a ciphertext: its uniform half is a seed
        fitting = self._shape.records(parameters.degree, 2 * BLOCK_BYTES // parameters.ciphertext_bytes)
        self._scoring.records.size = min(self._scoring.records.size, fitting)
        public = lattice_pb2.LatticeKey(public=await context.offload(key.public_bytes))
        await context.outbox.send_each("lattice_key", dict.fromkeys(self._chain, (public,)))
        layouts = {party: layout_messages(columns, party) for party in self._chain}
        await context.outbox.send_each("column_layout", layouts)

    def values(self, goes_left: GoesLeft, n: int) -> BlockColumns:
        """The columns by the own splits, in the place of W_k: each page is computed when it is encrypted."""
        pages, base = self._shape.pages(n, self._parameters.degree), np.zeros((self._shape.outputs, n), dtype=np.int64)
        return BlockColumns(pages, required(self._columns).pages(goes_left, n, pages, base), base)

    async def send(self, values: BlockColumns, number: int) -> None:
        """Encrypt the columns page by page, and send them to the first of the chain while the next are encrypted."""
        context, n, sent = self._context, values.base.shape[1], 0
        self._block = values
        total = sum(len(page.outputs) for page in values.pages)
        series = context.outbox.open(self._chain[0], "lattice_columns", number)
        groups = _in_groups(values.numbers, 2 * MESSAGE_BYTES // self._parameters.ciphertext_bytes)
        async for part in required(self._owner).encrypt(groups):
            await series.put(lattice_pb2.LatticeColumns(ciphertexts=part))
            sent += len(part)
            self._advance(n * sent // total)
        await series.close()
        context.costs.operations["encryptions"] += sent
        context.costs.ciphertexts["lattice_columns"] += sent

    async def receive(self, number: int) -> Floats:
        """Sums of leaf weights (n, outputs) of the block that was sent, D(root) added to those that come back.

        Raises:
            Malformed: not one sum for each output, or one that is not under this key or of no leaves.
        """
        block, answers = required(self._block), list[bytes]()
        with blaming(self._chain[-1], number):
            async for message in self._context.mailbox.series(self._chain[-1], "lattice_sums", number, 0):
                answers += message.protocol.lattice.lattice_sums.ciphertexts
            if len(answers) != self._shape.outputs:
                raise Malformed(f"{len(answers)} sums of {self._shape.outputs} outputs")
            opened = await required(self._owner).open(answers, widest(block.pages) * block.base.shape[1])
            self._context.costs.operations["decryptions"] += len(answers)
            return required(self._columns).weights(opened, block.base)


class FeaturePartyEnd:
    """A feature party's place in the chain: the sizes of the key follow from the layout."""

    attributions = None  #: none under this cipher
    _shape: ColumnShape  #: from `take_key`, as what follows
    _ways: list[Branches]
    _parameters: Parameters
    _member: LatticeMember

    def __init__(self, job: PredictionJob, opened: OpenedModel, sizes: ChainSizes, place: ChainPlace) -> None:
        del sizes  # known from the start
        self._context, self._opened, self._place = job.context, opened, place
        self._parties = len(job.opening.feature_parties)
        #: Blocks come one by one, and what the last of the chain needs is drawn between.
        self._draws_between = job.opening.serve and place.last

    @property
    def scores(self) -> FeaturePartyEnd:
        """Itself: it masks the ciphertexts of scores."""
        return self

    async def take_key(self) -> None:
        """Take the own branches that each column depends on, and a key of the sizes that follow from them."""
        context, sender = self._context, self._place.label_holder
        messages = context.mailbox.series(sender, "column_layout", 0, 0)
        layout = await take_layout(messages, self._place, self._opened.shard, self._parties)
        self._shape, self._ways, splits = layout
        parameters = self._parameters = self._shape.parameters()
        _check_policy(context, parameters)
        check_hides(context, spare_of(splits, parameters.plain_bits))
        public = b""
        longest = PARAMETERS_BYTES + parameters.seeded_bytes
        async for message in context.mailbox.series(sender, "lattice_key", 0, 0):
            public += message.protocol.lattice.lattice_key.public
            if len(public) > longest:
                raise Malformed(f"the key of {sender} has more than the {longest} bytes of this job's parameters")
        member = self._member = LatticeMember(context.engine, parameters, public, self._shape.outputs)
        context.held.push_async_callback(member.close)
        try:
            await member.start()
            if self._draws_between:
                member.prepare()
        except Malformed as failure:
            raise Malformed(f"the key of {sender} cannot be used: {failure}") from failure

    async def pass_on(self, goes_left: GoesLeft, n: int, number: int) -> None:
        """Mask the ciphertexts of a block of n records page by page as they come, re-randomise them and pass them on.

        The last of the chain adds them up, floods and returns the sums.
        """
        context, member, shape, degree = (
            self._context,
            self._member,
            self._shape,
            self._parameters.degree,
        )
        if n > degree:
            raise Malformed(f"{n} records, a ciphertext has {degree} slots")
        pages = shape.pages(n, degree)
        units = [(page, output) for page in pages for output in page.outputs]
        left = functools.cache(goes_left)
        series = context.outbox.open(self._place.after, self._sends, number)
        under_way: deque[asyncio.Task[list[bytes]]] = deque()
        came = masked = 0
        try:
            async for message in context.mailbox.series(self._place.before, "lattice_columns", number, 0):
                data = list(message.protocol.lattice.lattice_columns.ciphertexts)
                mine = units[came : came + len(data)]
                came += len(data)
                if len(mine) < len(data):
                    break
                # ciphertexts arrive faster than they are masked: a bounded number waits in memory
                if data:
                    under_way.append(asyncio.ensure_future(self._mask(number, mine, data, left, n)))
                while len(under_way) > IN_FLIGHT_PER_WORKER * context.engine.workers:
                    masked += await self._settle(series, under_way)
                    context.progress.done = n * masked // len(units)
            if came != len(units):
                raise Malformed(f"{n} records and {shape.columns} columns are {len(units)} ciphertexts, got {came}")
            while under_way:
                masked += await self._settle(series, under_way)
                context.progress.done = n * masked // len(units)
            if self._place.last:
                await self._put(series, await member.finish(number, widest(pages), n))
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await member.drop(number)
        await series.close()
        if self._draws_between:
            member.prepare()
        context.costs.operations["masked_products"] += masked

    async def _mask(
        self, number: int, units: Sequence[Unit], data: Sequence[bytes], left: GoesLeft, n: int
    ) -> list[bytes]:
        """Mask some ciphertexts; returns those to pass on, none at the last of the chain."""
        member, pages = self._member, list(dict.fromkeys(page for page, _ in units))
        # the pages' masks (columns · n,): 1 where the own splits let a record go with the column
        masks = [reachable(self._ways[page.first : page.last], n, left).T.reshape(-1) for page in pages]
        owns = [pages.index(page) for page, _ in units]
        if self._place.last:
            places = [(own, output) for own, (_, output) in zip(owns, units, strict=True)]
            await member.add(number, masks, data, places)
            return [b""] * len(data)
        return await member.pass_on(masks, data, owns)

    async def _settle(self, series: Series, under_way: deque[asyncio.Task[list[bytes]]]) -> int:
        """Wait for the oldest and pass it on; returns the number of its ciphertexts."""
        done = await under_way[0]
        under_way.popleft()
        if not self._place.last:
            await self._put(series, done)
        return len(done)

    async def _put(self, series: Series, ciphertexts: Sequence[bytes]) -> None:
        """Send to the next of the chain, in messages of bounded size."""
        body = lattice_pb2.LatticeSums if self._place.last else lattice_pb2.LatticeColumns
        count = max(1, COLUMN_BYTES // self._parameters.ciphertext_bytes)
        for start in range(0, len(ciphertexts), count):
            part = ciphertexts[start : start + count]
            self._context.costs.ciphertexts[self._sends] += len(part)
            await series.put(body(ciphertexts=part))

    @property
    def _sends(self) -> str:
        """The name of the messages that go on."""
        return "lattice_sums" if self._place.last else "lattice_columns"


def _check_policy(context: StepContext, parameters: Parameters) -> None:
    """`Refused` if the sizes of a key are below what the party's policy says."""
    policy, party, bits = context.policy, context.party, math.floor(parameters.secrecy_bits)
    of_key = {"lattice": "the prediction lattice", "secrecy": f"some {bits} bits of secrecy"}
    policy.check(party, "min_lattice_bits", bits, **of_key)
    hidden = "the masks behind a returned sum"
    policy.check(party, "min_hiding_bits", math.floor(parameters.statistical_bits), hidden=hidden)


def _in_groups(pages: Iterable[Ints], count: int) -> Iterator[list[Ints]]:
    """The numbers of `count` ciphertexts at a time, (slots,) each, in the order of pages and outputs."""
    group: list[Ints] = []
    for page in pages:
        for numbers in page:
            group.append(numbers)
            if len(group) >= count:
                yield group
                group = []
    if group:
        yield group


def layout_messages(columns: NodeColumns, member: str) -> Iterator[lattice_pb2.ColumnLayout]:
    """The layout for one member of the chain, in bounded messages."""
    trees = (
        lattice_pb2.TreeColumns(
            tree=tree.index,
            outputs=tree.outputs,
            leaves=len(tree.shown_leaves),
            columns=[
                lattice_pb2.ColumnPath(branches=[types_pb2.Branch(handle=handle, left=left) for handle, left in way])
                for way in ways
            ],
        )
        for tree, ways in zip(columns.trees, columns.ways(member), strict=True)
    )
    for batch in batches(trees):
        yield lattice_pb2.ColumnLayout(trees=batch)


async def take_layout(
    messages: AsyncIterator[exchange_pb2.PeerMessage], place: ChainPlace, shard: Sequence[dict[str, Any]], members: int
) -> tuple[ColumnShape, list[Branches], list[TreeSplits]]:
    """Take the layout for this party and check it against its shard; the chain has `members` feature parties.

    Returns what all parties know of the columns, the own branches that each depends on, and the own splits by tree.

    Raises:
        DataError: the trees, leaves or splits differ from those of the shard.
        Malformed: ways that this party's trees do not have, a tree twice, or columns of the score that are left out.
    """
    trees: list[TreeShape] = []
    ways: list[Branches] = []
    splits: list[TreeSplits] = []
    label_holder = place.label_holder
    seen = set[int]()
    async for message in messages:
        for tree in message.protocol.lattice.column_layout.trees:
            own, nodes = named_tree(place, shard, tree.tree, seen)
            sent = [tuple((branch.handle, branch.left) for branch in column.branches) for column in tree.columns]
            _check_tree(place, tree, own, sent)
            outputs = tuple(tree.outputs)
            trees.append(TreeShape(outputs, len(sent)))
            ways += sent
            splits.append(TreeSplits(outputs, nodes))
    # a column that no tree adds to would be a sum of nothing
    columns = {output for tree in trees for output in tree.outputs}
    if columns != set(range(len(columns))) or any(
        len(set(t.outputs)) != len(t.outputs) or not t.outputs for t in trees
    ):
        raise Malformed(f"{label_holder} has named columns of the score wrongly")
    return ColumnShape(trees, len(columns), members), ways, splits


def _check_tree(
    place: ChainPlace, tree: lattice_pb2.TreeColumns, own: Sequence[Branches], sent: Sequence[Branches]
) -> None:
    party, label_holder = place.party, place.label_holder
    if len(own) != tree.leaves:
        raise DataError(
            f"tree {tree.tree} has {tree.leaves} leaves at {label_holder}, {len(own)} in this party's shard: "
            "the shards are of different jobs"
        ).at(party)
    if len(sent) >= len(own):
        raise Malformed(f"{label_holder} has {len(sent)} columns of tree {tree.tree}, which has {len(own) - 1} splits")
    possible = {way[:length] for way in own for length in range(len(way) + 1)}
    if not set(sent) <= possible:
        raise Malformed(f"{label_holder} has a column of tree {tree.tree} to which no way leads here")
    # every split has the column of the records that go left there
    if missing := {way for way in possible if way and way[-1][1]} - set(sent):
        raise DataError(
            f"{len(missing)} of this party's splits in tree {tree.tree} have no column at {label_holder}: "
            "the shards are of different jobs"
        ).at(party)
