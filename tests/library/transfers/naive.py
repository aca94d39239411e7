"""Transfers by definition, in Python's integers: edwards25519 (RFC 8032), and the extension a record at a time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from treetap.psi.group import PRIME

Point = tuple[int, int]
Stream = tuple[int, int]
D = -121665 * pow(121666, -1, PRIME) % PRIME
ROOT_OF_MINUS_1 = pow(2, (PRIME - 1) // 4, PRIME)
NEUTRAL = (0, 1)


def decoded(text: bytes) -> Point:
    """The point of an encoding; ValueError where there is none."""
    number = int.from_bytes(text, "little")
    y, sign = number % 2**255, number >> 255
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * ROOT_OF_MINUS_1 % PRIME
    if x * x % PRIME != square:
        raise ValueError("not on the curve")
    return (x if x % 2 == sign else -x % PRIME), y


def encoded(point: Point) -> bytes:
    """32 bytes: y, and whether x is odd."""
    x, y = point
    return (y + (x % 2 << 255)).to_bytes(32, "little")


def added(one: Point, other: Point) -> Point:
    """The sum of two points."""
    return _affine(_sum((*one, 1), (*other, 1)))


def multiple(number: int, point: Point) -> Point:
    """number · point."""
    found = (*NEUTRAL, 1)
    for bit in bin(number)[2:]:
        found = _sum(found, found)
        if bit == "1":
            found = _sum(found, (*point, 1))
    return _affine(found)


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    """In projective coordinates (Bernstein and Lange 2007): complete, since D is no square."""
    (x, y, z), (u, v, w) = one, other
    a, c, d = z * w % PRIME, x * u % PRIME, y * v % PRIME
    e = D * c * d % PRIME
    f, g = a * a - e, a * a + e
    return a * f * ((x + y) * (u + v) - c - d) % PRIME, a * g * (d + c) % PRIME, f * g % PRIME


def _affine(point: tuple[int, int, int]) -> Point:
    inverse = pow(point[2], -1, PRIME)
    return point[0] * inverse % PRIME, point[1] * inverse % PRIME


def seed(session: bytes, sender: bytes, receiver: bytes, shared: bytes, place: int) -> bytes:
    """A base transfer's seed."""
    text = b"".join((session, sender, receiver, shared, bytes([place])))
    return blake2b(text, digest_size=16, person=b"treetap seeds").digest()


def column(key: bytes, stream: Stream, records: int) -> int:
    """G(k): bit i is of record i, for whole words of records."""
    tree, node = stream
    counter = tree.to_bytes(4, "big") + node.to_bytes(8, "big") + bytes(4)
    stretch = Cipher(algorithms.AES(key), modes.CTR(counter)).encryptor().update(bytes(-(-records // 64) * 8))
    return int.from_bytes(stretch, "little")


def pads(session: bytes, stream: Stream, columns: Sequence[int], records: int) -> list[int]:
    """H of the rows of 128 columns."""
    text = session + stream[0].to_bytes(8, "big") + stream[1].to_bytes(8, "big")
    key = blake2b(text, digest_size=16, person=b"treetap rows").digest()
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()

    def permuted(block: int) -> int:
        return int.from_bytes(cipher.update(block.to_bytes(16, "little")), "little")

    texts = [f"{one:0{records}b}"[::-1] for one in columns]
    rows = [int("".join(bits)[::-1], 2) for bits in zip(*texts, strict=False)][:records]
    return [(permuted(permuted(row) ^ i) ^ permuted(row)) & 1 for i, row in enumerate(rows)]


def message(columns: Sequence[int], records: int, block: int) -> bytes:
    """Columns as they are sent: those of a block of records after those of the last one."""
    parts = []
    for first in range(0, records, block):
        count = min(block, -(-(records - first) // 64) * 64)
        parts += [(one >> first & (1 << count) - 1).to_bytes(count // 8, "little") for one in columns]
    return b"".join(parts)


def number(bits: Sequence[int]) -> int:
    """Bits as a number, the first the lowest."""
    return int("".join(str(int(bit)) for bit in reversed(bits)), 2)
