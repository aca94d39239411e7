"""Fed-EINI at the label holder (Chen et al. 2021, Algorithm 1): entries out, encrypted; one sum per record back.

after            may come
open_model       the steps of the alignment
alignment        make_keys
make_keys        score_block(0)
score_block(b)   score_block(b+1), write_predictions after the last; served: await_requests before each block
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import numpy as np

from party.config import PartyConfig
from party.eini.layout import layout_parcels
from party.parcels import Rows, batches
from party.prediction import Scoring
from party.session import Step, Tools, done, have
from party.setup import make_passing_key, send_key
from party.store import Store
from treetap.errors import BadInput, PlaintextOverflow
from treetap.he.inference import EntryOwner
from treetap.he.public import PublicKey
from treetap.trees.entries import SUM_BITS, GoesLeft, LeafEntries
from treetap.trees.leaves import Bools, Floats
from treetap.wire.chunks import chunks_of
from treetap.wire.v1 import control_pb2, eini_pb2, interactive_pb2

#: Most bytes of ciphertexts of one block: what may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024
#: Records whose candidate leaves are counted at a time.
CHECKED = 4096


class EntrySender(Scoring):
    """Answers the steps of the label holder."""

    begins = "score_block"

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening, "make_keys")
        self._entries = LeafEntries(self.ensemble, config.name, self.parties)
        self._owner: EntryOwner | None = None
        self.steps: Mapping[str, Step] = {
            "open_model": self.open_model,
            **self._alignment.steps,
            "make_keys": self.make_keys,
            "score_block": self.score_block,
            **self.asked.steps,
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
        self.size = self._block_size(secret.public, outputs)
        await send_key(tools, secret, owner.slots, self.parties)
        for party, hop in zip(self.parties, entries.hops(), strict=True):
            constant = entries.constant.tolist() if party == self.parties[0] else []
            await tools.outbox.send(party, "entry_layout", layout_parcels(hop, constant))
        constants = [part async for part in owner.encrypt(entries.constants())]
        tools.ledger.operations["encryptions"] += len(entries.constant)
        tools.ledger.ciphertexts["constant_entries"] += len(entries.constant)
        bodies = [eini_pb2.ConstantEntries(ciphertexts=part) for part in constants]
        await tools.outbox.send(self.parties[0], "constant_entries", bodies)
        self.next_block(0)
        return done()

    async def score_block(self, request: control_pb2.StepRequest) -> control_pb2.StepResult:
        """Stage 1 and 2 for a block of records.

        1. W_k of every tree from the own columns (equation 8),
        2. encrypted entry by entry and sent to the first of the chain while the next ones are encrypted;
        3. the last of the chain returns the sums (equation 14), which are opened.
        """
        number = request.tree
        self._order.check(("score_block", number, request.level))
        tools, owner, table = self._tools, have(self._owner), self._alignment.aligned
        rows, blocks = self.block(number)
        chunks = [eini_pb2.BlockRecords(chunks=batch) for batch in batches(chunks_of(rows, len(table.ids)))]
        await asyncio.gather(
            *(tools.outbox.send(party, "block_records", chunks, tree=number) for party in self.parties)
        )
        goes_left = self._directions(rows)
        values = await tools.offload(lambda: self._entries.values(goes_left, len(rows)))
        await self._send(number, values)
        sums: list[bytes] = []
        async for parcel in tools.mailbox.series(self.parties[-1], "leaf_sums", number, 0):
            sums.append(parcel.leaf_sums.ciphertexts)
        opened = await owner.open(b"".join(sums), len(rows))
        tools.ledger.operations["decryptions"] += sum(map(len, sums)) // owner.ciphertext_bytes
        self.keep(rows, self.ensemble.from_sums(self._entries.weights(opened)))
        tools.mailbox.forget(number)
        self.next_block(number + 1)
        scored = eini_pb2.ScoredBlock(blocks=blocks, done=tools.meter.done, total=tools.meter.total)
        return control_pb2.StepResult(scored_block=scored)

    async def close(self) -> None:
        """The workers forget the key; it was nowhere else."""
        if self._owner is not None:
            owner, self._owner = self._owner, None
            await owner.close()

    def _directions(self, rows: Rows) -> GoesLeft:
        """Which of some records go left at an own split."""
        features = self._alignment.aligned.features[rows]

        def goes_left(handle: int) -> Bools:
            split = self.own[handle]
            return split.goes_left(features[:, split.feature])

        return goes_left

    def _spare(self) -> Floats:
        """Of each record to predict, the bits by which its candidate leaves exceed the possible sums."""
        parts = np.split(self.wanted, range(CHECKED, len(self.wanted), CHECKED))
        return np.concatenate([self._entries.spare(self._directions(rows), len(rows)) for rows in parts])

    async def _send(self, number: int, values: np.ndarray[tuple[int, int, int], np.dtype[np.int64]]) -> None:
        """Encrypt and stream; memory holds a few parcels, whatever the block."""
        tools, entries = self._tools, values.shape[1]
        series = tools.outbox.open(self.parties[0], "leaf_entries", number)
        owner, sent = have(self._owner), 0
        async for part in owner.encrypt(values):
            await series.put(eini_pb2.LeafEntries(ciphertexts=part))
            sent += len(part) // owner.ciphertext_bytes
            self.advance(sent // entries)
        await series.close()
        tools.ledger.operations["encryptions"] += sent
        tools.ledger.ciphertexts["leaf_entries"] += sent

    def _block_size(self, public: PublicKey, outputs: int) -> int:
        """As many records as the opening says, as far as their ciphertexts and their plaintexts fit."""
        entry = max(public.ciphertext_bytes, 8 * outputs)
        fitting = BLOCK_BYTES // (entry * len(self._entries.varying))
        return max(1, min(self.size, fitting))
