"""The key owner's batch work: encrypt a table in blocks, decrypt packed sums.

Each worker holds the key, handed over by its `for_worker`, and its own fixed-base tables.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from treetap.additive.paillier.secret_key import SecretKey
from treetap.errors import Malformed
from treetap.process.together import in_order, together
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, call_all, drop

T = TypeVar("T")
Task = TypeVar("Task")
IN_FLIGHT_PER_WORKER = 2
SMALLEST_BLOCK = 32
#: Most records of a block, and most bytes of its ciphertexts, which are one message: each has its cost on the way.
BLOCK, BLOCK_BYTES = 3072, 3 << 19


def block_size(records: int, workers: int, ciphertext_bytes: int, most: int = BLOCK) -> int:
    """Records of a block: every worker has as many blocks, of one size, unless they were very small.

    `most`: records, as long as their ciphertexts take no more than `BLOCK_BYTES`.
    """
    most = max(1, min(most, BLOCK_BYTES // ciphertext_bytes))
    of_worker = -(-records // workers)
    blocks = max(1, -(-of_worker // most))
    return min(most, max(SMALLEST_BLOCK, -(-of_worker // blocks)))


class KeyHolder:
    """Encrypts and opens on an engine.

    Args:
        engine: workers; the key is held there between `start` and `close`.
        secret: the key.
        slots: layout of one record.
        obfuscation: "standard", "half-length" or "short-exponent", see `treetap.additive.paillier.secret_key`.
        token: names this job in the workers' memory.

    Raises:
        PlaintextOverflow: not even one record fits a plaintext of this key.
    """

    def __init__(self, engine: Engine, secret: SecretKey, slots: Slots, obfuscation: str, token: str) -> None:
        self._engine = engine
        self._secret = secret
        self._slots = slots
        self._obfuscation = obfuscation
        self._name = f"owner/{token}"
        self._groups = slots.groups_per_plaintext(secret.public.plain_bits)

    async def start(self) -> None:
        """Hand the key to every worker and build its tables there.

        Raises:
            BadInput: the obfuscation is unknown or the key is not fit for it.
        """
        key = self._secret.for_worker()
        await call_all(self._engine, _take_key, self._name, key, self._slots, self._obfuscation)

    async def prove(self, bound_to: bytes) -> bytes:
        """The proof of the key's form, made in a worker; see `SecretKey.prove`."""
        return await self._engine.call(0, _prove, self._name, bound_to)

    async def encrypt_blocks(
        self, columns: Sequence[npt.NDArray[np.int64]], block: int = BLOCK
    ) -> AsyncIterator[tuple[int, bytes]]:
        """Encrypt one int64 array per slot, all of length n, in blocks of at most `block` records (see `block_size`).

        At most two blocks per worker are under way, so memory does not grow with n.

        Yields:
            (first record of the block, its ciphertexts), in order.

        Raises:
            PlaintextOverflow: a value does not fit its slot.
        """
        records = len(columns[0]) if len(columns) else 0
        workers = self._engine.workers
        size = block_size(records, workers, self._secret.public.ciphertext_bytes, block)
        calls = (
            (
                start,
                self._engine.call(
                    (start // size) % workers,
                    _encrypt,
                    self._name,
                    [np.ascontiguousarray(column[start : start + size]) for column in columns],
                ),
            )
            for start in range(0, records, size)
        )
        async with aclosing(in_order(calls, IN_FLIGHT_PER_WORKER * workers)) as blocks:
            async for first, ciphertexts in blocks:
                yield first, ciphertexts

    async def open(self, ciphertexts: bytes, candidates: int) -> npt.NDArray[np.int64]:
        """Decrypt packed sums.

        Args:
            ciphertexts: concatenated ciphertexts of `groups_per_plaintext` candidates each, the last perhaps of fewer.
            candidates: the number of candidates in all.

        Returns:
            int64 array (candidates, number of slots).

        Raises:
            Malformed: the ciphertexts do not hold exactly that number of candidates.
        """
        width, groups = self._secret.public.ciphertext_bytes, self._groups
        count = -(-candidates // groups)
        if len(ciphertexts) != count * width:
            raise Malformed(
                f"{candidates} candidates are {count} ciphertexts of {width} bytes, got {len(ciphertexts)} bytes"
            )
        workers = self._engine.workers
        bounds = [count * worker // workers for worker in range(workers + 1)]
        parts = await together(
            *(
                self._engine.call(
                    worker,
                    _open,
                    self._name,
                    ciphertexts[first * width : last * width],
                    min(candidates, last * groups) - first * groups,
                )
                for worker, (first, last) in enumerate(pairwise(bounds))
                if last > first
            )
        )
        return np.concatenate([np.empty((0, len(self._slots.widths)), dtype=np.int64), *parts])

    async def open_numbers(self, ciphertexts: bytes) -> list[int]:
        """Decrypt a few ciphertexts whose plaintexts are signed numbers, without slots."""
        return await self._engine.call(0, _open_numbers, self._name, ciphertexts)

    async def apply(self, kernel: Callable[[dict[str, Any], str, Task], T], tasks: Sequence[Task]) -> list[T]:
        """The results of a kernel that uses the key, for each task in order, spread evenly over the workers.

        The worker's memory has the key, the layout and the obfuscation under the name that the kernel gets.
        """
        workers = self._engine.workers
        calls = [self._engine.call(place % workers, kernel, self._name, task) for place, task in enumerate(tasks)]
        return await together(*calls)

    async def close(self) -> None:
        """Make every worker forget the key."""
        self._engine.forget(drop, self._name)


def _take_key(state: dict[str, Any], name: str, key: bytes, slots: Slots, obfuscation: str) -> None:
    secret = SecretKey.from_worker(key)
    secret.prepare(obfuscation)
    state[name] = (secret, slots, obfuscation)


def _prove(state: dict[str, Any], name: str, bound_to: bytes) -> bytes:
    secret, _, _ = state[name]
    proof: bytes = secret.prove(bound_to)
    return proof


def _encrypt(state: dict[str, Any], name: str, columns: Sequence[npt.NDArray[np.int64]]) -> bytes:
    secret, slots, obfuscation = state[name]
    ciphertexts: bytes = secret.encrypt_many(slots.encode(columns), obfuscation)
    return ciphertexts


def _open(state: dict[str, Any], name: str, ciphertexts: bytes, candidates: int) -> npt.NDArray[np.int64]:
    secret, slots, _ = state[name]
    per_plaintext = slots.groups_per_plaintext(secret.public.plain_bits)
    plains = secret.decrypt_many(ciphertexts)
    left = candidates
    parts = []
    for plain in plains:
        parts.append(slots.decode(plain, min(left, per_plaintext)))
        left -= per_plaintext
    return np.concatenate(parts)


def _open_numbers(state: dict[str, Any], name: str, ciphertexts: bytes) -> list[int]:
    secret, _, _ = state[name]
    plains: list[int] = secret.decrypt_many(ciphertexts)
    return plains
