"""The client side of the control plane: steps at one party or at all, with silence limits and reconnects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from treetap import logs
from treetap.coordinator.runtime.progress import Progress
from treetap.errors import Malformed, Silent, Unreachable
from treetap.names import NAME
from treetap.process.together import ended, together
from treetap.wire.disclosure import ByteCounts, bytes_by_class
from treetap.wire.frame import Opening, content_of, filled, name_of
from treetap.wire.ports import Address, Dialer, Reconnects, Timeouts
from treetap.wire.v2 import control_pb2, setup_pb2, types_pb2

if TYPE_CHECKING:
    from treetap.coordinator.runtime.metrics import CoordinatorMetrics
    from treetap.process.spans import JobSpan

log = logging.getLogger(__name__)
#: Seconds to wait for a party when a job is over.
LEAVE_S = 3.0


class Roster:
    """The parties of one attempt at a job. A step is called by its name (`treetap.wire.frame`)."""

    def __init__(
        self,
        job: str,
        attempt: int,
        submission: str,
        parties: Mapping[str, Address],
        dialer: Dialer,
        timeouts: Timeouts,
        byte_counts: ByteCounts,
        metrics: CoordinatorMetrics,
        progress: Progress | None,
        trace: bytes = b"",
    ) -> None:
        """`progress`: of the job; None: no operator watches it, as when the parties leave it. `trace`: 16 bytes."""
        self._job, self._attempt, self._submission = job, attempt, submission
        self._parties, self._dialer, self._timeouts = dict(parties), dialer, timeouts
        self._byte_counts, self._metrics = byte_counts, metrics
        self._progress, self._trace = progress, trace
        self.log_level = logging.INFO  #: level of the log lines at the ends of steps
        self.beside = False  #: the attempt before this one goes on serving meanwhile

    @property
    def names(self) -> list[str]:
        return list(self._parties)

    def peers(self) -> list[types_pb2.Peer]:
        """Names and addresses, as the parties need them to reach each other."""
        return [types_pb2.Peer(name=address.name, address=address.location) for address in self._parties.values()]

    async def ask(
        self,
        party: str,
        step: str,
        body: Message | None = None,
        round: int = 0,
        stage: int = 0,
        *,
        asks_only: bool = False,
    ) -> control_pb2.StepResult:
        """Have a party do a step; repeated if the connection breaks, since the party does a step once only.

        `body`: None for a step whose message is empty; `asks_only`: of an opening: see `StepRequest`.

        Raises:
            Malformed: the job has no such party; an answer of the label holder has named it.
        """
        if party not in self._parties:
            raise Malformed(f"{step} is to be done by {party!r}, which is no party of job {self._job}")
        request = control_pb2.StepRequest(
            job=self._job, attempt=self._attempt, round=round, stage=stage, asks_only=asks_only
        )
        if isinstance(body, Opening) and not asks_only:
            request.trace, request.beside = self._trace, self.beside
        filled(request, step, body)
        reconnects = Reconnects(self._timeouts)
        began = asyncio.get_running_loop().time()
        often = self.log_level < logging.INFO
        with logs.within(step=step, peer=party), self._metrics.asking(party, step, often=often) as span:
            log.debug("job %s: %s at %s: begins", self._job, step, party)
            while True:
                try:
                    result = await self._once(party, step, request, reconnects, span)
                    break
                except (Unreachable, Silent) as failure:
                    if self._progress is not None:
                        self._progress.on_loss(party)
                    if isinstance(failure, Silent) or not await reconnects.again():
                        raise
            seconds = asyncio.get_running_loop().time() - began
            log.log(
                self.log_level, "job %s: %s at %s: %.3f s", self._job, step, party, seconds, extra={"seconds": seconds}
            )
            return result

    async def ask_all(
        self, parties: Iterable[str], step: str, body: Message | None = None, round: int = 0, stage: int = 0
    ) -> dict[str, control_pb2.StepResult]:
        """Have several parties do the same step at once; the first failure ends the waiting."""
        names = list(parties)
        results = await together(*(self.ask(party, step, body, round, stage) for party in names))
        return dict(zip(names, results, strict=True))

    async def leave(
        self, within_s: float, *, discard: bool = False, ends: bool = False, alone: bool = False
    ) -> list[str]:
        """Have all parties leave the job, within `within_s` at most; returns those that did not confirm it.

        `alone`: this attempt; one before it that still serves goes on.
        """
        body = setup_pb2.Leave(discard=discard, submission=self._submission, ends=ends, alone=alone)
        leaving = {party: asyncio.ensure_future(self._leave(party, body)) for party in self.names}
        try:
            if leaving:
                await asyncio.wait(leaving.values(), timeout=within_s)
        finally:  # also if the job is cancelled meanwhile: no call may outlive it
            outcomes = await ended(leaving.values())
        return [party for party, outcome in zip(leaving, outcomes, strict=True) if isinstance(outcome, BaseException)]

    async def _leave(self, party: str, body: setup_pb2.Leave) -> None:
        """Ask until the party confirms it; the caller sets the deadline."""
        while True:
            try:
                await self.ask(party, "leave", body)
                return
            except Unreachable:
                await asyncio.sleep(1.0)

    async def _once(
        self, party: str, step: str, request: control_pb2.StepRequest, reconnects: Reconnects, span: JobSpan | None
    ) -> control_pb2.StepResult:
        self._byte_counts.sent(party, step, sizes := bytes_by_class(request))
        if span:
            span.sent.update(sizes)
        events = self._dialer.step(self._parties[party], request).__aiter__()
        while True:
            try:
                # Not wait_for: before Python 3.12 it loses a cancellation that arrives together with the event.
                async with asyncio.timeout_at(reconnects.silent_at):
                    event = await anext(events)
            except TimeoutError:
                raise Silent(f"{party} has been silent for {reconnects.silence_s:g} s in {step}") from None
            except StopAsyncIteration:
                raise Unreachable(f"{party} ended {step} without a result") from None
            reconnects.heard()
            if span:
                span.received.update(bytes_by_class(event))
            result = event.result if event.WhichOneof("event") == "result" else None
            progress = event.progress
            if result is not None:
                progress = control_pb2.Progress(bytes=result.bytes, arithmetic=result.arithmetic)
            if progress.arithmetic and not NAME.match(progress.arithmetic):
                raise Malformed(f"{party} names a backend of its arithmetic by what is no name")
            if self._progress is not None:
                self._progress.on_progress(party, progress)
            if result is not None:
                return result


def answered(party: str, result: control_pb2.StepResult, name: str) -> Any:
    """The content of a party's result, a message of the type that `name` has.

    Raises:
        Malformed: the result holds another content, or none; read all the same, it would be empty and count as zeros.
    """
    content = name_of(result)
    if content != name:
        raise Malformed(f"{party} answered with {content or 'nothing'}, not with {name}")
    return content_of(result, name)
