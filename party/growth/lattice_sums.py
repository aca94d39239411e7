"""The sums of a tree's nodes on a lattice at a feature party, by one of two ways (`treetap.lattice.histogram_ways`).

*Queries*: for every node words of all records come, which are added up by the party's own bins. Which records are in a
node does not matter here: those outside of it have words of zeros. *Sets*: words of the root serve several nodes, and
those of a node's records are added up, in the node's own bins where it has some. Noise goes with sets alone: its proof
counts the nodes that hold a record, which by queries the label holder chooses.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from treetap.arrays import Ints
from treetap.errors import BadInput, Malformed
from treetap.lattice.histogram_parameters import HIDING, MOST, HistogramParameters
from treetap.lattice.histogram_scheme import added, parameters_of, shares_of, sum_masks
from treetap.lattice.histogram_sets import HistogramSets
from treetap.lattice.histogram_sums import HistogramSums, ReceivedWords
from treetap.lattice.histogram_ways import Needs, Way, built_nodes, once_an_attempt, way_of
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party import OwnTree, Sums, since
from treetap.party.growth.feature_party_job import FeaturePartyJob, SummedValues
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.setup.steps import draw_joint_seed
from treetap.protocols.growth import sums_shared
from treetap.protocols.key_options import LATTICE, LINE, PAILLIER
from treetap.trees.ensemble import ROOT
from treetap.trees.tree_bins import GlobalBins
from treetap.wire.v2 import exchange_pb2, setup_pb2

if TYPE_CHECKING:  # most parties have no cluster
    from treetap.lattice.histogram_shards import Shards

log = logging.getLogger(__name__)


class SumsOfWords(SummedValues):
    """Answers for the nodes that the label holder builds, by the way that the layout and settings say."""

    def __init__(
        self,
        context: StepContext,
        spec: setup_pb2.JobSpec,
        job: FeaturePartyJob,
        noise: ColumnNoise,
        *,
        once: bool = False,
    ) -> None:
        """`once`: values of records are those of all trees, unless a plaintext has slots for the class of a record."""
        super().__init__(context, spec, job, noise)
        self._masked = sums_shared(spec)
        self._once, self._line = once, spec.line or LINE
        self.parameters: HistogramParameters | None = None
        self._shards: Shards | None = None
        self._way: _Queries | _Sets | None = None
        self._answered = 0  # nodes of the attempt

    async def take_key(self) -> None:
        """Say how many candidates there are; receive the layout, and draw the seed of the public polynomials with all.

        Raises:
            BadInput: this party has more candidates than sizes allow for.
            Malformed: the label holder's bounds are below this party's figures, or no sizes follow from them.
        """
        context, job = self._context, self._job
        params, count = job.sizes.params, sum(shape.sums for shape in job.shapes)
        if count > MOST["candidates"]:
            raise BadInput(
                f"{context.party} has {count} candidates of a node, scheme = {LATTICE!r} takes {MOST['candidates']}: "
                f"use a smaller max_bin, fewer columns, or scheme = {PAILLIER!r}"
            )
        merges, keeps = (
            job.split_table.min_cell_records > 0,
            context.policy.keys.second_halves == "job" and params.colsample_bytree == 1,
        )
        hiding = max(context.policy.keys.min_hiding_bits, self._hiding_of_noise())
        message = setup_pb2.CandidateCount(
            candidates=count,
            merges_bins=merges,
            keeps_second_halves=keeps,
            hiding=hiding,
            min_side_records=job.split_table.min_side_records,
        )
        await context.outbox.send(self._sender, "candidate_count", [message])
        received = await job.receive_key()
        key = received.said
        if key.candidates < count or key.queries < 1:
            raise Malformed(
                f"{self._sender} says that a party has at most {key.candidates} candidates, and that {key.queries} "
                f"nodes are built; {context.party} has {count} candidates"
            )
        if (
            key.merges_bins < merges
            or key.counts_records < bool(job.split_table.min_side_records)
            or key.keeps_second_halves > keeps
        ):
            raise Malformed(f"{self._sender} does not say of all parties what {context.party} has said of its sums")
        context.policy.check(context.party, "min_hiding_bits", key.hiding, hidden="its sets of records")
        max_bin, (_, records) = params.max_bin, job.summed
        try:
            sizes = key.candidates, key.queries, context.attempt, key.hiding
            noised = self._noise.inexact or self._masked
            agreed = parameters_of(records, received.slots, max_bin, *sizes, noised=noised)
            agreed = replace(agreed, records=len(job.table.ids))
        except BadInput as failure:
            raise Malformed(f"the layout of {self._sender} cannot be used: {failure}") from failure
        self._once = self._once and not key.label_slots
        merged, kept = key.merges_bins, key.keeps_second_halves
        needs = Needs.of(params, merged=merged, kept=kept, once=self._once, noised=self._noise.inexact)
        way = way_of(agreed, built_nodes(params, needs), needs, self._line)
        self._once = once_an_attempt(agreed, needs)
        job.sizes.words, job.sizes.nodes_per_query = agreed.words, way.nodes_per_query(agreed)
        members = job.sizes.members.aligned(context.party)
        self.parameters, seed = agreed, await draw_joint_seed(context, members)
        if context.shards is not None:
            self._shards = context.shards(agreed, seed, f"{context.job}/{context.attempt}")
            context.held.callback(self._shards.close)
            # where nodes have bins of their own, those come with each node
            own = params.bins_per_node or job.split_table.min_cell_records
            bins = GlobalBins(job.split_table.binned, np.arange(0 if own else len(job.split_table.columns)))
            await self._shards.start(bins.all_codes, bins.candidates.shapes)
        if way is Way.SETS:
            self._way = _Sets(context, self._sender, agreed, seed, self._shards, once=self._once)
        else:
            assert self._noise.privacy is None  # the label holder could have a record in all nodes of a level
            self._way = _Queries(context, self._sender, agreed, seed, self._shards, keeps=keeps, masked=self._masked)
        context.held.push_async_callback(self._way.close)

    def _hiding_of_noise(self) -> int:
        """The bits of hiding by which the lattice adds next to nothing to δ, or the most that there are; 0 without."""
        if (privacy := self._noise.privacy) is None:
            return 0
        if (needed := privacy.hiding_bits) > HIDING[-1]:
            log.warning(
                "job %s: column_privacy with epsilon = %g needs %d bits of hiding, and a lattice has %d: its δ is "
                "greater by (1 + e^ε) · 2^-%d; take a smaller epsilon, or scheme = %r",
                self._context.job,
                privacy.epsilon,
                needed,
                HIDING[-1],
                HIDING[-1],
                PAILLIER,
            )
        return min(needed, HIDING[-1])

    async def take_shared(self) -> None:
        """Receive the words that serve all trees, where some do.

        Raises:
            Malformed: they come out of place, or lack.
        """
        if isinstance(self._way, _Sets) and self._once:
            await self._way.take_shared()

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:
        del sampled
        assert self._way is not None
        await self._way.begin(t, columns)

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> AsyncIterator[Sums]:
        """Add up the words of each node, and hide the sums, one node after the other as they are asked for.

        Raises:
            OutOfOrder: the records of a node are not known here, and so not what its sums show.
            Malformed: words come out of place, more nodes are asked for than the label holder said, or nodes that
                noise does not allow.
            Refused: the budget of noise is spent.
        """
        for node in nodes:
            tree.rows_of(node)  # queries need them not, but no sum is of records that were not shown
        self._answered += len(nodes)
        if self._answered > (said := required(self.parameters).queries):
            raise Malformed(f"{self._sender} asks for more than the {said} nodes that it said")
        assert self._way is not None
        if isinstance(self._way, _Sets):
            for node in nodes:  # all before the first is shown
                await self._context.offload(partial(tree.columns.bins.see, node, _summed(tree, node)))
            return self._way.sum(tree, stage, nodes, await self._noise.of(tree, stage, nodes))
        return self._way.sum(tree, stage, nodes)  # noise makes the way sets

    async def drop(self) -> None:
        if isinstance(self._way, _Sets) and not self._once:
            await self._way.close()  # the next tree has other words


class _Queries:
    """Words of all records for every node, over the same columns for as many trees as have them.

    `keeps`: second halves serve all of these trees, in one order. `masked`: what is opened of a sum is a share of it,
    and the party keeps the other one.
    """

    def __init__(
        self,
        context: StepContext,
        sender: str,
        parameters: HistogramParameters,
        seed: bytes,
        shards: Shards | None,
        *,
        keeps: bool,
        masked: bool,
    ) -> None:
        self._context, self._sender, self._parameters, self._seed = context, sender, parameters, seed
        self._shards, self._keeps, self._masked = shards, keeps, masked
        self._sums: HistogramSums | None = None
        self._columns: TreeColumns | None = None
        self._asked = 0  # queries under these second halves, or of the tree

    async def begin(self, _t: int, columns: TreeColumns) -> None:
        """Hand the columns to the workers, unless the tree before had the same ones."""
        before, self._columns = self._columns, columns
        if self._sums is not None and before is not None and (before.bins.kept == columns.bins.kept).all():
            if self._keeps:
                columns.follow(before)
            else:
                self._asked = 0
            return
        await self.close()
        self._asked = 0
        shapes = columns.candidates.shapes
        engine, sizes = self._context.engine, (self._parameters, self._seed)
        self._sums = (
            HistogramSums(engine, *sizes, columns.codes, shapes, self._context.scratch.halves)
            if self._shards is None
            else self._shards.sums(engine, columns.bins.kept, shapes)
        )
        await self._sums.start()

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> AsyncIterator[Sums]:
        """Add up the words of each node while they arrive, and hide the sums."""
        sums, parameters, context = required(self._sums), self._parameters, self._context
        order, most = tree.columns.order(nodes[0]), parameters.queries_per_second_half
        before = dict(sums.operations)
        context.progress.done, context.progress.total = 0, sums.expected * len(nodes)
        series = context.mailbox.series(self._sender, "encrypted_words", tree.index, stage)
        for node in nodes:
            await _take_words(context, self._sender, series, tree.index, node, sums)
            renews = not (self._asked if self._keeps else self._asked % most)
            self._asked += 1
            if renews:
                async with aclosing(sums.renew(order)) as halves:
                    async for some in halves:
                        yield Sums(b"", 0, some)
            plus = None
            if self._masked:
                masks, plus = sum_masks(parameters, len(order))
                tree.shares[node] = shares_of(parameters, masks, minus=True)
            yield Sums(await sums.answer(order, plus), len(order) * (parameters.words + renews))
        await _check_end(self._sender, series, tree.index)
        context.costs.operations.update(since(before, sums.operations))

    async def close(self) -> None:
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()


class _Sets:
    """Words of the root for as many nodes of a tree as secrets may serve, or for all trees (`once`)."""

    def __init__(
        self,
        context: StepContext,
        sender: str,
        parameters: HistogramParameters,
        seed: bytes,
        shards: Shards | None,
        *,
        once: bool,
    ) -> None:
        self._context, self._sender, self._parameters, self._seed = context, sender, parameters, seed
        self._shards, self._once = shards, once
        self._sets: HistogramSets | None = None
        self._asked = 0  # nodes of the tree

    async def take_shared(self) -> None:
        """Receive the words that serve all trees."""
        series = self._context.mailbox.series(self._sender, "encrypted_words", 0, 0)
        await self._take(series, 0, ROOT)
        await _check_end(self._sender, series, 0)

    async def begin(self, t: int, columns: TreeColumns) -> None:
        """Count the nodes of a tree anew: words come with the first of them."""
        del t, columns
        self._asked = 0

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int], noise: Ints | None) -> AsyncIterator[Sums]:
        """Add up the words of each node's records that the sums hold, and hide the sums; their bins are known.

        Words that are due come before the node with which their query begins. `noise`: (sums, S), node-major.
        """
        context, columns = self._context, tree.columns
        bins, shapes, serves = columns.bins, columns.candidates.shapes, self._parameters.nodes_per_secret
        due = set() if self._once else {node for at, node in enumerate(nodes, self._asked) if not at % serves}
        series = context.mailbox.series(self._sender, "encrypted_words", tree.index, stage) if due else None
        if series is None:
            context.progress.done, context.progress.total = 0, len(nodes)
        of_nodes = [None] * len(nodes) if noise is None else np.split(noise, len(nodes))
        for node, of_node in zip(nodes, of_nodes, strict=True):
            if series is not None and node in due:
                await self._take(series, tree.index, node)
            sets = required(self._sets)
            before, rows = dict(sets.operations), _summed(tree, node)
            by_number = self._shards is not None and bins.additive  # the shards have them
            codes = bins.kept if by_number else await context.offload(partial(bins.codes, node, rows))
            plus = None if of_node is None else added(self._parameters, of_node)
            first, second = await sets.answer(rows, codes, shapes, columns.order(node), plus)
            context.costs.operations.update(since(before, sets.operations))
            yield Sums(first, len(columns.candidates) * (self._parameters.words + 1), second)
            context.progress.done += series is None
        self._asked += len(nodes)
        if series is not None:
            await _check_end(self._sender, series, tree.index)

    async def close(self) -> None:
        if self._sets is not None:
            sets, self._sets = self._sets, None
            await sets.close()

    async def _take(self, series: AsyncIterator[exchange_pb2.PeerMessage], t: int, node: int) -> None:
        """Receive a query into the workers, in the place of the one before."""
        await self.close()
        context = self._context
        sets = self._sets = (
            HistogramSets(context.engine, self._parameters, self._seed)
            if self._shards is None
            else self._shards.sets(context.engine)
        )
        await sets.start()
        context.progress.done, context.progress.total = 0, sets.expected
        await _take_words(context, self._sender, series, t, node, sets)


def _summed(tree: OwnTree, node: int) -> Rows:
    """The records of a node that its sums hold."""
    rows = tree.rows_of(node)
    summed: Rows = rows[tree.summed[rows]]
    return summed


async def _take_words(
    context: StepContext,
    sender: str,
    series: AsyncIterator[exchange_pb2.PeerMessage],
    t: int,
    node: int,
    to: ReceivedWords,
) -> None:
    """Hand over the words of one node, which are the next of the series."""
    received = 0
    async for message in series:
        words = message.growth.encrypted_words
        if words.node != node or words.first != received:
            raise Malformed(f"{sender} sent words out of place in tree {t}")
        try:
            await to.add_block(words.first, words.count, words.ciphertexts)
        except Malformed as failure:
            raise Malformed(f"{sender} sent what are no words of node {node}: {failure}") from failure
        received += words.count
        context.progress.done += words.count
        if received >= to.expected:
            break
    if received != to.expected:
        raise Malformed(f"{sender} sent {received} words of node {node}, not {to.expected}")


async def _check_end(sender: str, series: AsyncIterator[exchange_pb2.PeerMessage], t: int) -> None:
    async for _ in series:
        raise Malformed(f"{sender} sent words of more nodes than are built in tree {t}")
