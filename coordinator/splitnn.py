"""Split networks (docs/protocol-splitnn.md): a step per epoch of training, a round per block of records to predict.

In an epoch batches go between the parties in lockstep; the coordinator sees losses and metrics that the label holder
publishes, counts and seconds. Of a prediction it sees names and the numbers of blocks and records; no embedding and no
score.
"""

from __future__ import annotations

from functools import partial

from treetap.coordinator.prediction import open_models, score_block
from treetap.coordinator.protocols import Plan, PredictionCourse, TrainingCourse, plan_rounds
from treetap.coordinator.runtime.progress import Progress
from treetap.coordinator.runtime.roster import Roster, answered
from treetap.protocols.prediction import present
from treetap.wire.v2 import prediction_pb2, setup_pb2, splitnn_pb2


async def train(roster: Roster, spec: setup_pb2.JobSpec, plan: Plan, progress: Progress) -> None:
    """Train the epochs that are not stored yet; early stopping may end training before the last.

    1. All parties train an epoch together.
    2. Every party stores the state after it, the label holder last: its state means that every party's exists.
    """
    progress.phase("train")
    progress.stager = spec.aggregator
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


async def score(
    roster: Roster, opening: prediction_pb2.OpenModel, _: prediction_pb2.OpenedModel, block: int, progress: Progress
) -> int:
    """Score one block; returns the number of blocks.

    All parties do it at the same time: the label holder names the records, feature parties send their embeddings, the
    label holder joins them.
    """
    embedding = roster.ask_all(present(opening), "embed_block", round=block)
    return await score_block(roster, opening.recipient, "embed_block", block, embedding, progress)


TRAINING = TrainingCourse(partial(plan_rounds, phase="fit", step="fit_inputs"), train)
PREDICTION = PredictionCourse(open_models, score)
