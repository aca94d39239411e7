"""A split network at the label holder: its own columns, the top model, the loss, and the gradients that it returns.

Losses and metrics of a network's epochs at the label holder, and the choice of the best epoch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from treetap.arrays import Array, Floats
from treetap.errors import DataError, Malformed, OutOfOrder, naming
from treetap.models.store import CLEAN_METRICS, TRAINED_ON, read_history
from treetap.neural.params import SplitnnParams
from treetap.neural.sides import LabelSide, Objective
from treetap.party.config import PartyConfig
from treetap.party.defences.clean_labels import Use
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.step_order import (
    ALIGNED,
    ALIGNMENT,
    NEXT_ROUND,
    OPENING,
    RESUMED,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.party.setup.labelled_table import LabelledTable, load_labelled_table
from treetap.party.setup.steps import manifest_of, without_columns
from treetap.party.splitnn.bodies import EMBEDDINGS, GRADIENTS
from treetap.party.splitnn.job import NetworkJob
from treetap.party.splitnn.numbers import send, take
from treetap.process.together import together
from treetap.tables.labels import Labels
from treetap.trees.loss import loss_for
from treetap.trees.metrics import finite
from treetap.wire.metric_history import columns
from treetap.wire.v2 import control_pb2, setup_pb2, splitnn_pb2, types_pb2

#: Scores (n, K) and labels (n,) of the same records.
Scored = tuple[Floats, Array]


class EpochFigures:
    """The figures of all epochs so far.

    Metrics of the training records are of their scores in the course of the epoch, before the step of their batch.
    """

    def __init__(self, params: SplitnnParams) -> None:
        self._stopping = params.watch()
        self._history: list[dict[str, float]] = []
        self._clean: list[dict[str, float]] = []

    @property
    def stopped(self) -> bool:
        return self._stopping.stopped

    @property
    def best_epoch(self) -> int | None:
        """The best epoch so far; None before the first."""
        return self._stopping.best_round

    @property
    def history(self) -> list[dict[str, float | None]]:
        """The figures of every epoch; one that is no finite number is None."""
        return [finite(epoch) for epoch in self._history]

    def take(self, epoch: int, objective: Objective, loss: float, training: Scored, validation: Scored) -> bool:
        """Note the figures of an epoch; True if its weights are the best so far.

        Raises:
            DataError: the validation loss is not finite, and no epoch before had one: there would be no best one.
        """
        watched = loss if self._stopping.rounds is None else objective.watched(*validation)
        if self.best_epoch is None and not np.isfinite(watched):
            raise DataError(f"the validation loss of epoch {epoch} is not finite; a smaller learning_rate keeps it so")
        self._history = [
            *self._history[:epoch],
            {"train_loss": loss, **self._measured(objective, training, validation)},
        ]
        return self._stopping.take(epoch, watched)

    def take_clean(self, epoch: int, objective: Objective, training: Scored, validation: Scored) -> None:
        """Note the figures of an epoch by clean labels, where training has noisy ones: see `clean_summary`."""
        self._clean = [*self._clean[:epoch], self._measured(objective, training, validation)]

    def published(self) -> list[types_pb2.NamedMetric]:
        """The last epoch's figures for the coordinator; one that is no finite number is left out."""
        figures, noisy = self._history[-1].items(), bool(self._clean)
        return [
            types_pb2.NamedMetric(name=name, value=value, noisy=noisy) for name, value in figures if np.isfinite(value)
        ]

    def state(self) -> dict[str, Array]:
        kept = {"history": self._history, "clean_history": self._clean}
        return {**self._stopping.state(), **{name: np.array(json.dumps(epochs)) for name, epochs in kept.items()}}

    def load(self, arrays: Mapping[str, Array]) -> None:
        """Continue from a state that `state` has returned."""
        self._stopping.load(arrays)
        self._history, self._clean = (json.loads(str(arrays[name])) for name in ("history", "clean_history"))

    def summary(self) -> dict[str, Any]:
        """The part of the manifest about epochs: the best one, its figures, and those of all."""
        best, plain = required(self._stopping.best_round), self.history
        return {"best_epoch": best, "training_metrics": plain[best], "history": plain}

    def clean_summary(self) -> dict[str, Any]:
        """The best epoch's figures by clean labels, for the label holder's own file."""
        return {"training_metrics": finite(self._clean[required(self._stopping.best_round)])}

    def _measured(self, objective: Objective, training: Scored, validation: Scored) -> dict[str, float]:
        measured = {f"train_{name}": value for name, value in objective.metrics(*training).items()}
        if self._stopping.rounds is not None:
            measured |= {f"validation_{name}": value for name, value in objective.metrics(*validation).items()}
        return measured


def published_network(manifest: Mapping[str, Any]) -> setup_pb2.PublishedModel:
    """The report on a model, from the label holder's manifest. A metric that is no finite number is left out."""
    metrics, noisy = manifest["training_metrics"].items(), CLEAN_METRICS in manifest["files"]
    return setup_pb2.PublishedModel(
        trees=manifest["epochs"],
        records=manifest.get(TRAINED_ON, 0),
        used_trees=manifest["best_epoch"] + 1,
        metrics=[
            types_pb2.NamedMetric(name=name, value=value, noisy=noisy) for name, value in metrics if value is not None
        ],
    )


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("fit_inputs"),)})
class LabelHolder:
    """Trains the top model on the embeddings of all parties."""

    #: The party's table with its labels; after `fit_inputs`, of the common records alone.
    data: LabelledTable

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._job = NetworkJob(config, context, spec)
        self._params = self._job.params
        self._side: LabelSide | None = None
        self._stored = 0  # epochs, when the attempt began
        self._figures = EpochFigures(self._params)
        self.sizes = self._job.sizes
        self.steps = steps_of(self, phases={ALIGNMENT: self._job.alignment})

    @step(Next(ALIGNMENT), Next("fit_inputs", when=ALIGNED))
    async def prepare(self) -> Outcome:
        """Report the progress of the job.

        1. Read the table and decode its labels; with label differential privacy noisy ones take their place.
        2. Refuse labels that do not fit the objective, before the alignment.
        3. Look up the records that an earlier attempt aligned, and the stored epochs.
        """
        job, store = self._job, self._context.store
        data = self.data = await load_labelled_table(
            self._context, job.config, self._spec, missing=self._params.missing, objective=self._params.objective
        )
        self._check_labels(data)
        aligned = job.alignment.begin(data.table.ids, data.table.rows, data.table.path, keep=True)
        published = store.published
        stored = (
            int(store.manifest()["epochs"]) if published else await self._context.offload(lambda: job.states.epochs)
        )
        model = published_network(store.manifest()) if published else None
        if published:
            history = read_history(store.model)
        elif stored:
            self._figures.load(await self._context.offload(lambda: job.states.load(stored)))
            history = self._figures.history
        else:
            history = []
        self._stored = stored
        return Outcome(
            *([ALIGNED] if aligned else []),
            answer=setup_pb2.Prepared(
                stored_rounds=stored,
                published=published,
                aligned_attempt=aligned,
                model=model,
                history=columns(history),
                without_columns=without_columns(job.config, self._spec),
            ),
            first_rounds=(stored,),
        )

    @step(Next("train_epoch", RESUMED), Next("publish"))
    async def fit_inputs(self) -> setup_pb2.Binned:
        """Report the number of epochs.

        1. Select the common records and their labels; scale the own columns.
        2. Make the own model and the top, or load them as they were after the last stored epoch.
        """
        job, spec = self._job, self._spec
        data = self.data = self.data.take(job.alignment.records)
        self._check_labels(data)
        inputs = await job.fit(data.table)
        labels, classes = data.labels.values, len(data.labels.classes)
        objective = Objective.of(self._params, classes, labels[job.schedule.training])
        draws, defences = job.draws, job.config.defences.of_networks
        party, others = self._context.party, list(spec.feature_parties)
        with naming(self._context.party):  # draws of millions of initial weights take seconds
            side = self._side = await self._context.offload(
                lambda: LabelSide(self._params, party, others, inputs, labels, objective, draws, defences)
            )
        if (stored := self._stored) and not self._context.store.published:
            arrays = await self._context.offload(lambda: job.states.load(stored))
            self._figures.load(arrays)
            side.load({name: array for name, array in arrays.items() if name not in self._figures.state()})
        return setup_pb2.Binned(rounds=self._params.epochs, stopped=self._figures.stopped)

    @step(Next("store_epoch", THIS_ROUND))
    async def train_epoch(self, request: control_pb2.StepRequest) -> splitnn_pb2.TrainedEpoch:
        """One epoch, batch after batch.

        1. Receive the embeddings of the parties that take part; those of others are 0.
        2. Forward, loss, backward; a step of the own weights.
        3. Return to each party the gradient in its embeddings, with DIMIP's term, after the defence of gradients.

        Then the validation records are scored, if there are some.
        """
        epoch, job = request.round, self._job
        context, side, schedule, progress = self._context, required(self._side), job.schedule, self._context.progress
        batches = schedule.epoch(epoch)
        progress.done, progress.total = 0, len(batches)
        losses, scores = list[float](), list[Any]()
        for batch, rows in enumerate(batches):
            taking = [party for party in side.widths if schedule.takes_part(epoch, batch, party)]
            received, rate = await self._embeddings(taking, rows, epoch, batch), schedule.rate(epoch, batch)
            with naming(context.party):
                trained = await context.offload(
                    lambda rows=rows, received=received, batch=batch, rate=rate: side.train(  # type: ignore[misc]
                        rows, received, epoch, batch, rate
                    )
                )
            wire_type = self._params.wire_type
            await together(
                *(
                    send(context, party, GRADIENTS, gradient, wire_type, epoch, batch)
                    for party, gradient in trained.gradients.items()
                )
            )
            losses.append(trained.loss)
            scores.append(trained.scores)
            context.metrics.batches.labels("trained").inc()
            progress.done = batch + 1
        best = self._take_figures(
            epoch, float(np.mean(losses)), np.concatenate(scores), await self._validation_scores(epoch, len(batches))
        )
        context.metrics.epoch_loss.set(float(np.mean(losses)))
        context.mailbox.forget(epoch)
        return splitnn_pb2.TrainedEpoch(best=best, stopped=self._figures.stopped, metrics=self._figures.published())

    @step(Next("train_epoch", NEXT_ROUND), Next("publish"))
    async def store_epoch(self, request: control_pb2.StepRequest) -> None:
        """Store the state after the epoch; every other party has stored its own.

        Raises:
            Malformed: the coordinator says of the best epoch another thing than this party has said.
        """
        side, is_best = required(self._side), request.protocol.splitnn.store_epoch.best
        if is_best != (self._figures.best_epoch == request.round):
            raise Malformed(f"store_epoch of round {request.round} comes with another choice of the best epoch")
        best = side.weights() if is_best else None
        state = {**side.state(), **self._figures.state()}
        await self._context.offload(lambda: self._job.states.save(request.round + 1, state, best), whole=True)

    @step()
    async def publish(self) -> setup_pb2.PublishedModel:
        """Publish the own model and the top of the best epoch, and report its figures.

        Raises:
            OutOfOrder: epochs are missing, whatever the coordinator believes.
        """
        store = self._context.store
        if not store.published:
            epochs = await self._context.offload(lambda: self._job.states.epochs)
            if epochs < self._params.epochs and not self._figures.stopped:
                raise OutOfOrder(f"publish cannot come now: {epochs} of {self._params.epochs} epochs are stored")
            params, data, side = self._params, self.data, required(self._side)
            clean = None if data.clean is None else json.dumps(self._figures.clean_summary(), indent=1).encode()
            await self._job.publish(
                {
                    "role": "label_holder",
                    "feature_parties": list(self._spec.feature_parties),
                    "classes": data.labels.classes,
                    "class_type": str(data.labels.kind),
                    "objective": params.objective,
                    **manifest_of(self._context, self._spec, data.table, params.missing),
                    **self._job.described(),
                    TRAINED_ON: len(data.table.ids),
                    "target": side.objective.to_dict(),
                    "top": asdict(params.top),
                    "widths": side.widths,
                    "params": params.to_dict(),
                    "epochs": epochs,
                    **self._figures.summary(),
                },
                {CLEAN_METRICS: clean} if clean else {},  # of a training by noisy labels
            )
        return published_network(store.manifest())

    async def _embeddings(self, parties: list[str], rows: Rows, epoch: int, batch: int) -> dict[str, torch.Tensor]:
        widths, wire_type = required(self._side).widths, self._params.wire_type
        received = await together(
            *(
                take(self._context, party, EMBEDDINGS, (len(rows), widths[party]), wire_type, epoch, batch)
                for party in parties
            )
        )
        return dict(zip(parties, received, strict=True))

    async def _validation_scores(self, epoch: int, stage: int) -> Any:
        """Scores (n, K) of the validation records, whose embeddings are one series of each party."""
        side, schedule = required(self._side), self._job.schedule
        if not len(schedule.validation):
            return np.zeros((0, side.objective.outputs))
        received = await self._embeddings(list(side.widths), schedule.validation, epoch, stage)

        def scored() -> Any:
            scores, first = [], 0
            for rows in schedule.validation_batches():
                of_block = {party: embeddings[first : first + len(rows)] for party, embeddings in received.items()}
                scores.append(side.scores(rows, of_block))
                first += len(rows)
            return np.concatenate(scores)

        return await self._context.offload(scored)

    def _take_figures(self, epoch: int, loss: float, scores: Any, held: Any) -> bool:
        """Note an epoch's figures; True if it is the best. `scores`, `held`: (n, K) of training and validation records.

        With noisy labels they alone decide; the figures by clean ones are for a file of the label holder.
        """
        schedule, objective = self._job.schedule, required(self._side).objective
        trained, clean = np.concatenate(schedule.epoch(epoch)), self.data.clean

        def beside(labels: Labels) -> tuple[Scored, Scored]:
            return (scores, labels.values[trained]), (held, labels.values[schedule.validation])

        if clean is not None:
            self._figures.take_clean(epoch, objective, *beside(clean.for_use(Use.OWN_FILES)))
        return self._figures.take(epoch, objective, loss, *beside(self.data.labels))

    def _check_labels(self, data: LabelledTable) -> None:
        """Raise `DataError` if the labels do not fit the objective."""
        with naming(self._context.party):
            loss_for(self._params.objective, len(data.labels.classes)).check(data.labels.values)
