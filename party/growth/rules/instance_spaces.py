"""`instance_spaces = "withheld"` and `pad_trees`: see `treetap.party.growth.withheld`."""

from __future__ import annotations

from dataclasses import replace

from treetap.party.growth.rule import Draft, Rule, Summed
from treetap.party.growth.withheld import BlindTree, mode_of


class Hidden(Rule):
    """No set of records is shown while trees grow."""

    tree = BlindTree

    def values(self, summed: Summed) -> Summed:
        """Which sibling is summed must not depend on records."""
        return replace(summed, left_first=True, padded=self.part.params.pad_trees)

    async def publish(self, draft: Draft) -> None:
        draft.entries |= mode_of(self.part.params, None)
