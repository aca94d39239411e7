"""Boosting at a feature party: fresh ciphertexts of gradients for every tree."""

from __future__ import annotations

from functools import partial

import numpy as np

from party.alignment.steps import ALIGNMENT
from party.boosting.layout import implied
from party.config import PartyConfig
from party.growth.feature_party import (
    AFTER_HISTOGRAMS,
    AFTER_STORING,
    SITS_OUT,
    TAKES_PART,
    FeaturePartyGrowth,
    OwnTree,
    nodes_of,
    since,
)
from party.growth.feature_party_job import FeaturePartyJob
from party.growth.messages import take_sampled
from party.runtime.context import StepContext, required
from party.runtime.step_order import OPENING, RESUMED, Next, Outcome, role, step, steps_of
from party.setup.evaluated import check_drawn
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import Malformed
from treetap.protocols.growth import MOST_CLASSES
from treetap.protocols.job_spec import params_as
from treetap.trees.ensemble import ROOT
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import control_pb2, setup_pb2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("bin"),)}, FeaturePartyJob, FeaturePartyGrowth)
class FeatureParty:
    """Sums the ciphertexts of each tree's gradients while they arrive."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._params = params_as(spec, BoostingParams)
        trees = self._params.n_estimators * self._params.trees_per_round(MOST_CLASSES)
        job = self._job = FeaturePartyJob(config, context, spec, self._params, trees, partial(implied, self._params))
        growth = self._growth = FeaturePartyGrowth(context, spec.aggregator, job.stored, job.account)
        self._sums: EncryptedSums | None = None
        self.sizes = job.sizes
        self.steps = steps_of(self, job, growth, phases={ALIGNMENT: job.alignment}, conditions=job.conditions)

    @step(Next("take_key"), Next("publish"))
    async def bin(self) -> Outcome:
        """Select the common records, and bin their columns."""
        return await self._job.bin()

    @step(Next("build_histograms", RESUMED, TAKES_PART), Next("store_tree", RESUMED, SITS_OUT), Next("publish"))
    async def take_key(self) -> None:
        """Receive the public key of the label holder."""
        await self._job.receive_key()

    @step(*AFTER_HISTOGRAMS)
    async def build_histograms(self, request: control_pb2.StepRequest) -> None:
        """Step 2 of a tree.

        1. At the root: multiply the tree's ciphertexts into histogram cells while they arrive. Below: receive the
           instance spaces that the label holder relayed.
        2. Compute the left sums of every candidate, in this party's secret order; pack and re-randomise them.
        3. Send them to the label holder.
        """
        t, stage = request.round, request.stage
        nodes = nodes_of(request)
        tree = await self._growth.take_spaces(t, stage) if stage else await self._begin_tree(t)
        sums = required(self._sums)
        before = dict(sums.operations) if stage else {}  # at the root, operations began with the first block
        spaces = [tree.rows_of(node) for node in nodes] if stage else None
        merged = None if spaces is None else tree.columns.seen(dict(zip(nodes, spaces, strict=True)))
        packed = await sums.candidates(spaces, tree.columns.order(nodes[0]), merged)
        self._context.costs.operations.update(since(before, sums.operations))
        public, _ = self._job.key
        await self._growth.send_sums(tree, stage, nodes, packed, public.ciphertext_bytes)

    @step(*AFTER_STORING)
    async def store_tree(self, request: control_pb2.StepRequest) -> None:
        """Step 7 of a tree: store this party's part of it before answering, and release the tree's ciphertexts."""
        await self._growth.store(request.round, takes_part=self._job.takes_part(request.round))
        await self._drop_tree()

    async def close(self) -> None:
        """Release the ciphertexts in the workers."""
        await self._drop_tree()

    async def _begin_tree(self, t: int) -> OwnTree:
        public, slots = self._job.key
        split_table, mailbox, sender = self._job.split_table, self._context.mailbox, self._spec.aggregator
        split_table.next_handle_is(self._job.stored.first_handle(t))
        columns = split_table.columns_of_tree(
            t, self._params, permuted=True, min_cell_records=self._job.min_cell_records
        )
        total = len(self._job.table.ids)
        sampled = await take_sampled(mailbox.series(sender, "sampled_records", t, 0), total)
        columns.bins.see(ROOT, sampled)
        codes = columns.codes
        check_drawn(sender, t, draws_evaluated=bool((sampled >= split_table.training).any()))
        token = f"{self._context.job}/{self._context.attempt}/{t}"
        sums = self._sums = EncryptedSums(self._context.engine, public, slots, codes, columns.candidates.shapes, token)
        self._context.progress.done, self._context.progress.total = 0, len(sampled)
        received = 0
        async for message in mailbox.series(sender, "gradients", t, 0):
            block = message.protocol.boosting.gradients
            if block.first != received or received + block.count > len(sampled):
                raise Malformed(f"{sender} sent ciphertexts out of place in tree {t}")
            await sums.add_block(sampled[received : received + block.count], block.ciphertexts)
            received += block.count
            self._context.progress.done = received
        if received != len(sampled):
            raise Malformed(f"{sender} sent {received} ciphertexts for {len(sampled)} records in tree {t}")
        summed = np.zeros(len(codes), dtype=bool)
        summed[sampled] = True
        return self._growth.plant(t, columns, summed)

    async def _drop_tree(self) -> None:
        """Release the tree under construction and its ciphertexts, if there is one."""
        self._growth.forget()
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()
