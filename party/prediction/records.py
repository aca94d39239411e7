"""The records of a prediction, block by block, and the destination of their scores.

Records of a table, with scores for a file (`party.prediction.batch`), or records of clients' requests, with scores for
the answers (`party.prediction.served`). The protocols are the same for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from party.prediction.batch import BatchPrediction, Beside
from party.prediction.opened_model import OpenedModel
from party.prediction.scores_on_disk import Imputed
from party.prediction.served import ServedPrediction
from party.protocols import PredictionJob
from party.runtime.job_store import Arrays
from party.runtime.messages import Rows
from party.runtime.step_order import Outcome
from treetap.tables.reading import Floats, Table


class RecordSource(Protocol):
    """The records are places in the aligned order, ascending, each once in a block.

    Attributes:
        size: most records of a block; a protocol may lower it before the first one.
    """

    size: int

    async def open(self, table: Table) -> None:
        """Take the own table, which is not aligned yet."""
        ...

    @property
    def wanted(self) -> Rows:
        """All records that may come, once the tables are aligned."""
        ...

    def block(self, number: int) -> tuple[Rows, int]:
        """The records of a block, and the number of blocks as far as it is known."""
        ...

    def advance(self, records: int) -> None:
        """Show that this number of records of the block at hand is done."""
        ...

    def keep(self, rows: Rows, scores: Floats, imputed: Imputed, further: Arrays) -> None:
        """Take the scores (n, outputs) of these records, and the imputed share of each record's splits (n,).

        `further`: their explanations, arrays with a row per record.
        """
        ...

    def after_block(self, number: int) -> str:
        """The outcome of a block's last step: one of those in `party.prediction.steps.after_block`."""
        ...

    async def await_requests(self) -> Outcome:
        """Wait for clients' requests, and say whether some came; `OutOfOrder` where no client asks."""
        ...


def record_source(job: PredictionJob, opened: OpenedModel, beside: Sequence[Beside] = ()) -> RecordSource:
    """The records that an opening asks for; `beside`: writers of further files beside the predictions."""
    return ServedPrediction(job, opened) if job.opening.serve else BatchPrediction(job, opened, beside)
