"""A random forest: labels encrypted once, then independent trees (docs/protocol-forest.md)."""

from __future__ import annotations

from treetap.coordinator.growth import grow_tree
from treetap.coordinator.protocols import Plan, TrainingCourse, exchange_keys, plan_rounds
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster
from treetap.process.together import together
from treetap.wire.v2 import forest_pb2, setup_pb2


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Exchange keys, then grow the trees that are not stored yet.

    1. The label holder streams the encrypted label of every record, the feature parties keep them.
    2. Tree by tree, each on its own draw of records.
    """
    await exchange_keys(roster, spec, progress)
    progress.phase("train")
    if plan.first == plan.rounds:
        return
    sharing = roster.ask(spec.aggregator, "share_labels", forest_pb2.ShareLabels())
    await together(sharing, roster.ask_all(list(spec.feature_parties), "take_labels", forest_pb2.TakeLabels()))
    for tree in range(plan.first, plan.rounds):
        progress.round(tree, plan.rounds)
        await grow_tree(roster, spec, tree, progress, alone=tree < plan.own_rounds)


TRAINING = TrainingCourse(plan_rounds, train)
