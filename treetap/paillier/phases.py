"""From products per bin to packed candidates: what sums of one tree's ciphertexts and of a pool's have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.paillier.kernels import left_sums, pack
from treetap.paillier.public_key import PublicKey
from treetap.workers import Engine


class Phases:
    """Phases (b) and (c) over the lanes; `name` is what the ciphertexts are called there."""

    def __init__(self, engine: Engine, public: PublicKey, per_plaintext: int, name: str) -> None:
        self._engine, self._public, self._per_plaintext, self._name = engine, public, per_plaintext, name

    async def everywhere(self, kernel: Any, *args: tuple[Any, ...]) -> list[Any]:
        """One call per argument tuple, the k-th in lane k."""
        calls = (self._engine.call(lane, kernel, self._name, *values) for lane, values in enumerate(args))
        return await asyncio.gather(*calls)

    async def finish(
        self,
        partial: list[bytes],
        shapes: Sequence[tuple[int, bool]],
        orders: Sequence[npt.NDArray[np.integer[Any]]],
    ) -> tuple[bytes, int]:
        """Packed candidates of every node, and products computed.

        Args:
            partial: per lane the products of its records, (node, feature, bin) in this order.
            shapes: (n_bins, has_missing) per feature.
            orders: for each node the candidate that takes each place.
        """
        left, additions = await self._cumulate(partial, shapes, len(orders))
        width = self._public.ciphertext_bytes
        grid = np.frombuffer(left, dtype=np.uint8).reshape(len(orders), -1, width)
        placed = np.concatenate([node[order] for node, order in zip(grid, orders, strict=True)])
        return await self._pack(placed), additions

    async def _cumulate(
        self, partial: list[bytes], shapes: Sequence[tuple[int, bool]], nodes: int
    ) -> tuple[bytes, int]:
        """Phase (b): candidates of every (node, feature) in canonical order, the tasks spread evenly over the lanes."""
        width = self._public.ciphertext_bytes
        tasks = list(shapes) * nodes
        ends = np.cumsum([0, *(bins + missing for bins, missing in tasks)])  # first bin of each task
        cuts = np.searchsorted(ends, np.linspace(0, ends[-1], self._engine.lanes + 1)).tolist()
        args = [
            ([part[ends[first] * width : ends[last] * width] for part in partial], tasks[first:last])
            for first, last in pairwise(cuts)
        ]
        answers = await self.everywhere(left_sums, *args)
        return b"".join(sums for sums, _ in answers), sum(additions for _, additions in answers)

    async def _pack(self, candidates: npt.NDArray[np.uint8]) -> bytes:
        """Phase (c): whole packed ciphertexts, spread evenly over the lanes."""
        packed = -(-len(candidates) // self._per_plaintext)
        lanes = self._engine.lanes
        cuts = [packed * lane // lanes * self._per_plaintext for lane in range(lanes + 1)]
        return b"".join(
            await self.everywhere(pack, *[(candidates[first:last].tobytes(),) for first, last in pairwise(cuts)])
        )
