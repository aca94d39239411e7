"""`eval_table`: see `treetap.party.setup.labelled_table`."""

from __future__ import annotations

import numpy as np

from treetap.party.growth.rule import Draft, Rule
from treetap.party.setup.labelled_table import LabelledTable, check_evaluated, described


class Evaluated(Rule):
    """A job with a table that is measured after each round."""

    def selected(self, data: LabelledTable) -> None:
        """Refuse fewer records with a weight above 0, which count, than the policy asks for."""
        measured = data.measured
        if measured is not None and measured[1] is not None:
            check_evaluated(self.part.context, int(np.count_nonzero(measured[1])), scores=True)

    async def publish(self, draft: Draft) -> None:
        draft.entries |= described(self.part.spec)
