"""Gradient boosting as SecureBoost grows it (docs/protocol-boosting.md)."""

from __future__ import annotations

from coordinator.growth import grow_tree
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster
from coordinator.setup import Plan
from treetap.wire.v1 import setup_pb2


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Grow the trees that are not stored yet; early stopping may end it before the last."""
    stop = plan.stopped
    for tree in range(plan.first, plan.trees):
        if stop:
            break
        progress.tree(tree, plan.trees)
        stop = await grow_tree(roster, spec, tree, progress)
