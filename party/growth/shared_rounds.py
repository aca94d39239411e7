"""Rounds of computations on shares between two parties, as messages of one series for a stage of a tree.

A computation (`treetap.shares`) is a generator: it yields what its party sends in a round and how many bytes are due,
and is resumed with these. Both follow from layout alone. Of a round in which a party says nothing no message goes.

The parties lead the rounds in turns. Who leads one sends what it has to say at once. The other hears it first, and
sends its own together with what it says in the next round, which it leads: as soon, in half of the messages.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from treetap.errors import Malformed
from treetap.party.growth.messages import SUMS_BYTES
from treetap.party.runtime.context import StepContext
from treetap.shares.streams import Round, Rounds
from treetap.wire.v2 import growth_pb2

T = TypeVar("T")
#: Microseconds of a round's work on a candidate of a node.
CANDIDATE_US = 2.0


class SharedRounds:
    """The rounds of a stage of a tree with one peer, of one computation after the other.

    Args:
        context: the party's.
        peer: the other party.
        tree: its number.
        stage: of the tree.
        candidates: of all nodes.
    """

    def __init__(self, context: StepContext, peer: str, tree: int, stage: int, candidates: int) -> None:
        self._context, self._peer, self._where, self._us = context, peer, (tree, stage), CANDIDATE_US * candidates
        self._received = context.mailbox.series(peer, "shares", tree, stage)
        self._round = self._part = 0
        self._unsaid = self._heard = b""  # this party's, not sent yet; the peer's, of the next round

    async def run(self, computation: Rounds[T]) -> T:
        """Conduct a computation; returns what it does. What it says at last may wait for the next one, or for `end`.

        Raises:
            Malformed: the peer sent a message of another round or length, or what the computation refuses.
            Silent: it sent none in time.
        """
        results: list[T] = []

        def resumed(got: bytes | None) -> Round | None:
            try:
                return next(computation) if got is None else computation.send(got)
            except StopIteration as end:  # which no task can raise
                results.append(end.value)
                return None
            except Malformed as fault:
                raise type(fault)(f"{self._context.party}, on shares with {self._peer}: {fault}") from None

        got: bytes | None = None
        while (now := await self._context.offload(partial(resumed, got), us=self._us)) is not None:
            self._unsaid += now.send
            if self._leads:
                await self._say()
            got = await self._hear(now.due)
            self._round += 1
        return results[0]

    async def end(self) -> None:
        """Send what the next computation would, as before a wait for anyone who waits for the peer.

        Raises:
            Malformed: the peer said more than was due.
        """
        await self._say()
        await self._hear(0)

    @property
    def _leads(self) -> bool:
        """Whether this party leads the present round."""
        return self._round % 2 == (self._context.party > self._peer)

    async def _say(self) -> None:
        """Send what this party has to say, in one message where it is short; none is known to be the last."""
        data, self._unsaid = self._unsaid, b""
        for start in range(0, len(data), SUMS_BYTES):
            body = growth_pb2.Shares(round=self._round, numbers=data[start : start + SUMS_BYTES])
            await self._context.outbox.deliver(self._peer, "shares", *self._where, self._part, False, body)
            self._part += 1

    async def _hear(self, due: int) -> bytes:
        """What the peer says in the present round; where this party leads it, the next one's comes with it."""
        number = self._round + self._leads
        while len(self._heard) < due:
            said = (await anext(self._received)).growth.shares
            if said.round != number or len(said.numbers) < min(SUMS_BYTES, due - len(self._heard)):
                raise self._other(len(said.numbers), said.round, due)
            self._heard += said.numbers
        if len(self._heard) > due and not self._leads:
            raise self._other(len(self._heard), number, due)
        heard, self._heard = self._heard[:due], self._heard[due:]
        return heard

    def _other(self, sent: int, number: int, due: int) -> Malformed:
        tree, stage = self._where
        return Malformed(
            f"{self._peer} sent {sent} bytes of round {number} of its shares at stage {stage} of tree {tree}, where "
            f"{due} of round {self._round} are due"
        )
