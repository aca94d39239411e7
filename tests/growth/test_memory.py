"""Memory of a training in the parties' main processes: it grows by few bytes with each record, and with no copies."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treetap.additive.paillier.public_key import PublicKey
from treetap.additive.sums.kernels import add
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.party.growth.split_table import SplitTable
from treetap.party.growth.stored_trees import SCORES, resumed
from treetap.party.runtime.job_store import Store
from treetap.tables.labels import Labels
from treetap.trees.binning import bin_table
from treetap.trees.boosting_criterion import BoostingCriterion
from treetap.trees.boosting_rounds import MeasuredRounds
from treetap.trees.growing_tree import GrowingTree, with_zeros
from treetap.trees.params import BoostingParams
from treetap.trees.slots import Slots
from treetap.trees.tree_bins import left_sums_of

COLUMNS, BLOCK = 8, 256


def by_records(peak: Callable[[int], int]) -> float:
    """Bytes by which the peak grows with a record; modules that the first call imports do not count."""
    few, many = 20_000, 40_000
    peak(few)
    return (peak(many) - peak(few)) / (many - few)


def traced(work: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy hold at once for some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def split_table(records: int) -> SplitTable:
    """Columns of 30 values, in bins."""
    values = np.random.default_rng(records).integers(0, 30, (records, COLUMNS)).astype(np.float64)
    names = [f"x{column}" for column in range(COLUMNS)]
    return SplitTable("label-holder", names, bin_table(values, names, 32))


def test_a_tree_at_the_label_holder(tmp_path: Path) -> None:
    """Gradients, the sums of the own columns and the scores after a tree take less than 115 bytes a record."""
    params = BoostingParams(max_depth=2)

    def peak(records: int) -> int:
        table = split_table(records)
        labels = Labels(np.arange(records) % 2, ["0", "1"])
        store = Store(tmp_path / str(records)).job("job")

        def tree() -> None:
            state = resumed(MeasuredRounds(params, len(labels.classes), labels.values), store)
            values, scale, _ = state.derivatives(0)
            values = with_zeros(values, records)
            columns = table.columns_of_tree(0, params, permuted=False)
            growing = GrowingTree(values, BoostingCriterion(scale, params), params.expansion, subtract=True)
            left_sums_of(columns.bins, values, growing.build, [growing.rows[node] for node in growing.build])
            store.save_arrays(SCORES, state.state())

        return traced(tree)

    assert by_records(peak) < 115


class Workers:
    """Two workers that keep no ciphertext: they count those that each got."""

    workers = 2

    def __init__(self) -> None:
        self._kept = [0, 0]

    async def call(self, worker: int, kernel: Callable[..., Any], *args: Any) -> Any:
        if kernel is not add:
            return None
        _, codes, _ = args
        self._kept[worker] += len(codes)
        return self._kept[worker] - len(codes), 0

    def forget(self, kernel: Callable[..., Any], *args: Any) -> None:
        """Nothing is kept."""


def test_a_tree_at_a_feature_party() -> None:
    """Beside its bins the main process takes less than 20 bytes for each record whose ciphertext went to a worker."""
    public = PublicKey((1 << 1023) + 1)  # no worker computes with it

    def peak(records: int) -> int:
        columns = split_table(records).columns_of_tree(0, BoostingParams(), permuted=True)
        block = bytes(BLOCK * public.ciphertext_bytes)

        async def tree() -> None:
            shapes = columns.candidates.shapes
            sums = EncryptedSums(Workers(), public, Slots((60, 60, 30)), columns.codes, shapes, "tree")
            for first in range(0, records, BLOCK):
                rows = np.arange(first, min(first + BLOCK, records))
                await sums.add_block(rows, block[: len(rows) * public.ciphertext_bytes])
            await sums.close()

        return traced(lambda: asyncio.run(tree()))

    assert by_records(peak) < 20
