"""A party's part in a preview of an alignment: the number of common records, or its own rows of them, before any job.

    1. `open_preview`: load the ids of the table.
    2. `charge_preview`: enter the preview among those of the day; of a count, send the combiner the least count.
    3. The turns of the alignment: of a count those of `count_turns`, else those of a job.
    4. Of records: `write_rows`.

No list of a count returns to its owner as it left: every party on the way has shuffled it. So the combiner sees how
many points all lists share, and cannot say of which of its ids they are.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from party.alignment.preview_account import Charge, PreviewAccount
from party.alignment.raised_lists import RaisedLists
from party.alignment.steps import ALIGNMENT, Alignment
from party.config import PartyConfig
from party.runtime.context import StepContext, required
from party.runtime.messages import Rows
from party.runtime.step_order import OPENING, Next, role, step, steps_of
from party.setup.steps import load_table, table_config
from treetap.errors import Malformed, Refused
from treetap.models.durable import make_folder, writing_whole
from treetap.process.together import together
from treetap.protocols.alignment import count_turns
from treetap.protocols.messages import JobSizes
from treetap.protocols.preview import members_of_preview
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.tables.written import table_writer
from treetap.wire.v2 import alignment_pb2, types_pb2

log = logging.getLogger(__name__)
#: The folder of rows in a party's state, and their column beside the ids.
FOLDER, ROW = "previews", "row"
#: Condition.
RECORDS = "records are asked for"
#: Rows that are written at a time.
_AT_ONCE = 1 << 16


class Count(RaisedLists):
    """One party's part in counting the common records; `common` is known after its last step."""

    def __init__(self, context: StepContext, sizes: JobSizes, then: Callable[[], Awaitable[None]]) -> None:
        """`sizes`: of the role's job. `then`: done in the last step, once `common` is known."""
        super().__init__(context, count_turns(len(sizes.members.parties)), sizes)
        self.common, self._then = types_pb2.CommonCount(), then

    def begin(self, ids: Ids) -> None:
        """Set the ids of the party's own table."""
        self._ids, self._sizes.ids = ids, len(ids)

    async def send_least(self) -> None:
        """Other parties: send the combiner the number of records below which no count may leave it."""
        if self._place:
            least = alignment_pb2.LeastCount(records=self._context.policy.min_common_records)
            await self._context.outbox.send(self._members[0], "least_count", [least])

    @step()
    async def count_ids(self) -> alignment_pb2.CountedIds:
        """Combiner: count the points that every list holds, and send it; below some least count, only that."""
        least = self._context.policy.min_common_records
        async for theirs in self._leasts():
            least = max(least, theirs)
        # raising has checked the first list; the last one is the own, which came around
        for points in self._held[1:]:
            await self._lists.check(points)
        if len(self._held[-1]) != len(self._ids):
            raise Malformed(f"of {len(self._ids)} blinded identifiers {len(self._held[-1])} came back")
        parts: list[int] = []
        await self._lists.common(*self._held, kept=lambda _, places: parts.append(len(places)))
        self._hold()
        number = sum(parts)
        self.common = (
            types_pb2.CommonCount(fewer_than=least) if number < least else types_pb2.CommonCount(records=number)
        )
        shared = alignment_pb2.SharedCount(common=self.common)
        await self._then()
        await together(*(self._context.outbox.send(party, "shared_count", [shared]) for party in self._members[1:]))
        return alignment_pb2.CountedIds(common=self.common)

    @step()
    async def take_count(self) -> None:
        """Other parties: receive the count; `Malformed` for one that this party's policy keeps at the combiner."""
        self._hold()
        async for message in self._context.mailbox.series(self._members[0], "shared_count", 0, 0):
            self.common = message.alignment.shared_count.common
        least, common = self._context.policy.min_common_records, self.common
        if not least <= (common.fewer_than or common.records) or (common.fewer_than and common.records):
            raise Malformed(f"{self._members[0]} sent a count below min_common_records = {least} of the own policy")
        if common.records > len(self._ids):
            raise Malformed(f"{self._members[0]} counts more common records than the own {len(self._ids)}")
        await self._then()

    async def _leasts(self) -> AsyncIterator[int]:
        for party in self._members[1:]:
            async for message in self._context.mailbox.series(party, "least_count", 0, 0):
                yield message.alignment.least_count.records


class PreviewedRecords(Alignment):
    """One party's part in finding its own rows of the common records."""

    @property
    def common(self) -> types_pb2.CommonCount:
        """Their number."""
        return types_pb2.CommonCount(records=len(self.records))

    def _enough(self, count: int) -> None:
        if count < self._minimum:  # none is no exception: the answer is the same for all numbers below
            raise Refused(
                f"fewer than {self._minimum} records are common to all parties: below that number "
                f"{self._context.party} takes no part, by {self._rule} of its policy"
            )


@role({OPENING: (Next("open_preview"),), ALIGNMENT: (Next("write_rows", when=RECORDS),)})
class Preview:
    """A party of a preview."""

    def __init__(self, config: PartyConfig, context: StepContext, opening: alignment_pb2.OpenPreview) -> None:
        self._config, self._context, self._opening = config, context, opening
        self.sizes = JobSizes(members=members_of_preview(opening, context.coordinator))
        self._account, self._number = PreviewAccount(config.state), 0
        self._table: Table | None = None
        self._part: Count | PreviewedRecords
        if opening.answer == "count":
            self._part = Count(context, self.sizes, self._told)
        else:
            self._part = PreviewedRecords(context, "psi", "min_common_records", self.sizes, self._told)
        writes = opening.answer == "records"
        self.steps = steps_of(self, phases={ALIGNMENT: self._part}, conditions={RECORDS: lambda _: writes})

    @step(Next("charge_preview"))
    async def open_preview(self) -> None:
        """Load the ids of the table; no other column is read."""
        nothing = dict[str, Any](columns=[], label=None, weight=None, encode=None, drop_constant=False)
        alone = table_config(self._config, self._opening.table).model_copy(update=nothing)
        table = await load_table(self._context, alone, with_label=False, missing=None, categories={})
        if isinstance(self._part, Count):
            self._part.begin(table.ids)
        else:
            self._part.begin(table.ids, table.rows, table.path, keep=False)
        self._table = table

    @step(Next(ALIGNMENT))
    async def charge_preview(self) -> None:
        """Enter the preview among those of the day, before any identifier leaves."""
        me, policy, asked = self._config.name, self._context.policy, self._opening
        partners = [party for party in asked.parties if party != me]
        self._number = self._account.charge(
            me,
            policy.previews_per_day,
            Charge.now(self._context.job, self._context.coordinator, asked.answer, asked.table, partners),
        )
        log.info("job %s: a preview (%s) with %s is charged", self._context.job, asked.answer, ", ".join(partners))
        if isinstance(self._part, Count):
            await self._part.send_least()

    @step()
    async def write_rows(self) -> alignment_pb2.WrittenRows:
        """Write the own rows of the common records, in the order of the table, each with its id."""
        assert isinstance(self._part, PreviewedRecords)  # else the step does not come
        table, path = required(self._table), self._config.state / FOLDER / f"{self._context.job}.csv"
        records = self._part.records
        await self._context.offload(lambda: _write(path, table, records), whole=True)
        return alignment_pb2.WrittenRows(path=str(path), common=self._part.common)

    async def close(self) -> None:
        """Do nothing: this role has no workers' state."""

    async def _told(self) -> None:
        """Note what the preview has told this party: its log and its account say it too."""
        common = self._part.common
        what = f"fewer than {common.fewer_than}" if common.fewer_than else str(common.records)
        self._account.told(self._number, what)
        others = ", ".join(party for party in self._opening.parties if party != self._config.name)
        log.warning(
            "job %s: a leak by preview = %r: %s and the coordinator now know that table %r has %s records in common",
            *(self._context.job, self._context.policy.preview, others, self._opening.table, what),
        )


def _write(path: Path, table: Table, records: Rows) -> None:
    """A line for each record: its row in the table from 0, and its id."""
    order = records[np.argsort(table.rows[records])]
    own = table.id_columns
    schema = pa.schema([pa.field(ROW if ROW not in own.types else "row_number", pa.int64()), *own.fields])
    make_folder(path.parent)
    with writing_whole(path) as file, table_writer(file, schema, "csv") as write:
        for first in range(0, len(order), _AT_ONCE):
            here = order[first : first + _AT_ONCE]
            write(pa.table([pa.array(table.rows[here]), *own.at(here)], schema=schema))
