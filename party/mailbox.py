"""Parcels that came for a job, filed until the step that needs them asks."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from treetap.errors import Conflict, Interrupted, Silent
from treetap.wire.v1 import exchange_pb2

#: Bytes that one series may hold unread; the sender of more is held back.
UNREAD_LIMIT = 64 * 1024 * 1024

Key = tuple[str, str, int, int]


@dataclass
class _Series:
    """Numbered parcels of one kind from one sender for one step."""

    parts: dict[int, exchange_pb2.Parcel] = field(default_factory=dict)
    digests: dict[int, bytes] = field(default_factory=dict)
    unread: int = 0
    last: int | None = None
    next: int = 0


class Mailbox:
    """Files parcels under (sender, kind, tree, level) and hands them out in order.

    A parcel that comes twice is filed once; the same number with other content is a `Conflict`.
    """

    def __init__(self, silence_s: float) -> None:
        self._silence = silence_s
        self._series: dict[Key, _Series] = {}
        self._changed = asyncio.Condition()
        self._closed = False

    async def file(self, sender: str, parcel: exchange_pb2.Parcel) -> None:
        """File one parcel; waits while its series holds more unread bytes than it may."""
        kind = parcel.WhichOneof("body")
        key = (sender, str(kind), parcel.tree, parcel.level)
        digest = hashlib.sha256(parcel.SerializeToString(deterministic=True)).digest()
        async with self._changed:
            series = self._series.setdefault(key, _Series())
            if parcel.part in series.digests:
                if series.digests[parcel.part] != digest:
                    raise Conflict(f"{kind} part {parcel.part} from {sender} came again with other content")
                return
            if series.last is not None and parcel.part > series.last:
                raise Conflict(f"{kind} part {parcel.part} from {sender} came after the last part {series.last}")
            if parcel.last and any(part > parcel.part for part in series.digests):
                raise Conflict(f"{kind} part {parcel.part} from {sender} says it is the last, a later one has come")
            await self._wait(lambda: series.unread < UNREAD_LIMIT or parcel.part == series.next, f"{kind} to be read")
            if parcel.part in series.digests:  # filed by a repeat while this one was held back
                return
            series.parts[parcel.part] = parcel
            series.digests[parcel.part] = digest
            series.unread += parcel.ByteSize()
            if parcel.last:
                series.last = parcel.part
            self._changed.notify_all()

    async def series(self, sender: str, kind: str, tree: int, level: int) -> AsyncIterator[exchange_pb2.Parcel]:
        """The parcels of a series in order; `Silent` when the next one does not come in time."""
        key = (sender, kind, tree, level)
        while True:
            async with self._changed:
                series = self._series.setdefault(key, _Series())
                await self._wait(lambda: series.next in series.parts, f"{kind} of {sender}")  # noqa: B023
                parcel = series.parts.pop(series.next)
                series.unread -= parcel.ByteSize()
                series.next += 1
                self._changed.notify_all()
            yield parcel
            if parcel.last:
                return

    def forget(self, tree: int) -> None:
        """Drop what is left of a tree that is stored."""
        for key in [key for key in self._series if key[2] == tree]:
            del self._series[key]

    async def close(self) -> None:
        """Wake everybody who waits: the job has ended here."""
        async with self._changed:
            self._closed = True
            self._series.clear()
            self._changed.notify_all()

    async def _wait(self, ready: object, what: str) -> None:
        """Wait under the lock until ready; each parcel that is filed or read starts the silence anew."""
        assert callable(ready)
        while not ready():
            if self._closed:
                raise Interrupted(f"the job was left while waiting for {what}")
            try:
                await asyncio.wait_for(self._changed.wait(), self._silence)
            except TimeoutError:
                raise Silent(f"waited {self._silence:g} s for {what}, in vain") from None
        if self._closed:
            raise Interrupted(f"the job was left while waiting for {what}")
