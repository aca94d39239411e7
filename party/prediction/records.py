"""The records of a prediction, block by block, and the destination of their scores.

Records of a table, with scores for a file (`party.prediction.batch`), or records of clients' requests, with scores for
the answers (`party.prediction.served`). The protocols are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence

from party.prediction.batch import BatchPrediction, Beside
from party.prediction.opened_model import OpenedModel
from party.prediction.served import ServedPrediction
from party.protocols import PredictionJob

#: Either has the same methods for a protocol. Records are places in the aligned order, ascending, each once in a block.
RecordSource = BatchPrediction | ServedPrediction


def record_source(job: PredictionJob, opened: OpenedModel, beside: Sequence[Beside] = ()) -> RecordSource:
    """The records that an opening asks for; `beside`: writers of further files beside the predictions."""
    return ServedPrediction(job, opened) if job.opening.serve else BatchPrediction(job, opened, beside)
