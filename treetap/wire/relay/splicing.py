"""Two connections joined to one: what comes at an end leaves at the other, unread.

An end is read no faster than the other is written: between them lie `BUFFER` bytes and one read at most. A half that is
closed is closed at the other end, whose half stays open. A pair on which nothing comes for a time is closed.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

#: Bytes of an end that wait to be written before the other end is read no further.
BUFFER = 256 * 1024
#: Seconds in which an end that is closed must take what waits for it.
LINGER_S = 10.0
#: Seconds for which a share is spent ahead at most; where callers are unproven, less than a server waits for a call.
MOST_DEBT_S, MOST_UNPROVEN_S = 2.0, 0.5
#: Most bytes of a caller before its certificate is known: those of gRPC send 18 kB, their first frame among them. All
#: these callers may send as many in a second at least: a server does not wait for a call much longer.
MOST_UNPROVEN = 64 * 1024


class Share:
    """Bytes that some connections may carry in a second, both directions together; a burst of one second.

    While it is in debt, what comes waits for its turn: the end has it that has passed on fewest bytes, up to
    `MOST_UNPROVEN`, then the one that has waited longest. A debt and a round of turns together take `debt_s` at most.
    So it holds over any number of connections, each of which has as much of it.

    Args:
        bytes_s: None: any number.
        debt_s: seconds for which it may be spent ahead.
    """

    def __init__(self, bytes_s: float | None = None, debt_s: float = MOST_DEBT_S) -> None:
        self._bytes_s, self._debt_s, self._free_at = bytes_s, debt_s, 0.0
        self._waiting: dict[End, bytearray] = {}  # the next first
        self._later: asyncio.TimerHandle | None = None
        self.carried = 0  #: bytes so far

    def carry(self, end: End, data: bytes) -> None:
        """Have an end pass on what has come there, in its turns; it is held until then."""
        if self._bytes_s is None:
            self.carried += len(data)
            end.pass_on(data)
            return
        self._waiting.setdefault(end, bytearray()).extend(data)
        self._take_turns(self._bytes_s)
        if end in self._waiting:
            end.hold(self)

    def leave(self, end: End) -> bytes:
        """Let an end wait no longer; returns what has not been passed on."""
        return bytes(self._waiting.pop(end, b""))

    def _take_turns(self, bytes_s: float) -> None:
        """Serve those who wait until there is a debt, and again once it is paid."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._waiting and self._free_at <= now:
            most = max(1, int(bytes_s * self._debt_s / (2 * len(self._waiting))))
            end = min(self._waiting, key=lambda waits: waits.passed_on)  # of several the first
            data = self._waiting.pop(end)
            part = bytes(data[:most])
            del data[:most]
            self._free_at = max(self._free_at, now - 1.0) + len(part) / bytes_s
            self.carried += len(part)
            end.pass_on(part)
            if data:
                self._waiting[end] = data
            else:
                end.free(self)
        if self._later is not None:
            self._later.cancel()
        self._later = loop.call_at(self._free_at, self._take_turns, bytes_s) if self._waiting else None


class End(asyncio.Protocol):
    """One end; until it is joined, subclasses decide what becomes of what it receives."""

    def __init__(self) -> None:
        self.other: End | None = None
        self.transport: asyncio.Transport | None = None
        self._share = Share()
        self.passed_on = 0  #: bytes, `MOST_UNPROVEN` at most
        self._held = set[object]()
        self._ended = False  # nothing more will come
        self._heard_at = 0.0
        self._lost: list[Callable[[], object]] = []
        self._later: asyncio.TimerHandle | None = None  # looks if it is idle, or ends what lingers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=BUFFER)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._held:
            transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self.close()  # nothing is expected of an end that waits for its other
            return
        self._share.carry(self, data)

    def pass_on(self, data: bytes) -> None:
        """Write to the other end what has come here."""
        assert self.other is not None
        assert self.other.transport is not None
        self._heard_at = asyncio.get_running_loop().time()
        self.passed_on = min(self.passed_on + len(data), MOST_UNPROVEN)
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Pass on that nothing more will come; returns False, which closes this end, once neither has more to say."""
        self._ended = True
        if self._share.leave(self):
            self.close(abrupt=True)  # it was read on while it waited, to learn that it is gone
            return False
        if self.other is None or self.other.transport is None:
            return False
        if self.other._ended:
            self.close()  # by itself asyncio would wait for ever for what the other side does not take
            return False
        self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.hold("written")

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.free("written")

    def connection_lost(self, exc: Exception | None) -> None:
        self._share.leave(self)
        self._then(None)  # a timer would keep this end, and all it has, for as long as it runs
        if self.other is not None:
            self.other.close(abrupt=exc is not None)
        for told in self._lost:
            told()
        self._lost.clear()

    def on_lost(self, told: Callable[[], object]) -> None:
        """Call a function when the connection is lost, before others of it are forgotten."""
        self._lost.append(told)

    def hold(self, reason: object) -> None:
        """Read nothing more, for one reason more."""
        self._held.add(reason)
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def free(self, reason: object) -> None:
        """Read on, unless there is another reason not to."""
        self._held.discard(reason)
        if not self._held and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def close(self, *, abrupt: bool = False) -> None:
        """Close, after what waits to be written unless `abrupt`; what has come here and waits is dropped."""
        self._share.leave(self)
        if self.transport is None or self.transport.is_closing():
            return
        if abrupt:
            self.transport.abort()
            return
        self.transport.close()
        self._then(LINGER_S, self.transport.abort)

    def join(self, other: End, share: Share, idle_s: float, early: bytes = b"") -> None:
        """Carry bytes between this end and another from now on, as long as one comes within `idle_s` seconds.

        Where one of the two has ended already, the other ends too.

        Args:
            other: the other end, connected.
            share: of the name that both are carried for.
            idle_s: seconds.
            early: what has come at the other end already.
        """
        assert self.transport is not None
        assert other.transport is not None
        if self.transport.is_closing() or other.transport.is_closing():  # it may not tell the other any more
            self.close(abrupt=True)
            other.close(abrupt=True)
            return
        self.other, other.other = other, self
        self._share = other._share = share
        self._heard_at = other._heard_at = asyncio.get_running_loop().time()
        if early:
            share.carry(other, early)
        self._look(idle_s)

    def spend(self, share: Share) -> None:
        """Have both ends spend another share from now on; that the one before is spent delays them no longer."""
        for end in (self, self.other):
            if end is not None:
                before, end._share, end.passed_on = end._share, share, MOST_UNPROVEN
                if waiting := before.leave(end):
                    share.carry(end, waiting)
                end.free(before)

    def _then(self, within_s: float | None, call: Callable[..., None] = lambda: None, *given: float) -> None:
        """Call something later, and nothing else that was to be called; None: nothing."""
        if self._later is not None:
            self._later.cancel()
        self._later = None if within_s is None else asyncio.get_running_loop().call_later(within_s, call, *given)

    def _look(self, idle_s: float) -> None:
        """Close both ends if they have been idle; else look again when they could be."""
        other = self.other
        if other is None or self.transport is None or self.transport.is_closing():
            return
        loop = asyncio.get_running_loop()
        left = max(self._heard_at, other._heard_at) + idle_s - loop.time()
        if left > 0:
            self._then(left, self._look, idle_s)
            return
        self.close(abrupt=True)
        other.close(abrupt=True)
