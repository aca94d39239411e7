"""Sums of several parties' values under the key of one of them: what parties without the key do.

A party encrypts its values under the key of the party that is to open the sum; another party, which holds no key
either, multiplies the ciphertexts of all, takes a secret order, packs, and gives every packed ciphertext a fresh
standard obfuscator, since its reader owns the key. Work is spread over the workers; keys there are public.
"""

from __future__ import annotations

from collections.abc import Sequence

from treetap.additive.paillier.public_key import Packer, PublicKey, TwistedObfuscators
from treetap.errors import Malformed
from treetap.process.together import together
from treetap.workers.engines import Engine, InWorkers


class SharedSums(InWorkers):
    """Encrypts under others' keys and adds up ciphertexts.

    Args:
        engine: workers that may see this party's own values.
        obfuscation: kind of the obfuscators of own ciphertexts, which a party without the key receives; see
            `treetap.additive.paillier.public_key`.

    Attributes:
        operations: encryptions, products ("additions") and packings so far.
    """

    def __init__(self, engine: Engine, obfuscation: str) -> None:
        super().__init__(engine)
        self._obfuscation = obfuscation
        self._obfuscators: dict[PublicKey, TwistedObfuscators] = {}  # their tables take a while to make
        self._packers: dict[tuple[PublicKey, int, int], Packer] = {}
        self.operations: dict[str, int] = {"encryptions": 0, "additions": 0, "packings": 0}

    async def encrypt(self, public: PublicKey, plains: Sequence[int]) -> bytes:
        """A ciphertext of each signed plaintext, |plaintext| < n/2, in order."""
        if public not in self._obfuscators:
            made = await self._engine.call(0, TwistedObfuscators, public, self._obfuscation)
            self._obfuscators[public] = made
        calls = [
            self._engine.call(worker, _encrypt, public, self._obfuscators[public], list(plains[first:last]))
            for worker, first, last in self._shares(len(plains))
        ]
        self.operations["encryptions"] += len(plains)
        return b"".join(await together(*calls))

    async def add(
        self,
        public: PublicKey,
        shares: Sequence[bytes],
        bits: int,
        groups: int,
        order: Sequence[int],
        own: Sequence[int] | None = None,
    ) -> bytes:
        """The sums of shares, which have a ciphertext at each place, in this order, packed and re-randomised.

        Args:
            shares: each of the same number of ciphertexts.
            bits: width of one place in a packed plaintext.
            groups: places of a packed plaintext.
            order: places of the shares, in the order in which they are packed.
            own: the adding party's own plaintexts, one for each place; the packed ciphertexts' obfuscators hide them.

        Raises:
            Malformed: the shares differ in length, or are no ciphertexts under this key.
        """
        width = public.ciphertext_bytes
        if len({len(share) for share in shares}) > 1 or any(len(share) % width for share in shares):
            raise Malformed("the parties' encrypted sums have different numbers of ciphertexts")
        blocks, kind = -(-len(order) // groups), (public, bits, groups)
        if kind not in self._packers:
            self._packers[kind] = await self._engine.call(0, Packer, *kind)
        calls = []
        for worker, first, last in self._shares(blocks):
            places = order[first * groups : last * groups]
            picked = [b"".join([share[place * width : (place + 1) * width] for place in places]) for share in shares]
            plains = [0] * len(places) if own is None else [own[place] for place in places]
            calls.append(self._engine.call(worker, _add, public, self._packers[kind], picked, plains))
        self.operations["additions"] += len(order) * (len(shares) - (own is None))
        self.operations["packings"] += blocks
        return b"".join(await together(*calls))


def _encrypt(public: PublicKey, obfuscators: TwistedObfuscators, plains: Sequence[int]) -> bytes:
    return public.write(public.encrypt(plains, obfuscators.draw(len(plains))))


def _add(public: PublicKey, packer: Packer, shares: Sequence[bytes], plains: Sequence[int]) -> bytes:
    total = public.encrypt(plains, public.ring.ones(len(plains)))
    for share in shares:
        total = public.ring.multiply(total, public.read(share))
    return public.write(packer.pack_fresh(total))
