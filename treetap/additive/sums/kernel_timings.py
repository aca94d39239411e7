"""Seconds of a processor for each operation on ciphertexts on this machine, measured on the kernels of the workers.

Each figure is the least of several rounds, in processor time, so that other work on the machine disturbs little.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Batch
from treetap.additive.sums.kernels import Tree, add, open_tree, pack
from treetap.additive.sums.key_holder import BLOCK
from treetap.protocols.key_options import KeyKind
from treetap.trees.slots import Slots

ROUNDS = 3
#: Packed ciphertexts of one round.
_PACKED = 6
#: Columns and bins over which a block is summed: joint cells hold two columns each, as they do in a large table.
_COLUMNS, _BINS = 8, 32
#: Bytes that malloc keeps beside each number.
_MALLOC = 16


@dataclass(frozen=True)
class KernelCosts:
    """Costs of one worker under one kind of key, in seconds of a processor unless named otherwise.

    Attributes:
        tables_s: the key holder's tables of fixed bases, once per worker and attempt.
        encrypt_s: a record's plaintext, encoded, encrypted and written.
        read_s: a record's ciphertext, from bytes to a factor and checked.
        write_s: a ciphertext, to bytes.
        product_s: a product into a cell, with the bookkeeping of joint cells.
        pack_s: a packed ciphertext with its obfuscator, from bytes to bytes.
        open_s: a packed ciphertext, decrypted and decoded.
        number_bytes: memory of a ciphertext that a worker keeps.
    """

    tables_s: float
    encrypt_s: float
    read_s: float
    write_s: float
    product_s: float
    pack_s: float
    open_s: float
    number_bytes: float


def kernel_costs(kind: KeyKind, obfuscation: str, slots: Slots) -> KernelCosts:
    """Measure under a fresh key; some seconds.

    Raises:
        BadInput: there is no such key or obfuscation.
        PlaintextOverflow: the slots do not fit.
    """
    key = SecretKey.generate(kind.bits, allow_breakable=True)
    tables = least_seconds(lambda: key.prepare(obfuscation), rounds=1)
    columns = _columns(slots)
    plain = least_seconds(lambda: key.encrypt_many(slots.encode(columns), obfuscation)) / BLOCK
    blob = key.encrypt_many(slots.encode(columns), obfuscation)
    values = key.public.read(blob)
    read = least_seconds(lambda: key.public.read_factors(blob)) / BLOCK
    return KernelCosts(
        tables_s=tables,
        encrypt_s=plain,
        read_s=read,
        write_s=least_seconds(lambda: key.public.write(values)) / BLOCK,
        product_s=_product(key, slots, blob, read),
        number_bytes=_memory(values),
        **_packed(key, slots, blob),
    )


def _columns(slots: Slots) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Numbers that fill half of each slot's bits, as one record does of the sum over many."""
    rng = np.random.default_rng(0)
    return [rng.integers(0, 1 << max(width // 2, 1), BLOCK) for width in slots.widths]


def _product(key: SecretKey, slots: Slots, blob: bytes, read_s: float) -> float:
    """Seconds of a product: blocks are added to cells that earlier blocks have filled."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, _BINS, (BLOCK, _COLUMNS))
    state: dict[str, Any] = {}
    groups: list[tuple[int, ...]] = [(place, place + 1) for place in range(0, _COLUMNS, 2)]
    radices, per_plaintext = [_BINS] * _COLUMNS, slots.groups_per_plaintext(key.public.plain_bits)
    open_tree(state, "timed", Tree(key.public.to_bytes(), slots.bits, per_plaintext, radices, groups, True))
    add(state, "timed", codes, blob)
    made = []

    def block() -> None:
        made.append(add(state, "timed", codes, blob)[1])

    seconds = least_seconds(block)
    return (seconds - BLOCK * read_s) / made[-1]


def _packed(key: SecretKey, slots: Slots, blob: bytes) -> dict[str, float]:
    """Seconds of a packed ciphertext: to make and to open."""
    state: dict[str, Any] = {}
    per_plaintext = slots.groups_per_plaintext(key.public.plain_bits)
    open_tree(state, "timed", Tree(key.public.to_bytes(), slots.bits, per_plaintext, [_BINS], [(0,)], True))
    sums = blob[: _PACKED * per_plaintext * key.public.ciphertext_bytes]
    packed = pack(state, "timed", sums)
    count = len(packed) // key.public.ciphertext_bytes

    def opened() -> None:
        for plain in key.decrypt_many(packed):
            slots.decode(plain, per_plaintext)

    return {
        "pack_s": least_seconds(lambda: pack(state, "timed", sums)) / count,
        "open_s": least_seconds(opened) / count,
    }


def _memory(values: Batch) -> float:
    """Bytes of a number that is kept."""
    if values.dtype != object:
        return values.nbytes / len(values)
    return values.itemsize + _MALLOC + sum(sys.getsizeof(number) for number in values) / len(values)


def least_seconds(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Processor seconds of the quickest round."""
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        action()
        seconds.append(time.process_time() - start)
    return min(seconds)
