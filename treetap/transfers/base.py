"""Base transfers: 128 pairs of seeds at the sender, one of each pair at the receiver, by bits that it alone has.

Chou and Orlandi, "The Simplest Protocol for Oblivious Transfer" (LATINCRYPT 2015), Figure 1. G generates the subgroup
of prime order ℓ of edwards25519: the curve of `treetap.psi.group`, in the form that has sums of points.

1. S draws a and sends A = a·G.
2. R draws a bit s_j and b_j for each j, and sends B_j = b_j·G + s_j·A.
3. Seeds of pair j are the hashes of a·B_j and of a·B_j - a·A. R has that of b_j·A, which is the one of s_j.

Both refuse points that are not of order ℓ: with a part T of low order in A, ℓ·B_j = s_j·ℓ·T would show s_j. A hash
covers the session, j, A and B_j too, so that no seed serves twice.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from nacl import bindings

from treetap.errors import Malformed
from treetap.psi.group import ORDER, POINT_BYTES
from treetap.transfers.extension import PAIRS, SEED_BYTES, Mark, ReceiverSeeds, SenderSeeds

#: Bytes of the receiver's points, in base transfers.
CHOICE_BYTES = PAIRS * POINT_BYTES


class BaseSender:
    """The sender of base transfers, a label holder. Lives for one attempt and one feature party, in memory only.

    Attributes:
        point: A, 32 bytes, to be sent.
    """

    def __init__(self, session: bytes) -> None:
        """`session`: names job, attempt and both parties; the receiver has the same."""
        self._session, self._secret = session, _exponent()
        self.point = bindings.crypto_scalarmult_ed25519_base_noclamp(self._secret)

    def seeds(self, choices: bytes, mark: Mark) -> ReceiverSeeds:
        """Both seeds of every pair, from the receiver's points; `mark`: see `Seeds`.

        Raises:
            Malformed: not 128 points of prime order.
        """
        points = _checked(choices, PAIRS)
        both = bindings.crypto_scalarmult_ed25519_noclamp(self._secret, self.point)
        raised = [bindings.crypto_scalarmult_ed25519_noclamp(self._secret, point) for point in points]
        lowered = [bindings.crypto_core_ed25519_sub(point, both) for point in raised]
        zeros, ones = (_hashed(self._session, self.point, points, shared) for shared in (raised, lowered))
        return ReceiverSeeds(zeros, ones, self._session, mark)


class BaseReceiver:
    """The receiver of base transfers, a feature party. Lives for one attempt, in memory only.

    Attributes:
        choices: B_j, 128 · 32 bytes, to be sent.
    """

    def __init__(self, session: bytes, point: bytes) -> None:
        """`session`: as the sender has it; `point`: the sender's.

        Raises:
            Malformed: not one point of prime order.
        """
        (of_sender,) = _checked(point, 1)
        self._bits = np.frombuffer(secrets.token_bytes(PAIRS), dtype=np.uint8) & np.uint8(1)
        secret = [_exponent() for _ in range(PAIRS)]
        zeros = [bindings.crypto_scalarmult_ed25519_base_noclamp(one) for one in secret]
        ones = [bindings.crypto_core_ed25519_add(zero, of_sender) for zero in zeros]
        pairs = (np.frombuffer(b"".join(half), dtype=np.uint8).reshape(PAIRS, -1) for half in (ones, zeros))
        self.choices = np.where(self._bits[:, None], *pairs).tobytes()  # chosen without a branch
        shared = [bindings.crypto_scalarmult_ed25519_noclamp(one, of_sender) for one in secret]
        self._seeds = _hashed(session, point, _checked(self.choices, PAIRS), shared)
        self._session = session

    def seeds(self, mark: Mark) -> SenderSeeds:
        """The seed of every pair that the bits chose, and the bits; `mark`: see `Seeds`."""
        return SenderSeeds(self._bits, self._seeds, self._session, mark)


def _exponent() -> bytes:
    """Uniform from 1 to ℓ - 1, from the operating system."""
    return (1 + secrets.randbelow(ORDER - 1)).to_bytes(POINT_BYTES, "little")


def _checked(block: bytes, count: int) -> list[bytes]:
    """Points of a block, each of prime order: canonical, on the curve, in the subgroup, not its neutral element."""
    if len(block) != count * POINT_BYTES:
        raise Malformed(f"base transfers take {count * POINT_BYTES} bytes of points, not {len(block)}")
    points = [block[at : at + POINT_BYTES] for at in range(0, len(block), POINT_BYTES)]
    if not all(map(bindings.crypto_core_ed25519_is_valid_point, points)):
        raise Malformed("a point of the base transfers is not of prime order")
    return points


def _hashed(session: bytes, point: bytes, choices: Iterable[bytes], shared: Iterable[bytes]) -> list[bytes]:
    """A seed for each j from what both know of it; all but the session has a fixed length."""
    texts = (session + point + b"".join(pair) for pair in zip(choices, shared, strict=True))
    return [
        blake2b(text + bytes([j]), digest_size=SEED_BYTES, person=b"treetap seeds").digest()
        for j, text in enumerate(texts)
    ]
