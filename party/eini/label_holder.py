"""Fed-EINI at the label holder (Chen et al. 2021, Algorithm 1): entries out, encrypted; one sum per record back."""

from __future__ import annotations

import numpy as np

from party.config import PartyConfig
from party.eini.blocks import BlockSender, GoesLeft
from party.eini.layout import layout_parcels
from party.parcels import Rows
from party.session import Tools, have
from party.setup import make_passing_key, send_key
from party.store import Store
from treetap.errors import BadInput, PlaintextOverflow
from treetap.he.inference import EntryOwner
from treetap.he.public import PublicKey
from treetap.trees.entries import SUM_BITS, LeafEntries
from treetap.trees.leaves import Floats
from treetap.wire.v1 import eini_pb2, interactive_pb2

#: Most bytes of ciphertexts of one block: what may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024


class EntrySender(BlockSender):
    """Answers the steps of the label holder."""

    def __init__(self, config: PartyConfig, store: Store, tools: Tools, opening: interactive_pb2.OpenModel) -> None:
        super().__init__(config, store, tools, opening)
        self._entries = LeafEntries(self.ensemble, config.name, self.parties)
        self._owner: EntryOwner | None = None

    async def begin(self) -> None:
        """A key pair; everybody learns which entry each leaf is in."""
        tools, opening, entries = self._tools, self._opening, self._entries
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

    async def sums(self, number: int, rows: Rows) -> Floats:
        """Stage 1 and 2 for a block of records.

        1. W_k of every tree from the own columns (equation 8),
        2. encrypted entry by entry and sent to the first of the chain while the next ones are encrypted;
        3. the last of the chain returns the sums (equation 14), which are opened.
        """
        tools, owner = self._tools, have(self._owner)
        goes_left = self.directions(rows)
        values = await tools.offload(lambda: self._entries.values(goes_left, len(rows)))
        await self._send(number, values)
        sums: list[bytes] = []
        async for parcel in tools.mailbox.series(self.parties[-1], "leaf_sums", number, 0):
            sums.append(parcel.leaf_sums.ciphertexts)
        opened = await owner.open(b"".join(sums), len(rows))
        tools.ledger.operations["decryptions"] += sum(map(len, sums)) // owner.ciphertext_bytes
        return self._entries.weights(opened)

    def spare(self, goes_left: GoesLeft, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed the possible sums, (n,)."""
        return self._entries.spare(goes_left, n)

    async def close(self) -> None:
        """The workers forget the key; it was nowhere else."""
        if self._owner is not None:
            owner, self._owner = self._owner, None
            await owner.close()

    async def _send(self, number: int, values: np.ndarray[tuple[int, int, int], np.dtype[np.int64]]) -> None:
        """Encrypt and stream; memory holds a few parcels, whatever the block."""
        tools = self._tools
        series = tools.outbox.open(self.parties[0], "leaf_entries", number)
        owner, sent = have(self._owner), 0
        async for part in owner.encrypt(values):
            await series.put(eini_pb2.LeafEntries(ciphertexts=part))
            sent += len(part) // owner.ciphertext_bytes
            self.scored_within(number, sent / (values.shape[0] * values.shape[1]))
        await series.close()
        tools.ledger.operations["encryptions"] += sent
        tools.ledger.ciphertexts["leaf_entries"] += sent

    def _block_size(self, public: PublicKey, outputs: int) -> int:
        """As many records as the opening says, as far as their ciphertexts and their plaintexts fit."""
        entry = max(public.ciphertext_bytes, 8 * outputs)
        fitting = BLOCK_BYTES // (entry * len(self._entries.varying))
        return max(1, min(self._opening.block, fitting))
