"""A split network: a step per epoch; batches go between the parties in lockstep (docs/protocol-splitnn.md).

The coordinator sees losses and metrics that the label holder publishes, counts and seconds.
"""

from __future__ import annotations

from coordinator.protocols import TrainingCourse
from coordinator.runtime.progress import Progress
from coordinator.runtime.roster import Roster, answered
from coordinator.setup import Found, Plan, plan_rounds
from treetap.wire.v2 import setup_pb2, splitnn_pb2


async def fit(roster: Roster, spec: setup_pb2.JobSpec, state: Found, progress: Progress) -> Plan:
    """Have every party fit its scalers on the aligned records; the label holder answers with the number of epochs."""
    return await plan_rounds(roster, spec, state, progress, "fit", "fit_inputs", splitnn_pb2.FitInputs())


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Train the epochs that are not stored yet; early stopping may end training before the last.

    1. All parties train an epoch together.
    2. Every party stores the state after it, the label holder last: its state means that every party's exists.
    """
    progress.phase("train")
    progress.watch_stages(spec.aggregator)
    stop = plan.stopped
    for epoch in range(plan.first, plan.rounds):
        if stop:
            break
        progress.round(epoch, plan.rounds)
        results = await roster.ask_all(roster.names, "train_epoch", splitnn_pb2.TrainEpoch(), epoch)
        trained = answered(spec.aggregator, results[spec.aggregator], "trained_epoch")
        store = splitnn_pb2.StoreEpoch(best=trained.best)
        await roster.ask_all(list(spec.feature_parties), "store_epoch", store, epoch)
        await roster.ask(spec.aggregator, "store_epoch", store, epoch)
        progress.grown(epoch + 1)
        progress.measured(trained.metrics)
        stop = trained.stopped


COURSE = TrainingCourse(fit, train)
