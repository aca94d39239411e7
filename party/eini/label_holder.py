"""Fed-EINI at the label holder (Chen et al. 2021, Algorithm 1): values out, encrypted; one sum per record back.

Unlike the paper, the vectors have a place per entry, a set of leaves that no later party tells apart, not per leaf:
`treetap.trees.leaf_entries`, docs/protocol-eini.md. A lattice scheme has columns instead (docs/protocol-lattice.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treetap.arrays import Floats
from treetap.party.eini.entry_layout import cipher_of, sizes_of
from treetap.party.prediction.batch import BatchPrediction
from treetap.party.prediction.opened_model import PredictionJob
from treetap.party.prediction.scores_on_disk import AT_ONCE, Imputed, ScoreStore
from treetap.party.prediction.steps import (
    ATTRIBUTED,
    LOOKED_FOR,
    NAMES,
    OPENING_ROWS,
    after_batch_block,
    after_block,
    conditions_of,
    first_block,
    looked_up_block,
    requested_block,
    scored_block,
    send_block,
    steps_asked_for,
    take_spent,
)
from treetap.party.prediction.tree_model import TreeScoring
from treetap.party.runtime.context import Rows, required
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    THIS_ROUND,
    Next,
    Outcome,
    role,
    step,
    steps_of,
)
from treetap.tables.label_columns import IdColumns
from treetap.wire.v2 import control_pb2, prediction_pb2

if TYPE_CHECKING:  # of the two ciphers a job imports its own
    from treetap.party.eini import entries, lattice

#: The name under which attributions are kept with the scores.
ATTRIBUTIONS = "attributions"


@role(
    {
        **OPENING_ROWS,
        NAMES: (Next("make_keys"),),
        "await_requests": (*requested_block("score_block"), Next("look_up", THIS_ROUND, LOOKED_FOR)),
        "look_up": looked_up_block("score_block"),
    },
    BatchPrediction,
)
class LabelHolder:
    """The label holder: both ends of the chain."""

    def __init__(self, job: PredictionJob) -> None:
        """Raises BadInput: see `OpenedModel`; or the cipher has no room for such a model."""
        self._context, self._opening, self._chain = job.context, job.opening, job.chain
        self.sizes = sizes_of(job)
        beside = [self._write_attributions] if job.opening.attributions else []
        self._scoring = TreeScoring(job, self.sizes, beside=beside)
        cipher = cipher_of(job)
        self._end: entries.LabelHolderEnd | lattice.LabelHolderEnd = cipher.LabelHolderEnd(
            job, self._scoring, self.sizes, self._advance
        )
        self._unattributed: tuple[Rows, Floats, Imputed] | None = None  # a block that has its scores
        steps = steps_of(
            self, self._scoring.records, phases=self._scoring.phases, conditions=conditions_of(job.opening)
        )
        self.steps = steps_asked_for(job.opening, steps, attributed=["attribute_block"], looked_up=["look_up"])

    @step(Next(ALIGNMENT))
    async def open_model(self) -> prediction_pb2.OpenedModel:
        """Lay out what will be sent, outside the event loop because it is slow; load the table, begin to align it."""
        await self._context.offload(self._end.lay_out)
        return await self._scoring.opened.open_model()

    @step(*first_block("score_block"))
    async def make_keys(self) -> None:
        """Make a key for this prediction, in memory only; send it, and what each feature party needs of the layout."""
        if self._chain:
            await self._end.make_keys()

    @step(Next("attribute_block", THIS_ROUND, ATTRIBUTED), *after_block("score_block"))
    async def score_block(self, request: control_pb2.StepRequest) -> Outcome:
        """Stages 1 and 2 for a block of records.

        1. Send the records of the block to every feature party; of a job with one alone those that it has,
        2. compute W_k of every tree from the own columns (equation 8),
        3. encrypt it and send it to the first of the chain, one message while the next is encrypted,
        4. open the sums that the last of the chain returns (equation 14),
        5. compute the scores of the others here,
        6. keep the scores, or hold them until their attributions are there: an interruption loses both or neither.
        """
        number, context, trees = request.round, self._context, self._scoring.trees
        common = self._scoring.opened.common
        sums: Any = self._end.scores  # of either cipher
        rows, blocks = self._scoring.records.block(number)
        places = self._asked(rows)
        asked = rows[places]
        await send_block(context, common, number, asked)
        goes_left, n, away = trees.own.directions(rows), len(rows), self._opening.away
        of_asked = trees.own.directions(asked)
        values, scores, imputed = await context.offload(
            lambda: (sums.values(of_asked, len(asked)), self._alone(rows, places), trees.imputed(goes_left, n, away))
        )
        await sums.send(values, number)
        scores[places] = trees.ensemble.from_sums(await sums.receive(number))
        spent = await take_spent(context, common, number, asked, serve=self._opening.serve)
        self._scoring.records.leave_out({int(places[place]): party for place, party in spent.items()})
        if self._opening.attributions:
            self._unattributed = rows, scores, imputed
            outcomes = list[str]()
        else:
            self._scoring.keep(rows, scores, imputed)
            outcomes = [self._scoring.records.after_block(number)]
        context.mailbox.forget(number)
        return Outcome(*outcomes, answer=scored_block(context, blocks))

    @step(*after_batch_block("score_block"))
    async def attribute_block(self, request: control_pb2.StepRequest) -> Outcome:
        """The attributions of the block that has been scored, along the same chain.

        1. Compute the share of every entry in each player's value from the own columns,
        2. encrypt and send entries to the first of the chain, one message while the next is encrypted,
        3. open the sums that the last of the chain returns; with the expected score they must make the scores,
        4. keep both.
        """
        number, context, trees = request.round, self._context, self._scoring.trees
        (rows, scores, imputed), sums = required(self._unattributed), required(self._end.attributions)
        goes_left, n = trees.own.directions(rows), len(rows)
        values = await context.offload(lambda: sums.values(goes_left, n))
        await sums.send(values, number)
        attributions = await sums.receive(number)
        sums.check_complete(number, attributions, scores)
        self._scoring.keep(rows, scores, imputed, further={ATTRIBUTIONS: attributions})
        self._unattributed = None
        context.mailbox.forget(number)
        records = self._scoring.records
        return Outcome(records.after_block(number), answer=scored_block(context, records.block(number)[1]))

    def _asked(self, rows: Rows) -> Rows:
        """The places in a block of records that go along the chain: all, but for such as the only feature party lacks.

        With several nobody is left out, for whom one has would be seen by others.
        """
        common = list(self._scoring.opened.common.values())
        if len(self._opening.feature_parties) > 1 or self._opening.attributions or not common:
            return np.arange(len(rows))
        had = np.sort(common[0].placed(rows)[1])
        return had if len(had) else np.arange(1)

    def _alone(self, rows: Rows, places: Rows) -> Floats:
        """Scores (n, outputs) of records of a block, without those at some places."""
        trees, rest = self._scoring.trees, np.ones(len(rows), dtype=bool)
        rest[places] = False
        scores = np.empty((len(rows), len(trees.ensemble.base_margin)))
        scores[rest] = trees.scores(rows[rest], self._opening.feature_parties) if rest.any() else 0
        return scores

    def _advance(self, records: int) -> None:
        """Show that this number of records of the block is done; where both are asked for, half with the scores."""
        if self._opening.attributions:
            scored = 0 if self._unattributed is None else len(self._unattributed[0])
            records = (scored + records) // 2
        self._scoring.records.advance(records)

    async def _write_attributions(
        self, path: Path, own: IdColumns, known: Rows, scored: ScoreStore, written: prediction_pb2.WrittenPredictions
    ) -> None:
        """The attributions of every record that has a score, beside the predictions."""
        target = path.with_name(f"{self._context.job}.attributions.parquet")
        attributions = required(self._end.attributions)
        ids = (own.at(known[first : first + AT_ONCE]) for first in range(0, len(known), AT_ONCE))
        stored = scored.in_order(["scores", ATTRIBUTIONS], known, AT_ONCE)
        parts = ((some, part["scores"], part[ATTRIBUTIONS]) for some, part in zip(ids, stored, strict=True))
        await self._context.offload(lambda: attributions.write(target, own.fields, parts), whole=True)
        written.attributions = str(target)
