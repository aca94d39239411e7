"""The blocks of a prediction: the label holder sends the records of each to every feature party."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from party.runtime.context import StepContext
from party.runtime.messages import Rows, as_chunk, counted_bodies, counted_items
from treetap.errors import Incompatible, Malformed
from treetap.process.together import together
from treetap.wire.records import most_bytes, rows_of
from treetap.wire.v2 import prediction_pb2, types_pb2


async def send_block(context: StepContext, parties: Sequence[str], number: int, rows: Rows, total: int) -> None:
    """Label holder: send the records of a block, of `total` common ones, to every feature party."""
    items = counted_items(as_chunk, rows, total, most_bytes(len(rows), total))
    chunks = list(counted_bodies(lambda chunks: prediction_pb2.BlockRecords(chunks=chunks), items))
    await together(*(context.outbox.send(party, "block_records", chunks, round=number) for party in parties))


async def take_block(context: StepContext, label_holder: str, number: int, total: int) -> Rows:
    """Feature party: take the records of a block; progress begins anew with them."""
    chunks: list[types_pb2.RecordChunk] = []
    async for message in context.mailbox.series(label_holder, "block_records", number, 0):
        chunks += message.prediction.block_records.chunks
    rows = rows_of(chunks, total)
    if not len(rows):
        raise Malformed(f"{label_holder}, block {number}: a block of no records")
    context.progress.done, context.progress.total = 0, len(rows)
    return rows


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
