"""The exchange of heads in one attempt at a job: each party compares what the others hold, then sends its own head.

1. Each party sends each other the last head of that one's trail that it holds (`trail_held`).
2. A party whose trail has all of them, or whose people have acknowledged an older state, sends its own head
   (`trail_head`). A party with an older state sends none: its partners still hold the newer head.
3. Each notes the heads that came in its own trail, before any other step of the job.

A party begins when it has its first step after the opening, which shows that all have opened the job, or when another
has begun; no step of the coordinator is needed, and none can leave it out. A head is signed with the party's TLS key
for the one that it is sent to; in plain text there are no signatures.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from party.approvals.decisions import statement
from party.runtime.context import StepContext
from party.runtime.ledger import utc
from party.runtime.steps import disk_faults, hearing
from party.trail.journal import REMEDY, TRAIL, Held, Kind, Trail
from treetap.errors import DataError, Malformed, TreetapError
from treetap.names import visible
from treetap.process.together import together
from treetap.protocols.messages import TRAIL_END
from treetap.wire.roles import Role
from treetap.wire.signatures import moment_of, signed, verified
from treetap.wire.tls import Insecure, Transport
from treetap.wire.v2.setup_pb2 import TrailHead
from treetap.wire.v2.types_pb2 import Signed

log = logging.getLogger(__name__)
#: Most seconds that a job's end waits for partners to take the last head, or for the rest of one of theirs.
END_S = 3.0
#: Most characters of a reason for an older state.
LONGEST_WHY = 400
#: Starts work that goes on after its caller has gone: (the work, its description for the log) → its task.
Own = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None]"]


def head_statement(party: str, to: str, head: str) -> bytes:
    """The bytes that a party signs for a head of its trail that it sends to another."""
    return statement("trail head", {"party": party, "to": to, "head": head})


class Exchange:
    """The exchange of one attempt, made when it opens. `peers`: the other parties that are there."""

    def __init__(self, trail: Trail, context: StepContext, peers: Sequence[str], transport: Transport, own: Own):
        self._trail, self._context, self._peers = trail, context, list(peers)
        self._transport, self._own = transport, own
        self._before = {peer: replace(trail.held(peer)) for peer in peers}
        self._noted = False  # the partners' heads
        self._first: asyncio.Task[None] | None = None
        self._last: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Begin the exchange at the job's opening, once; returns its task."""
        if self._first is None:
            self._first = self._own(self._exchange(), f"job {self._context.job}: heads of trails")
        return self._first

    async def done(self) -> None:
        """Wait for the exchange at the opening.

        Raises:
            DataError: a partner holds a head that this party's trail lacks: an older state was brought back.
            Malformed: what a partner sent is not what it claims to be.
            Interrupted: a partner cannot be reached, or sent nothing for too long.
        """
        task = self.begin()
        with hearing(task):
            await asyncio.shield(task)

    async def end(self, **heads: Any) -> None:
        """Send the last head of a job whose result is there, as far as partners take it soon; once.

        None goes where the exchange at the opening has not ended well: partners would hold it instead of a newer one.

        `heads`: of ledger and transcript, for the trail.
        """
        if not self._noted:
            return
        if self._last is None:
            self._last = self._own(self._end(heads), f"job {self._context.job}: the last head of the trail")
        with suppress(TimeoutError):
            # the coordinator, which waits for the answer, must not take this party for silent
            await asyncio.wait_for(asyncio.shield(self._last), min(END_S, self._context.outbox.timeouts.silence_s / 4))

    async def leave(self, *, discard: bool, **heads: Any) -> None:
        """Note that the attempt was left, with the heads that partners sent at its end, and whose did not come."""
        job, came, faults = self._context.job, dict[str, Any](), dict[str, str]()
        for peer in self._peers if self._noted else ():
            try:
                async with asyncio.timeout(END_S):
                    head = await self._context.mailbox.only_if_sent(peer, "trail_head", TRAIL_END)
                if head is not None:
                    came[peer] = self._checked(peer, head)
            except (TreetapError, TimeoutError) as fault:
                faults[peer] = str(fault) or f"the rest of it did not come within {END_S:g} s"
                log.warning("job %s: the last head of %s's trail does not count: %s", job, peer, fault)
        missing = [peer for peer in self._peers if peer not in came]
        try:
            self._note(Kind.LEFT, discard=discard, came=came, missing=missing, faults=faults, **heads)
        except (TreetapError, OSError) as fault:  # the job's result is there
            log.error("job %s: the trail does not have its end: %s", job, fault)

    def close(self) -> None:
        """Stop what is under way."""
        for task in (self._first, self._last):
            if task is not None:
                task.cancel()

    async def _exchange(self) -> None:
        with disk_faults(self._context.party, "trail"):
            await self._compare_all()

    async def _compare_all(self) -> None:
        mailbox, peers = self._context.mailbox, self._peers
        await together(*(self._send(peer, "trail_held", self._held(peer)) for peer in peers))
        holds = {peer: await mailbox.only(peer, "trail_held") for peer in peers}
        for peer, held in holds.items():
            self._check_held(peer, held)
        why = {peer: self._trail.restored(peer, held.head.hex()) for peer, held in holds.items()}
        await together(*(self._send(peer, "trail_head", self._own_head(peer, why[peer])) for peer in peers))
        heads = {peer: await mailbox.only(peer, "trail_head") for peer in peers}
        came = {peer: self._checked(peer, head) | {"held": holds[peer].head.hex()} for peer, head in heads.items()}
        for peer, row in came.items():
            self._compare(peer, row)
        self._note(Kind.HEADS, came=came)
        self._noted = True

    async def _end(self, heads: dict[str, Any]) -> None:
        try:
            self._note(Kind.ENDED, **heads)
            sending = [self._send(peer, "trail_head", self._own_head(peer), TRAIL_END) for peer in self._peers]
        except (TreetapError, OSError) as fault:
            log.warning("job %s: its end is not in the trail: %s", self._context.job, fault)
            return
        for peer, lost in zip(self._peers, await asyncio.gather(*sending, return_exceptions=True), strict=True):
            if isinstance(lost, BaseException):
                log.warning("job %s: %s has not taken the last head of the trail: %s", self._context.job, peer, lost)

    async def _send(self, peer: str, kind: str, head: TrailHead, round: int = 0) -> None:
        await self._context.outbox.send(peer, kind, [head], round)

    def _note(self, kind: Kind, **content: Any) -> None:
        self._trail.note(kind, job=self._context.job, attempt=self._context.attempt, **content)

    def _held(self, peer: str) -> TrailHead:
        """The last head of a partner that this party holds."""
        held = self._trail.held(peer)
        made = Signed.FromString(base64.b64decode(held.signed))
        return TrailHead(head=bytes.fromhex(held.head), signed=made if held.head else None)

    def _own_head(self, peer: str, restored: str = "") -> TrailHead:
        """This party's head, signed for a partner, with the reason for which an older state was brought back."""
        head, nanos = self._trail.head, time.time_ns()
        if isinstance(self._transport, Insecure):
            made = Signed(unix_nanos=nanos)
        else:
            made = signed(self._transport, head_statement(self._context.party, peer, head), "trail", nanos)
        return TrailHead(head=bytes.fromhex(head), signed=made, restored=restored)

    def _check_held(self, peer: str, held: TrailHead) -> None:
        """Raise unless this party's trail has the head that a partner holds, or its people said why it has not."""
        me, head = self._context.party, held.head.hex()
        if not head or self._trail.has(head):
            return
        self._verify(peer, held, me, peer, f"{peer} says that it holds a head of {me}'s trail, and")
        if why := self._trail.restored(peer):
            log.warning("%s holds a later head of this party's trail; an older state was brought back: %s", peer, why)
            return
        self._context.metrics.trail_fault(peer, "own state")
        raise DataError(
            f"{me}: an older state was brought back, or the trail was pruned: {peer} holds a head of "
            f"{utc(moment_of(held.signed.unix_nanos).timestamp())} that {TRAIL} of {me}, which begins on "
            f"{utc(self._trail.began)}, lacks; {REMEDY}",
            party=me,
        )

    def _checked(self, peer: str, head: TrailHead) -> dict[str, Any]:
        """A partner's head for the trail; `Malformed` for one that is not what it claims."""
        self._verify(peer, head, peer, self._context.party, f"the head of {peer}'s trail does not count:")
        made = base64.b64encode(head.signed.SerializeToString()).decode()
        row: dict[str, Any] = {"head": head.head.hex(), "signed": made}
        now = self._trail.held(peer)
        if now.head != self._before[peer].head and _nanos(now) > head.signed.unix_nanos:
            row["late"] = True  # an attempt that has opened since brought a later head
        if head.restored:
            row["restored"] = visible(head.restored[:LONGEST_WHY])
            log.warning("%s says that an older state of it was brought back: %s", peer, row["restored"])
        return row

    def _verify(self, peer: str, head: TrailHead, signer: str, to: str, what: str) -> None:
        """Raise `Malformed`, which is counted, unless a head has its form and its signer's signature."""
        try:
            self._check_signed(head, signer, to, what, new=signer == peer)
        except Malformed:
            self._context.metrics.trail_fault(peer, "unsound")
            raise

    def _check_signed(self, head: TrailHead, signer: str, to: str, what: str, *, new: bool) -> None:
        """Raise `Malformed` unless a head has its form and its signer's signature, of this hour if it is `new`."""
        if len(head.head) != 32:
            raise Malformed(f"{what} it has {len(head.head)} bytes, not 32")
        if isinstance(self._transport, Insecure):
            moment_of(head.signed.unix_nanos)
            return
        try:
            content = head_statement(signer, to, head.head.hex())
            name, _ = verified(self._transport, head.signed, content, Role.PARTY, new=new)
        except Malformed as fault:
            raise Malformed(f"{what} {fault}") from None
        if name != signer:
            raise Malformed(f"{what} it is signed by {name!r}, not by {signer!r}")

    def _compare(self, peer: str, row: dict[str, Any]) -> None:
        """Note in a row that a partner holds less of this party than it said before, and has not said why."""
        before = self._before[peer].stated  # what it says in other attempts meanwhile may be later
        if before and self._trail.precedes(row["held"], before) and "restored" not in row:
            row["older"] = before
            self._context.metrics.trail_fault(peer, "peer's state")
            log.warning("%s holds an older head of this party's trail than before: an older state of it", peer)


def _nanos(held: Held) -> int:
    """The time of the signature of a head that this party holds."""
    return Signed.FromString(base64.b64decode(held.signed)).unix_nanos
