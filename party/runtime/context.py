"""One attempt at one job at one party: the tools that every role works with, and the bodies of its messages."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message

from treetap.party.runtime.step_order import Step
from treetap.protocols.messages import JobSizes
from treetap.wire.frame import content_of, head_of, result
from treetap.wire.v2 import control_pb2, exchange_pb2, setup_pb2, types_pb2
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
    from treetap.party.runtime.outbox import Outbox
    from treetap.party.runtime.transcript_recorder import Recorder


T = TypeVar("T")


class Offload(Protocol):
    """Runs a slow function off the event loop; the simulator runs it in place, so that a seed reproduces a run."""

    def __call__(self, work: Callable[[], T], *, whole: bool = False) -> Awaitable[T]:
        """The result of `work()`.

        `whole`: a caller that is cancelled waits for the end of the work first, as it must where that writes files:
        once a session has ended, they are the next one's, or no session's.
        """
        ...


@dataclass
class StepContext:
    """A role's tools; a role never sees sockets, callers or other jobs. `coordinator`: the name of the job's.

    `digest`: of the job, see `treetap.protocols.agreement`. `progress`: of the running step, which counts itself.
    `trial`: the job is checked and not begun, so that nothing may be drawn or charged for it.
    `engine`: worker processes of this machine; `shards`: makes an attempt's on the party's cluster, if there is one.
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


class Untried(Exception):
    """A trial ends here: what follows needs a draw that would be charged."""


class Role(Protocol):
    """A party's part in a protocol: named steps, sizes of its messages, and an end."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """The coroutine of each step that the coordinator may request, by the step's name."""
        ...

    @property
    def sizes(self) -> JobSizes:
        """The numbers of the job from which the lengths of its messages follow, as far as the role knows them."""
        ...

    async def close(self) -> None:
        """Release keys and worker memory."""
        ...


def required(value: T | None) -> T:
    """A value that an earlier step has set, which the step order guarantees."""
    assert value is not None
    return value


def empty_result() -> control_pb2.StepResult:
    """The result of a step that returns no data."""
    return result(setup_pb2.Done())


class Scratch:
    """Opens unnamed files, and closes all of them with the session."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: list[IO[bytes]] = []

    def file(self) -> IO[bytes]:
        """A new, empty file for reading and writing, without a buffer; its user may close it earlier."""
        self._files = [file for file in self._files if not file.closed]
        made = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - closed below
        self._files.append(made)
        return made

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


class CountedItem(NamedTuple, Generic[Item]):
    """An item of a message, the one that counts in its place, and the most bytes that such an item can take."""

    item: Item
    counted: Item
    most: int


def counted_items(
    make: Callable[[types_pb2.RecordChunk], Item], rows: Rows, total: int, size: int | None = None
) -> Iterator[CountedItem[Item]]:
    """The items that `make` makes of the chunks of a record set; chunks of `size` bytes, or bitmaps, count as it."""
    from treetap.wire.records import chunks_of, counted_chunks

    for chunk, counting in zip(chunks_of(rows, total), counted_chunks(total, size), strict=True):
        counted = make(counting)
        yield CountedItem(make(chunk), counted, counted.ByteSize())


def counted_bodies(make: Callable[[list[Item]], Message], items: Iterable[CountedItem[Item]]) -> Iterator[CountedBody]:
    """Bodies that `make` makes of items of about one message's size, which their content does not change."""
    for batch in _batches(items, lambda item: item.most):
        yield CountedBody(make([item.item for item in batch]), make([item.counted for item in batch]))


def as_chunk(chunk: types_pb2.RecordChunk) -> types_pb2.RecordChunk:
    """A chunk as an item of its own."""
    return chunk
