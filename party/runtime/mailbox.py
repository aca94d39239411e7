"""Messages received for a job, filed until the step that needs them reads them.

Steps run one after the other, so a whole series may have to wait here before its reader begins; the sender is never
blocked. Up to `MEMORY_LIMIT` bytes per sender stay in memory; the rest waits in an unnamed file of the state folder,
which the operating system deletes with the process.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from cryptography.hazmat.primitives.poly1305 import Poly1305

from treetap.errors import Conflict, Interrupted, Malformed, Refused, Silent, cannot
from treetap.protocols.messages import JobSizes, MessageRow, Series
from treetap.wire.frame import content_of, name_of
from treetap.wire.v2 import exchange_pb2

#: Most bytes of one sender's unread messages in memory.
MEMORY_LIMIT = 64 * 1024 * 1024
#: Bytes of a message beside its content, in memory: its place in a series and its digest.
OVERHEAD = 256
#: Bytes beside its bound that any series may have: its messages' own fields.
ALLOWANCE = 65_536
#: Series of one kind and sender of which unread messages may wait: the one that is read, and the next.
SERIES_AT_ONCE = 2

Key = tuple[str, str, int, int]
#: Position of a message in the sender's file: (first byte, bytes).
Place = tuple[int, int]


@dataclass(frozen=True)
class Expected:
    """Messages of one content that a party can receive.

    A row's bound is no forecast: what a peer sends in good order is shorter. The job's sizes are read when a message
    comes, since some become known with time.
    """

    row: MessageRow
    senders: Sequence[str]
    receiver: str
    sizes: JobSizes

    def check(self, sender: str, round: int, stage: int) -> None:
        """`Refused` unless such a series can come."""
        kind, times = self.row.content, self.row.times
        if sender not in self.senders:
            raise Refused(f"{kind} of {sender}: this party receives it from {', '.join(self.senders)} only")
        assert times is not None
        rounds, stages = times(self.sizes, sender, self.receiver)
        if round not in rounds or stage not in stages:
            raise Refused(f"{kind} of {sender}: this job has no round {round}, stage {stage} of it")

    def most(self, sender: str, round: int, stage: int) -> int:
        """Most bytes of a series, with those of its messages' own fields."""
        assert self.row.bound is not None
        return self.row.bound(self.sizes, Series(sender, self.receiver, round, stage)) * 5 // 4 + ALLOWANCE


def expected_of(rows: Iterable[MessageRow], receiver: str, sizes: JobSizes) -> dict[str, Expected]:
    """Messages that go to a party, by content; answers to the coordinator are none."""
    to_receiver = {}
    for row in rows:
        senders = [sender for sender, to in row.route(sizes.members) if to == receiver]
        if row.bound is not None and senders:
            to_receiver[row.content] = Expected(row, senders, receiver, sizes)
    return to_receiver


@dataclass
class _Series:
    """Numbered messages of one kind from one sender for one step."""

    parts: dict[int, bytes | Place] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    last: int | None = None
    next: int = 0
    size: int = 0  # of all parts so far, in bytes


@dataclass
class _Sender:
    """Unread messages of one sender: when the last one came, bytes in memory, a file for the rest, their number."""

    heard_at: float = 0.0
    in_memory: int = 0
    in_file: int = 0
    file: IO[bytes] | None = None
    series: Counter[Key] = field(default_factory=Counter)  # unread messages


class Mailbox:
    """Files messages under (sender, kind, round, stage) and returns them in order.

    `waiting` is called with every change of the bytes that wait: ("memory" or "file", change in bytes).
    A message that arrives twice is filed once; the same number with other content is a `Conflict`. The two are told
    apart by tags (Poly1305, Bernstein 2005) under a key of this mailbox: no sender can look for contents of one tag.
    A message of a series that was forgotten is a late repeat: it is accepted and dropped. What the role does not expect
    is refused.
    """

    def __init__(self, silence_s: float, folder: Path, waiting: Callable[[str, int], None] | None = None) -> None:
        self._silence, self._folder = silence_s, folder
        self._waiting = waiting or (lambda _place, _change: None)
        self._expected: Mapping[str, Expected] = {}
        self._series: dict[Key, _Series] = {}
        self._senders: defaultdict[str, _Sender] = defaultdict(_Sender)
        self._changed = asyncio.Condition()
        self._closed = False
        self._tag_key = secrets.token_bytes(32)
        self._forgotten = -1  # last round forgotten; messages of earlier rounds are dropped
        self._dropped: set[Key] = set()  # forgotten series of that round

    def expect(self, expected: Mapping[str, Expected]) -> None:
        """Set what the role can receive, by content; nothing until then."""
        self._expected = expected

    async def file(self, sender: str, message: exchange_pb2.PeerMessage, content: bytes | None = None) -> bool:
        """File one message; False for a repeat, and for one of a forgotten series: it leaves no trace.

        `content`: its bytes as they came; None: as protobuf writes them. A sender repeats the same bytes.

        Raises:
            Refused: the job has no such message, or the series is longer than it can be in this job.
            Conflict: it contradicts another part of its series.
        """
        kind = name_of(message)
        key = (sender, kind, message.round, message.stage)
        expected = self._expected.get(kind)
        if expected is None:
            raise Refused(f"{kind} of {sender}: this party receives none in this job")
        expected.check(sender, message.round, message.stage)
        most = expected.most(sender, message.round, message.stage)
        content = message.SerializeToString(deterministic=True) if content is None else content
        digest = Poly1305.generate_tag(self._tag_key, content)
        async with self._changed:
            if self._closed:
                raise Interrupted(f"the job was left before {kind} of {sender} came")
            # a late repeat is acknowledged, so that its sender ends; it is bounded as any message is
            if message.round < self._forgotten or key in self._dropped:
                self._check_size(key, len(content) + OVERHEAD, most)
                return False
            series = self._series.get(key, _Series())
            # nothing is changed before all checks: a message that is refused must leave no trace
            if message.part in series.digests:
                if series.digests[message.part] != digest:
                    raise Conflict(f"{kind} part {message.part} from {sender} came again with other content")
                return False
            if series.last is not None and message.part > series.last:
                raise Conflict(f"{kind} part {message.part} from {sender} came after the last part {series.last}")
            if message.last and any(part > message.part for part in series.digests):
                raise Conflict(
                    f"{kind} part {message.part} from {sender} is marked as the last part, but a later one has come"
                )
            self._check_size(key, series.size + len(content) + OVERHEAD, most)
            sender, kind, *place = key
            waiting = [other[2:] for other in self._senders[sender].series if other[1] == kind]
            if tuple(place) not in waiting and len(waiting) >= SERIES_AT_ONCE:
                unread = " and of ".join(f"round {round}, stage {stage}" for round, stage in sorted(waiting))
                raise Refused(
                    f"{kind} of {sender}: round {place[0]}, stage {place[1]} comes while those of {unread} wait unread"
                )
            self._series[key] = series
            held = self._senders[sender]
            held.heard_at = asyncio.get_running_loop().time()
            series.parts[message.part] = self._put(held, content)
            series.size += len(content) + OVERHEAD
            held.series[key] += 1
            series.digests[message.part] = digest
            if message.last:
                series.last = message.part
            self._changed.notify_all()
            return True

    async def series(
        self, sender: str, kind: str, round: int, stage: int, *, patience: int = 1
    ) -> AsyncIterator[exchange_pb2.PeerMessage]:
        """The messages of a series in order; `Silent` if the next one does not arrive in time.

        `patience`: times `silence_s` that the sender has, where it does work of several steps before it sends.
        """
        key = (sender, kind, round, stage)
        while True:
            async with self._changed:
                series = self._series.setdefault(key, _Series())
                await self._wait(lambda: series.next in series.parts, sender, kind, patience)  # noqa: B023
                message = self._get(self._senders[sender], series.parts.pop(series.next))
                self._senders[sender].series -= Counter([key])
                series.next += 1
            yield message
            if message.last:
                return

    async def only(self, sender: str, kind: str, round: int = 0, stage: int = 0) -> Any:
        """The content of a series of one message; `Malformed` if it has more."""
        contents = [content_of(message, kind) async for message in self.series(sender, kind, round, stage)]
        if len(contents) != 1:
            raise Malformed(f"{sender} sent {len(contents)} messages of {kind}, not one")
        return contents[0]

    async def only_if_sent(self, sender: str, kind: str) -> Any | None:
        """The content of a series of one message, if it has begun to come; None if not. It can be read once."""
        return await self.only(sender, kind) if (sender, kind, 0, 0) in self._series else None

    def forget(self, round: int) -> None:
        """Drop the unread messages of a round that is stored, or of its finished steps, and of all earlier rounds.

        Rounds are forgotten in order. A series of which no message has arrived may still arrive, for later steps.
        """
        if round > self._forgotten:
            self._forgotten = round
            self._dropped.clear()
        for key in [key for key in self._series if key[2] <= round]:
            if key[2] == self._forgotten:
                self._dropped.add(key)
            for message in self._series.pop(key).parts.values():
                self._release(self._senders[key[0]], message)
                self._senders[key[0]].series -= Counter([key])

    async def close(self) -> None:
        """Wake every reader with an error: the job has ended at this party."""
        async with self._changed:
            self._closed = True
            self._series.clear()
            self._dropped.clear()
            for sender in self._senders.values():
                self._waiting("memory", -sender.in_memory)
                self._waiting("file", -sender.in_file)
                if sender.file is not None:
                    sender.file.close()
            self._senders.clear()
            self._changed.notify_all()

    def _check_size(self, key: Key, size: int, most: int) -> None:
        """`Refused` for a message that makes its series `size` bytes long, more than `most`."""
        sender, kind, round, stage = key
        if size > most:
            raise Refused(
                f"{kind} of {sender}: round {round}, stage {stage} has more than the {most} bytes "
                "that this job can need"
            )

    def _put(self, sender: _Sender, content: bytes) -> bytes | Place:
        """Keep a message as it was sent: decoded it could take many times the bytes that are counted."""
        size = len(content)
        if sender.in_memory + size <= MEMORY_LIMIT:
            sender.in_memory += size
            self._waiting("memory", size)
            return content
        with cannot("keep messages that wait", self._folder, Interrupted):
            if sender.file is None:
                sender.file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the mailbox
            first = sender.file.seek(0, 2)
            sender.file.write(content)
            sender.file.flush()
        sender.in_file += size
        self._waiting("file", size)
        return first, size

    def _get(self, sender: _Sender, kept: bytes | Place) -> exchange_pb2.PeerMessage:
        content = kept
        if isinstance(content, tuple):
            assert sender.file is not None
            first, size = content
            sender.file.seek(first)
            content = sender.file.read(size)
        self._release(sender, kept)
        return exchange_pb2.PeerMessage.FromString(content)

    def _release(self, sender: _Sender, kept: bytes | Place) -> None:
        if isinstance(kept, tuple):
            sender.in_file -= kept[1]
            self._waiting("file", -kept[1])
            if sender.in_file == 0 and sender.file is not None:
                sender.file.truncate(0)
        else:
            sender.in_memory -= len(kept)
            self._waiting("memory", -len(kept))

    async def _wait(self, ready: Callable[[], bool], sender: str, kind: str, patience: int) -> None:
        """Wait under the lock until ready; each message of the sender that is filed restarts the time limit."""
        began, what = asyncio.get_running_loop().time(), f"{kind} of {sender}"
        longest = patience * self._silence
        while not ready():
            if self._closed:
                raise Interrupted(f"the job was left while waiting for {what}")
            try:
                async with asyncio.timeout_at(max(began, self._senders[sender].heard_at) + longest):
                    await self._changed.wait()
            except TimeoutError:
                raise Silent(f"waited {longest:g} s for {what}, in vain") from None
        if self._closed:
            raise Interrupted(f"the job was left while waiting for {what}")
