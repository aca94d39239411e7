"""A split network at a feature party: embeddings of its columns forward, steps along the gradients that return."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

from treetap.errors import DataError, Malformed, naming
from treetap.neural.defences import DELTA, epsilon, meaning_of
from treetap.neural.inputs import Inputs
from treetap.neural.sides import FeatureSide
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import StepContext, required
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
from treetap.party.setup.steps import PUBLISHED, UNPUBLISHED, load_job_table, manifest_of, without_columns
from treetap.party.splitnn.bodies import EMBEDDINGS, GRADIENTS
from treetap.party.splitnn.job import NetworkJob
from treetap.party.splitnn.numbers import send, send_blocks, take
from treetap.tables.reading import Table
from treetap.wire.v2 import control_pb2, setup_pb2

log = logging.getLogger(__name__)
#: Times `silence_s` that a batch may take: the label holder waits once for the others, and computes as long itself.
WAITS = 2


@role({OPENING: (Next("prepare"),), ALIGNMENT: (Next("fit_inputs"),)})
class FeatureParty:
    """Sends an embedding of every record once an epoch, unless it sits the record's batch out."""

    def __init__(self, config: PartyConfig, context: StepContext, spec: setup_pb2.JobSpec) -> None:
        self._context, self._spec = context, spec
        self._job = NetworkJob(config, context, spec)
        self._params = self._job.params
        self._amplified, self._defences = config.optimizer == "amplified", config.defences.of_columns
        self._table: Table | None = None
        self._side: FeatureSide | None = None
        self._epochs = 0  # after which the state in memory is
        self.sizes = self._job.sizes
        self.steps = steps_of(self, phases={ALIGNMENT: self._job.alignment})

    @step(Next(ALIGNMENT, when=UNPUBLISHED), Next("fit_inputs", when=ALIGNED), Next("publish", when=PUBLISHED))
    async def prepare(self) -> Outcome:
        """Report the progress of the job at this party: the records that an earlier attempt aligned, stored epochs."""
        job, store = self._job, self._context.store
        table = self._table = await load_job_table(
            self._context, job.config, self._spec, with_label=False, missing=self._params.missing
        )
        aligned = job.alignment.begin(table.ids, table.rows, table.path, keep=True)
        published = store.published
        stored = 0 if published else await self._context.offload(lambda: job.states.epochs)
        bare = without_columns(job.config, self._spec)
        return Outcome(
            PUBLISHED if published else UNPUBLISHED,
            *([ALIGNED] if aligned else []),
            answer=setup_pb2.Prepared(
                stored_rounds=stored, published=published, aligned_attempt=aligned, without_columns=bare
            ),
            first_rounds=range(stored + 1),  # the label holder may have stored one less
        )

    @step(Next("train_epoch", RESUMED), Next("publish"))
    async def fit_inputs(self) -> None:
        """Select the common records, scale their columns, and make the own model."""
        job = self._job
        table = self._table = required(self._table).take(job.alignment.records)
        inputs = await job.fit(table) or Inputs.without_columns(len(table.ids))
        if self._amplified:
            log.warning(
                'job %s: optimizer = "amplified" in this party\'s file: its gradients are scaled so that the network '
                "relies on it more, an attack, for audits",
                self._context.job,
            )
        if self._defences.dp_sgd is not None:
            log.warning("job %s: %s", self._context.job, meaning_of(self._defences.dp_sgd, self._params.epochs))
        params, draws, party, defences = self._params, job.draws, self._context.party, self._defences
        with naming(self._context.party):  # draws of millions of initial weights take seconds
            self._side = await self._context.offload(
                lambda: FeatureSide(params, party, inputs, draws, amplified=self._amplified, defences=defences)
            )

    @step(Next("store_epoch", THIS_ROUND))
    async def train_epoch(self, request: control_pb2.StepRequest) -> None:
        """One epoch. Of each batch in which this party takes part:

        1. Compute the embeddings of its records, and send them.
        2. Receive the gradient of the loss in them; a step of the own weights.

        Validation records follow, whose embeddings alone are sent, as one series. A batch that the party sits out
        leaves no trace; the label holder has done it with the others before it comes to the next one.

        Raises:
            DataError: an embedding is not finite.
        """
        epoch, job = request.round, self._job
        side, holder, progress = required(self._side), self._spec.aggregator, self._context.progress
        if self._epochs != epoch:
            await self._context.offload(lambda: side.load(job.states.load(epoch)))
            self._epochs = epoch
        context, wire_type, schedule = self._context, self._params.wire_type, job.schedule
        batches = schedule.epoch(epoch)
        progress.done, progress.total, heard = 0, len(batches), 0
        for batch, rows in enumerate(batches):
            taking_part = schedule.takes_part(epoch, batch, context.party)
            if taking_part:
                embeddings = await context.offload(lambda rows=rows: side.forward(rows))  # type: ignore[misc]
                self._check(embeddings, f"batch {batch} of epoch {epoch}")
                await send(context, holder, EMBEDDINGS, embeddings, wire_type, epoch, batch)
                shape, waits = (len(rows), side.width), WAITS * (batch + 1 - heard)
                gradient = await take(context, holder, GRADIENTS, shape, wire_type, epoch, batch, patience=waits)
                heard, rate = batch + 1, schedule.rate(epoch, batch)
                back = partial(side.backward, gradient, rate, epoch, batch)
                await context.offload(back)
            context.metrics.batches.labels("trained" if taking_part else "sat_out").inc()
            progress.done = batch + 1
        if len(schedule.validation):
            await send_blocks(context, holder, EMBEDDINGS, self._validation(epoch), wire_type, epoch, len(batches))
        context.mailbox.forget(epoch)
        self._epochs = epoch + 1

    @step(Next("train_epoch", NEXT_ROUND), Next("publish"))
    async def store_epoch(self, request: control_pb2.StepRequest) -> None:
        """Store the state after the epoch, before the label holder stores its own.

        Raises:
            Malformed: the epoch is not the best one, where without early stopping each is.
        """
        side, is_best = required(self._side), request.protocol.splitnn.store_epoch.best
        if not is_best and not self._params.sets_aside:
            raise Malformed(
                f"store_epoch of round {request.round} says that this epoch is not the best, as each is here"
            )
        best = side.weights() if is_best else None
        await self._context.offload(lambda: self._job.states.save(request.round + 1, side.state(), best), whole=True)

    @step()
    async def publish(self) -> None:
        """Publish the own model."""
        if not self._context.store.published:
            manifest = {
                "role": "feature_party",
                "label_holder": self._spec.aggregator,
                "epochs": await self._context.offload(lambda: self._job.states.epochs),
                "amplified": self._amplified,
                **self._protected(),
                **manifest_of(self._context, self._spec, required(self._table), self._params.missing),
                **self._job.described(),
            }
            await self._job.publish(manifest)

    def _protected(self) -> dict[str, Any]:
        """The part of the manifest on defences of the columns; empty without them."""
        defences = self._defences
        if defences.sensitivity:
            return {name: getattr(defences, name) for name in ("sensitivity", "sensitivity_norm", "projections")}
        if (noise := defences.dp_sgd) is not None:
            spent = {"epsilon": epsilon(noise, self._params.epochs), "delta": DELTA}
            return {"dp_sgd": {"clip": noise.clip, "noise": noise.noise, **spent}}
        return {}

    async def _validation(self, epoch: int) -> AsyncGenerator[Any, None]:
        """The embeddings (n, width) of each block of validation records."""
        side = required(self._side)
        for rows in self._job.schedule.validation_batches():
            embeddings = await self._context.offload(lambda rows=rows: side.embed(rows))  # type: ignore[misc]
            self._check(embeddings, f"the validation records of epoch {epoch}")
            yield embeddings

    def _check(self, embeddings: Any, where: str) -> None:
        """Raise `DataError` unless the embeddings (n, width) are finite, which their reader would refuse."""
        if not bool(embeddings.isfinite().all()):
            fault = f"the embeddings of {where} are not finite; a smaller learning_rate keeps them so"
            raise DataError(fault).at(self._context.party)
