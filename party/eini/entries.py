"""The cipher of Fed-EINI whose ciphertexts add up: one for each record and entry (docs/protocol-eini.md).

The label holder's end makes the key and lays out the entries; a feature party's takes both and checks them.

The label holder's end of sums of ciphertexts along the chain: entries go out encrypted and come back as sums.

The values of an entry are scores (Fed-EINI) or attributions, Shapley values of every score that are summed along the
same chain (docs/protocol-eini.md). Both go under one key, in messages of different names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf.message import Message

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.masked_sums import EntryKeyHolder, EntryMember, ciphertexts_of, entry_slots
from treetap.arrays import Floats, Ints
from treetap.errors import BadInput, Malformed, PlaintextOverflow
from treetap.models.durable import writing_whole
from treetap.party.eini.entry_layout import (
    ATTRIBUTIONS,
    SCORES,
    Advance,
    Branches,
    ChainPlace,
    EntryKind,
    attribution_layout,
    check_hidden,
    check_hides,
    score_layout,
    take_layout,
)
from treetap.party.prediction.opened_model import OpenedModel, PredictionJob
from treetap.party.prediction.tree_model import TreeScoring
from treetap.party.runtime.context import MESSAGE_BYTES, Series, StepContext, ciphertext_body, ciphertexts_in, required
from treetap.party.setup.steps import make_key, make_proof, send_key, take_key
from treetap.protocols.eini import ChainSizes
from treetap.protocols.key_options import PAILLIER, KeyKind
from treetap.protocols.messages import BLOCK_BYTES
from treetap.tables.label_columns import typed
from treetap.trees.ensemble import Ensemble
from treetap.trees.leaf_entries import SUM_BITS, LeafEntries
from treetap.trees.paths import GoesLeft, reachable
from treetap.trees.shapley import AttributionEntries, expected_score

#: Relative error of sums of doubles.
DOUBLES = 1e-12
#: The entries that the label holder sends: of scores, or of Shapley values.
Entries = LeafEntries | AttributionEntries
#: The layout of a hop, with the numbers of its constant entries, in messages.
Layout = Callable[[Any, list[int]], Iterator[Message]]


class EntrySums:
    """The label holder's end of the chain. Without a chain, when every feature party is away, sums stay here.

    `values`: of an entry, which takes as many ciphertexts, of `slots` values each, as it needs.
    """

    def __init__(
        self,
        context: StepContext,
        chain: list[str],
        kind: EntryKind,
        entries: Entries,
        values: int,
        slots: int,
        advance: Advance,
    ) -> None:
        self._context, self._chain, self._kind = context, chain, kind
        self._entries, self._values, self._advance = entries, values, advance
        self.slots, self.ciphertexts = slots, -(-values // slots)
        self._owner: EntryKeyHolder | None = None
        self._records = 0  # of the block under way
        self._here: Ints = np.zeros((0, values), dtype=np.int64)  # its sums, if there is no chain

    async def start(self, owner: EntryKeyHolder) -> None:
        """Hand the key to the workers."""
        self._owner = owner
        self._context.held.push_async_callback(owner.close)
        await owner.start()

    @property
    def fitting(self) -> int:
        """The most records of a block; their varying entries must fit as ciphertexts and as plaintexts. It may be 0."""
        entry = self.ciphertexts * max(required(self._owner).ciphertext_bytes, 8 * self.slots)
        return BLOCK_BYTES // (entry * len(self._entries.varying))

    async def announce(self, layout: Layout) -> None:
        """Send each party of the chain the layout of its hop, and the constant entries to the first one."""
        constant, lay_out = self._entries.constant.tolist(), cast(Callable[[], Sequence[Any]], self._entries.hops)
        hops = await self._context.offload(lay_out)
        layouts = [layout(hop, [] if number else constant) for number, hop in enumerate(hops)]
        await self._context.outbox.send_each(self._kind.layout, dict(zip(self._chain, layouts, strict=True)))
        plain, name = await self._in_slots(await self._context.offload(self._entries.constants)), self._kind.constants
        bodies = [ciphertext_body(name, part) async for part in required(self._owner).encrypt(plain)]
        self._count(name, plain.size // self.slots)
        await self._context.outbox.send(self._chain[0], name, bodies)

    def values(self, goes_left: GoesLeft, n: int) -> Ints:
        """W_k of the varying entries of n records (n, entries, values)."""
        return self._entries.values(goes_left, n)

    async def send(self, values: Ints, number: int) -> None:
        """Encrypt the entries of a block, (n, entries, values), and send them meanwhile to the first of the chain.

        Memory holds a few messages of ciphertexts for a block of any size.
        """
        if not self._chain:
            self._here = values[:, 0]  # the one entry, which no party further down decides
            return
        owner, name = required(self._owner), self._kind.entries
        self._records, sent = len(values), 0
        plain = await self._in_slots(values)
        total = plain.size // self.slots
        series = self._context.outbox.open(self._chain[0], name, number)
        async for part in owner.encrypt(plain):
            await series.put(ciphertext_body(name, part))
            sent += len(part) // owner.ciphertext_bytes
            self._advance(round(self._records * sent / total))
        await series.close()
        self._count(name, sent)

    async def receive(self, number: int) -> Floats:
        """The sums of the block that was sent, as the last of the chain returns them; opened, out of fixed point."""
        if not self._chain:
            return self._entries.weights(self._here)
        owner = required(self._owner)
        messages = self._context.mailbox.series(self._chain[-1], self._kind.sums, number, 0)
        sums = b"".join([part async for part in ciphertexts_in(messages, self._kind.sums)])
        opened = await owner.open(sums, self._records * self.ciphertexts)
        self._context.costs.operations["decryptions"] += len(sums) // owner.ciphertext_bytes
        return self._entries.weights(opened.reshape(self._records, -1)[:, : self._values])

    async def _in_slots(self, values: Ints) -> Ints:
        """Values (…, values) by ciphertext (…, ciphertexts, slots); unused slots hold zero."""
        width = self.ciphertexts * self.slots
        if width == values.shape[-1]:
            return values.reshape(*values.shape[:-1], self.ciphertexts, self.slots)

        def padded() -> Ints:
            whole = np.zeros((*values.shape[:-1], width), dtype=np.int64)
            whole[..., : values.shape[-1]] = values
            return whole.reshape(*values.shape[:-1], self.ciphertexts, self.slots)

        return await self._context.offload(padded)

    def _count(self, name: str, sent: int) -> None:
        """Count ciphertexts that were made and sent."""
        self._context.costs.operations["encryptions"] += sent
        self._context.costs.ciphertexts[name] += sent


class Attributions(EntrySums):
    """The label holder's end of the chain for attributions, with the expected score to which they add up."""

    def __init__(
        self,
        context: StepContext,
        chain: list[str],
        entries: AttributionEntries,
        ensemble: Ensemble,
        opened: OpenedModel,
        slots: int,
        advance: Advance,
    ) -> None:
        """Compute the expected score, which is slow."""
        self._expected = expected_score(ensemble)
        self.players, self.spare = entries.players, entries.spare
        super().__init__(context, chain, ATTRIBUTIONS, entries, len(self.players) * len(self._expected), slots, advance)
        self._parties, self._opened = chain, opened
        rounding = np.ldexp(len(ensemble.used_trees), -entries.score_bits - 1) / ensemble.divisor
        self._tolerance = entries.tolerance + rounding

    def check_complete(self, number: int, values: Floats, scores: Floats) -> None:
        """Check that expected score and values add up to the score, as they do for any masks that are also the score's.

        Raises:
            Malformed: they do not, and the gap is larger than the error of fixed point.
        """
        size = np.abs(values).sum(axis=1) + np.abs(scores) + np.abs(self._expected)
        gap = np.abs(self._expected + values.sum(axis=1) - scores)
        if (gap > self._tolerance + DOUBLES * size).any():
            raise Malformed(
                f"block {number}: the attributions do not add up to the scores; {', '.join(self._parties)}: one of "
                "them has not applied the same masks to both"
            )

    def write(
        self, path: Path, ids: Sequence[pa.Field], parts: Iterable[tuple[Sequence[pa.Array], Floats, Floats]]
    ) -> None:
        """Write the file; see `write_attributions`."""
        classes = typed(self._opened.classes, self._opened.class_type)
        alike = self._opened.aligned.offsets is None
        write_attributions(path, ids, parts, self._expected, self.players, self._parties, classes, expected_alike=alike)


def write_attributions(
    path: Path,
    id_columns: Sequence[pa.Field],
    parts: Iterable[tuple[Sequence[pa.Array], Floats, Floats]],
    expected: Floats,
    players: Sequence[str],
    parties: Collection[str],
    classes: pa.Array,
    *,
    expected_alike: bool = True,
) -> None:
    """Write, part by part, ids (n,), scores (n, outputs) and values (n, players, outputs); `expected` (outputs,).

    `expected_alike`: of all records, and not with an offset of each.

    A row per record, or per record and class if a score has several columns: `id_columns`, perhaps `class`,
    `score`, `expected`, then a column per player, `own:FEATURE` or `party:NAME`.
    """
    kinds: list[Any] = [*id_columns, *([("class", classes.type)] if len(expected) > 1 else [])]
    kinds += [(name, pa.float64()) for name in ("score", "expected")]
    named = [f"party:{player}" if player in parties else player for player in players]
    schema = pa.schema([*kinds, *((name, pa.float64()) for name in named)])
    with writing_whole(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for ids, scores, values in parts:
            n, outputs = scores.shape
            again = pa.array(np.repeat(np.arange(n), outputs))
            columns: list[Any] = [own.take(again) for own in ids]
            if outputs > 1:
                columns.append(classes.take(pa.array(np.tile(np.arange(outputs), n))))
            # where scores begin with a column of the record, the expected one does
            begins = np.tile(expected, n) if expected_alike else (scores - values.sum(axis=1)).ravel()
            columns += [scores.ravel(), begins]
            columns += [values[:, place].ravel() for place in range(len(players))]
            writer.write_table(pa.table(columns, schema=schema))


class LabelHolderEnd:
    """The label holder's end: entries of scores, and of attributions if they are asked for, under one key."""

    #: The sums of scores, once they are laid out.
    scores: EntrySums

    def __init__(self, job: PredictionJob, scoring: TreeScoring, sizes: ChainSizes, advance: Advance) -> None:
        """Raises Refused if the key is shorter than the policy allows."""
        self._context, self._opening, self._chain = job.context, job.opening, job.chain
        self._scoring, self._sizes, self._advance = scoring, sizes, advance
        self._key = KeyKind(PAILLIER, job.opening.parameters.eini.key_bits)
        job.context.policy.check_key(job.config.name, self._key)
        self._leaves: LeafEntries | None = None
        self.attributions: Attributions | None = None

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
        self.scores = EntrySums(context, chain, SCORES, self._leaves, outputs, outputs, self._advance)
        if self._opening.attributions:
            columns = opened.manifest["columns"]
            features = {handle: columns[split.feature] for handle, split in trees.own.items()}
            attributed = AttributionEntries(trees.ensemble, context.party, chain, features, self._leaves.fraction_bits)
            _, slots = ciphertexts_of(len(attributed.players) * outputs, self._key.plain_bits)
            self.attributions = Attributions(context, chain, attributed, trees.ensemble, opened, slots, self._advance)
            self._sizes.attributed = self.attributions.ciphertexts

    async def make_keys(self) -> None:
        """Make a key pair; send the public key and the entry of each leaf, and to the first the constant entries."""
        # `Refused` if the policy demands more candidate paths behind the opened sums than there are
        if self.attributions is not None:
            beside = f"with attributions to {len(self.attributions.players)} players "
            await check_hidden(self._context, self._scoring, self.attributions.spare, beside)
        await check_hidden(self._context, self._scoring, required(self._leaves).spare)
        context, obfuscation = self._context, self._opening.parameters.eini.obfuscation
        secret = await make_key(context, self._key)
        scores, attributions, engine = self.scores, self.attributions, context.engine
        try:
            owner = EntryKeyHolder(engine, secret, scores.slots, obfuscation, SUM_BITS)
        except PlaintextOverflow as failure:
            raise BadInput(
                f"{scores.slots} classes do not fit one ciphertext ({failure}): use a longer key for this prediction"
            ) from failure
        await scores.start(owner)
        sizes = [self._scoring.records.size, scores.fitting]
        if attributions is not None:
            await attributions.start(EntryKeyHolder(engine, secret, attributions.slots, obfuscation, SUM_BITS))
            sizes.append(attributions.fitting)
        self._scoring.records.size = self._sizes.block = max(1, min(sizes))
        proof = await make_proof(context, owner.prove)
        await send_key(context, secret, entry_slots(scores.slots), self._chain, proof)
        await scores.announce(score_layout)
        if attributions is not None:
            await attributions.announce(partial(attribution_layout, players=len(attributions.players)))


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
        key = await take_key(self._context, label_holder, self._key, lambda key: entry_slots(len(key.slot_widths)))
        outputs = len(key.slots.widths)
        self.scores = await self._taken(SCORES, key.public, outputs)
        if self._opening.attributions:
            self.attributions = await self._taken(ATTRIBUTIONS, key.public, outputs)

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
        )
        context.held.push_async_callback(member.close)
        constants, name = b"", kind.constants
        if place.first:
            messages = context.mailbox.series(place.label_holder, name, 0, 0)
            constants = b"".join([part async for part in ciphertexts_in(messages, name)])
        await member.start(constants)
        return EntryMasking(context, place, kind, layout.branches, count, member, public.ciphertext_bytes)


@dataclass(frozen=True)
class EntryMasking:
    """A feature party's place in the chain: `member` masks, adds up and re-randomises entries.

    `branches`: the own ones that each entry depends on; `ciphertexts`: of an entry; `width`: bytes of a ciphertext.
    """

    context: StepContext
    place: ChainPlace
    kind: EntryKind
    branches: list[Branches]
    ciphertexts: int
    member: EntryMember
    width: int

    @property
    def sends(self) -> str:
        """The name of the messages that go on."""
        return self.kind.sums if self.place.last else self.kind.entries

    async def pass_on(self, goes_left: GoesLeft, n: int, number: int) -> None:
        """Take the ciphertexts of a block of n records as they come, pass on those of entries that the masks keep.

        These are the masks of equation 9, applied as in equation 13. The last of the chain returns the sums of equation
        14: added up, packed, re-randomised.
        """
        context, before = self.context, dict(self.member.operations)
        masks = await context.offload(
            lambda: np.repeat(reachable(self.branches, n, goes_left), self.ciphertexts, axis=1)
        )
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

    async def _put(self, series: Series, parts: list[bytes]) -> None:
        """Send to the next of the chain, in messages of bounded size."""
        step = MESSAGE_BYTES // self.width * self.width
        for part in parts:
            for start in range(0, len(part), step):
                body = part[start : start + step]
                self.context.costs.ciphertexts[self.sends] += len(body) // self.width
                await series.put(ciphertext_body(self.sends, body))
