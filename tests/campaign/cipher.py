"""A transparent Paillier cipher behind the same seam, so that ten thousand jobs fit into minutes.

Every obfuscator is 1: Enc(m) = 1 + m·n mod n². All sums, powers, packings and formats are those of production; keys
come from a small store, since the search for primes would take most of the time. `KeysMade` also keeps the real keys
that a run makes, so that a checker can look for them on disks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from gmpy2 import mpz

from tests.simulator import Federation
from treetap.additive.paillier.public_key import Packer, PublicKey, TwistedObfuscators
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Batch
from treetap.wire.v2 import jobs_pb2, setup_pb2

#: Keys of the transparent cipher: more than one job of the campaign makes.
_STORE = 8
_stored: dict[int, list[SecretKey]] = {}
_generate = SecretKey.generate


class KeysMade:
    """The secret keys of a run, in the forms in which a file could hold them."""

    def __init__(self) -> None:
        self._primes: set[int] = set()

    def note(self, key: SecretKey) -> SecretKey:
        """Remember a key."""
        self._primes |= {int(key._p), int(key._q)}
        return key

    def forms(self) -> list[bytes]:
        """Byte strings that no file may hold: both primes in hexadecimal and decimal digits and as bytes."""
        found = []
        for prime in self._primes:
            width = -(-prime.bit_length() // 8)
            found += [f"{prime:x}".encode()[:48], str(prime).encode()[:48]]
            found += [prime.to_bytes(width, order)[:24] for order in ("big", "little")]  # type: ignore[arg-type]
        return found


@contextmanager
def ciphers(keys: KeysMade, *, transparent: bool) -> Iterator[None]:
    """Within the block, keys that are made are noted; `transparent`: ciphertexts hide nothing."""
    drawn = 0

    def generate(bits: int = 2048, allow_breakable: bool = False) -> SecretKey:
        nonlocal drawn
        if not transparent:
            return keys.note(_generate(bits, allow_breakable))
        stored = _stored.setdefault(bits, [])
        if drawn == len(stored):
            assert drawn < _STORE, "a job makes more keys than the store holds"
            stored.append(_generate(bits, allow_breakable))
        drawn = (drawn + 1) % _STORE
        return keys.note(stored[drawn - 1])

    with ExitStack() as stack:
        stack.enter_context(patch.object(SecretKey, "generate", staticmethod(generate)))
        if transparent:
            for owner, name, mine in (
                (SecretKey, "encrypt_many", _encrypt_many),
                (SecretKey, "decrypt_many", _decrypt_many),
                (SecretKey, "prepare", lambda self, kind: None),
                (SecretKey, "_obfuscators", lambda self, count, kind: [ring.ones(count) for ring in self._rings]),
                (PublicKey, "standard", lambda self, count: self.ring.ones(count)),
                (TwistedObfuscators, "__init__", _note_key),
                (Packer, "pack", _pack),
                (TwistedObfuscators, "draw", lambda self, count: self._public.ring.ones(count)),
            ):
                stack.enter_context(patch.object(owner, name, mine))
        yield


async def quickly_trained(federation: Federation, job: setup_pb2.JobSpec) -> jobs_pb2.JobStatus:
    """Train with the transparent cipher, where a prediction is what is tested: the model is the same."""
    with ciphers(KeysMade(), transparent=True):
        return await federation.train(job)


def _encrypt_many(self: SecretKey, plains: Iterable[int], kind: Any) -> bytes:
    messages = list(plains)
    return self.public.write(self.public.encrypt(messages, self.public.ring.ones(len(messages))))


def _note_key(self: TwistedObfuscators, public: PublicKey, kind: str, window: int | None = None) -> None:
    self._public = public


def _decrypt_many(self: SecretKey, ciphertexts: bytes) -> list[int]:
    public = self.public
    return [public.signed((each - 1) // public.n % public.n) for each in public.ring.numbers(public.read(ciphertexts))]


def _pack(self: Packer, ciphertexts: Batch, units: Sequence[mpz]) -> Batch:
    n, ring = self._public.n, self._public.ring
    plains = [(each - 1) // n for each in ring.numbers(ciphertexts)]
    groups = [plains[start : start + self.groups] for start in range(0, len(plains), self.groups)]
    assert len(groups) == len(units), "not one unit for each packed ciphertext"
    packed = [sum(each << (self._bits * place) for place, each in enumerate(group)) for group in groups]
    return ring.batch([1 + plain * n for plain in packed])
