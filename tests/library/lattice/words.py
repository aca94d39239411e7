"""The numbers inside a ciphertext, which the bindings do not show, read from and put into its serialised form."""

from __future__ import annotations

import struct

import numpy as np
import zstandard

from treetap.lattice.seal import to_bytes

HEADER = 16


def body_of(data):
    """What the library compressed."""
    return zstandard.ZstdDecompressor().decompressobj().decompress(data[HEADER:])


def words_of(scheme, value):
    """A ciphertext's numbers (polynomial, prime, N), as Python integers."""
    shape = (2, len(scheme.primes), scheme.parameters.degree)
    numbers = np.frombuffer(body_of(to_bytes(value))[-8 * int(np.prod(shape)) :], dtype="<u8")
    return numbers.astype(object).reshape(shape)


def with_words(template, numbers):
    """A serialised ciphertext like the template with other numbers."""
    flat = numbers.astype("<u8").tobytes()
    body = body_of(template)[: -len(flat)] + flat
    return struct.pack("<HBBBBHQ", *struct.unpack_from("<HBBB", template), 0, 0, HEADER + len(body)) + body


def signed(residues, primes):
    """Integers between ±q/2 from residues modulo two primes."""
    (first, second), q = primes, primes[0] * primes[1]
    inverse = pow(first, -1, second)
    numbers = [int(a) + first * (int(b - a) * inverse % second) for a, b in zip(*residues, strict=True)]
    return [number - q if number > q // 2 else number for number in numbers]
