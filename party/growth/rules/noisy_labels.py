"""`label_dp`: metrics by labels as they are beside a model of noisy ones, which `LabelledTable` has in their place."""

from __future__ import annotations

import json

from treetap.models.store import CLEAN_METRICS
from treetap.party.growth.rule import Draft, Rule
from treetap.party.runtime.context import required
from treetap.trees.metrics import finite


class CleanMetrics(Rule):
    """A file of the label holder alone."""

    async def publish(self, draft: Draft) -> None:
        content = {"training_metrics": finite(required(draft.state).measured(required(draft.data).known.values))}
        self.part.context.store.write(CLEAN_METRICS, json.dumps(content, indent=1).encode())
        draft.kinds.append(CLEAN_METRICS)
