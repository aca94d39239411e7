"""The label holder's table with its decoded labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from party.config import PartyConfig
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from party.setup.steps import load_job_table, table_config
from treetap.errors import DataError
from treetap.tables.labels import Labels, learnable, read_labels
from treetap.tables.reading import Table
from treetap.wire.v2 import setup_pb2


@dataclass(frozen=True)
class LabelledTable:
    """Records and their labels; `table` is without the label column."""

    party: str
    table: Table
    labels: Labels
    column: str
    objective: str

    def take(self, records: Rows) -> LabelledTable:
        """The records at these places, in this order; `DataError` if their labels permit no training."""
        labels = self.labels.take(records)
        try:
            learnable(labels, self.table, self.column, self.objective)
        except DataError as failure:
            raise failure.at(self.party) from None
        return replace(self, table=self.table.take(records), labels=labels)


async def load_labelled_table(
    context: StepContext, config: PartyConfig, spec: setup_pb2.JobSpec, *, missing: float | None, objective: str
) -> LabelledTable:
    """Read the label holder's table of a training job, and decode its labels."""
    table = await load_job_table(context, config, spec, with_label=True, missing=missing)
    column = required(table_config(config, spec.table).label)
    try:
        labels = read_labels(table, column, objective)
    except DataError as failure:
        raise failure.at(context.party) from None
    return LabelledTable(context.party, replace(table, label=None), labels, column, objective)
