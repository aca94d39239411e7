"""Fed-EINI at the label holder (Chen et al. 2021, Algorithm 1): entries out, encrypted; one sum per record back."""

from __future__ import annotations

from party.config import PartyConfig
from party.eini.blocks import BlockSender
from party.eini.layout import layout_parcels
from party.prediction.scores_on_disk import Guessed
from party.runtime.context import Tools, have
from party.runtime.job_store import Store
from party.runtime.messages import Rows, ciphertext_body, ciphertexts_in
from party.serving.registry import Desk
from party.setup.steps import make_passing_key, send_key
from treetap.errors import BadInput, PlaintextOverflow
from treetap.paillier.masked_sums import EntryOwner
from treetap.paillier.public_key import PublicKey
from treetap.paillier.secret_key import SecretKey
from treetap.trees.leaf_entries import SUM_BITS, GoesLeft, Ints, LeafEntries
from treetap.trees.paths import Floats
from treetap.wire.v2 import prediction_pb2

#: Most bytes of ciphertexts of one block: what may lie at a party before its step begins.
BLOCK_BYTES = 64 * 1024 * 1024


class LabelHolder(BlockSender):
    """Answers the steps of the label holder."""

    def __init__(
        self, config: PartyConfig, store: Store, tools: Tools, opening: prediction_pb2.OpenModel, desk: Desk
    ) -> None:
        tools.law.check_key(config.name, opening.parameters.eini.key_bits)
        super().__init__(config, store, tools, opening, desk)
        self._entries: LeafEntries | None = None
        self._owner: EntryOwner | None = None

    def lay_out(self) -> None:
        """The entries of the leaves."""
        self._entries = LeafEntries(self.ensemble, self._tools.party, self.chain, list(self._opening.away))

    async def begin(self) -> None:
        """A key pair; everybody learns which entry each leaf is in."""
        tools, options, entries = self._tools, self._opening.parameters.eini, have(self._entries)
        secret = await make_passing_key(tools, options.key_bits)
        outputs = len(self.ensemble.base_margin)
        token = f"{tools.job}/{tools.attempt}"
        try:
            owner = EntryOwner(tools.engine, secret, outputs, options.obfuscation, SUM_BITS, token)
        except PlaintextOverflow as failure:
            raise BadInput(f"{outputs} classes do not fit one ciphertext: {failure}") from failure
        self._owner = owner
        await owner.start()
        self.size = self._block_size(secret.public, outputs)
        await send_key(tools, secret, owner.slots, self.chain)
        for party, hop in zip(self.chain, await tools.offload(entries.hops), strict=True):
            constant = entries.constant.tolist() if party == self.chain[0] else []
            await tools.outbox.send(party, "entry_layout", layout_parcels(hop, constant))
        await self._send_constants(owner, "constant_entries", await tools.offload(entries.constants))
        await self.also_begin(secret)

    async def also_begin(self, secret: SecretKey) -> None:
        """What else begins under this key; with scores alone nothing."""

    async def sums(self, number: int, rows: Rows) -> tuple[Floats, Guessed | None]:
        """Stage 1 and 2 for a block of records.

        1. W_k of every tree from the own columns (equation 8),
        2. encrypted entry by entry and sent to the first of the chain while the next ones are encrypted;
        3. the last of the chain returns the sums (equation 14), which are opened.
        """
        tools, entries, n = self._tools, have(self._entries), len(rows)
        goes_left = self.directions(rows)
        values = await tools.offload(lambda: entries.values(goes_left, n))
        guessed = await tools.offload(lambda: entries.guessed(goes_left, n)) if self._opening.away else None
        if not self.chain:
            return entries.weights(values[:, 0]), guessed
        owner = have(self._owner)
        await self._send(owner, "leaf_entries", number, values)
        return entries.weights(await self._take(owner, "leaf_sums", number, n)), guessed

    def spare(self, goes_left: GoesLeft, n: int) -> Floats:
        """Bits by which the candidate leaves of n records exceed the possible sums, (n,)."""
        return have(self._entries).spare(goes_left, n)

    async def close(self) -> None:
        """The workers forget the key; it was nowhere else."""
        if self._owner is not None:
            owner, self._owner = self._owner, None
            await owner.close()

    async def _send_constants(self, owner: EntryOwner, kind: str, values: Ints) -> None:
        """The entries that are the same for every record, (entries, values), to the first of the chain."""
        bodies = [ciphertext_body(kind, part) async for part in owner.encrypt(values)]
        self._count(kind, len(values))
        await self._tools.outbox.send(self.chain[0], kind, bodies)

    async def _send(self, owner: EntryOwner, kind: str, number: int, values: Ints) -> None:
        """Encrypt and stream (n, entries, values) of a block; memory holds a few parcels, whatever the block."""
        total, sent = values.shape[0] * values.shape[1], 0
        series = self._tools.outbox.open(self.chain[0], kind, number)
        async for part in owner.encrypt(values):
            await series.put(ciphertext_body(kind, part))
            sent += len(part) // owner.ciphertext_bytes
            self.advance(round(len(values) * sent / total))
        await series.close()
        self._count(kind, sent)

    async def _take(self, owner: EntryOwner, kind: str, number: int, count: int) -> Ints:
        """So many sums of a block, opened, as the last of the chain returns them."""
        parcels = self._tools.mailbox.series(self.chain[-1], kind, number, 0)
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
        fitting = BLOCK_BYTES // (entry * len(have(self._entries).varying))
        return max(1, min(self.size, fitting))
