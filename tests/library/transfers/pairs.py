"""Two parties after base transfers, with seeds of one's choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treetap.transfers.extension import PAIRS, SEED_BYTES, ReceiverSeeds, SenderSeeds, Stream

SESSION = b"job 1, attempt 1, bank, shop"


class Pair:
    """Seeds, bits and both parties; `mark` is what both call before a stream."""

    def __init__(self, draw: int = 0, mark: Callable[[Stream], None] = lambda stream: None) -> None:
        """`draw`: equal ones give equal seeds."""
        rng = np.random.default_rng(draw)
        self.zeros, self.ones = ([rng.bytes(SEED_BYTES) for _ in range(PAIRS)] for _ in range(2))
        self.bits = rng.integers(0, 2, PAIRS).astype(np.uint8)
        self.mark = mark
        self.forget()

    def forget(self) -> None:
        """Both parties anew, as if no stream had begun: what a restart without new base transfers would be."""
        known = [one if bit else zero for zero, one, bit in zip(self.zeros, self.ones, self.bits, strict=True)]
        self.receiver = ReceiverSeeds(self.zeros, self.ones, SESSION, self.mark)
        self.sender = SenderSeeds(self.bits, known, SESSION, self.mark)
