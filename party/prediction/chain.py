"""The chain of an encrypted prediction: the label holder, the feature parties in the opening's order, the label holder.

Ciphertexts travel along it block by block; the records of a block go from the label holder to every feature party.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from party.prediction.records import RecordSource
from party.prediction.tree_model import TreeModel
from party.runtime.context import StepContext
from party.runtime.messages import Rows, as_chunk, counted_bodies, counted_items
from treetap.errors import Incompatible, Malformed
from treetap.process.together import together
from treetap.protocols.prediction import present
from treetap.trees.local_values import GoesLeft
from treetap.trees.paths import Floats
from treetap.wire.frame import result
from treetap.wire.records import most_bytes, rows_of
from treetap.wire.v2 import control_pb2, prediction_pb2, types_pb2


@dataclass(frozen=True)
class ChainPlace:
    """The place of a feature party: the party before it, the one after it, and the label holder."""

    party: str
    before: str
    after: str
    label_holder: str

    @classmethod
    def of(cls, party: str, opening: prediction_pb2.OpenModel) -> ChainPlace:
        """The place of a party in the chain of an opening."""
        chain = [opening.recipient, *present(opening), opening.recipient]
        place = chain.index(party)
        return cls(party, chain[place - 1], chain[place + 1], opening.recipient)

    @property
    def first(self) -> bool:
        """True if ciphertexts come from the label holder."""
        return self.before == self.label_holder

    @property
    def last(self) -> bool:
        """True if sums go to the label holder."""
        return self.after == self.label_holder


async def send_block(context: StepContext, chain: list[str], number: int, rows: Rows, total: int) -> None:
    """Label holder: send the records of a block, of `total` common ones, to every feature party."""
    items = counted_items(as_chunk, rows, total, most_bytes(len(rows), total))
    chunks = list(counted_bodies(lambda chunks: prediction_pb2.BlockRecords(chunks=chunks), items))
    await together(*(context.outbox.send(party, "block_records", chunks, round=number) for party in chain))


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


def scored_block(context: StepContext, blocks: int) -> control_pb2.StepResult:
    """Label holder: the answer of a step that scores a block, of the number of `blocks`."""
    scored = prediction_pb2.ScoredBlock(blocks=blocks, done=context.progress.done, total=context.progress.total)
    return result(scored)


@contextmanager
def blaming(sender: str, number: int) -> Iterator[None]:
    """Name the sender in the error of a block that cannot be."""
    try:
        yield
    except (Malformed, Incompatible) as failure:
        raise type(failure)(f"{sender}, block {number}: {failure}") from failure


async def check_hidden(
    context: StepContext, model: TreeModel, records: RecordSource, spare: Callable[[GoesLeft, int], Floats], fault: str
) -> None:
    """Label holder: `Refused` with this fault where the own policy wants more leaves left open to some record.

    `spare`: bits by which the candidate leaves of n records exceed the possible sums, (n,).
    """
    if context.policy.min_candidate_bits is not None:
        found = await context.offload(lambda: model.count(records.wanted, spare))
        context.policy.check_paths(context.party, found, fault)


def check_hides(context: StepContext, spare: float, beyond: str) -> None:
    """Feature party: `Refused` where the own policy wants more leaves left open; `spare`: bits `beyond` the sums."""
    fault = f"its own splits of this model leave {spare:.1f} bits beyond those of {beyond}"
    context.policy.check_paths(context.party, np.array([spare]), fault)
