"""Microsoft SEAL, by the low-level bindings of TenSEAL, as the oracle: the same ring, keys and ciphertexts.

SEAL transforms in the same way but leaves values in bit-reversed order, while ours are transposed within blocks of 64;
its slots have an order of their own. The bindings read and write files only, here anonymous ones in memory.
"""

from __future__ import annotations

import os
import struct

import numpy as np
import tenseal.sealapi as api
import zstandard

from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import LatticeKey, scheme_of

# Header of a serialised object: magic, header size, version major and minor, compression, reserved, size in all.
_HEADER = struct.Struct("<HBBBBHQ")
# Members of a ciphertext: in NTT form, polynomials, N, primes, scale, BGV's correction factor.
_MEMBERS = struct.Struct("<BQQQdQ")
_OFFERED = api.Serialization.SEALHeader()


def in_their_order(values):
    """Values of transformed polynomials (…, N) as SEAL orders them; the inverse is the same permutation."""
    return values.reshape(*values.shape[:-1], -1, 8, 8).swapaxes(-1, -2).reshape(values.shape)


def slot_places(degree):
    """The place, in our order, of each slot of SEAL's batch encoder."""
    bits = degree.bit_length() - 1
    power, ups, downs = 1, [], []
    for _ in range(degree // 2):
        ups.append((power - 1) // 2)
        downs.append((2 * degree - power - 1) // 2)
        power = power * 3 % (2 * degree)
    theirs = [int(f"{place:0{bits}b}"[::-1], 2) for place in ups + downs]
    return in_their_order(np.arange(degree))[theirs]


class Seal:
    """A context of SEAL for our parameters, a key of its making, and the same key as ours."""

    def __init__(self, parameters: Parameters) -> None:
        self.parameters = parameters
        special = next(p for p in range((1 << 38) + 1, 0, -2 * parameters.degree) if api.Modulus(p).is_prime())
        agreed = api.EncryptionParameters(api.SCHEME_TYPE.BFV)
        agreed.set_poly_modulus_degree(parameters.degree)
        agreed.set_coeff_modulus([api.Modulus(prime) for prime in (*parameters.primes, special)])
        agreed.set_plain_modulus(api.Modulus(parameters.plain))
        self.context = api.SEALContext(agreed, True, api.SEC_LEVEL_TYPE.TC128)
        assert self.context.parameters_set(), self.context.parameters_error_message()
        self.level = self.context.first_parms_id()
        self.evaluator = api.Evaluator(self.context)
        self.encoder = api.BatchEncoder(self.context)
        secret = api.KeyGenerator(self.context).secret_key()
        self.encryptor = api.Encryptor(self.context, secret)
        self.decryptor = api.Decryptor(self.context, secret)
        ring = scheme_of(parameters).ring
        words = _words(secret, (len(parameters.primes) + 1, parameters.degree))[:-1]
        self.key = LatticeKey(parameters)
        self.key._secret = ring.montgomery(in_their_order(words).astype(np.uint32))
        self._places = slot_places(parameters.degree)

    def plain(self, values):
        """A plaintext of theirs with our slots."""
        slots = np.zeros(self.parameters.degree, dtype=np.int64)
        slots[: len(values)] = values
        plain = api.Plaintext()
        self.encoder.encode((slots[self._places] % self.parameters.plain).tolist(), plain)
        return plain

    def encrypt(self, values):
        """An encryption of theirs as a ciphertext of ours, (2, primes, N)."""
        value = self._loaded(_saved(self.encryptor.encrypt_symmetric(self.plain(values))))
        self.evaluator.transform_to_ntt_inplace(value)
        return self.ours(value)

    def decrypt(self, ours):
        """Our slots of one of our ciphertexts, and its noise budget, by them."""
        value = self.theirs(ours)
        self.evaluator.transform_from_ntt_inplace(value)
        plain = api.Plaintext()
        self.decryptor.decrypt(value, plain)
        slots = np.empty(self.parameters.degree, dtype=np.int64)
        slots[self._places] = self.encoder.decode_int64(plain)
        return slots, self.decryptor.invariant_noise_budget(value)

    def ours(self, value):
        """A ciphertext of theirs, in NTT form, as one of ours."""
        words = _words(value, (2, len(self.parameters.primes), self.parameters.degree))
        return in_their_order(words).astype(np.uint32)

    def theirs(self, ours):
        """A ciphertext of ours (2, primes, N) as one of theirs, in NTT form."""
        words = in_their_order(ours).astype("<u8")
        members = _MEMBERS.pack(1, 2, self.parameters.degree, len(self.parameters.primes), 1.0, 1)
        inner = struct.pack("<Q", words.size) + words.tobytes()
        return self._loaded(_wrap(struct.pack("<4Q", *self.level) + members + _wrap(inner)))

    def _loaded(self, data):
        value = api.Ciphertext()
        place = os.memfd_create("seal")
        try:
            os.write(place, data)
            value.load(self.context, f"/proc/self/fd/{place}")
        finally:
            os.close(place)
        return value


def _saved(value):
    place = os.memfd_create("seal")
    try:
        value.save(f"/proc/self/fd/{place}")
        return os.pread(place, os.fstat(place).st_size, 0)
    finally:
        os.close(place)


def _words(value, shape):
    """The numbers at the end of a serialised object."""
    body = zstandard.ZstdDecompressor().decompressobj().decompress(_saved(value)[_HEADER.size :])
    return np.frombuffer(body[-8 * int(np.prod(shape)) :], dtype="<u8").reshape(shape)


def _wrap(body):
    head = (_OFFERED.magic, _HEADER.size, _OFFERED.version_major, _OFFERED.version_minor, 0, 0)
    return _HEADER.pack(*head, _HEADER.size + len(body)) + body
