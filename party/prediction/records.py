"""The records of a prediction, block by block, and the destination of their scores.

These are a table and a file (`party.prediction.batch`), or requests of clients and their answers
(`party.serving.label_holder`). No protocol knows which.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from party.prediction.scores_on_disk import Guessed
from party.runtime.context import Step
from party.runtime.job_store import Arrays
from party.runtime.messages import Rows
from party.runtime.steps import StepId
from treetap.tables.reading import Floats, Table
from treetap.wire.v2 import prediction_pb2


class Asked(Protocol):
    """The records are places in the aligned order, ascending, each once in a block."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """Steps beside those of the protocol."""
        ...

    async def open(self, table: Table) -> prediction_pb2.OpenedModel:
        """The own table is there, not yet aligned; returns what the coordinator is told of it."""
        ...

    @property
    def wanted(self) -> Rows:
        """All records that may come, once the tables are aligned."""
        ...

    def block(self, number: int, size: int) -> tuple[Rows, int]:
        """The records of a block of at most `size`, and how many blocks there are as far as is known."""
        ...

    def advance(self, records: int) -> None:
        """So many records of the block at hand are done, for those who watch."""
        ...

    def keep(self, rows: Rows, scores: Floats, guessed: Guessed, further: Arrays) -> None:
        """The scores (n, outputs) of these records, and how much of the way of each was guessed (n,).

        `further`: what explains them, arrays with a row per record.
        """
        ...

    def before_block(self, number: int, begins: str, size: int) -> StepId:
        """The step that comes next when a block may begin with the step `begins`; another one where there is none."""
        ...
