"""Averaged trees of winsorised labels: keys and labels once, then independent trees."""

from __future__ import annotations

from treetap.coordinator.growth import grow_tree
from treetap.coordinator.protocols import Plan, TrainingCourse, plan_rounds
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
from treetap.process.together import together
from treetap.wire.v2 import setup_pb2, winsorised_pb2


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Share the labels under a key of this job, then grow the trees that are not stored yet."""
    progress.phase("train")
    if plan.first == plan.rounds:
        return
    sharing = roster.ask(spec.aggregator, "share_targets", winsorised_pb2.ShareTargets())
    await together(sharing, roster.ask_all(list(spec.feature_parties), "take_targets", winsorised_pb2.TakeTargets()))
    for tree in range(plan.first, plan.rounds):
        progress.round(tree, plan.rounds)
        await grow_tree(roster, spec, tree, progress)


TRAINING = TrainingCourse(plan_rounds, train)
