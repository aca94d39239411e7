"""The sums of a tree's nodes on a lattice at a feature party: words of every record, added up by its own bins.

Which records are in a node does not matter here: those outside of it have words of zeros.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from party.growth.feature_party import OwnTree, Sums, since
from party.growth.feature_party_job import FeaturePartyJob
from party.growth.split_table import TreeColumns
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from party.setup.joint_seed import draw_joint_seed
from treetap.errors import BadInput, Malformed
from treetap.lattice.histogram_parameters import MOST, HistogramParameters
from treetap.lattice.histogram_scheme import parameters_of
from treetap.lattice.histogram_sums import HistogramSums
from treetap.protocols.key_options import LATTICE, PAILLIER
from treetap.wire.v2 import exchange_pb2, setup_pb2


class SumsOfWords:
    """Answers the label holder's queries, one for each node."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec, job: FeaturePartyJob) -> None:
        self._context, self._spec, self._job = context, spec, job
        self._sender, self._parties = spec.aggregator, [spec.aggregator, *spec.feature_parties]
        self._parameters: HistogramParameters | None = None
        self._seed = b""
        self._sums: HistogramSums | None = None
        self._kept: tuple[int, ...] = ()
        self._asked = 0  # queries of the tree
        self._answered = 0  # of the attempt

    async def take_key(self) -> None:
        """Say how many candidates there are; receive the layout, and draw the seed of the public polynomials with all.

        Raises:
            BadInput: this party has more candidates than sizes allow for.
            Malformed: the label holder's bounds are below this party's figures, or no sizes follow from them.
        """
        context, job = self._context, self._job
        shapes = job.split_table.binned.shapes
        count = sum(shape.sums for shape in shapes)
        if count > MOST["candidates"]:
            raise BadInput(
                f"{context.party} has {count} candidates of a node, scheme = {LATTICE!r} takes {MOST['candidates']}: "
                f"use a smaller max_bin, fewer columns, or scheme = {PAILLIER!r}"
            )
        message = setup_pb2.CandidateCount(candidates=count, hiding=context.policy.min_hiding_bits)
        await context.outbox.send(self._sender, "candidate_count", [message])
        key = await job.receive_key()
        if key.candidates < count or key.queries < 1:
            raise Malformed(
                f"{self._sender} says that a party has at most {key.candidates} candidates, and that {key.queries} "
                f"nodes are built; {context.party} has {count} candidates"
            )
        context.policy.check_hiding(context.party, "its sets of records", key.hiding)
        max_bin, records = job.sizes.params.max_bin, len(job.table.ids)
        try:
            self._parameters = parameters_of(
                records, key.slots, max_bin, key.candidates, key.queries, context.attempt, key.hiding
            )
        except BadInput as failure:
            raise Malformed(f"the layout of {self._sender} cannot be used: {failure}") from failure
        job.sizes.words = self._parameters.words
        self._seed = await draw_joint_seed(context, self._parties)

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:
        """Hand the columns to the workers, unless the tree before had the same ones."""
        del t, sampled
        self._asked = 0
        kept = tuple(int(column) for column in columns.bins.kept)
        if self._sums is not None and kept == self._kept:
            return
        await self.close()
        token = f"{self._context.job}/{self._context.attempt}/{self._answered}"
        shapes = columns.candidates.shapes
        self._kept, self._sums = (
            kept,
            HistogramSums(self._context.engine, required(self._parameters), self._seed, columns.codes, shapes, token),
        )
        await self._sums.start()

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Sums:
        """Add up the words of each node while they arrive, and hide the sums.

        Raises:
            OutOfOrder: the records of a node are not known here, and so not what its sums show.
            Malformed: words come out of place, or more nodes are asked for than the label holder said.
        """
        for node in nodes:
            tree.rows_of(node)  # words need them not, but the account of what is shown does
        sums, parameters, context = required(self._sums), required(self._parameters), self._context
        order, firsts, seconds = tree.columns.order(nodes[0]), [], []
        before = dict(sums.operations)
        context.progress.done, context.progress.total = 0, sums.expected * len(nodes)
        series = context.mailbox.series(self._sender, "encrypted_words", tree.index, stage)
        for node in nodes:
            if self._answered == parameters.queries:
                raise Malformed(f"{self._sender} asks for more than the {parameters.queries} nodes that it said")
            self._answered += 1
            await self._take_words(series, tree.index, node)
            if not self._asked % parameters.queries_per_second_half:
                seconds.append(await sums.renew(order))
            self._asked += 1
            firsts.append(await sums.answer(order))
        async for _ in series:
            raise Malformed(f"{self._sender} sent words of more nodes than are built in tree {tree.index}")
        context.costs.operations.update(since(before, sums.operations))
        halves = len(order) * (parameters.words * len(firsts) + len(seconds))
        return Sums(b"".join(firsts), halves, b"".join(seconds))

    async def _take_words(self, series: AsyncIterator[exchange_pb2.PeerMessage], t: int, node: int) -> None:
        """Add up the words of one node, which are the next of the series."""
        sums, received = required(self._sums), 0
        async for message in series:
            words = message.growth.encrypted_words
            if words.node != node or words.first != received:
                raise Malformed(f"{self._sender} sent words out of place in tree {t}")
            try:
                await sums.add_block(words.first, words.count, words.ciphertexts)
            except Malformed as failure:
                raise Malformed(f"{self._sender} sent what are no words of node {node}: {failure}") from failure
            received += words.count
            self._context.progress.done += words.count
            if received >= sums.expected:
                break
        if received != sums.expected:
            raise Malformed(f"{self._sender} sent {received} words of node {node}, not {sums.expected}")

    async def drop(self) -> None:
        """The next tree has the same columns, most often: their part of the work is kept."""

    async def close(self) -> None:
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()
