"""The slots of a record's label in a forest, and the ciphers that hold them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from treetap.additive.sums.tree_sums import NodeTask, PooledSums
from treetap.errors import Malformed
from treetap.party.growth.column_noise import ColumnNoise, widths_of
from treetap.party.growth.feature_party import OwnTree, Sums, since
from treetap.party.growth.feature_party_job import FeaturePartyJob, SummedValues
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.privacy.column_privacy import ColumnPrivacy, most_draws
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import ForestParams
from treetap.trees.slots import Slots, width_for
from treetap.wire.v2 import setup_pb2


def layout(
    params: ForestParams,
    records: int,
    outputs: int,
    classes: int = 0,
    noises: Sequence[SumNoise] = (),
    *,
    shared: bool = False,
) -> Slots:
    """One slot per class, for counts; or the target and 1. Each is wide enough for the sum over all records.

    A tree draws no more records than there are. `classes`: of the label, where its counts over all records, drawn or
    not, are in further slots. `noises`: of parties, for the most of which there is room. `shared`: sums are; then a
    target has a bit more (`treetap.shares`).

    Raises:
        PlaintextOverflow: such sums need wider slots than there are.
        ConfigError: with noise they do.
    """
    first, *further = widths_of(records, params.slot_bounds(outputs), noises)
    wider = shared and params.criterion != "gini"
    return Slots((first + wider, *further, *[width_for(records, 1)] * classes))


class ForestLayout(NamedTuple):
    """The layout that a job of a forest implies: see `NoisedLayout`."""

    params: ForestParams
    on_lattice: bool
    shared: bool = False

    def draws(self, party: str, _privacy: ColumnPrivacy, records: int) -> int:
        """Those of the record that is drawn most, by the job's seed."""
        return most_draws(self.params, party, records)

    def noise(self, privacy: ColumnPrivacy, slots: int, draws: int) -> SumNoise:
        """That of counts of classes, or of a target and a count."""
        return privacy.noise_of_forest(self.params, slots, draws)

    def implied(self, records: int, slots: int, classes: int, noises: Sequence[SumNoise]) -> Slots:
        """The layout of `slots` slots that a job implies; a feature party cannot tell the number of classes from it.

        `classes`: those slots that count all records, which with a key have sums of their own instead.

        Raises:
            Malformed: no number of classes leads to `slots` slots.
        """
        of_all = self.on_lattice and self.params.criterion == "gini" and slots == 2 * classes > 2
        if slots < 2 or (classes and not of_all):
            raise Malformed(
                f"{slots} slots, {classes} of all records, are not counts of classes, nor a target and a count"
            )
        return layout(self.params, records, slots - classes, classes, noises, shared=self.shared)


#: The draw of the current tree: how often it draws each record (N,), and True if sums over all records are asked for.
Draw = Callable[[], tuple[Rows, bool]]


class SumsOfShared(SummedValues):
    """Sums of the ciphertexts of an attempt over the draws of a node."""

    _pool: PooledSums | None = None

    def __init__(
        self, context: StepContext, spec: setup_pb2.JobSpec, job: FeaturePartyJob, noise: ColumnNoise, draw: Draw
    ) -> None:
        super().__init__(context, spec, job, noise)
        self._draw = draw

    async def take_shared(self) -> None:
        """Receive the ciphertext of the label of each of the training's records into the workers."""
        public, slots = self._job.key.public, self._job.key.slots
        total, sender = self._job.split_table.training, self._sender
        pool = self._pool = PooledSums(self._context.engine, public, slots, total)
        self._context.held.push_async_callback(pool.close)
        self._context.progress.done, self._context.progress.total = 0, total
        async for message in self._context.mailbox.series(sender, "encrypted_labels", 0, 0):
            block = message.protocol.forest.encrypted_labels
            if block.count * public.ciphertext_bytes != len(block.ciphertexts) or block.first != pool.received:
                raise Malformed(f"{sender} sent encrypted labels out of place")
            await pool.add_block(block.first, block.ciphertexts)
            self._context.progress.done = pool.received
        if pool.received != total:
            raise Malformed(f"{sender} sent encrypted labels of {pool.received} of {total} records")

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
            summed += tree.columns.table.training
        noise = await self._noise.of(tree, stage, nodes)
        packed = await pool.candidates(tasks, tree.columns.candidates.shapes, summed, noise)
        self._context.costs.operations.update(since(before, pool.operations))
        return Sums(packed, len(packed) // self._job.key.public.ciphertext_bytes)


def _task(tree: OwnTree, node: int, drawn: Rows) -> NodeTask:
    """The drawn records of a node, each as often as it was drawn, in the bins of the job or of the node."""
    bins, rows = tree.columns.bins, tree.rows_of(node)
    bins.see(node, rows[drawn[rows] > 0])
    rows = np.repeat(rows, drawn[rows])
    return NodeTask(rows, bins.codes(node, rows), tree.columns.order(node))


def _task_of_all(tree: OwnTree, node: int) -> NodeTask:
    """All records of a node whose bins are known, each once, but for those of an eval table."""
    rows = tree.rows_of(node)
    rows = rows[rows < tree.columns.table.training]
    return NodeTask(rows, tree.columns.bins.codes(node, rows), tree.columns.order(node))
