"""Gradient boosting as SecureBoost grows it (docs/protocol-boosting.md)."""

from __future__ import annotations

from treetap.coordinator.growth import grow_tree
from treetap.coordinator.protocols import Plan, TrainingCourse, exchange_keys, plan_rounds
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
from treetap.wire.v2 import setup_pb2


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Exchange keys, then grow the trees that are not stored yet; early stopping may end training before the last."""
    await exchange_keys(roster, spec, progress)
    progress.phase("train")
    stop = plan.stopped
    for tree in range(plan.first, plan.rounds):
        if stop:
            break
        progress.round(tree, plan.rounds)
        stop = await grow_tree(roster, spec, tree, progress, alone=tree < plan.own_rounds)


TRAINING = TrainingCourse(plan_rounds, train)
