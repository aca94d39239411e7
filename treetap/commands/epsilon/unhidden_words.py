"""Sums on a lattice whose words are those of plaintexts: nothing of a job's but the layout, noise and rounding.

With kernels, which a measurement by another scheme does without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from treetap.lattice.histogram_parameters import MODULUS_BITS, HistogramParameters
from treetap.lattice.histogram_scheme import Ints, Opener, Words, added, kernels, parameters_of, radices
from treetap.lattice.histogram_sets import HistogramSets
from treetap.native.histogram_arrays import HALF_BITS
from treetap.trees.candidates import Shape
from treetap.trees.slots import Slots
from treetap.workers.engines import Engine

_QUERIES = 1 << 10


def sizes_of(values: Ints, slots: Slots, max_bin: int, candidates: int) -> HistogramParameters:
    """The sizes of a job of records with these values (N, S)."""
    return parameters_of(len(values), slots, max_bin, candidates, _QUERIES, 1, noised=True)


class Unhidden(HistogramSets):
    """Answers for sets of records of values (N, S), which need no words: cells are made of the values."""

    def __init__(self, engine: Engine, parameters: HistogramParameters, values: Ints) -> None:
        super().__init__(engine, parameters, b"", "measured")
        self._values, self._received = values, self.expected

    async def _cells(self, rows: npt.NDArray[Any], columns: Any, shapes: Sequence[Shape]) -> Words:
        cells = np.zeros((sum(radices(shapes)), self._values.shape[1]), dtype=np.int64)
        for first, codes in zip(np.cumsum([0, *radices(shapes)]), columns, strict=False):
            np.add.at(cells, first + codes, self._values[rows])
        return added(self._parameters, cells)

    async def _halves(
        self, rows: npt.NDArray[Any], columns: Any, shapes: Sequence[Shape], left: Words
    ) -> list[tuple[Words, bytes]]:
        """Words rounded as first halves are, and second halves of zeros."""
        del rows, columns, shapes
        less = MODULUS_BITS - self._parameters.reply_bits
        whole = left[..., 0].astype(object) + (left[..., 1].astype(object) << HALF_BITS)
        rounded = (whole + (1 << (less - 1)) >> less) % (1 << self._parameters.reply_bits)
        return [(rounded.astype(np.uint64), bytes(len(left) * self._parameters.second_half_bytes))]


def opened(parameters: HistogramParameters, slots: Slots, firsts: bytes, candidates: int) -> Ints:
    """The sums (candidates, S) of first halves without a mask."""
    bits = parameters.reply_bits
    numbers = kernels().read(firsts, (candidates, parameters.words), bits).astype(object)
    moduli = np.array(parameters.moduli, dtype=object)
    residues = (numbers * moduli + (1 << (bits - 1)) >> bits) % moduli
    return Opener(parameters, slots).sums(residues)
