"""The slots of a record's label in a forest, and the ciphers that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from treetap.additive.sums.tree_sums import NodeTask, PooledSums
from treetap.arrays import Ints
from treetap.errors import Malformed
from treetap.party.growth.ciphers import SharedValues, SumsOfShared
from treetap.party.growth.column_noise import ColumnNoise, widths_of
from treetap.party.growth.feature_party import OwnTree, Sums, since
from treetap.party.growth.feature_party_job import FeaturePartyJob
from treetap.party.growth.offered_candidates import Offer
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.setup.keys import JobKeys
from treetap.privacy.column_privacy import ColumnPrivacy, most_draws
from treetap.protocols.growth import TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.trees.growing_tree import GrowingTree
from treetap.trees.loss import UNIT
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import ForestParams
from treetap.trees.slots import Slots, width_for
from treetap.wire.v2 import forest_pb2, setup_pb2


def layout(
    params: ForestParams, records: int, outputs: int, classes: int = 0, noises: Sequence[SumNoise] = ()
) -> Slots:
    """One slot per class, for counts; or the target and 1. Each is wide enough for the sum over all records.

    A tree draws no more records than there are. `classes`: of the label, where its counts over all records, drawn or
    not, are in further slots. `noises`: of parties, for the most of which there is room.

    Raises:
        PlaintextOverflow: such sums need wider slots than there are.
        ConfigError: with noise they do.
    """
    bounds = [1] * outputs if params.criterion == "gini" else [UNIT, 1]
    return Slots((*widths_of(records, bounds, noises), *[width_for(records, 1)] * classes))


def implied(
    params: ForestParams, on_lattice: bool, records: int, slots: int, classes: int, noises: Sequence[SumNoise] = ()
) -> Slots:
    """The layout of `slots` slots that a job implies; a feature party cannot tell the number of classes from it.

    `classes`: those slots that count all records, which with a key have sums of their own instead.

    Raises:
        Malformed: no number of classes leads to `slots` slots.
    """
    of_all = on_lattice and params.criterion == "gini" and slots == 2 * classes > 2
    if slots < 2 or (classes and not of_all):
        raise Malformed(f"{slots} slots, {classes} of all records, are not counts of classes, nor a target and a count")
    return layout(params, records, slots - classes, classes, noises)


class ForestLayout(NamedTuple):
    """The layout that a job of a forest implies: see `NoisedLayout`."""

    params: ForestParams
    on_lattice: bool

    def draws(self, party: str, privacy: ColumnPrivacy, records: int) -> int:
        """Those of the record that is drawn most, by the job's seed."""
        del privacy
        return most_draws(self.params, party, records)

    def noise(self, privacy: ColumnPrivacy, slots: int, draws: int) -> SumNoise:
        """That of counts of classes, or of a target and a count."""
        return privacy.noise_of_forest(self.params, slots, draws)

    def implied(self, records: int, slots: int, classes: int, noises: Sequence[SumNoise]) -> Slots:
        return implied(self.params, self.on_lattice, records, slots, classes, noises)


#: The draw of the current tree: how often it draws each record (N,), and True if sums over all records are asked for.
Draw = Callable[[], tuple[Rows, bool]]


def encrypted_labels(
    context: StepContext, spec: setup_pb2.JobSpec, sizes: Callable[[], TreeSizes], params: ForestParams
) -> SharedValues:
    """By the job's scheme. `sizes`: the job's."""
    if not KeyKind.of(spec).on_lattice:
        return _OneForEachRecord(context, spec, sizes)
    from treetap.party.growth.lattice_values import WordsOfNodes  # with its kernels, which most jobs do without

    return WordsOfNodes(context, spec, sizes, lambda: params.n_estimators, once=not params.bootstrap)


class _OneForEachRecord(JobKeys):
    """One ciphertext for each record of an attempt."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec, sizes: Callable[[], TreeSizes]) -> None:
        super().__init__(context, spec)
        self._sizes = sizes

    async def share(self, values: Ints) -> None:
        await self.stream(values, "encrypted_labels", forest_pb2.EncryptedLabels, list(self._spec.feature_parties))

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        del t, values, rows, parties  # the shared ciphertexts serve all trees

    async def next_stage(self, t: int, stage: int, growing: GrowingTree) -> None:
        del t, stage, growing

    async def open_offer(self, offer: Offer) -> Ints:
        """The sums over the drawn records and, in further slots, those over all: they come behind the others."""
        times = self._sizes().sums_of_each
        return np.concatenate(np.split(await self.open(offer.ciphertexts, times * offer.sums), times), axis=1)


def summed_labels(
    context: StepContext,
    spec: setup_pb2.JobSpec,
    job: FeaturePartyJob,
    params: ForestParams,
    noise: ColumnNoise,
    draw: Draw,
) -> SumsOfShared:
    """By the job's scheme."""
    if not KeyKind.of(spec).on_lattice:
        return _SumsOfCiphertexts(context, spec, job, noise, draw)
    from treetap.party.growth.lattice_sums import SumsOfWords  # with its kernels, which most jobs do without

    return SumsOfWords(context, spec, job, noise, once=not params.bootstrap)


class _SumsOfCiphertexts:
    """Sums of the ciphertexts of an attempt over the draws of a node."""

    def __init__(
        self, context: StepContext, spec: setup_pb2.JobSpec, job: FeaturePartyJob, noise: ColumnNoise, draw: Draw
    ) -> None:
        self._context, self._sender, self._job, self._noise, self._draw = context, spec.aggregator, job, noise, draw
        self._pool: PooledSums | None = None

    async def take_key(self) -> None:
        await self._job.receive_key()

    async def take_shared(self) -> None:
        """Receive the ciphertext of the label of each of the training's records into the workers."""
        public, slots = self._job.key
        total, sender = self._job.split_table.training, self._sender
        pool = self._pool = PooledSums(self._context.engine, public, slots, total)
        self._context.progress.done, self._context.progress.total = 0, total
        async for message in self._context.mailbox.series(sender, "encrypted_labels", 0, 0):
            block = message.protocol.forest.encrypted_labels
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{sender} sent encrypted labels out of place")
            await pool.add_block(block.first, block.ciphertexts)
            self._context.progress.done = pool.received
        if pool.received != total:
            raise Malformed(f"{sender} sent encrypted labels of {pool.received} of {total} records")

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:
        del t, columns, sampled  # the shared ciphertexts serve all trees

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Sums:
        """Compute them, add noise if they have any, pack and re-randomise them.

        Behind them, if these are asked for, sums over all records, which noise does not go with.
        """
        pool, (drawn, of_all) = required(self._pool), self._draw()
        before = dict(pool.operations)
        tasks = await self._context.offload(lambda: [_task(tree, node, drawn) for node in nodes])
        summed = int(drawn.sum())
        if of_all:
            tasks += await self._context.offload(lambda: [_task_of_all(tree, node) for node in nodes])
            summed += tree.columns.training
        noise = await self._noise.of(tree, stage, nodes)
        packed = await pool.candidates(tasks, tree.columns.candidates.shapes, summed, noise)
        self._context.costs.operations.update(since(before, pool.operations))
        public, _ = self._job.key
        return Sums(packed, len(packed) // public.ciphertext_bytes)

    async def drop(self) -> None:
        """The next tree has the same ciphertexts."""

    async def close(self) -> None:
        if self._pool is not None:
            pool, self._pool = self._pool, None
            await pool.close()


def _task(tree: OwnTree, node: int, drawn: Rows) -> NodeTask:
    """The drawn records of a node, each as often as it was drawn, in the bins of the job or of the node."""
    bins, rows = tree.columns.bins, tree.rows_of(node)
    bins.see(node, rows[drawn[rows] > 0])
    rows = np.repeat(rows, drawn[rows])
    return NodeTask(rows, bins.codes(node, rows), tree.columns.order(node))


def _task_of_all(tree: OwnTree, node: int) -> NodeTask:
    """All records of a node whose bins are known, each once, but for those of an eval table."""
    rows = tree.rows_of(node)
    rows = rows[rows < tree.columns.training]
    return NodeTask(rows, tree.columns.bins.codes(node, rows), tree.columns.order(node))
