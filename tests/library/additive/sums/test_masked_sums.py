"""Entries on their way through a chain of members: sums that come out right, and ciphertexts that tell nothing."""

from __future__ import annotations

import asyncio

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

from tests.library.ciphertexts import integers
from tests.library.engines import workers
from treetap.additive.paillier.public_key import TwistedObfuscators
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Batch
from treetap.additive.sums import masked_sums
from treetap.additive.sums.masked_sums import EntryKeyHolder, EntryMember
from treetap.errors import Malformed, PlaintextOverflow
from treetap.workers.engines import Engine

pytestmark = pytest.mark.real_time

KEY = SecretKey.generate(1024)
FOREIGN = SecretKey.generate(1024)
PUBLIC = KEY.public
WIDTH = PUBLIC.ciphertext_bytes
OUTPUTS, ENTRIES, RECORDS = 2, 6, 40
#: Entries 4 and 5 are constant at the first member; two goals behind it, one behind the second.
CONSTANT = np.array([4, 5])
VARYING = np.arange(4)
FIRST_OUT = np.array([0, 1, 1, 2, 2, 0])
RNG = np.random.default_rng(5)
VALUES = RNG.integers(-(2**50), 2**50, (RECORDS, len(VARYING), OUTPUTS)) * RNG.integers(0, 2, (RECORDS, 4, 1))
CONSTANTS = RNG.integers(-(2**50), 2**50, (len(CONSTANT), OUTPUTS))
FIRST_MASK = RNG.integers(0, 2, (RECORDS, ENTRIES)).astype(bool)
LAST_MASK = RNG.integers(0, 2, (RECORDS, 3)).astype(bool)


def expected() -> np.ndarray:
    """The sums that the chain must find."""
    everything = np.concatenate([VALUES, np.broadcast_to(CONSTANTS, (RECORDS, *CONSTANTS.shape))], axis=1)
    kept = everything * (FIRST_MASK & LAST_MASK[:, FIRST_OUT])[:, :, np.newaxis]
    return kept.sum(axis=1)


async def through(member: EntryMember, masks: np.ndarray, ciphertexts: bytes, part: int = 700) -> bytes:
    """A block through one member, cut into parts wherever."""
    block = member.block(masks)
    out = []
    for start in range(0, len(ciphertexts), part):
        out += await block.take(ciphertexts[start : start + part])
    out += await block.finish()
    assert block.done == len(masks)
    await block.close()
    return b"".join(out)


async def first_hop(engine: Engine, owner: EntryKeyHolder, kind: str) -> bytes:
    """What the first member forwards."""
    sent = b"".join([part async for part in owner.encrypt(VALUES)])
    constants = b"".join([part async for part in owner.encrypt(CONSTANTS)])
    member = EntryMember(engine, PUBLIC, owner.slots, FIRST_OUT, CONSTANT, kind)
    await member.start(constants)
    forwarded = await through(member, FIRST_MASK, sent)
    assert member.operations["obfuscators"] == RECORDS * 3
    assert member.operations["additions"] == RECORDS * (len(FIRST_OUT) - 3)  # whatever the masks keep
    await member.close()
    return forwarded


def owner_of(engine: Engine, kind: str = "short-exponent") -> EntryKeyHolder:
    return EntryKeyHolder(engine, KEY, OUTPUTS, kind, 57)


@pytest.mark.parametrize("kind", ["short-exponent", "half-length", "standard"])
async def test_a_chain_of_two_finds_the_sums(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of kept entries come back exactly, packed; small calls or large, parts cut anywhere."""
    monkeypatch.setattr(masked_sums, "CALL_BYTES", 5 * WIDTH)

    engine = Engine()
    owner = owner_of(engine, kind)
    await owner.start()
    forwarded = await first_hop(engine, owner, kind)
    assert len(forwarded) == RECORDS * 3 * WIDTH
    last = EntryMember(engine, PUBLIC, owner.slots, np.zeros(3, dtype=np.int64), np.zeros(0, int), None)
    await last.start(b"")
    sums = await through(last, LAST_MASK, forwarded)
    assert len(sums) == -(-RECORDS // 8) * WIDTH == last.operations["packings"] * WIDTH
    assert (await owner.open(sums, RECORDS) == expected()).all()
    await last.close()
    await owner.close()


async def test_lanes_share_the_work() -> None:
    """Two threads find what one finds, in the same order."""
    async with workers(2) as engine:
        owner = owner_of(engine)
        await owner.start()
        forwarded = await first_hop(engine, owner, "short-exponent")
        last = EntryMember(engine, PUBLIC, owner.slots, np.zeros(3, dtype=np.int64), np.zeros(0, int), None)
        await last.start(b"")
        sums = await through(last, LAST_MASK, forwarded, 5000)
        assert (await owner.open(sums, RECORDS) == expected()).all()


def trivial(ciphertexts: list[mpz]) -> np.ndarray:
    """A distinguisher: a product of nothing is 1."""
    return np.array([ciphertext != 1 for ciphertext in ciphertexts])


def repeated(ciphertexts: list[mpz]) -> np.ndarray:
    """A distinguisher: what came through unchanged comes again; everything else is new."""
    return np.array([ciphertexts.count(ciphertext) > 1 for ciphertext in ciphertexts])


def jacobi(ciphertexts: list[mpz], n: mpz = PUBLIC.n) -> np.ndarray:
    """A distinguisher: powers of -y² have the Jacobi symbol 1, products with other obfuscators half of the time not."""
    return np.array([gmpy2.jacobi(ciphertext, n) == -1 for ciphertext in ciphertexts])


def kept_or_dropped(
    sent_by: str, forwarded_with: str, records: int = 300, key: SecretKey = KEY
) -> tuple[list[mpz], np.ndarray]:
    """What the successor of a member sees of two entries, a constant and a varying one, and which were kept."""
    masks = np.random.default_rng(1).integers(0, 2, (records, 2)).astype(bool)

    async def main() -> bytes:
        engine = Engine()
        owner = EntryKeyHolder(engine, key, 1, sent_by, 57)
        await owner.start()
        constants = b"".join([part async for part in owner.encrypt(np.array([[7]]))])
        sent = b"".join([part async for part in owner.encrypt(np.full((records, 1, 1), 9))])
        member = EntryMember(engine, key.public, owner.slots, np.arange(2), np.array([1]), forwarded_with)
        await member.start(constants)
        return await through(member, masks, sent)

    return integers(key.public, asyncio.run(main())), masks.ravel()


@pytest.mark.parametrize("kind", ["short-exponent", "half-length"])
@pytest.mark.parametrize("sent_by", ["short-exponent", "half-length", "standard"])
def test_as_shipped_the_next_member_cannot_tell_kept_from_dropped(sent_by: str, kind: str) -> None:
    """None of the distinguishers does better than a coin, and no ciphertext comes twice."""
    seen, kept = kept_or_dropped(sent_by, kind, 150)
    assert len(set(seen)) == len(seen)
    for distinguisher in (trivial, repeated, jacobi):
        assert 0.25 < (distinguisher(seen) == kept).mean() < 0.75
    assert 0.2 < jacobi(seen)[~kept].mean() < 0.8  # of 150, by a deviation of 4 %


def test_without_fresh_obfuscators_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forwarded as they are, dropped entries are 1 and constant ones repeat: the mask is read off."""
    monkeypatch.setattr(TwistedObfuscators, "draw", lambda self, count: PUBLIC.ring.ones(count))
    seen, kept = kept_or_dropped("short-exponent", "short-exponent")
    assert (trivial(seen) == kept).all()
    constant, mask = seen[1::2], kept[1::2]
    assert len(set(constant)) == 2
    assert (repeated(constant) & trivial(constant) == mask).all()


def test_half_of_the_defence_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh zeros alone do not do: kept constant entries that go on as they came still repeat."""
    draw = TwistedObfuscators.draw
    kept = np.random.default_rng(1).integers(0, 2, (300, 2)).astype(bool).ravel()

    def for_zeros_only(self: TwistedObfuscators, count: int) -> Batch:
        # `kept` goes on from block to block
        drawn, done = draw(self, count), len(taken)
        taken.extend([1] * count)
        drawn[kept[done : done + count]] = PUBLIC.ring.ones(1)
        return drawn

    taken: list[int] = []
    monkeypatch.setattr(TwistedObfuscators, "draw", for_zeros_only)
    seen, mask = kept_or_dropped("short-exponent", "short-exponent")
    assert (mask == kept).all()
    assert (repeated(seen[1::2]) == kept[1::2]).all()


def test_without_the_twist_the_jacobi_symbol_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Powers of -y² alone over the owner's ciphertexts: a symbol of -1 is a kept entry, never a dropped one."""
    monkeypatch.setattr(TwistedObfuscators, "draw", lambda self, count: self._table.random_powers(count))
    seen, kept = kept_or_dropped("short-exponent", "short-exponent")
    said_kept = jacobi(seen)
    assert not said_kept[~kept].any()
    assert said_kept[0::2][kept[0::2]].mean() > 0.3


def test_the_owner_gets_standard_obfuscators() -> None:
    """Sums go to the key's owner: whatever the job's kind, each packed ciphertext has an r from all units."""
    p, q = KEY._p, KEY._q
    root = gmpy2.invert(PUBLIC.n, (p - 1) * (q - 1))

    async def main() -> list[mpz]:
        engine = Engine()
        owner = owner_of(engine)
        await owner.start()
        last = EntryMember(engine, PUBLIC, owner.slots, np.zeros(3, dtype=np.int64), np.zeros(0, int), None)
        await last.start(b"")
        sums = await through(last, LAST_MASK, await first_hop(engine, owner, "short-exponent"))
        return integers(PUBLIC, sums)

    drawn = [gmpy2.powmod(ciphertext % PUBLIC.n, root, PUBLIC.n) for ciphertext in asyncio.run(main())]
    assert min(r.bit_length() for r in drawn) > 1024 - 64
    assert len(set(drawn)) == len(drawn) == 5


async def test_what_does_not_fit_is_refused() -> None:
    """Too few and too many ciphertexts, half a one, constants that are not there, sums under another key."""
    engine = Engine()
    owner = owner_of(engine)
    await owner.start()
    member = EntryMember(engine, PUBLIC, owner.slots, FIRST_OUT, CONSTANT, "short-exponent")
    with pytest.raises(Malformed, match="2 constant entries need 512 bytes of ciphertexts, got 256"):
        await member.start(bytes(WIDTH))
    sent = b"".join([part async for part in owner.encrypt(VALUES)])
    await member.start(sent[: 2 * WIDTH])
    for cut, said in ((-WIDTH, "got 159"), (-1, "got 159.996")):
        with pytest.raises(Malformed, match=f"40 records of 4 entries are 160 ciphertexts, {said}"):
            await through(member, FIRST_MASK, sent[:cut])
    with pytest.raises(Malformed, match="160 ciphertexts, got 161 or more"):
        await through(member, FIRST_MASK, sent + sent[:WIDTH], len(sent) + WIDTH)
    with pytest.raises(Malformed, match="a ciphertext is zero or not below n²: it was made under another key"):
        await through(member, FIRST_MASK, b"\xff" * len(sent))
    foreign = FOREIGN.encrypt_many([3] * -(-RECORDS // 8), "standard")
    with pytest.raises(Malformed):
        await owner.open(foreign, RECORDS)
    with pytest.raises(Malformed, match="40 candidates are 5 ciphertexts"):
        await owner.open(foreign[:-WIDTH], RECORDS)
    honest = KEY.encrypt_many([1 << 58], "standard")
    with pytest.raises(Malformed, match="a sum is larger than the model's scores can be"):
        await owner.open(honest, 1)


def test_as_many_outputs_as_a_plaintext_holds() -> None:
    """Sixteen outputs fit 1024 bits; the seventeenth is refused before anything is sent."""
    assert len(EntryKeyHolder(Engine(), KEY, 16, "standard", 57).slots.widths) == 16
    with pytest.raises(PlaintextOverflow, match="of this key holds"):
        EntryKeyHolder(Engine(), KEY, 17, "standard", 57)
