"""What a dealer hands both parties of a pair for a stage, and the widths that it is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from treetap.shares.choice import Owners, Stage
from treetap.shares.streams import Dealer
from treetap.shares.widths import Widths


class Part(NamedTuple):
    """One party's."""

    seed: bytes
    corrections: bytes


def told(widths: Widths) -> list[int]:
    """Widths as a list of numbers below 2^32, of which `widths_in` makes them."""
    bits = widths.moduli[0].bit_length() - 1
    figures = [widths.signed, widths.value, widths.weight, widths.targets, widths.count, widths.numbers]
    return [*figures, bits, len(widths.slots), *widths.slots, *((1 << bits) - modulus for modulus in widths.moduli)]


def widths_in(numbers: Sequence[int]) -> Widths:
    """The widths that were told so; `ValueError` if none were."""
    signed, value, weight, targets, count, most, bits, slots, *rest = numbers
    moduli = tuple((1 << bits) - less for less in rest[slots:])
    return Widths(tuple(rest[:slots]), signed, moduli, value, weight, targets, count, most)


def dealt(layout: Stage | Owners) -> tuple[Part, Part]:
    """New randomness: the last party's part and the first one's."""
    dealer = Dealer()
    layout.deal(dealer)
    last, first = (Part(seed, b"".join(parts)) for seed, parts in zip(dealer.seeds, dealer.corrections, strict=True))
    return last, first
