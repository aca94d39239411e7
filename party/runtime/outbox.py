"""Sending to peers: messages are numbered, counted, and repeated after a broken connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import NoReturn

from google.protobuf.message import Message

from treetap.errors import Incompatible, Interrupted, Refused, Silent, Unreachable
from treetap.party.policy import Policy
from treetap.party.runtime.context import Body, CiphertextBody, CountedBody
from treetap.party.runtime.metrics import CostAccount
from treetap.party.runtime.transcript_recorder import Recorder
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.frame import serialised
from treetap.wire.ports import Address, Dialer, Reconnects, Timeouts
from treetap.wire.v2 import exchange_pb2

log = logging.getLogger(__name__)


class Outbox:
    """The only path by which data of one attempt at a job leaves the party for its peers."""

    def __init__(
        self,
        job: str,
        attempt: int,
        job_digest: bytes,
        peers: Mapping[str, Address],
        dialer: Dialer,
        costs: CostAccount,
        recorder: Recorder,
        policy: Policy,
        timeouts: Timeouts,
    ) -> None:
        self._job, self._attempt = job, attempt
        self.job_digest = job_digest  #: of the attempt, with every message: what peers' messages must have too
        self._peers, self._dialer = peers, dialer
        self._costs, self._recorder, self._policy = costs, recorder, policy
        self._heard: set[str] = set()  # peers that have taken a message
        self.timeouts = timeouts  #: deadlines of each message, its repeats included

    def open(self, to: str, kind: str, round: int = 0, stage: int = 0) -> Series:
        """Begin a numbered series of messages of one kind (a body field of `PeerMessage`)."""
        if to not in self._peers:
            raise Refused(f"{to} is not a party of job {self._job}")
        return Series(self, to, kind, round, stage)

    async def send(self, to: str, kind: str, bodies: Iterable[Body], round: int = 0, stage: int = 0) -> None:
        """Send a whole series; an empty one is sent as one empty message, so that the receiver does not wait."""
        series = self.open(to, kind, round, stage)
        for body in bodies:
            await series.put(body)
        await series.close()

    async def deliver(
        self, to: str, kind: str, round: int, stage: int, part: int, last: bool, body: Body | None
    ) -> None:
        """Send one message, with retries until the peer has filed it.

        What is at an address is the party's to know: the coordinator chose the address, and could look round this
        party's network by it. Of a peer that has never answered it hears one sentence, always after the same time,
        whether nothing listens there, or something that says nothing.

        Raises:
            Silent: it has answered before, and not done so within `silence_s`.
            Interrupted: it has been unreachable for `retry_s`, or, without any answer, until `Reconnects.unheard_at`.
        """
        sent, counted = body if isinstance(body, CountedBody) else (body, None)
        frame = exchange_pb2.PeerMessage(
            job=self._job,
            attempt=self._attempt,
            job_digest=self.job_digest,
            round=round,
            stage=stage,
            part=part,
            last=last,
        )
        message = serialised(frame, kind, _content(sent))
        classes = bytes_by_class_of(message, exchange_pb2.PeerMessage)
        self._policy.check_emits(self._costs.party, to, classes)
        reconnects, me = Reconnects(self.timeouts), self._costs.party
        said, ends_at = "", reconnects.silent_at if to in self._heard else reconnects.unheard_at
        while True:
            try:
                async with asyncio.timeout_at(ends_at):
                    await self._dialer.deliver(self._peers[to], message)
                break
            except (Unreachable, Incompatible) as failure:
                if str(failure) != said:
                    said = str(failure)
                    log.warning("job %s: cannot reach %s: %s", self._job, to, said)
                if not await reconnects.again(ends_at):
                    await self._give_up(to, ends_at)
            except (TimeoutError, Silent):
                if to not in self._heard:
                    log.warning("job %s: no answer of %s to %s in time", self._job, to, kind)
                    await self._give_up(to, ends_at)
                waited = f"{me} waited {reconnects.silence_s:g} s for {to} to take {kind}, in vain"
                raise Silent(waited, party=me) from None
        self._heard.add(to)
        if counted is not None:
            classes = bytes_by_class_of(serialised(frame, kind, _content(counted)), exchange_pb2.PeerMessage)
        self._costs.byte_counts.sent(to, kind, classes)
        self._recorder.sent(to, kind, message)

    async def _give_up(self, to: str, ends_at: float) -> NoReturn:
        """End with the sentence about a peer that cannot be reached; at this time, if it has never answered."""
        if to not in self._heard:
            await asyncio.sleep(max(0.0, ends_at - asyncio.get_running_loop().time()))
        me = self._costs.party
        # Not Unreachable: the coordinator would take this party for unreachable and repeat the step.
        raise Interrupted(f"{me} cannot reach {to}; details are in the log of {me}", party=me)


def _content(body: Message | CiphertextBody | None) -> bytes:
    """A body's bytes; None: those of an empty one."""
    match body:
        case None:
            return b""
        case CiphertextBody():
            return body.serialised()
        case _:
            return body.SerializeToString()


class Series:
    """Messages of one kind to one peer; one is held back until the next is known, because the last one is marked."""

    def __init__(self, outbox: Outbox, to: str, kind: str, round: int, stage: int) -> None:
        self._outbox = outbox
        self._where = (to, kind, round, stage)
        self._held: Body | None = None
        self._part = 0

    async def put(self, body: Body) -> None:
        """Add a body to the series."""
        if self._held is not None:
            await self._outbox.deliver(*self._where, self._part, False, self._held)
            self._part += 1
        self._held = body

    async def close(self) -> None:
        """Send the last message."""
        await self._outbox.deliver(*self._where, self._part, True, self._held)
        self._held = None
