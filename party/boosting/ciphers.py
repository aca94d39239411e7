"""The slots of a record's gradients in boosting, and the ciphers that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.errors import Malformed
from treetap.party.growth.column_noise import widths_of
from treetap.party.growth.feature_party import OwnTree, Sums, since
from treetap.party.growth.feature_party_job import SummedValues
from treetap.party.growth.split_table import TreeColumns
from treetap.party.runtime.context import Rows, required
from treetap.privacy.column_privacy import ColumnPrivacy
from treetap.trees.loss import check_sums
from treetap.trees.noised_sums import SumNoise
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots, width_for


def layout(
    params: BoostingParams,
    records: int,
    outputs: int,
    classes: int = 0,
    noises: Sequence[SumNoise] = (),
    *,
    shared: bool = False,
) -> Slots:
    """Slots g_0.., h_0.., 1 of a tree with `outputs` outputs, each wide enough for the sum over all records.

    `classes`: of the label, where its one-hot form is in further slots. `noises`: of parties, for the most of which
    there is room. `shared`: sums are; then g has a bit more (`treetap.shares`), and a weight above 0 counts records.

    Raises:
        ConfigError: such sums need wider slots than there are.
    """
    check_sums(params.objective, records, params.largest_factor)
    widths = widths_of(records, params.slot_bounds(outputs), noises)
    if shared:
        g, h, _ = widths
        return Slots((g + 1, h))
    widths += [width_for(records, 1)] * classes
    return Slots(tuple(widths))


class BoostingLayout(NamedTuple):
    """The layout that a job of boosting implies: see `NoisedLayout`. `shared`: its sums are."""

    params: BoostingParams
    shared: bool = False

    def draws(self, _party: str, privacy: ColumnPrivacy, _records: int) -> int:
        """One for each tree, as the party says: a tree draws no record twice."""
        return privacy.trees

    def noise(self, privacy: ColumnPrivacy, slots: int, _draws: int) -> SumNoise:
        """That of g and h of each output and of a count."""
        return privacy.noise(self.params, (slots - 1) // 2)

    def implied(self, records: int, slots: int, classes: int, noises: Sequence[SumNoise]) -> Slots:
        """The layout of `slots` slots that a job implies, `classes` of them for the class of a record.

        Without these a feature party cannot tell the number of classes from it.

        Raises:
            Malformed: no number of classes leads to `slots` slots.
        """
        params, (outputs, rest) = self.params, divmod(slots - classes - (not self.shared), 2)
        # of two classes and of more, every number is possible; of fewer there is nothing to learn
        if rest or outputs < params.outputs_per_tree(2) or (outputs > 1 and params.outputs_per_tree(3) == 1):
            raise Malformed(f"{slots} slots are not g and h of each output and a count")
        if classes and (classes < 2 or params.outputs_per_tree(classes) != outputs):
            raise Malformed(f"{classes} slots for classes do not go with {outputs} outputs")
        return layout(params, records, outputs, classes, noises, shared=self.shared)


class SumsOfCiphertexts(SummedValues):
    """Sums of one ciphertext for each record of a tree."""

    _sums: EncryptedSums | None = None

    async def begin(self, t: int, columns: TreeColumns, sampled: Rows) -> None:
        """Multiply the tree's ciphertexts into the root's histogram cells while they arrive."""
        key = self._job.key
        shapes = columns.candidates.shapes
        sums = self._sums = EncryptedSums(self._context.engine, key.public, key.slots, columns.codes, shapes)
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
        return Sums(packed, len(packed) // self._job.key.public.ciphertext_bytes)

    async def drop(self) -> None:
        if self._sums is not None:
            sums, self._sums = self._sums, None
            await sums.close()
