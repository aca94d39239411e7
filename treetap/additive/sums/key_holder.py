"""The key owner's batch work: encrypt a table in blocks, decrypt packed sums.

All workers use the one key and its fixed-base tables, which are made before they do.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from treetap.additive.paillier.secret_key import SecretKey
from treetap.errors import Malformed
from treetap.process.together import in_order, together
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine, InWorkers

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


class KeyHolder(InWorkers):
    """Encrypts and opens on an engine.

    Args:
        engine: workers; the key is held there between `start` and `close`.
        secret: the key.
        slots: layout of one record.
        obfuscation: "standard", "half-length" or "short-exponent", see `treetap.additive.paillier.secret_key`.

    Raises:
        PlaintextOverflow: not even one record fits a plaintext of this key.
    """

    def __init__(self, engine: Engine, secret: SecretKey, slots: Slots, obfuscation: str) -> None:
        super().__init__(engine)
        self._secret = secret
        self._slots = slots
        self._obfuscation = obfuscation
        self._groups = slots.groups_per_plaintext(secret.public.plain_bits)

    async def start(self) -> None:
        """Build the key's tables.

        Raises:
            BadInput: the obfuscation is unknown or the key is not fit for it.
        """
        await self._engine.call(0, self._secret.prepare, self._obfuscation)
        self._parts = [self._secret] * self._engine.workers

    async def prove(self, bound_to: bytes) -> bytes:
        """The proof of the key's form, made in a worker; see `SecretKey.prove`."""
        return await self._on(0, SecretKey.prove, bound_to)

    def encrypt_blocks(
        self, columns: Sequence[npt.NDArray[np.int64]], block: int = BLOCK
    ) -> AsyncGenerator[tuple[int, bytes], None]:
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
                self._on(
                    (start // size) % workers,
                    _encrypt,
                    self._slots,
                    self._obfuscation,
                    [np.ascontiguousarray(column[start : start + size]) for column in columns],
                ),
            )
            for start in range(0, records, size)
        )
        return in_order(calls, IN_FLIGHT_PER_WORKER * workers)

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
        parts = await together(
            *(
                self._on(
                    worker,
                    _open,
                    self._slots,
                    ciphertexts[first * width : last * width],
                    min(candidates, last * groups) - first * groups,
                )
                for worker, first, last in self._shares(count)
            )
        )
        return np.concatenate([np.empty((0, len(self._slots.widths)), dtype=np.int64), *parts])

    async def open_numbers(self, ciphertexts: bytes) -> list[int]:
        """Decrypt a few ciphertexts whose plaintexts are signed numbers, without slots."""
        return await self._on(0, SecretKey.decrypt_many, ciphertexts)

    async def encrypt_numbers(self, tasks: Sequence[Sequence[int]]) -> list[bytes]:
        """The ciphertexts of each list of numbers, without slots."""
        return await self.apply(lambda secret, plains: secret.encrypt_many(plains, self._obfuscation), tasks)

    async def apply(self, method: Callable[[SecretKey, Task], T], tasks: Sequence[Task]) -> list[T]:
        """The results of what uses the key, for each task in order, spread evenly over the workers."""
        return await together(
            *(self._on(place % self._engine.workers, method, task) for place, task in enumerate(tasks))
        )


def _encrypt(secret: SecretKey, slots: Slots, obfuscation: str, columns: Sequence[npt.NDArray[np.int64]]) -> bytes:
    """A kernel: ciphertexts of records, an array for each slot."""
    return secret.encrypt_many(slots.encode(columns), obfuscation)


def _open(secret: SecretKey, slots: Slots, ciphertexts: bytes, candidates: int) -> npt.NDArray[np.int64]:
    """A kernel: packed sums of candidates, (candidates, slots)."""
    per_plaintext = slots.groups_per_plaintext(secret.public.plain_bits)
    plains, firsts = secret.decrypt_many(ciphertexts), range(0, candidates, per_plaintext)
    return np.concatenate(
        [
            slots.decode(plain, min(candidates - first, per_plaintext))
            for first, plain in zip(firsts, plains, strict=True)
        ]
    )
