"""The cipher of Fed-EINI whose ciphertexts add up: one for each record and entry (docs/protocol-eini.md).

The label holder's end makes the key and lays out the entries; a feature party's takes both and checks them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.masked_sums import EntryKeyHolder, EntryMember, ciphertexts_of, entry_slots
from treetap.errors import BadInput, PlaintextOverflow
from treetap.party.eini.chain import Advance, ChainPlace, check_hidden, check_hides
from treetap.party.eini.entry_layout import (
    ATTRIBUTIONS,
    SCORES,
    EntryKind,
    MemberEntries,
    attribution_layout,
    score_layout,
    take_layout,
)
from treetap.party.eini.entry_sums import Attributions, EntrySums
from treetap.party.prediction.opened_model import OpenedModel
from treetap.party.prediction.tree_scoring import TreeScoring
from treetap.party.protocols import PredictionJob
from treetap.party.runtime.context import StepContext, required
from treetap.party.runtime.messages import MESSAGE_BYTES, ciphertext_body, ciphertexts_in
from treetap.party.runtime.outbox import Series
from treetap.party.setup.key_proofs import make_proof
from treetap.party.setup.steps import make_key, send_key, take_key
from treetap.protocols.eini import ChainSizes
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.trees.leaf_entries import SUM_BITS, LeafEntries
from treetap.trees.local_values import GoesLeft
from treetap.trees.shapley_entries import AttributionEntries


class LabelHolderEnd:
    """The label holder's end: entries of scores, and of attributions if they are asked for, under one key."""

    def __init__(self, job: PredictionJob, scoring: TreeScoring, sizes: ChainSizes, advance: Advance) -> None:
        """Raises Refused if the key is shorter than the policy allows."""
        self._context, self._opening, self._chain = job.context, job.opening, job.chain
        self._scoring, self._sizes, self._advance = scoring, sizes, advance
        self._key = KeyKind(PAILLIER, job.opening.parameters.eini.key_bits)
        job.context.policy.check_key(job.config.name, self._key)
        self._leaves: LeafEntries | None = None
        self._scores: EntrySums | None = None
        self.attributions: Attributions | None = None

    @property
    def scores(self) -> EntrySums:
        """The sums of scores, once they are laid out."""
        return required(self._scores)

    def lay_out(self) -> None:
        """Compute the entries of the model, and the expected score if attributions are asked for."""
        context, chain, trees, opened = self._context, self._chain, self._scoring.trees, self._scoring.opened
        outputs = len(trees.ensemble.base_margin)
        self._leaves = LeafEntries(
            trees.ensemble,
            context.party,
            chain,
            list(self._opening.away),
            public=trees.public,
            hides_constants=trees.hides_constants,
        )
        self._scores = EntrySums(context, chain, SCORES, self._leaves, outputs, outputs, self._advance)
        if self._opening.attributions:
            columns = opened.manifest["columns"]
            features = {handle: columns[split.feature] for handle, split in trees.own.items()}
            attributed = AttributionEntries(trees.ensemble, context.party, chain, features, self._leaves.fraction_bits)
            _, slots = ciphertexts_of(len(attributed.players) * outputs, self._key.plain_bits)
            self.attributions = Attributions(context, chain, attributed, trees.ensemble, opened, slots, self._advance)
            self._sizes.attributed = self.attributions.ciphertexts

    async def make_keys(self) -> None:
        """Make a key pair; send the public key and the entry of each leaf, and to the first the constant entries."""
        await self._check_hidden()
        context, obfuscation = self._context, self._opening.parameters.eini.obfuscation
        secret = await make_key(context, self._key)
        token = f"{context.job}/{context.attempt}"
        scores, attributions, engine = self.scores, self.attributions, context.engine
        try:
            owner = EntryKeyHolder(engine, secret, scores.slots, obfuscation, SUM_BITS, token)
        except PlaintextOverflow as failure:
            raise BadInput(
                f"{scores.slots} classes do not fit one ciphertext ({failure}): use a longer key for this prediction"
            ) from failure
        await scores.start(owner)
        sizes = [self._scoring.records.size, scores.fitting]
        if attributions is not None:
            token = f"{token}/{ATTRIBUTIONS.entries}"
            await attributions.start(EntryKeyHolder(engine, secret, attributions.slots, obfuscation, SUM_BITS, token))
            sizes.append(attributions.fitting)
        self._scoring.records.size = self._sizes.block = max(1, min(sizes))
        proof = await make_proof(context, owner.prove)
        await send_key(context, secret, entry_slots(scores.slots), self._chain, proof)
        await scores.announce(score_layout)
        if attributions is not None:
            await attributions.announce(partial(attribution_layout, players=len(attributions.players)))

    async def close(self) -> None:
        """Make the workers forget the key."""
        for sums in (self._scores, self.attributions):
            if sums is not None:
                await sums.close()

    async def _check_hidden(self) -> None:
        """`Refused` if the policy demands more candidate paths behind the opened sums than there are."""
        if self.attributions is not None:
            beside = f"with attributions to {len(self.attributions.players)} players "
            await check_hidden(self._context, self._scoring, self.attributions.spare, beside)
        await check_hidden(self._context, self._scoring, required(self._leaves).spare)


class FeaturePartyEnd:
    """A feature party's place, the same for both kinds of entries."""

    def __init__(self, job: PredictionJob, opened: OpenedModel, sizes: ChainSizes, place: ChainPlace) -> None:
        """Raises Refused if the key is shorter than the policy allows."""
        self._context, self._opening, self._members = job.context, job.opening, len(job.chain)
        self._opened, self._sizes, self._place = opened, sizes, place
        self._key = KeyKind(PAILLIER, job.opening.parameters.eini.key_bits)
        job.context.policy.check_key(job.config.name, self._key)
        self.scores: EntryMasking | None = None
        self.attributions: EntryMasking | None = None

    async def take_key(self) -> None:
        """Take the public key, the entry that each leaf is in, and at the first of the chain the constant entries."""
        label_holder = self._place.label_holder
        key = await take_key(self._context, label_holder, self._key, lambda slots, _: entry_slots(slots))
        outputs = len(key.slots.widths)
        self.scores = await self._taken(SCORES, key.public, outputs)
        if self._opening.attributions:
            self.attributions = await self._taken(ATTRIBUTIONS, key.public, outputs)

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        for masking in (self.scores, self.attributions):
            if masking is not None:
                await masking.close()

    async def _taken(self, kind: EntryKind, public: PublicKey, outputs: int) -> EntryMasking:
        """Take and check the layout of entries, each of as many ciphertexts as its values need."""
        context, place = self._context, self._place
        messages = context.mailbox.series(place.label_holder, kind.layout, 0, 0)
        layout = await take_layout(kind, messages, place, self._opened.shard, outputs, self._members)
        beyond = f"a sum and of the attributions to {layout.players} players" if layout.players else "a sum"
        check_hides(context, layout.spare, beyond)
        count, slots = ciphertexts_of(max(1, layout.players) * outputs, public.plain_bits)
        if kind is ATTRIBUTIONS:
            self._sizes.attributed = count * len(layout.branches)
        parts = np.arange(count)
        member = EntryMember(
            context.engine,
            public,
            entry_slots(slots),
            (layout.outgoing[:, np.newaxis] * count + parts).ravel(),
            (layout.constant[:, np.newaxis] * count + parts).ravel(),
            None if place.last else self._opening.parameters.eini.obfuscation,
            f"{context.job}/{context.attempt}/{kind.entries}",
        )
        masking = EntryMasking(context, place, kind, layout, count, member, public.ciphertext_bytes)
        await masking.start()
        return masking


@dataclass(frozen=True)
class EntryMasking:
    """A feature party's place in the chain: `member` masks, adds up and re-randomises entries as `layout` has them.

    `ciphertexts`: of an entry; `width`: bytes of a ciphertext.
    """

    context: StepContext
    place: ChainPlace
    kind: EntryKind
    layout: MemberEntries
    ciphertexts: int
    member: EntryMember
    width: int

    @property
    def sends(self) -> str:
        """The name of the messages that go on."""
        return self.kind.sums if self.place.last else self.kind.entries

    async def start(self) -> None:
        """Hand the layout to the workers, and at the first of the chain the constant entries."""
        constants, name = b"", self.kind.constants
        if self.place.first:
            messages = self.context.mailbox.series(self.place.label_holder, name, 0, 0)
            constants = b"".join([part async for part in ciphertexts_in(messages, name)])
        await self.member.start(constants)

    async def pass_on(self, goes_left: GoesLeft, n: int, number: int) -> None:
        """Take the ciphertexts of a block of n records as they come, pass on those of entries that the masks keep.

        These are the masks of equation 9, applied as in equation 13. The last of the chain returns the sums of equation
        14: added up, packed, re-randomised.
        """
        context, before = self.context, dict(self.member.operations)
        masks = await context.offload(lambda: np.repeat(self.layout.masks(goes_left, n), self.ciphertexts, axis=1))
        block = self.member.block(masks)
        series = context.outbox.open(self.place.after, self.sends, number)
        try:
            messages = context.mailbox.series(self.place.before, self.kind.entries, number, 0)
            async for part in ciphertexts_in(messages, self.kind.entries):
                await self._put(series, await block.take(part))
                context.progress.done = block.done
            await self._put(series, await block.finish())
        finally:
            await block.close()
        await series.close()
        for name, count in self.member.operations.items():
            context.costs.operations[name] += count - before[name]

    async def close(self) -> None:
        """Make the workers forget the ciphertexts."""
        await self.member.close()

    async def _put(self, series: Series, parts: list[bytes]) -> None:
        """Send to the next of the chain, in messages of bounded size."""
        step = MESSAGE_BYTES // self.width * self.width
        for part in parts:
            for start in range(0, len(part), step):
                body = part[start : start + step]
                self.context.costs.ciphertexts[self.sends] += len(body) // self.width
                await series.put(ciphertext_body(self.sends, body))
