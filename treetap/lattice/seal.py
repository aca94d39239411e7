"""The interface to Microsoft SEAL, through the low-level bindings that TenSEAL ships: contexts, and objects as bytes.

SEAL draws seeds from /dev/urandom and expands them with Blake2xb. The bindings read and write files only, so every
object passes through an anonymous file in memory (`memfd_create`, Linux); nothing touches a disk. A peer's bytes are
checked before any computation with them.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.errors import BadInput, Incompatible, Malformed
from treetap.lattice.parameters import PRIME_BITS, Parameters

try:
    import tenseal.sealapi as api
except ImportError as error:
    raise BadInput(
        "the lattice backend needs TenSEAL: pip install 'treetap[lattice]', or take Paillier (protocol eini)"
    ) from error

__all__ = ["SLACK", "Scheme", "api", "scheme_of", "secret_key", "to_bytes"]

Words = npt.NDArray[np.uint64]

# Header of a serialised object: magic, header size, version major and minor, compression, reserved, size in all.
_HEADER = struct.Struct("<HBBBBHQ")
# Members of a ciphertext: in NTT form, polynomials, N, primes, scale, BGV's correction factor.
_MEMBERS = struct.Struct("<BQQQdQ")
_COUNT = struct.Struct("<Q")
SLACK = 1024  # an incompressible object grows by less in the library's container
_OFFERED = api.Serialization.SEALHeader()


class Scheme:
    """A context with its encoder and evaluator; the same for owner and members of one job."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        sizes = [PRIME_BITS] * parameters.data_primes + [parameters.special_bits]
        agreed = api.EncryptionParameters(api.SCHEME_TYPE.BFV)
        agreed.set_poly_modulus_degree(parameters.degree)
        agreed.set_coeff_modulus(api.CoeffModulus.Create(parameters.degree, sizes))
        agreed.set_plain_modulus(api.PlainModulus.Batching(parameters.degree, parameters.plain_bits))
        self.context = api.SEALContext(agreed, True, api.SEC_LEVEL_TYPE.TC128)
        if not self.context.parameters_set():
            raise BadInput(f"the lattice library refuses the parameters: {self.context.parameters_error_message()}")
        self.level = self.context.first_parms_id()
        first = self.context.first_context_data().parms()
        self.primes = [int(prime.value()) for prime in first.coeff_modulus()]
        self.modulus = int(first.plain_modulus().value())
        self.evaluator = api.Evaluator(self.context)
        self._encoder = api.BatchEncoder(self.context)

    def encode(self, values: npt.NDArray[Any]) -> Any:
        """A plaintext of up to N integers (n,), the rest zero; negative ones modulo t."""
        slots = np.zeros(self.parameters.degree, dtype=np.int64)
        slots[: len(values)] = values
        plain = api.Plaintext()
        # only the unsigned overload of the encoder is fast, the signed one is tried after it has failed
        self._encoder.encode((slots % self.modulus).tolist(), plain)
        return plain

    def decode(self, plain: Any, n: int) -> npt.NDArray[np.int64]:
        """The first n integers of a plaintext, between -t/2 and t/2."""
        return np.array(self._encoder.decode_int64(plain)[:n], dtype=np.int64)

    def ciphertext(self, data: bytes, ntt: bool = False) -> Any:
        """A ciphertext of two polynomials at the data level, from a peer's bytes.

        Raises:
            Malformed: other parameters, truncated, or not a ciphertext that hides anything.
            Incompatible: the peer's library has another version; two versions do not read each other's files.
        """
        value = api.Ciphertext()
        _load(value.load, self.context, data, self.parameters.ciphertext_bytes, "ciphertext")
        if value.size() != 2 or list(value.parms_id()) != list(self.level) or value.is_ntt_form() != ntt:
            raise Malformed("a ciphertext has another form than this job's parameters ask for")
        if value.is_transparent():
            raise Malformed("a ciphertext hides nothing: its second polynomial is zero")
        return value

    def public_key(self, data: bytes) -> Any:
        """A public key from a peer's bytes. Raises Malformed for other parameters, truncation, or a void key."""
        key = api.PublicKey()
        _load(key.load, self.context, data, self.parameters.public_key_bytes, "public key")
        if key.data().size() != 2 or key.data().is_transparent():
            raise Malformed("a public key whose encryptions would hide nothing")
        return key

    def noise(self, residues: Iterable[Words]) -> Any:
        """The pair (c0, 0), to be added and never sent; c0 is given by its residues (N,) modulo each prime."""
        words = np.concatenate([*residues, np.zeros(self.parameters.degree * len(self.primes), dtype=np.uint64)])
        inner = _COUNT.pack(len(words)) + words.astype("<u8").tobytes()
        level = struct.pack("<4Q", *self.level)
        members = _MEMBERS.pack(0, 2, self.parameters.degree, len(self.primes), 1.0, 1)
        value = api.Ciphertext()
        _through_memory(functools.partial(value.load, self.context), _wrap(level + members + _wrap(inner)))
        return value


def to_bytes(value: Any) -> bytes:
    """The library's own form of a ciphertext or key."""
    place = os.memfd_create("lattice")
    try:
        value.save(f"/proc/self/fd/{place}")
        return os.pread(place, os.fstat(place).st_size, 0)
    finally:
        os.close(place)


def secret_key(scheme: Scheme, data: bytes) -> Any:
    """A secret key that this party itself saved."""
    key = api.SecretKey()
    _through_memory(functools.partial(key.load, scheme.context), data)
    return key


@functools.lru_cache(maxsize=4)
def scheme_of(parameters: Parameters) -> Scheme:
    """The scheme of these parameters; building one takes some milliseconds, hence once per process."""
    if not hasattr(os, "memfd_create"):
        raise BadInput("the lattice backend needs Linux: its library reads and writes files only; choose Paillier")
    return Scheme(parameters)


def _load(load: Callable[[Any, str], None], context: Any, data: bytes, expected: int, what: str) -> None:
    if len(data) > expected + SLACK:
        raise Malformed(f"a {what} of {len(data)} bytes, this job's parameters give at most {expected + SLACK}")
    if len(data) < _HEADER.size:
        raise Malformed(f"a {what} of {len(data)} bytes")
    magic, _, major, minor, _, _, size = _HEADER.unpack_from(data)
    if magic != _OFFERED.magic or size != len(data):
        raise Malformed(f"not a whole {what}: {len(data)} bytes that say they are {size}")
    if (major, minor) != (_OFFERED.version_major, _OFFERED.version_minor):
        raise Incompatible(
            f"a {what} made by SEAL {major}.{minor}, this party has SEAL {_OFFERED.version_major}."
            f"{_OFFERED.version_minor}: install the same TenSEAL at all parties"
        )
    try:
        _through_memory(functools.partial(load, context), data)
    except (RuntimeError, ValueError, IndexError, MemoryError, OverflowError) as error:
        raise Malformed(f"not a {what} of this job's parameters: {error}") from error


def _through_memory(load: Callable[[str], None], data: bytes) -> None:
    place = os.memfd_create("lattice")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(place, view) :]
        load(f"/proc/self/fd/{place}")
    finally:
        os.close(place)


def _wrap(body: bytes) -> bytes:
    """A body under an uncompressed header."""
    return (
        _HEADER.pack(
            _OFFERED.magic,
            _HEADER.size,
            _OFFERED.version_major,
            _OFFERED.version_minor,
            0,
            0,
            _HEADER.size + len(body),
        )
        + body
    )
