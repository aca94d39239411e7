"""Steps that the roles of several protocols of predictions share: rows of their tables, and the records of a block.

The label holder sends the records of each block to every feature party.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treetap.arrays import Bools
from treetap.errors import Incompatible, Malformed, refuse
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.prediction.query_counts import charge_permitted, charge_queries
from treetap.party.runtime.context import (
    MESSAGE_BYTES,
    REMEDY,
    CountedBody,
    Rows,
    StepContext,
    as_chunk,
    counted_bodies,
    counted_items,
)
from treetap.party.runtime.step_order import (
    ALIGNMENT,
    NEXT_ROUND,
    NEXT_STAGE,
    OPENING,
    SAME,
    THIS_ROUND,
    Conditions,
    Next,
    Step,
    StepTable,
    without,
)
from treetap.protocols.exclusions import Feature
from treetap.protocols.messages import places_told
from treetap.protocols.registry import prediction
from treetap.tables.record_ids import Ids
from treetap.wire.records import most_bytes, pack_bits, rows_of, unpack_bits
from treetap.wire.v2 import prediction_pb2, types_pb2

#: The phase in which names of features are sent; it has no step without `explain`.
NAMES = "names"
#: Conditions: properties of the prediction.
BATCH = "the records are those of a table"
SERVED = "the records are those of clients' requests"
ATTRIBUTED = "attributions are asked for"
UNATTRIBUTED = "no attributions are asked for"
#: Outcomes of `await_requests`.
REQUESTED = "clients have asked"
UNREQUESTED = "no client has asked"
LOOKED_FOR = "clients have asked about new records"
#: Outcomes of the last step of a block.
MORE_BLOCKS = "the block is done and another one follows"
LAST_BLOCK = "the last block is done"
ANSWERED = "the block is done and its clients are answered"
#: From the opening to the common records and the names of features.
OPENING_ROWS: StepTable = {OPENING: (Next("open_model"),), ALIGNMENT: (Next(NAMES),)}


def first_block(step: str) -> tuple[Next, ...]:
    """The row of the label holder's last step before the blocks; `step`: the first step of a block."""
    return Next(step, when=BATCH), Next("await_requests", when=SERVED)


def requested_block(step: str) -> tuple[Next, ...]:
    """The row of `await_requests`; `step`: the first step of a block."""
    return Next(step, THIS_ROUND, REQUESTED), Next("await_requests", NEXT_STAGE, UNREQUESTED)


def looked_up_block(*steps: str) -> tuple[Next, ...]:
    """The row of `look_up`; `steps`: those with which a block may begin."""
    return *(Next(step, SAME, REQUESTED) for step in steps), Next("await_requests", NEXT_ROUND, ANSWERED)


def after_batch_block(step: str) -> tuple[Next, ...]:
    """The row of the label holder's last step of a block of a table; `step`: the first step of the next one."""
    return Next(step, NEXT_ROUND, MORE_BLOCKS), Next("write_predictions", when=LAST_BLOCK)


def after_block(step: str) -> tuple[Next, ...]:
    """The row of the label holder's last step of any block; `step`: the first step of the next one."""
    return *after_batch_block(step), Next("await_requests", NEXT_ROUND, ANSWERED)


def conditions_of(opening: prediction_pb2.OpenModel) -> Conditions:
    """The conditions by an opening."""
    serve, attributions = opening.serve, opening.attributions
    return {
        BATCH: lambda _: not serve,
        SERVED: lambda _: serve,
        ATTRIBUTED: lambda _: attributions,
        UNATTRIBUTED: lambda _: not attributions,
    }


def table_for(protocol: str, table: StepTable) -> StepTable:
    """The table of a role in a protocol: steps of attributions never come where it has none."""
    attributes = Feature.ATTRIBUTIONS in prediction(protocol).capabilities
    return table if attributes else without(table, never=ATTRIBUTED, always=UNATTRIBUTED)


def steps_asked_for(
    opening: prediction_pb2.OpenModel,
    steps: Mapping[str, Step],
    *,
    served: Collection[str] = (),
    attributed: Collection[str] = (),
    looked_up: Collection[str] = (),
) -> Mapping[str, Step]:
    """A role's steps, without those of served models, of attributions or of look-ups if the opening asks for none."""
    absent = {*(() if opening.serve else served), *(() if opening.attributions else attributed)}
    absent |= {*(() if opening.look_up else looked_up)}
    return {name: work for name, work in steps.items() if name not in absent}


async def send_block(context: StepContext, common: Mapping[str, PartnerRecords], number: int, rows: Rows) -> None:
    """Label holder: send every feature party those of the records of a block that it has.

    `common`: see `OpenedModel`. Who may lack some hears also where the others are in the block.
    """
    bodies: dict[str, list[CountedBody | prediction_pb2.BlockRecords]] = {}
    for party, of_party in common.items():
        (own, places), total = of_party.placed(rows), len(of_party)
        items = counted_items(as_chunk, own, total, most_bytes(len(own), total))
        bodies[party] = [*counted_bodies(lambda chunks: prediction_pb2.BlockRecords(chunks=chunks), items)]
        if of_party.apart:
            told = places.astype("<u4").tobytes()
            for first in range(0, max(len(told), 1), MESSAGE_BYTES):
                part = told[first : first + MESSAGE_BYTES]
                bodies[party].append(prediction_pb2.BlockRecords(records=len(rows), places=part))
    await context.outbox.send_each("block_records", bodies, number)


class Block(NamedTuple):
    """The records of a block at a feature party.

    Attributes:
        rows: those that it has (n,), of the common ones, ascending.
        spent: of those of a served block, of which the policy permits no further query (n,).
        records: the number of all.
        places: in the block, of those in `rows` (n,).
    """

    rows: Rows
    spent: Bools
    records: int
    places: Rows


class TakenBlocks:
    """The blocks of records that a feature party takes from the label holder in one attempt."""

    def __init__(
        self,
        context: StepContext,
        opening: prediction_pb2.OpenModel,
        check: Callable[[Rows], None] = lambda _: None,
    ) -> None:
        """`check`: raises Malformed of records that cannot be asked about."""
        self._context, self._opening, self._check = context, opening, check
        self._taken: npt.NDArray[np.bool_] = np.zeros(0, dtype=bool)

    async def take(self, number: int, ids: Ids, ways: int = 1) -> Block:
        """Take the places of a block, of the common records with these ids; progress begins anew with them.

        `ways`: in which a record can be scored, see `treetap.party.prediction.reasons`.

        A served model goes on where the policy permits no further query of one: the label holder hears which, and the
        role must answer by a fixed row in its place.

        Raises:
            Malformed: they are none, or more than a block has; or one of them was in a block of the table before; or
                their places are none of such a block.
            Refused: the policy permits no further query of one of them, and the model is not served.
        """
        context, label_holder, most = self._context, self._opening.recipient, max(1, self._opening.block)
        chunks: list[types_pb2.RecordChunk] = []
        told, records, apart = b"", 0, places_told(self._opening)
        async for message in context.mailbox.series(label_holder, "block_records", number, 0):
            body = message.prediction.block_records
            chunks += body.chunks
            told, records = told + body.places, max(records, body.records)
        rows = rows_of(chunks, len(ids) * ways)
        places = np.arange(len(rows))
        if apart:
            places = np.frombuffer(told[: 4 * len(rows)], dtype="<u4").astype(np.int64)
        records = records if apart else len(rows)
        refuse(
            (not records, f"{label_holder}, block {number}: a block of no records"),
            (records > most, f"{label_holder}, block {number}: has {records} records, blocks have {most}"),
            (
                apart and (len(told) != 4 * len(rows) or len({*places.tolist()} & {*range(records)}) != len(rows)),
                f"{label_holder}, block {number}: has no {len(rows)} places of {records} records",
            ),
            kind=Malformed,
        )
        self._check(rows)
        self._check_new(number, rows, len(ids))
        spent = np.zeros(len(rows), dtype=bool)
        if self._opening.serve:
            spent = await charge_permitted(context, ids, rows // ways)
            said = prediction_pb2.SpentRecords(spent=pack_bits(spent) if spent.any() else b"")
            await context.outbox.send(label_holder, "spent_records", [said], round=number)
        else:
            await charge_queries(context, ids, rows)
        context.progress.done, context.progress.total = 0, records
        return Block(rows, spent, records, places)

    def _check_new(self, number: int, rows: Rows, total: int) -> None:
        """`Malformed` if a record of a table was in a block before; clients may ask again."""
        if self._opening.serve:
            return
        self._taken = self._taken if len(self._taken) else np.zeros(total, dtype=bool)
        if again := int(self._taken[rows].sum()):
            sender = self._opening.recipient
            raise Malformed(
                f"{sender} sent, in block {number}, {again} records that were in a block before; "
                f"{REMEDY.format(sender)}"
            )
        self._taken[rows] = True


async def take_spent(
    context: StepContext, common: Mapping[str, PartnerRecords], number: int, rows: Rows, *, serve: bool
) -> dict[int, str]:
    """Label holder: the place in a block, of records `rows`, → a feature party that permits no query; none in a batch.

    `common`: see `OpenedModel`.
    """
    spent: dict[int, str] = {}
    for party, of_party in common.items() if serve else ():
        said: bytes = (await context.mailbox.only(party, "spent_records", number)).spent
        _, places = of_party.placed(rows)
        with blaming(party, number):
            asked = places[unpack_bits(said, len(places))] if said else places[:0]
        spent.update(dict.fromkeys(asked.tolist(), party))
    return spent


def scored_block(context: StepContext, blocks: int) -> prediction_pb2.ScoredBlock:
    """Label holder: the answer of a step that scores a block, of the number of `blocks`."""
    return prediction_pb2.ScoredBlock(blocks=blocks, done=context.progress.done, total=context.progress.total)


@contextmanager
def blaming(sender: str, number: int) -> Iterator[None]:
    """Name the sender in the error of a block that cannot be."""
    try:
        yield
    except (Malformed, Incompatible) as failure:
        raise type(failure)(f"{sender}, block {number}: {failure}") from failure
