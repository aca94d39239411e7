"""Left bits of splits that feature parties win, where instance spaces are withheld: by oblivious transfer.

The label holder chooses the records of the node, undrawn ones and an eval table's too, and gets of these alone which go
left; the owner of the split gets nothing (`treetap.transfers`). Base transfers are new for each pair and attempt.

A stream of bits, that of one node of one tree, serves once. The label holder notes those of a stage on disk before the
first byte of one goes: by a second use with other records the owner would see which differ. A repeated message has the
bytes of the first one, and a party that starts again takes part in another attempt, under other seeds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial

import numpy as np

from treetap.errors import Conflict, Malformed
from treetap.party.alignment.partner_records import PartnerRecords
from treetap.party.growth.messages import SUMS_BYTES, child_messages
from treetap.party.runtime.context import Rows, StepContext, required
from treetap.party.runtime.job_store import UsedOnce
from treetap.process.together import together
from treetap.transfers.base import BaseReceiver, BaseSender
from treetap.transfers.extension import (
    Chosen,
    ReceiverSeeds,
    SenderSeeds,
    Stream,
    choose,
    message_bytes,
    receive,
    send,
)
from treetap.trees.growing_tree import Choice, GrowingTree
from treetap.wire.v2 import exchange_pb2, growth_pb2, setup_pb2

#: The job's file of streams that were used, a line a stage.
STREAMS = "left-bits.jsonl"
#: Microseconds of a side of a transfer, a record.
TRANSFER_US = 0.6


class ChosenBits:
    """The label holder's part of an attempt."""

    def __init__(self, context: StepContext, parties: Sequence[str]) -> None:
        """`parties`: the feature parties of the job."""
        self._context, self._parties = context, parties
        self._seeds: dict[str, ReceiverSeeds] = {}
        self._used: UsedOnce | None = None  # attempt, tree and node
        self._chosen: dict[int, Chosen] = {}  # by node, until the reply comes

    async def agree(self) -> None:
        """Make the base transfers with every feature party.

        Raises:
            Malformed: a party sent other than points of prime order.
        """
        context = self._context
        self._used = UsedOnce(context.store.lines(STREAMS))
        senders = {party: BaseSender(_session(context, context.party, party)) for party in self._parties}
        points = {party: [setup_pb2.BasePoints(points=sender.point)] for party, sender in senders.items()}
        await context.outbox.send_each("base_points", points)
        for party, sender in senders.items():
            choices = (await context.mailbox.only(party, "base_choices")).points
            try:
                self._seeds[party] = await context.offload(partial(sender.seeds, choices, self._check_noted))
            except Malformed as failure:
                raise Malformed(f"{party}: {failure}") from None

    async def choose(
        self,
        t: int,
        stage: int,
        growing: GrowingTree,
        won: Mapping[str, Sequence[Choice]],
        common: Mapping[str, PartnerRecords],
    ) -> None:
        """Send the owners of nodes that they won the choices of the nodes' records, among those that they have.

        `common`: see `LabelHolderJob`.

        Raises:
            Conflict: the stream of one of the nodes was used before.
        """
        if nodes := [choice.node for choices in won.values() for choice in choices]:
            await self._context.offload(lambda: self._note(t, nodes), whole=True)
            inside = {
                party: {choice.node: common[party].of(growing.rows[choice.node]) for choice in choices}
                for party, choices in won.items()
                if choices
            }
            await together(*(self._send(party, t, stage, own, len(common[party])) for party, own in inside.items()))

    def opened(self, t: int, stage: int, node: int, parts: Sequence[growth_pb2.Child]) -> Rows:
        """The records of a node that go left, by the owner's reply, which comes in parts; recorded as an own act.

        Raises:
            Malformed: it has another length than the records have bits.
        """
        chosen, context = self._chosen.pop(node), self._context
        left = np.flatnonzero(receive(chosen, b"".join(part.left_bits for part in parts)))
        for body in child_messages([(node, parts[0].handle, left)], chosen.records) if context.recorder.on else ():
            context.recorder.own(t, stage, context.attempt, body.body)
        return left

    def _note(self, t: int, nodes: Sequence[int]) -> None:
        if again := required(self._used).use([(self._context.attempt, t, node) for node in nodes]):
            raise Conflict(f"tree {t}, node {again[-1]}: its left bits were transferred before in this attempt")

    def _check_noted(self, stream: Stream) -> None:
        assert (self._context.attempt, *stream) in required(self._used)

    async def _send(self, party: str, t: int, stage: int, nodes: Mapping[int, Rows], total: int) -> None:
        """Send the choices node by node, so that one message of all records is held at a time."""
        context, worker = self._context, self._parties.index(party) % self._context.engine.workers
        stream = context.outbox.open(party, "left_choices", t, stage)
        for node, rows in nodes.items():
            inside = np.zeros(total, dtype=bool)
            inside[rows] = True
            args = self._seeds[party], (t, node), inside
            message, self._chosen[node] = await context.engine.call(worker, choose, *args, us=TRANSFER_US * total)
            for first in range(0, len(message), SUMS_BYTES):
                await stream.put(growth_pb2.LeftChoices(node=node, choices=message[first : first + SUMS_BYTES]))
        await stream.close()


class AnsweredBits:
    """A feature party's part of an attempt."""

    def __init__(self, context: StepContext, label_holder: str) -> None:
        self._context, self._label_holder = context, label_holder
        self._seeds: SenderSeeds | None = None

    async def agree(self) -> None:
        """Make the base transfers with the label holder; `Malformed` if its point is not of prime order."""
        context, holder = self._context, self._label_holder
        point = (await context.mailbox.only(holder, "base_points")).points
        session = _session(context, holder, context.party)
        receiver = await context.offload(lambda: BaseReceiver(session, point))
        self._seeds = receiver.seeds(lambda _: None)  # a second use is refused in memory, where the seeds are
        await context.outbox.send(holder, "base_choices", [setup_pb2.BaseChoices(points=receiver.choices)])

    async def answer(
        self, choices: AsyncIterator[exchange_pb2.PeerMessage], t: int, node: int, left: Rows, total: int
    ) -> bytes:
        """The reply for a node, by the label holder's choices, which are the next of the series.

        `left`: all records, in the node or not, that go left, of `total`.

        Raises:
            Malformed: they are of another node, or have another length.
        """
        message, expected, goes_left = bytearray(), message_bytes(total), np.zeros(total, dtype=bool)
        while len(message) < expected and (part := await anext(choices, None)) is not None:
            if part.growth.left_choices.node != node:
                break
            message += part.growth.left_choices.choices
        if len(message) != expected:
            said = f"{len(message)} bytes of choices for node {node} of tree {t}, not {expected}"
            raise Malformed(f"{self._label_holder} sent {said}")
        goes_left[left] = True
        args = required(self._seeds), (t, node), bytes(message), goes_left
        return await self._context.engine.call(0, send, *args, us=TRANSFER_US * total)


def _session(context: StepContext, label_holder: str, party: str) -> bytes:
    return f"{context.job}/{context.attempt}/{label_holder}/{party}".encode()
