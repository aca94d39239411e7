"""Fed-EINI's arithmetic: entries encrypted by the key's owner, masked along a chain, summed, decrypted.

    owner ──► entries of a record, one ciphertext each ──► member ──► … ──► last member ──► sums, packed ──► owner

A member without the key multiplies together the ciphertexts of the entries that it keeps and that go on as one. Each
one that goes on is re-randomised, and where nothing was kept it is a fresh encryption of zero, so that the next member
cannot tell the two apart. The last member packs the sums of many records into one ciphertext and gives it a `standard`
obfuscator, because its reader owns the key.

A plaintext has a slot for each output of the model. The width of the slots is the same for every model: it reveals
nothing of the scores' range, and honest sums use so little of it that a ciphertext under another key is detected.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

import numpy as np

from treetap.additive.paillier.public_key import Packer, PublicKey, TwistedObfuscators
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Cells
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, KeyHolder
from treetap.arrays import Bools, Ints
from treetap.errors import Malformed
from treetap.process.together import ended, together
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, InWorkers

#: Bits of one output's slot: sums of fewer bits leave some unused, which a ciphertext under another key would fill.
SLOT_BITS = 62
#: Bytes of ciphertexts that a worker works on at a time, roughly: tens to hundreds of milliseconds.
CALL_BYTES = 512 * 1024


def entry_slots(values: int) -> Slots:
    """The layout of an entry of `values` values in one ciphertext."""
    return Slots((SLOT_BITS,) * values)


def ciphertexts_of(values: int, plain_bits: int) -> tuple[int, int]:
    """The number of ciphertexts of an entry of `values` values, and the number of slots of each.

    Raises:
        PlaintextOverflow: not even one value fits a plaintext of this key.
    """
    count = -(-values // entry_slots(1).groups_per_plaintext(plain_bits))
    return count, -(-values // count)


class EntryKeyHolder(KeyHolder):
    """The label holder's side.

    Args:
        engine: workers; the key is held there between `start` and `close`.
        secret: the key.
        outputs: columns of the score.
        obfuscation: how entries are randomised, see `treetap.additive.paillier.secret_key`.
        sum_bits: an honest sum is below 2^sum_bits in size.

    Attributes:
        slots: layout of a plaintext, one slot for each output.
        ciphertext_bytes: width of a ciphertext.

    Raises:
        PlaintextOverflow: the outputs do not fit one plaintext of this key.
    """

    def __init__(self, engine: Engine, secret: SecretKey, outputs: int, obfuscation: str, sum_bits: int) -> None:
        self.slots = entry_slots(outputs)
        super().__init__(engine, secret, self.slots, obfuscation)
        self.ciphertext_bytes = secret.public.ciphertext_bytes
        self._bound = 1 << sum_bits
        self._per_call = max(1, CALL_BYTES // self.ciphertext_bytes)

    async def encrypt(self, values: Ints) -> AsyncIterator[bytes]:
        """Encrypt entries (…, outputs) in the order of the array; ciphertexts come in blocks, few of them ahead."""
        columns = [np.ascontiguousarray(column) for column in values.reshape(-1, values.shape[-1]).T]
        async for _, ciphertexts in self.encrypt_blocks(columns, self._per_call):
            yield ciphertexts

    async def open(self, ciphertexts: bytes, candidates: int) -> Ints:
        """The sums of a block of records, or of their ciphertexts where each takes several (records, outputs).

        Raises:
            Malformed: not as many ciphertexts as the records need, or a sum that honest entries cannot have.
        """
        opened = await super().open(ciphertexts, candidates)
        if np.abs(opened).max(initial=0) >= self._bound:
            raise Malformed("a sum is larger than the model's scores can be: it was encrypted under another key")
        return opened


class EntryMember(InWorkers):
    """A feature party's side.

    Args:
        engine: workers.
        public: the label holder's key.
        slots: layout of one entry.
        outgoing: (entries,) the outgoing entry of each incoming one; entries with one number go on as their sum.
        constant: incoming entries that come once (`start`) and not for every record.
        obfuscation: how entries that go on are randomised (the next member holds no key); None at the last member,
            whose sums are packed and always get `standard` obfuscators.

    Attributes:
        operations: products ("additions", by layout: those of masks that keep everything), fresh obfuscators
            ("obfuscators") and packed ciphertexts ("packings").
    """

    def __init__(
        self,
        engine: Engine,
        public: PublicKey,
        slots: Slots,
        outgoing: Ints,
        constant: Ints,
        obfuscation: str | None,
    ) -> None:
        super().__init__(engine)
        self._public, self._slots = public, slots
        self._outgoing, self._constant, self._obfuscation = outgoing, constant, obfuscation
        self._fresh: TwistedObfuscators | None = None
        self.operations = {"additions": 0, "obfuscators": 0, "packings": 0}
        self.varying = np.setdiff1d(np.arange(len(outgoing)), constant)

    async def start(self, constants: bytes) -> None:
        """Take the ciphertexts of the constant entries.

        Raises:
            Malformed: not one ciphertext for each of the constant entries.
        """
        expected = len(self._constant)
        if len(constants) != expected * self._public.ciphertext_bytes:
            raise Malformed(
                f"{expected} constant entries need {expected * self._public.ciphertext_bytes} bytes of ciphertexts, "
                f"got {len(constants)}"
            )
        if self._obfuscation is not None:
            self._fresh = await self._engine.call(0, TwistedObfuscators, self._public, self._obfuscation)
        # last: nothing is masked without them, hence nothing before there are obfuscators
        self._constants = await self._engine.call(0, self._public.read_factors, constants)

    def block(self, masks: Bools) -> MaskedBlock:
        """Begin a block of records, whose candidate sets are `masks` (records, incoming entries)."""
        return MaskedBlock(self, masks)

    def _mask(self, ciphertexts: bytes, masks: Bools) -> tuple[bytes, int]:
        """A kernel: equation 13 for a few records, and 14 (10 for one feature party) at the last.

        Returns:
            Ciphertexts record by record, and the number of obfuscators that they took.
        """
        ring, records, entries = self._public.ring, len(masks), int(self._outgoing.max()) + 1
        values = np.concatenate([self._public.read_factors(ciphertexts), self._constants])
        # Of each entry, record by record, its ciphertext's place among the values, and the outgoing entry it enters.
        places = np.empty(masks.shape, dtype=np.int64)
        places[:, self.varying] = np.arange(records * len(self.varying)).reshape(records, -1)
        places[:, self._constant] = records * len(self.varying) + np.arange(len(self._constant))
        cells = np.arange(records, dtype=np.int64)[:, np.newaxis] * entries + self._outgoing
        of_kept, count = cells[masks], records * entries
        going, factors = (
            ring.cell_products(values, Cells(places[masks], of_kept, count)),
            np.bincount(of_kept, minlength=count),
        )
        if self._fresh is not None:
            # An entry from which nothing was kept is 1, so its obfuscator alone goes on: a fresh encryption of zero.
            going = ring.multiply(going, self._fresh.draw(count))
        return self._public.write_products(going, factors), 0 if self._fresh is None else count

    def _pack(self, sums: bytes) -> bytes:
        """A kernel: sums packed and re-randomised."""
        groups = self._slots.groups_per_plaintext(self._public.plain_bits)
        packer = Packer(self._public, self._slots.bits, groups)
        return self._public.write(packer.pack_fresh(self._public.read(sums)))


class MaskedBlock:
    """One block on its way through a member: parts go in as they come, finished ones come out in order.

    At most two calls per worker and a part of one more record are held: memory does not grow with the block, except
    for its sums at the last member, a ciphertext per record and remaining entry.
    """

    def __init__(self, member: EntryMember, masks: Bools) -> None:
        self._member, self._masks = member, masks
        self._record = len(member.varying) * member._public.ciphertext_bytes
        self._expected = len(masks) * self._record
        self._step = max(1, CALL_BYTES // self._record)  # records
        self._buffer = bytearray()
        self._begun = 0  # records handed to workers
        self._calls = 0
        self._taken = 0  # bytes
        self._pending: deque[asyncio.Task[tuple[bytes, int]]] = deque()
        self._sums: list[bytes] = []

    @property
    def done(self) -> int:
        """Records handed to the workers so far."""
        return self._begun

    async def take(self, part: bytes) -> list[bytes]:
        """Take the ciphertexts that came; returns those that can go on.

        Raises:
            Malformed: more than the block has, or no ciphertexts.
        """
        self._taken += len(part)
        if self._taken > self._expected:
            raise self._misfit()
        self._buffer += part
        ready: list[bytes] = []
        while len(self._buffer) >= self._step * self._record:
            await self._begin(self._step, ready)
        return ready

    async def finish(self) -> list[bytes]:
        """End the block; returns the remaining ciphertexts. The last member returns its sums, packed and re-randomised.

        Raises:
            Malformed: less has come than the block has.
        """
        if self._taken != self._expected:
            raise self._misfit()
        ready: list[bytes] = []
        if self._buffer:
            await self._begin(len(self._masks) - self._begun, ready)
        while self._pending:
            await self._settle(ready)
        return ready if self._member._obfuscation is not None else await self._packed()

    async def close(self) -> None:
        """Release calls that are still under way."""
        await ended(self._pending)

    def _misfit(self) -> Malformed:
        width, entries = self._member._public.ciphertext_bytes, len(self._member.varying)
        return Malformed(
            f"{len(self._masks)} records of {entries} entries are {len(self._masks) * entries} ciphertexts, "
            f"got {self._taken / width:g}{' or more' if self._taken > self._expected else ''}"
        )

    async def _begin(self, records: int, ready: list[bytes]) -> None:
        """Hand the next records to the next worker, after making room there."""
        engine = self._member._engine
        while len(self._pending) >= IN_FLIGHT_PER_WORKER * engine.workers:
            await self._settle(ready)
        size = records * self._record
        part, self._buffer = bytes(self._buffer[:size]), self._buffer[size:]
        masks = self._masks[self._begun : self._begun + records]
        call = engine.call(self._calls % engine.workers, self._member._mask, part, masks)
        self._pending.append(asyncio.ensure_future(call))
        outgoing = self._member._outgoing  # of each incoming entry: how many go on as one, whatever a mask keeps
        self._member.operations["additions"] += records * (len(outgoing) - len(np.unique(outgoing)))
        self._begun += records
        self._calls += 1

    async def _settle(self, ready: list[bytes]) -> None:
        """Wait for the oldest call."""
        ciphertexts, obfuscators = await self._pending[0]
        self._pending.popleft()
        self._member.operations["obfuscators"] += obfuscators
        (self._sums if self._member._obfuscation is None else ready).append(ciphertexts)

    async def _packed(self) -> list[bytes]:
        """The sums of many records in one ciphertext, spread over the workers by whole ciphertexts."""
        member, width = self._member, self._member._public.ciphertext_bytes
        sums = b"".join(self._sums)
        groups = member._slots.groups_per_plaintext(member._public.plain_bits)
        size = groups * width
        count = -(-len(sums) // size)
        packed = await together(
            *(
                member._engine.call(worker, member._pack, sums[first * size : last * size])
                for worker, first, last in member._shares(count)
            )
        )
        member.operations["packings"] += count
        member.operations["obfuscators"] += count
        return packed
