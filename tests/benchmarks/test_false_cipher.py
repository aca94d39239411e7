"""The cipher that hides nothing: it computes as Paillier's does, and is in a benchmark's processes alone."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from treetap.additive.paillier import public_key, secret_key
from treetap.additive.paillier.public_key import Packer, TwistedObfuscators
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Cells
from treetap.errors import PlaintextOverflow
from treetap.party.setup import steps

PLAINS = [5, -7, 0, 1, -1, 2**100, -(2**109), 3**50]


@pytest.fixture
def key(benchmark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[SecretKey]:
    """A key in a process whose cipher is false, until the test ends."""
    true = type(public_key.residues(7))
    for module in (public_key, secret_key):
        monkeypatch.setattr(module, "residues", module.residues)
    for owner, name in ((secret_key, "_blum_prime"), (SecretKey, "prove"), (steps, "check_proof")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    benchmark("false_residues").substitute()
    yield SecretKey.generate(2048)
    monkeypatch.undo()
    assert type(SecretKey.generate(1024).public.ring) is true


def test_plaintexts_come_back(key: SecretKey) -> None:
    """Of a ciphertext, of sums, of packed ones and of fresh ones, with the width and the trivial ciphertext of true."""
    blocks = key.encrypt_many(PLAINS, "short-exponent")
    assert len(blocks) == len(PLAINS) * key.public.ciphertext_bytes
    assert key.decrypt_many(blocks) == PLAINS
    values, ring = key.public.read(blocks), key.public.ring
    assert key.public.write(values) == blocks
    written = key.public.write(
        ring.cell_products(values, Cells(np.array([0, 1, 6, 5, 5]), np.array([1, 1, 2, 2, 2]), 4))
    )
    assert key.decrypt_many(written) == [0, -2, 2**101 - 2**109, 0]
    held = ring.multiply_into(values[:2], values, Cells(np.array([0, 1, 7]), np.array([1, 2, 2]), 3, held=2))
    assert key.decrypt_many(key.public.write(held[:3])) == [5, -2, 3**50 - 7]
    assert key.public.trivial(written).tolist() == [True, False, False, True]
    packed = key.public.write(Packer(key.public, 110, 18).pack_fresh(values))
    assert key.decrypt_many(packed) == [sum(plain << 110 * place for place, plain in enumerate(PLAINS))]
    fresh = ring.multiply(values, TwistedObfuscators(key.public, "short-exponent").draw(len(PLAINS)))
    assert key.decrypt_many(key.public.write(fresh)) == PLAINS
    assert key.decrypt_many(key.public.write(key.public.encrypt([3, -4], key.public.standard(2)))) == [3, -4]


def test_what_it_cannot_do_is_an_error(key: SecretKey) -> None:
    """A plaintext that is too large is refused by the true key's check; another sum or factor by the ring."""
    with pytest.raises(PlaintextOverflow):
        key.encrypt_many([int(key.public.n)], "short-exponent")
    ring, one = key.public.ring, key.public.ring.batch([1 + 3 * key.public.n])
    with pytest.raises(ValueError, match="adds one"):
        ring.add(one, one)
    with pytest.raises(ValueError, match="by n or by one"):
        ring.multiples(b"\1", 1, 2)


def test_seconds_by_kind_of_process(benchmark: Any) -> None:
    """Of the label holder, of the others, of the coordinator, and their sum."""
    seconds = {"h": 1.0, "b": 4.0, "c": 6.0, "coordinator": 8.0}
    assert list(benchmark("false_cipher").by_kind(seconds, "h").values()) == [1.0, 10.0, 8.0, 19.0]
