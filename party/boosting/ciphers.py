"""Encryption of a tree's values at both roles: with a key pair, or on a lattice.

With a key pair every drawn record has one ciphertext for all nodes of a tree. On a lattice each node, or the root for
all nodes, has words of every record: see `lattice_values` and `lattice_sums` in `treetap.party.growth`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import Malformed
from treetap.party.growth.ciphers import EncryptedValues, SummedValues
from treetap.party.growth.column_noise import ColumnNoise
from treetap.party.growth.feature_party import OwnTree, Sums, since
from treetap.party.growth.feature_party_job import FeaturePartyJob
from treetap.party.growth.offered_candidates import Offer
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.messages import Rows
from treetap.party.setup.keys import JobKeys
from treetap.protocols.growth import TreeSizes
from treetap.protocols.key_options import KeyKind
from treetap.trees.growing_tree import GrowingTree, Ints
from treetap.wire.v2 import boosting_pb2, setup_pb2


def encrypted_values(
    context: StepContext, spec: setup_pb2.JobSpec, sizes: Callable[[], TreeSizes], trees: Callable[[], int]
) -> EncryptedValues:
    """By the job's scheme. `sizes`: the job's; `trees`: the most of an attempt."""
    if not KeyKind.of(spec).on_lattice:
        return _OneForEachRecord(context, spec)
    from treetap.party.growth.lattice_values import WordsOfNodes  # with its kernels, which most jobs do without

    return WordsOfNodes(context, spec, sizes, trees)


class _OneForEachRecord(JobKeys):
    """One ciphertext for each record of a tree."""

    async def begin(self, t: int, values: Ints, rows: Rows, parties: Sequence[str]) -> None:
        await self.stream(values[rows], "gradients", boosting_pb2.Gradients, parties, t)

    async def next_stage(self, t: int, stage: int, growing: GrowingTree) -> None:
        del t, stage, growing  # the root's ciphertexts serve all nodes

    async def open_offer(self, offer: Offer) -> Ints:
        return await self.open(offer.ciphertexts, offer.sums)


def summed_values(
    context: StepContext, spec: setup_pb2.JobSpec, job: FeaturePartyJob, noise: ColumnNoise
) -> SummedValues:
    """By the job's scheme."""
    if not KeyKind.of(spec).on_lattice:
        return _SumsOfCiphertexts(context, spec, job, noise)
    from treetap.party.growth.lattice_sums import SumsOfWords  # with its kernels, which most jobs do without

    return SumsOfWords(context, spec, job, noise)


class _SumsOfCiphertexts:
    """Sums of one ciphertext for each record of a tree."""

    def __init__(self, context: StepContext, spec: setup_pb2.JobSpec, job: FeaturePartyJob, noise: ColumnNoise) -> None:
        self._context, self._sender, self._job, self._noise = context, spec.aggregator, job, noise
        self._sums: EncryptedSums | None = None

    async def take_key(self) -> None:
        await self._job.receive_key()

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:
        """Multiply the tree's ciphertexts into the root's histogram cells while they arrive."""
        public, slots = self._job.key
        token = f"{self._context.job}/{self._context.attempt}/{t}"
        shapes = columns.candidates.shapes
        sums = self._sums = EncryptedSums(self._context.engine, public, slots, columns.codes, shapes, token)
        self._context.progress.done, self._context.progress.total = 0, len(sampled)
        received, sender = 0, self._sender
        async for message in self._context.mailbox.series(sender, "gradients", t, 0):
            block = message.protocol.boosting.gradients
            if block.first != received or received + block.count > len(sampled):
                raise Malformed(f"{sender} sent ciphertexts out of place in tree {t}")
            await sums.add_block(sampled[received : received + block.count], block.ciphertexts)
            received += block.count
            self._context.progress.done = received
        if received != len(sampled):
            raise Malformed(f"{sender} sent {received} ciphertexts for {len(sampled)} records in tree {t}")

    async def sum(self, tree: OwnTree, stage: int, nodes: Sequence[int]) -> Sums:
        """Compute them, add noise if they have any, pack and re-randomise them."""
        sums = required(self._sums)
        before = dict(sums.operations) if stage else {}  # at the root, operations began with the first block
        spaces = [tree.rows_of(node) for node in nodes] if stage else None
        merged = None if spaces is None else tree.columns.seen(dict(zip(nodes, spaces, strict=True)))
        noise = await self._noise.of(tree, stage, nodes)
        packed = await sums.candidates(spaces, tree.columns.order(nodes[0]), merged, noise)
        self._context.costs.operations.update(since(before, sums.operations))
        public, _ = self._job.key
        return Sums(packed, len(packed) // public.ciphertext_bytes)

    async def drop(self) -> None:
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()

    async def close(self) -> None:
        await self.drop()
