"""Signed slots: several small numbers in one plaintext.

A plaintext is Σ value_k · 2^offset_k over signed values, least significant slot first. A negative value borrows from
the slot above it; decoding carries the borrow back, so negative gradients need neither an offset nor a count. Sums of
packed plaintexts are packed sums as long as every slot's sum stays below half its range: `width_for` chooses such
widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from treetap.errors import Malformed, PlaintextOverflow

LARGEST_WIDTH = 63  # a decoded slot is an int64


@dataclass(frozen=True)
class Slots:
    """One group of signed slots.

    Attributes:
        widths: bits of each slot, least significant first, 1 to 63; a slot of w bits holds |value| < 2^(w-1).

    Raises:
        PlaintextOverflow: a width is outside 1 to 63, or there is no slot.
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.widths or not all(1 <= width <= LARGEST_WIDTH for width in self.widths):
            raise PlaintextOverflow(f"slots need widths of 1 to {LARGEST_WIDTH} bits each, got {self.widths}")

    def counting(self, records: int) -> Slots:
        """The same with a slot behind them that counts up to so many records."""
        return Slots((*self.widths, width_for(records, 1)))

    @property
    def bits(self) -> int:
        """Bits of one group of slots."""
        return sum(self.widths)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Bit at which each slot begins."""
        return tuple(accumulate(self.widths[:-1], initial=0))

    def groups_per_plaintext(self, plain_bits: int) -> int:
        """Groups of slots that one plaintext of `plain_bits` bits holds: plain_bits // bits.

        Raises:
            PlaintextOverflow: not even one group fits.
        """
        groups = plain_bits // self.bits
        if groups < 1:
            raise PlaintextOverflow(f"one record needs {self.bits} bits but a plaintext of this key holds {plain_bits}")
        return groups

    def encode(self, columns: Sequence[npt.NDArray[np.int64]]) -> list[int]:
        """Pack n records, one int64 array of length n per slot, into n signed integers.

        Raises:
            PlaintextOverflow: a value does not fit its slot.
            ValueError: the number of columns is not the number of slots, or their lengths differ.
        """
        if len(columns) != len(self.widths):
            raise ValueError(f"{len(self.widths)} slots need as many columns, got {len(columns)}")
        packed: list[int] | None = None
        for place, (column, width, offset) in enumerate(zip(columns, self.widths, self.offsets, strict=True)):
            bound = 1 << (width - 1)
            # Two comparisons instead of abs(): |-2^63| does not exist in int64.
            if column.size and (int(column.max()) >= bound or int(column.min()) <= -bound):
                raise PlaintextOverflow(
                    f"slot {place} of {width} bits holds values below {bound} in magnitude, got a larger one: "
                    "widen the slot or scale the values down"
                )
            values = column.tolist()
            if packed is None:
                packed = values
            else:
                packed = [low + (high << offset) for low, high in zip(packed, values, strict=True)]
        assert packed is not None
        return packed

    def decode(self, plain: int, groups: int) -> npt.NDArray[np.int64]:
        """Unpack `groups` consecutive groups of slots from one signed plaintext.

        Returns:
            int64 array (groups, number of slots).

        Raises:
            Malformed: bits are set above the last slot, so the plaintext is not what it claims to be.
        """
        values = np.empty((groups, len(self.widths)), dtype=np.int64)
        rest = plain
        steps = [(place, width, 1 << (width - 1), (1 << width) - 1) for place, width in enumerate(self.widths)]
        for group in range(groups):
            for place, width, half, mask in steps:
                value = ((rest + half) & mask) - half
                values[group, place] = value
                rest = (rest - value) >> width
        if rest != 0:
            raise Malformed(f"a plaintext of {groups} groups of {self.bits} bits has bits left above the last slot")
        return values


def width_for(records: int, largest: int, noise: int = 0) -> int:
    """Smallest signed width, in bits, that holds every sum of up to `records` values with |value| <= `largest`.

    `noise`: the largest size of what is added to a sum.

    Raises:
        PlaintextOverflow: more than 63 bits would be needed.
        ValueError: a negative argument.
    """
    if records < 0 or largest < 0:
        raise ValueError("records and largest must not be negative")
    width = (records * largest + noise).bit_length() + 1
    if width > LARGEST_WIDTH:
        raise PlaintextOverflow(
            f"sums of {records} values up to {largest} need {width} bits and a slot holds {LARGEST_WIDTH}: "
            "use fewer fractional bits or fewer records"
        )
    return width
