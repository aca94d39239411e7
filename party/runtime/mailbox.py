"""Parcels that came for a job, filed until the step that needs them asks.

Steps come one after the other, so a whole series may have to lie here before its reader begins: the sender is never
held back. Per sender so many bytes lie in memory; what comes beyond that waits in an unnamed file of the state
folder, which the system deletes with the process.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from treetap.errors import Conflict, Interrupted, Silent
from treetap.wire.frame import name_of
from treetap.wire.v2 import exchange_pb2

#: Bytes that one sender's unread parcels may hold in memory.
MEMORY_LIMIT = 64 * 1024 * 1024

Key = tuple[str, str, int, int]
#: Where a parcel lies in the sender's file: (first byte, bytes).
Place = tuple[int, int]


@dataclass
class _Series:
    """Numbered parcels of one kind from one sender for one step."""

    parts: dict[int, exchange_pb2.PeerMessage | Place] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    last: int | None = None
    next: int = 0


@dataclass
class _Sender:
    """What lies here of one sender: bytes in memory, and a file for the rest."""

    in_memory: int = 0
    in_file: int = 0
    file: IO[bytes] | None = None


def _uncounted(_place: str, _change: int) -> None:
    """Nobody counts what waits."""


class Mailbox:
    """Files parcels under (sender, kind, round, stage) and hands them out in order.

    `waiting` is told of every change of what lies here: ("memory" or "file", bytes more or, negative, fewer).
    A parcel that comes twice is filed once; the same number with other content is a `Conflict`. What comes of a series
    that was forgotten is a late repeat: it is taken and dropped.
    """

    def __init__(self, silence_s: float, folder: Path, waiting: Callable[[str, int], None] | None = None) -> None:
        self._silence, self._folder = silence_s, folder
        self._waiting = waiting or _uncounted
        self._series: dict[Key, _Series] = {}
        self._senders: defaultdict[str, _Sender] = defaultdict(_Sender)
        self._changed = asyncio.Condition()
        self._closed = False
        self._forgotten = -1  # the last round of which anything was: nothing is wanted of those before it
        self._dropped: set[Key] = set()  # series of that round

    async def file(self, sender: str, parcel: exchange_pb2.PeerMessage) -> None:
        """File one parcel."""
        kind = name_of(parcel)
        key = (sender, kind, parcel.round, parcel.stage)
        digest = hashlib.sha256(parcel.SerializeToString(deterministic=True)).digest()
        async with self._changed:
            if self._closed:
                raise Interrupted(f"the job was left before {kind} of {sender} came")
            if parcel.round < self._forgotten or key in self._dropped:
                return
            series = self._series.setdefault(key, _Series())
            if parcel.part in series.digests:
                if series.digests[parcel.part] != digest:
                    raise Conflict(f"{kind} part {parcel.part} from {sender} came again with other content")
                return
            if series.last is not None and parcel.part > series.last:
                raise Conflict(f"{kind} part {parcel.part} from {sender} came after the last part {series.last}")
            if parcel.last and any(part > parcel.part for part in series.digests):
                raise Conflict(f"{kind} part {parcel.part} from {sender} says it is the last, a later one has come")
            series.parts[parcel.part] = self._put(self._senders[sender], parcel)
            series.digests[parcel.part] = digest
            if parcel.last:
                series.last = parcel.part
            self._changed.notify_all()

    async def series(self, sender: str, kind: str, round: int, stage: int) -> AsyncIterator[exchange_pb2.PeerMessage]:
        """The parcels of a series in order; `Silent` when the next one does not come in time."""
        key = (sender, kind, round, stage)
        while True:
            async with self._changed:
                series = self._series.setdefault(key, _Series())
                await self._wait(lambda: series.next in series.parts, f"{kind} of {sender}")  # noqa: B023
                parcel = self._get(self._senders[sender], series.parts.pop(series.next))
                series.next += 1
            yield parcel
            if parcel.last:
                return

    def forget(self, round: int) -> None:
        """Drop what is left of a round that is stored, or of the part of it that is done, and of those before it.

        Rounds are forgotten in their order. What has not begun to come may still come, for this round's later steps.
        """
        if round > self._forgotten:
            self._forgotten = round
            self._dropped.clear()
        for key in [key for key in self._series if key[2] <= round]:
            if key[2] == self._forgotten:
                self._dropped.add(key)
            for parcel in self._series.pop(key).parts.values():
                self._let_go(self._senders[key[0]], parcel)

    async def close(self) -> None:
        """Wake everybody who waits: the job has ended here."""
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

    def _put(self, sender: _Sender, parcel: exchange_pb2.PeerMessage) -> exchange_pb2.PeerMessage | Place:
        size = parcel.ByteSize()
        if sender.in_memory + size <= MEMORY_LIMIT:
            sender.in_memory += size
            self._waiting("memory", size)
            return parcel
        try:
            if sender.file is None:
                sender.file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the mailbox
            first = sender.file.seek(0, 2)
            sender.file.write(parcel.SerializeToString())
            sender.file.flush()
        except OSError as failure:
            raise Interrupted(f"{self._folder}: no room for parcels that wait: {failure.strerror}") from failure
        sender.in_file += size
        self._waiting("file", size)
        return first, size

    def _get(self, sender: _Sender, parcel: exchange_pb2.PeerMessage | Place) -> exchange_pb2.PeerMessage:
        if isinstance(parcel, tuple) and sender.file is not None:
            first, size = parcel
            sender.file.seek(first)
            found = exchange_pb2.PeerMessage.FromString(sender.file.read(size))
            self._let_go(sender, parcel)
            return found
        assert isinstance(parcel, exchange_pb2.PeerMessage)
        self._let_go(sender, parcel)
        return parcel

    def _let_go(self, sender: _Sender, parcel: exchange_pb2.PeerMessage | Place) -> None:
        if isinstance(parcel, tuple):
            sender.in_file -= parcel[1]
            self._waiting("file", -parcel[1])
            if sender.in_file == 0 and sender.file is not None:
                sender.file.truncate(0)
        else:
            sender.in_memory -= parcel.ByteSize()
            self._waiting("memory", -parcel.ByteSize())

    async def _wait(self, ready: Callable[[], bool], what: str) -> None:
        """Wait under the lock until ready; each parcel that is filed starts the silence anew."""
        while not ready():
            if self._closed:
                raise Interrupted(f"the job was left while waiting for {what}")
            try:
                async with asyncio.timeout(self._silence):
                    await self._changed.wait()
            except TimeoutError:
                raise Silent(f"waited {self._silence:g} s for {what}, in vain") from None
        if self._closed:
            raise Interrupted(f"the job was left while waiting for {what}")
