"""A party's part in a preview of an alignment: the number of common records, or its own rows of them, before any job.

    1. `open_preview`: load the ids of the table.
    2. `charge_preview`: enter the preview among those of the day, and send the others the own least count.
    3. The turns of the alignment: of a count those of `count_turns`, else those of a job.
    4. Of records: `write_rows`.

No list of a count returns to its owner as it left: every party on the way has shuffled it. So the combiner sees how
many points all lists share, and cannot say of which of its ids they are.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treetap.errors import ConfigError, Malformed, Refused, refuse
from treetap.models.durable import make_folder, writing_whole
from treetap.party.alignment.lists import RaisedLists, check_form
from treetap.party.alignment.steps import Alignment
from treetap.party.config import PartyConfig
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.job_store import PREVIEWED
from treetap.party.runtime.ledger import Kind
from treetap.party.runtime.step_order import ALIGNMENT, OPENING, Next, role, step, steps_of
from treetap.party.setup.steps import load_table, table_config
from treetap.protocols.alignment import MOST_IDS, check_common, count_turns, members_of_preview
from treetap.protocols.messages import JobSizes
from treetap.tables.normalised import keys_in_words
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids
from treetap.tables.written import table_writer
from treetap.wire.v2 import alignment_pb2, types_pb2

log = logging.getLogger(__name__)
#: The column of rows beside the ids.
ROW = "row"
#: Condition.
RECORDS = "records are asked for"
#: Rows that are written at a time.
_AT_ONCE = 1 << 16
#: Notes what a preview tells.
Tell = Callable[[types_pb2.CommonCount], None]


class Previewed(RaisedLists):
    """One party's part in finding how many records are common.

    Attributes:
        least: the greatest `min_common_records` of all parties, below which nothing says the number; and whose it is.
        common: what the preview tells, once it does.
    """

    least, common = (0, ""), types_pb2.CommonCount()

    async def send_least(self) -> None:
        """Send every other party the number of records below which this one's policy lets no count out."""
        least = self._context.policy.columns.min_common_records
        own = alignment_pb2.LeastCount(records=least, **self._own.form)
        others = [party for party in self._members if party != self._context.party]
        await self._context.outbox.send_each("least_count", dict.fromkeys(others, (own,)))

    @step()
    async def blind_ids(self) -> None:
        """Receive the least counts of the others, at the first key; then as in an alignment."""
        for party in self._members if not self.least[0] else ():
            least = self._context.policy.columns.min_common_records
            if party != self._context.party:
                async for message in self._context.mailbox.series(party, "least_count", 0, 0):
                    least = message.alignment.least_count.records
                    check_form(self._context.party, self._own, party, message.alignment.least_count)
            if not 1 <= least <= MOST_IDS:
                raise Malformed(f"{party} sent min_common_records = {least}: must be from 1 to {MOST_IDS}")
            self.least = max(self.least, (least, party), key=lambda pair: pair[0])
        await super().blind_ids()


class Count(Previewed):
    """One party's part in counting the common records; `common` is known after its last step."""

    def __init__(self, context: StepContext, sizes: JobSizes, tell: Tell) -> None:
        """`sizes`: of the role's job. `tell`: called in the last step with what is known then."""
        parties = sizes.members.parties
        super().__init__(context, count_turns(len(parties)), sizes, parties)
        self._tell = tell

    def begin(self, ids: Ids) -> None:
        """Set the ids of the party's own table; `ConfigError` where they have several keys."""
        if ids.keys:
            raise ConfigError(
                f"{keys_in_words(ids.columns_of_keys)} has no count: a key is for records that no key before it has "
                "matched, and a count tells no party which these are; ask for --records, or name a table with one key"
            ).at(self._context.party)
        self._own, self._ids, self._sizes.ids = ids, ids, len(ids)

    @step()
    async def count_ids(self) -> alignment_pb2.CountedIds:
        """Combiner: count the points that every list holds, and send it; below the greatest minimum, only that."""
        # raising has checked the first list; the last one is the own, which came around
        for points in self._held[1:]:
            await self._lists.check(points)
        if len(self._held[-1]) != len(self._ids):
            raise Malformed(f"of {len(self._ids)} blinded identifiers {len(self._held[-1])} came back")
        parts: list[int] = []
        await self._lists.common(*self._held, kept=lambda _, places: parts.append(len(places)))
        self._hold()
        number, (least, _) = sum(parts), self.least
        self.common = (
            types_pb2.CommonCount(fewer_than=least) if number < least else types_pb2.CommonCount(records=number)
        )
        shared = alignment_pb2.SharedCount(common=self.common)
        self._tell(self.common)
        await self._context.outbox.send_each("shared_count", dict.fromkeys(self._members[1:], (shared,)))
        return alignment_pb2.CountedIds(common=self.common)

    @step()
    async def take_count(self) -> None:
        """Other parties: receive the count; `Malformed` for one that a party's policy keeps at the combiner."""
        self._hold()
        combiner, (least, _) = self._members[0], self.least
        async for message in self._context.mailbox.series(combiner, "shared_count", 0, 0):
            self.common = message.alignment.shared_count.common
        common = check_common(combiner, self.common)
        refuse(
            (
                common.fewer_than not in (0, least),
                f"{combiner} says fewer than {common.fewer_than}, but the greatest min_common_records is {least}",
            ),
            (
                not common.fewer_than and common.records < least,
                f"{combiner} sent a count below min_common_records = {least}, the greatest of the parties",
            ),
            (common.records > len(self._ids), f"{combiner} counts more common records than the own {len(self._ids)}"),
            kind=Malformed,
        )
        self._tell(common)


class PreviewedRecords(Previewed, Alignment):
    """One party's part in finding its own rows of the common records."""

    def __init__(self, context: StepContext, sizes: JobSizes, tell: Tell) -> None:
        """See `Count`; below the greatest minimum `tell` is called by who finds that."""
        super().__init__(context, "psi", "min_common_records", sizes, then=self._known)
        self._tell = tell

    def _enough(self, count: int) -> None:
        least, party = self.least
        if count < least:  # none is no exception: the answer is the same for all numbers below
            self._tell(types_pb2.CommonCount(fewer_than=least))
            raise Refused(
                f"fewer than {least} records are common to all parties: below that number no party writes its rows, "
                f"by min_common_records of the policy of {party}"
            )

    async def _known(self) -> None:
        self.common = types_pb2.CommonCount(records=len(self.records))
        self._tell(self.common)


@role({OPENING: (Next("open_preview"),), ALIGNMENT: (Next("write_rows", when=RECORDS),)})
class Preview:
    """A party of a preview."""

    def __init__(self, config: PartyConfig, context: StepContext, opening: alignment_pb2.OpenPreview) -> None:
        self._config, self._context, self._opening = config, context, opening
        self.sizes = JobSizes(members=members_of_preview(opening, context.coordinator))
        self._number = 0
        self._table: Table | None = None
        self._part: Count | PreviewedRecords
        self._part = (Count if opening.answer == "count" else PreviewedRecords)(context, self.sizes, self._told)
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
        ledger, answer = self._context.ledger, self._opening.answer
        self._number = ledger.enter(Kind.PREVIEW, answer=answer)
        log.info(
            "job %s: a preview (%s) with %s is charged", ledger.occasion.job, answer, ", ".join(ledger.occasion.parties)
        )
        await self._part.send_least()

    @step()
    async def write_rows(self) -> alignment_pb2.WrittenRows:
        """Write the own rows of the common records, in the order of the table, each with its id."""
        assert isinstance(self._part, PreviewedRecords)  # else the step does not come
        table, path = required(self._table), self._config.state / PREVIEWED / f"{self._context.job}.csv"
        records = self._part.records
        await self._context.offload(lambda: _write(path, table, records), whole=True)
        if len(self._opening.parties) == 2:  # in a ring it has known by the sizes of messages
            self._leak(self._part.common, "the coordinator")
        return alignment_pb2.WrittenRows(path=str(path), common=self._part.common)

    def _told(self, common: types_pb2.CommonCount) -> None:
        """Note what the preview has told this party, and whom else: its log and its account say it."""
        others = [party for party in self._opening.parties if party != self._config.name]
        alone = len(others) > 1 and self._opening.answer == "records"  # by the combiner's, no other party looks
        readers = [] if alone and common.fewer_than else others
        if alone or common.fewer_than or self._opening.answer == "count":
            readers.append("the coordinator")
        self._context.ledger.enter(Kind.ANSWER, 0, of=self._number, told=_words(common))
        self._leak(common, *readers)

    def _leak(self, common: types_pb2.CommonCount, *readers: str) -> None:
        log.warning(
            "job %s: a leak by preview = %r: now %s can tell that table %r has %s records in common",
            *(self._context.job, self._context.policy.columns.preview, " and ".join(readers), self._opening.table),
            _words(common),
        )


def _words(common: types_pb2.CommonCount) -> str:
    return f"fewer than {common.fewer_than}" if common.fewer_than else str(common.records)


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
