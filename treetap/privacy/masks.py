"""Pairwise one-time masks: shares of parties, each uniform alone, whose sum modulo 2^64 is that of the parties' values.

Bonawitz et al. 2017, "Practical Secure Aggregation", §4.0.1, without its recovery of masks: a party that drops out
leaves a uniform sum, and the sum is repeated under a new name or not at all. Every two parties have a common secret by
X25519 (RFC 7748). HKDF (RFC 5869) makes of it a key for each sum, which AES-256 in counter mode expands into a stream
of ring elements; the party whose name comes first adds the stream, the other subtracts it.

A sum is named by its purpose, its round and its parties. The same values give the same share, as a retry needs. Other
values under a mask that was used would show their difference, and are refused.

Numbers are added up as elements of the ring of whole numbers modulo 2^64: x is rint(x · 2^fraction), and negative ones
are the upper half of the ring.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from treetap.arrays import Floats, Words
from treetap.errors import Conflict, DataError, Malformed

Ring = Words
#: Fractional bits.
FRACTION = 32


def largest(terms: int, fraction: int = FRACTION) -> float:
    """The largest |x| of which sums of `terms` numbers stay in the ring's range."""
    return 2.0 ** (62 - fraction) / terms


def encode(values: Floats, terms: int, fraction: int = FRACTION) -> Ring:
    """Numbers (n,) as elements of the ring (n,).

    Args:
        terms: how many encoded vectors are added up before one is decoded.

    Raises:
        DataError: numbers that are not finite or too large for it; states how many, and no number.
    """
    limit = largest(terms, fraction)
    if over := int((~(np.abs(values) <= limit)).sum()):
        raise DataError(f"{over} of {len(values)} numbers are beyond ±{limit:g}, the range of masked sums")
    return np.rint(values * 2.0**fraction).astype(np.int64).view(np.uint64)


def decode(elements: Ring, fraction: int = FRACTION) -> Floats:
    """The numbers (n,) that elements of the ring (n,) stand for."""
    return elements.astype(np.uint64).view(np.int64) / 2.0**fraction


KEY_BYTES = 32
_DOMAIN = b"treetap pairwise masks 1"


class MaskKey:
    """The secret half of a party's mask key, of one attempt. Cannot be pickled; its repr shows no secret.

    Attributes:
        public: the public half, 32 bytes, for the other parties.
    """

    __slots__ = ("_private", "public")

    def __init__(self) -> None:
        """Draw a key from the operating system's randomness."""
        self._private = X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()

    def __repr__(self) -> str:
        return "<MaskKey>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a mask key is not pickled, copied or stored")

    def common_secret(self, public: bytes, party: str) -> bytes:
        """The 32 bytes that this party and another, the owner of `public`, alone can compute.

        Raises:
            Malformed: no public key, or one of low order, with which the secret would be no secret.
        """
        try:
            return self._private.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise Malformed(f"the mask key of {party} is no X25519 key of {KEY_BYTES} bytes and full order") from None


class PairwiseMasks:
    """The masks of one party in one attempt at one job. Cannot be pickled; its repr shows no secret.

    Args:
        own_name: the party's name.
        key: its mask key.
        public_keys: the public halves of the other parties; the own one may be among them.
        context: names job and attempt; the same at all parties.

    Raises:
        Malformed: a public key that is none, that has low order, or that two parties have.
    """

    __slots__ = ("_closed", "_context", "_own", "_publics", "_secrets", "_used")

    def __init__(self, own_name: str, key: MaskKey, public_keys: Mapping[str, bytes], context: bytes) -> None:
        self._own = own_name
        self._publics = {**public_keys, own_name: key.public}
        for party, public in self._publics.items():
            if any(public == other for name, other in self._publics.items() if name != party):
                raise Malformed(f"the mask key of {party} is that of another party too")
        others = sorted(self._publics.keys() - {own_name})
        self._secrets = {party: key.common_secret(self._publics[party], party) for party in others}
        self._context = context
        self._used: dict[tuple[str, int], bytes] = {}
        self._closed: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<PairwiseMasks of {self._own} with {', '.join(self._secrets)}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("masks are not pickled, copied or stored")

    def masked(self, values: Ring, purpose: str, round: int, present: Sequence[str]) -> Ring:
        """The own share (n,) of the sum of the values (n,) of the parties `present`, this one among them.

        Alone in a sum, a party's share is its values: nothing hides them.

        Raises:
            Conflict: a share of this purpose and round was made from other values or for other parties, or is over.
        """
        parties = sorted(set(present))
        assert self._own in parties, "a party masks only for a sum that it is in"
        # `Conflict` unless the masks of this purpose and round are fresh, or were used for just this.
        if round < self._closed.get(purpose, 0):
            raise Conflict(f"shares for {purpose} of round {round} are over: no second one is made")
        content = np.ascontiguousarray(values, dtype="<u8").tobytes()
        digest = hashlib.sha256(_joined(*(party.encode() for party in parties), content)).digest()
        if self._used.setdefault((purpose, round), digest) != digest:
            raise Conflict(
                f"a share for {purpose} of round {round} was made from other values or for other parties; "
                "a mask is used once"
            )
        share = np.array(values, dtype=np.uint64)
        for other in parties:
            if other != self._own:
                stream = self._stream(other, len(share), purpose, round, parties)
                share = share + stream if self._own < other else share - stream
        return share

    def close_before(self, purpose: str, round: int) -> None:
        """Make no more shares of a purpose in rounds before this one, and keep no record of them."""
        self._closed[purpose] = max(round, self._closed.get(purpose, 0))
        for used in [used for used in self._used if used[0] == purpose and used[1] < round]:
            del self._used[used]

    def _stream(self, other: str, count: int, purpose: str, round: int, parties: Sequence[str]) -> Ring:
        """The `count` elements that this party and another share in a sum."""
        pair = sorted((self._own, other))
        name = _joined(
            _DOMAIN,
            purpose.encode(),
            str(round).encode(),
            *(part for party in pair for part in (party.encode(), self._publics[party])),
            *(party.encode() for party in parties),
        )
        key = HKDF(SHA256(), KEY_BYTES, salt=self._context, info=name).derive(self._secrets[other])
        # The key is used for this stream only, so that the counter may begin at zero.
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64)


def _joined(*parts: bytes) -> bytes:
    """Parts with their lengths, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
