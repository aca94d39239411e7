"""`clipped`: no summand of a record is larger than a bound, so that sums say less of one label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from treetap.party.growth.rule import Draft, Rule, Summed
from treetap.party.runtime.context import required


class Clipped(Rule):
    """A bound in the label holder's file."""

    @property
    def _most(self) -> int:
        return required(self.part.config.defences.clipped)

    def values(self, summed: Summed) -> Summed:
        """The summands within the bound."""
        return replace(summed, values=np.clip(summed.values, -self._most, self._most))

    async def publish(self, draft: Draft) -> None:
        draft.entries["clipped"] = self._most
