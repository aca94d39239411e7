"""The records of a prediction, block by block, and the destination of their scores.

Records of a table, with scores for a file (`treetap.party.prediction.batch`), or records of clients' requests, with
scores for the answers (`treetap.party.prediction.served`). The protocols are the same for both. The role of a label
holder

1. has the rows of `treetap.party.prediction.steps` at its steps: `first_block` before the blocks, `after_block` at the
   last step of a block, `requested_block` at `await_requests`, where it calls the source's step of that name;
2. lowers `records.size` before its first block if it cannot take as many records;
3. takes `rows, blocks = records.block(number)`, may call `records.advance(k)` meanwhile, ends the block with
   `records.keep(…)`, by trees through `TreeScoring.keep`, and returns the outcome `records.after_block(number)`;
4. keeps nothing that grows with the number of blocks, and answers any number of blocks under one key.
   `records.wanted` are all records that may come.
"""

from __future__ import annotations

from collections.abc import Sequence

from treetap.party.prediction.batch import BatchPrediction, Beside
from treetap.party.prediction.opened_model import OpenedModel
from treetap.party.prediction.served import ServedPrediction
from treetap.party.protocols import PredictionJob

#: Either has the same methods for a protocol. Records are places in the aligned order, ascending, each once in a block.
RecordSource = BatchPrediction | ServedPrediction


def record_source(job: PredictionJob, opened: OpenedModel, beside: Sequence[Beside] = ()) -> RecordSource:
    """The records that an opening asks for; `beside`: writers of further files beside the predictions."""
    return ServedPrediction(job, opened) if job.opening.serve else BatchPrediction(job, opened, beside)
