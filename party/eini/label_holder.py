"""Fed-EINI at the label holder (Chen et al. 2021, Algorithm 1): entries out, encrypted; one sum per record back.

after            may come
open_model       the steps of the alignment
alignment        make_keys
make_keys        score_block(0)
score_block(b)   score_block(b+1), write_predictions after the last
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import numpy as np

from party.config import PartyConfig
from party.eini.layout import layout_parcels
from party.parcels import Rows, batches, ciphertext_body, ciphertexts_in
from party.prediction import Scoring
from party.session import Step, Tools, done, have
from party.setup import make_passing_key, send_key
from party.store import Store
from treetap.errors import BadInput, PlaintextOverflow
from treetap.he.inference import EntryOwner
from treetap.he.public import PublicKey
from treetap.he.secret import SecretKey
from treetap.trees.entries import SUM_BITS, Ints, LeafEntries
from treetap.trees.leaves import Floats
from treetap.wire.chunks import chunks_of
from treetap.wire.v1 import control_pb2, eini_pb2, interactive_pb2

#: Most bytes of ciphertexts of one block: what may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024
#: Records whose candidate leaves are counted at a time.
CHECKED = 4096


class EntrySender(Scoring):
    """Answers the steps of the label holder."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening, "make_keys")
        self._entries = LeafEntries(self.ensemble, config.name, self.parties)
        self._owner: EntryOwner | None = None
        self._size = 1  # records per block
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            **self._names.steps,
            "make_keys": self.make_keys,
            "score_block": self.score_block,
            "write_predictions": self.write_predictions,
        }

    async def make_keys(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """A key pair for this prediction alone, in memory only; everybody learns which entry each leaf is in."""
        self._order.check(("make_keys", request.tree, request.level))
        tools, opening, entries = self._tools, self._opening, self._entries
        if tools.law.min_candidate_bits is not None:
            tools.law.check_paths(
                tools.party, await tools.offload(self._spare), "the trees leave some record fewer leaves than that"
            )
        secret = await make_passing_key(tools, opening.key_bits)
        outputs = len(self.ensemble.base_margin)
        token = f"{tools.job}/{tools.attempt}"
        try:
            owner = EntryOwner(tools.engine, secret, outputs, opening.obfuscation, SUM_BITS, token)
        except PlaintextOverflow as failure:
            raise BadInput(f"{outputs} classes do not fit one ciphertext: {failure}") from failure
        self._owner = owner
        await owner.start()
        self._size = self._block_size(secret.public, outputs)
        await send_key(tools, secret, owner.slots, self.parties)
        for party, hop in zip(self.parties, entries.hops(), strict=True):
            constant = entries.constant.tolist() if party == self.parties[0] else []
            await tools.outbox.send(party, "entry_layout", layout_parcels(hop, constant))
        await self._send_constants(owner, "constant_entries", entries.constants())
        await self._begin(secret)
        self._order.then(("score_block", 0, 0))
        return done()

    async def _begin(self, secret: SecretKey) -> None:
        """What else begins under this key; with scores alone nothing."""

    async def score_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Stage 1 and 2 for a block of records.

        1. W_k of every tree from the own columns (equation 8),
        2. encrypted entry by entry and sent to the first of the chain while the next ones are encrypted;
        3. the last of the chain returns the sums (equation 14), which are opened.
        """
        number = request.tree
        self._order.check(("score_block", number, request.level))
        tools, owner, table = self._tools, have(self._owner), self._alignment.aligned
        rows, blocks = self.block(number, self._size)
        chunks = [eini_pb2.BlockRecords(chunks=batch) for batch in batches(chunks_of(rows, len(table.ids)))]
        await asyncio.gather(
            *(tools.outbox.send(party, "block_records", chunks, tree=number) for party in self.parties)
        )
        goes_left = self._directions(rows)
        values = await tools.offload(lambda: self._entries.values(goes_left, len(rows)))
        await self._send(owner, "leaf_entries", number, values)
        opened = await self._take(owner, "leaf_sums", number, len(rows))
        self.keep(rows, self.ensemble.from_sums(self._entries.weights(opened)))
        tools.mailbox.forget(number)
        meter = tools.meter
        meter.done = min(self.before + (number + 1) * self._size, meter.total)
        last = number + 1 == blocks
        self._order.then(("write_predictions", 0, 0) if last else ("score_block", number + 1, 0))
        scored = eini_pb2.ScoredBlock(blocks=blocks, done=meter.done, total=meter.total)
        return control_pb2.StepResult(scored_block=scored)

    async def close(self) -> None:
        """The workers forget the key; it was nowhere else."""
        if self._owner is not None:
            owner, self._owner = self._owner, None
            await owner.close()

    def _spare(self) -> Floats:
        """Of each record to predict, the bits by which its candidate leaves exceed the possible sums."""
        return self._by_parts(lambda rows: self._entries.spare(self._directions(rows), len(rows)))

    def _by_parts(self, spare: Callable[[Rows], Floats]) -> Floats:
        """Spare bits of all records to predict, counted for some of them at a time."""
        return np.concatenate(
            [spare(rows) for rows in np.split(self.wanted, range(CHECKED, len(self.wanted), CHECKED))]
        )

    async def _send_constants(self, owner: EntryOwner, kind: str, values: Ints) -> None:
        """The entries that are the same for every record, (entries, values), to the first of the chain."""
        bodies = [ciphertext_body(kind, part) async for part in owner.encrypt(values)]
        self._count(kind, len(values))
        await self._tools.outbox.send(self.parties[0], kind, bodies)

    async def _send(self, owner: EntryOwner, kind: str, number: int, values: Ints) -> None:
        """Encrypt and stream (n, entries, values) of a block; memory holds a few parcels, whatever the block."""
        entries, sent = values.shape[1], 0
        series = self._tools.outbox.open(self.parties[0], kind, number)
        async for part in owner.encrypt(values):
            await series.put(ciphertext_body(kind, part))
            sent += len(part) // owner.ciphertext_bytes
            self._tools.meter.done = self.before + number * self._size + sent // entries
        await series.close()
        self._count(kind, sent)

    async def _take(self, owner: EntryOwner, kind: str, number: int, count: int) -> Ints:
        """So many sums of a block, opened, as the last of the chain returns them."""
        parcels = self._tools.mailbox.series(self.parties[-1], kind, number, 0)
        sums = b"".join([part async for part in ciphertexts_in(parcels, kind)])
        opened = await owner.open(sums, count)
        self._tools.ledger.operations["decryptions"] += len(sums) // owner.ciphertext_bytes
        return opened

    def _count(self, kind: str, sent: int) -> None:
        """Ciphertexts that were made and sent."""
        self._tools.ledger.operations["encryptions"] += sent
        self._tools.ledger.ciphertexts[kind] += sent

    def _block_size(self, public: PublicKey, outputs: int) -> int:
        """As many records as the opening says, as far as their ciphertexts and their plaintexts fit."""
        entry = max(public.ciphertext_bytes, 8 * outputs)
        fitting = BLOCK_BYTES // (entry * len(self._entries.varying))
        return max(1, min(self._opening.block, fitting))
