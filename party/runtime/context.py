"""One attempt at one job at one party: the tools that every role works with, bodies of messages, and sending them.

Messages are bounded in size, numbered, counted, and repeated after a broken connection.

Among the tools are files of the attempt that no later one needs, unnamed ones of the state folder: the operating system
deletes them when they are closed, at the latest with the process, so that nothing is left to clean up.
"""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message

from treetap.errors import Incompatible, Interrupted, Refused, Silent, Unreachable
from treetap.party.runtime.step_order import Step
from treetap.process.together import together
from treetap.protocols.messages import JobSizes
from treetap.wire.disclosure import bytes_by_class_of
from treetap.wire.frame import content_of, head_of, serialised
from treetap.wire.ports import Address, Dialer, Reconnects, Timeouts
from treetap.wire.v2 import control_pb2, exchange_pb2, types_pb2
from treetap.workers.engines import Engine

if TYPE_CHECKING:
    import numpy as np

    from treetap.lattice.histogram_parameters import HistogramParameters
    from treetap.lattice.histogram_shards import Shards
    from treetap.party.policy import Policy
    from treetap.party.runtime.job_ledger import JobLedger
    from treetap.party.runtime.job_store import JobStore
    from treetap.party.runtime.mailbox import Mailbox
    from treetap.party.runtime.metrics import CostAccount, PartyMetrics
    from treetap.party.runtime.transcript_recorder import Recorder


T = TypeVar("T")


#: Microseconds of work in numpy on a record, and on a number of a candidate's sums.
RECORD_US, SUM_US = 0.02, 0.2


class Offload(Protocol):
    """Runs a slow function off the event loop; the simulator runs it in place, so that a seed reproduces a run."""

    def __call__(self, work: Callable[[], T], *, whole: bool = False, us: float = math.inf) -> Awaitable[T]:
        """The result of `work()`.

        `us`: microseconds that it takes, as sizes tell, where it waits for no file: see `treetap.workers.engines`.

        `whole`: a caller that is cancelled waits for the end of the work first, as it must where that writes files:
        once a session has ended, they are the next one's, or no session's.
        """
        ...


@dataclass
class StepContext:
    """A role's tools; a role never sees sockets, callers or other jobs. `coordinator`: the name of the job's.

    `digest`: of the job, see `treetap.protocols.agreement`. `progress`: of the running step, which counts itself.
    `trial`: the job is checked and not begun, so that nothing may be drawn or charged for it.
    `held`: closes what the role has in the memory of workers, keys too, at the end of the attempt.
    `engine`: threads of this process; `shards`: makes an attempt's on the party's cluster, if there is one.
    """

    party: str
    coordinator: str
    job: str
    attempt: int
    digest: bytes
    mailbox: Mailbox
    outbox: Outbox
    costs: CostAccount
    metrics: PartyMetrics
    recorder: Recorder
    engine: Engine
    shards: Callable[[HistogramParameters, bytes, str], Shards] | None
    store: JobStore
    ledger: JobLedger
    scratch: Scratch
    progress: control_pb2.Progress
    offload: Offload
    policy: Policy
    trial: bool = False
    held: AsyncExitStack = field(default_factory=AsyncExitStack)


class Untried(Exception):
    """A trial ends here: what follows needs a draw that would be charged."""


class Role(Protocol):
    """A party's part in a protocol: named steps, and sizes of its messages."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """The coroutine of each step that the coordinator may request, by the step's name."""
        ...

    @property
    def sizes(self) -> JobSizes:
        """The numbers of the job from which the lengths of its messages follow, as far as the role knows them."""
        ...


def required(value: T | None) -> T:
    """A value that an earlier step has set, which the step order guarantees."""
    assert value is not None
    return value


#: Bytes of a lattice's second halves that wait in memory.
IN_MEMORY = 32 * 1024 * 1024


class Scratch:
    """Opens unnamed files, and closes all of them with the session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[IO[bytes]] = []

    def file(self) -> IO[bytes]:
        """A new, empty file for reading and writing, without a buffer; its user may close it earlier."""
        return self._held(tempfile.TemporaryFile(dir=self._folder, buffering=0))

    def halves(self) -> IO[bytes]:
        """The same in memory, until it has more than `IN_MEMORY` bytes."""
        return self._held(tempfile.SpooledTemporaryFile(IN_MEMORY, dir=str(self._folder)))

    def _held(self, file: IO[bytes]) -> IO[bytes]:
        self._files = [*(other for other in self._files if not other.closed), file]
        return file

    def close(self) -> None:
        """Close all files, which deletes them."""
        for file in self._files:
            file.close()
        self._files.clear()


Rows: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Item = TypeVar("Item", bound=Message)
#: Approximate maximum of bytes in one message's body.
MESSAGE_BYTES = 1024 * 1024
#: The end of an error about contents that the job rules out, with the sender's name.
REMEDY = "no party that follows the protocol sends this: ask {} what it runs before any other job with it"


class CountedBody(NamedTuple):
    """A body, and the one whose sizes are counted in its place because they do not depend on the content."""

    body: Message
    counted: Message


class CiphertextBody(NamedTuple):
    """A body with ciphertexts, which are copied into the message once: `head` has its other fields.

    Its type has them in the field `ciphertexts`, whose number is the highest.
    """

    head: Message
    ciphertexts: bytes

    def serialised(self) -> bytes:
        """The body as protobuf writes it."""
        fields = self.head.DESCRIPTOR.fields_by_name
        number = fields["ciphertexts"].number
        assert number == max(field.number for field in fields.values()), self.head.DESCRIPTOR.name
        if not self.ciphertexts:
            return self.head.SerializeToString()
        return b"".join((self.head.SerializeToString(), head_of(number, len(self.ciphertexts)), self.ciphertexts))


Body = Message | CountedBody | CiphertextBody


def ciphertext_body(kind: str, ciphertexts: bytes) -> Message:
    """A body that holds ciphertexts only, of the message kind of this name."""
    return type(content_of(exchange_pb2.PeerMessage(), kind))(ciphertexts=ciphertexts)


async def ciphertexts_in(messages: AsyncIterator[exchange_pb2.PeerMessage], kind: str) -> AsyncIterator[bytes]:
    """The ciphertexts in the bodies of a series of such a kind, in order."""
    async for message in messages:
        body: Any = content_of(message, kind)
        yield body.ciphertexts


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Items in lists of at most about one message's size."""
    return _batches(items, lambda item: item.ByteSize())


def _batches(items: Iterable[T], size_of: Callable[[T], int]) -> Iterator[list[T]]:
    batch: list[T] = []
    size = 0
    for item in items:
        taken = size_of(item)
        if batch and size + taken > MESSAGE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += taken
    if batch:
        yield batch


#: An item of a message, the one that counts in its place, and the most bytes that such an item can take.
CountedItem: TypeAlias = tuple[Item, Item, int]


def counted_items(
    make: Callable[[types_pb2.RecordChunk], Item], rows: Rows, total: int, size: int | None = None
) -> Iterator[CountedItem[Item]]:
    """The items that `make` makes of the chunks of a record set; chunks of `size` bytes, or bitmaps, count as it."""
    from treetap.wire.records import chunks_of, counted_chunks

    for chunk, counting in zip(chunks_of(rows, total), counted_chunks(total, size), strict=True):
        counted = make(counting)
        yield make(chunk), counted, counted.ByteSize()


def counted_bodies(make: Callable[[list[Item]], Message], items: Iterable[CountedItem[Item]]) -> Iterator[CountedBody]:
    """Bodies that `make` makes of items of about one message's size, which their content does not change."""
    for batch in _batches(items, lambda item: item[2]):
        yield CountedBody(make([item for item, _, _ in batch]), make([counted for _, counted, _ in batch]))


def as_chunk(chunk: types_pb2.RecordChunk) -> types_pb2.RecordChunk:
    """A chunk as an item of its own."""
    return chunk


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

    async def send_each(self, kind: str, bodies: Mapping[str, Iterable[Body]], round: int = 0, stage: int = 0) -> None:
        """Send each of these parties its series of a kind, to all at once."""
        await together(*(self.send(to, kind, own, round, stage) for to, own in bodies.items()))

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
