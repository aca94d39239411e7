"""Sending to peers: parcels numbered, counted, and repeated after a broken connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from google.protobuf.message import Message

from party.policy import Policy
from party.runtime.costs import CostAccount
from party.runtime.transcript_recorder import Recorder
from treetap.errors import Interrupted, Refused, Unreachable
from treetap.wire.disclosure import bytes_by_class
from treetap.wire.frame import filled
from treetap.wire.ports import Address, Dialer
from treetap.wire.timeouts import RETRY_S, Reconnects
from treetap.wire.v2 import exchange_pb2

#: Most bytes of one parcel's body, roughly.
PARCEL_BYTES = 1024 * 1024


class Outbox:
    """The one way by which a party's data leaves it for one attempt at a job."""

    def __init__(
        self,
        job: str,
        attempt: int,
        peers: Mapping[str, Address],
        dialer: Dialer,
        costs: CostAccount,
        recorder: Recorder,
        policy: Policy,
    ) -> None:
        self._job, self._attempt = job, attempt
        self._peers, self._dialer = peers, dialer
        self._costs, self._recorder, self._policy = costs, recorder, policy
        self.retry_s = RETRY_S  #: seconds for which a peer that cannot be reached is tried again

    def open(self, to: str, kind: str, round: int = 0, stage: int = 0) -> Series:
        """Begin a numbered series of parcels of one kind (a body field of `Parcel`)."""
        if to not in self._peers:
            raise Refused(f"{to} is not a party of job {self._job}")
        return Series(self, to, kind, round, stage)

    async def send(self, to: str, kind: str, bodies: Iterable[Message], round: int = 0, stage: int = 0) -> None:
        """Send a whole series; an empty one still sends one empty parcel, so that nobody waits in vain."""
        series = self.open(to, kind, round, stage)
        for body in bodies:
            await series.put(body)
        await series.close()

    async def deliver(
        self, to: str, kind: str, round: int, stage: int, part: int, last: bool, body: Message | None
    ) -> None:
        """Send one parcel, again and again until it is filed or the peer has been away for too long."""
        parcel = exchange_pb2.PeerMessage(
            job=self._job, attempt=self._attempt, round=round, stage=stage, part=part, last=last
        )
        filled(parcel, kind, body)
        classes = bytes_by_class(parcel)
        self._policy.check_emits(self._costs.party, to, classes)
        reconnects = Reconnects(self.retry_s)
        while True:
            try:
                await self._dialer.deliver(self._peers[to], parcel)
                break
            except Unreachable as failure:
                if not await reconnects.again():
                    # Not Unreachable: the coordinator would think that this party is away and repeat the step.
                    me = self._costs.party
                    raise Interrupted(f"{me} cannot reach {to}: {failure}", party=me) from failure
        self._costs.byte_counts.sent(to, kind, classes)
        self._recorder.sent(to, kind, parcel)


class Series:
    """Parcels of one kind to one peer; the last one is marked, so one is held back until the next is known."""

    def __init__(self, outbox: Outbox, to: str, kind: str, round: int, stage: int) -> None:
        self._outbox = outbox
        self._where = (to, kind, round, stage)
        self._held: Message | None = None
        self._part = 0

    async def put(self, body: Message) -> None:
        """Add a body to the series."""
        if self._held is not None:
            await self._outbox.deliver(*self._where, self._part, False, self._held)
            self._part += 1
        self._held = body

    async def close(self) -> None:
        """Send the last parcel."""
        await self._outbox.deliver(*self._where, self._part, True, self._held)
        self._held = None
