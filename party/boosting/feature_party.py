"""Boosting at a feature party: fresh ciphertexts of gradients for every tree.

after            may come
prepare          the steps of the alignment, bin if aligned already, publish if published already
alignment        bin
bin              take_key, publish
take_key         build_histograms(t, 0) for the next tree t, publish
build(t, l)      apply_splits(t, l), build_histograms(t, l+1), store_tree(t)
apply(t, l)      build_histograms(t, l+1), store_tree(t)
store_tree(t)    build_histograms(t+1, 0), publish

Of a tree that the party sits out there is store_tree(t) alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from party.config import PartyConfig
from party.growth.feature_party import GrowingFeatureParty, OwnTree, since
from party.runtime.context import Tools, have
from party.runtime.messages import take_sampled
from treetap.errors import Malformed
from treetap.paillier.tree_sums import EncryptedSums
from treetap.protocols.job_spec import params_as
from treetap.trees.params import BoostingParams
from treetap.wire.v2 import setup_pb2


class FeatureParty(GrowingFeatureParty):
    """Sums each tree's own ciphertexts while they arrive."""

    def __init__(self, config: PartyConfig, tools: Tools, spec: setup_pb2.JobSpec) -> None:
        super().__init__(config, tools, spec, params_as(spec, BoostingParams))
        self._sums: EncryptedSums | None = None

    async def _begin(self, t: int) -> OwnTree:
        """The tree's ciphertexts are multiplied into the root's cells as they arrive."""
        public, slots = have(self._key)
        columns = self._columns(t).columns_of_tree(t, self._params, permuted=True)
        codes = columns.codes
        total, mailbox = len(codes), self._tools.mailbox
        sampled = await take_sampled(mailbox.series(self._label_holder, "sampled_records", t, 0), total)
        token = f"{self._tools.job}/{self._tools.attempt}/{t}"
        sums = self._sums = EncryptedSums(self._tools.engine, public, slots, codes, columns.candidates.shapes, token)
        self._tools.meter.done, self._tools.meter.total = 0, len(sampled)
        received = 0
        async for parcel in mailbox.series(self._label_holder, "gradients", t, 0):
            block = parcel.protocol.boosting.gradients
            if block.first != received or received + block.count > len(sampled):
                raise Malformed(f"{self._label_holder} sent ciphertexts out of place in tree {t}")
            await sums.add_block(sampled[received : received + block.count], block.ciphertexts)
            received += block.count
            self._tools.meter.done = received
        if received != len(sampled):
            raise Malformed(f"{self._label_holder} sent {received} ciphertexts for {len(sampled)} records in tree {t}")
        return OwnTree(t, columns, total)

    async def _sum(self, tree: OwnTree, level: int, nodes: list[int]) -> tuple[bytes, Mapping[str, int]]:
        sums = have(self._sums)
        before = dict(sums.operations) if level else {}  # the root's sums have begun while blocks arrived
        spaces = [tree.rows_of(node) for node in nodes] if level else None
        packed = await sums.candidates(spaces, tree.columns.order(nodes[0]))
        return packed, since(before, sums.operations)

    async def _drop_tree(self) -> None:
        self._tree = None
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()
