"""Who may use a console: tokens that open it once, and the sessions of the browsers that showed one.

Nothing of it is on disk, so that it ends with the process.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

#: Bytes of a token: 128 bits.
TOKEN_BYTES = 16
#: Seconds in which a token can be used, and after whose last request a session ends.
TOKEN_S, IDLE_S = 60.0, 900.0
#: A clock that goes on while the machine sleeps, as CLOCK_MONOTONIC does not on Linux.
_THROUGH_SLEEP = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
#: Most sessions, and tokens that wait; the oldest one makes room.
MOST = 16


@dataclass
class Session:
    """A browser that showed a token. `form`: the token of its forms; `seen`: the last request, by the clock."""

    form: str
    seen: float


def _seconds() -> float:
    return time.clock_gettime(_THROUGH_SLEEP)


class Sessions:
    """The sessions of one console.

    Args:
        clock: seconds, monotonic, with those for which the machine sleeps.
        draw: random text of a number of bytes, from the operating system.
    """

    def __init__(self, clock: Callable[[], float] = _seconds, draw: Callable[[int], str] = secrets.token_hex) -> None:
        self._clock, self._draw = clock, draw
        self._tokens: dict[bytes, float] = {}
        self._sessions: dict[bytes, Session] = {}

    def token(self) -> str:
        """A new token, which opens one session within `TOKEN_S`."""
        made = self._draw(TOKEN_BYTES)
        _make_room(self._tokens)
        self._tokens[_digest(made)] = self._clock()
        return made

    def enter(self, token: str) -> str | None:
        """The secret of a new session for a token, which is used up by it; None for one that opens none."""
        made = self._tokens.pop(_digest(token), None)
        if made is None or self._clock() - made > TOKEN_S:
            return None
        secret = self._draw(2 * TOKEN_BYTES)
        _make_room(self._sessions)
        self._sessions[_digest(secret)] = Session(self._draw(TOKEN_BYTES), self._clock())
        return secret

    def of(self, secret: str, *, by_hand: bool = True) -> Session | None:
        """The session of a secret; None if there is none, or it was idle for `IDLE_S`.

        `by_hand`: a person asked, which keeps it; a page that refreshes itself does not.
        """
        session, now = self._sessions.get(_digest(secret)), self._clock()
        if session is None:
            return None
        if now - session.seen > IDLE_S:
            self.leave(secret)
            return None
        if by_hand:
            session.seen = now
        return session

    def leave(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(secret), None)


def _digest(secret: str) -> bytes:
    """The key by which a secret is looked up, so that no comparison's time tells of it."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def _make_room(held: dict[bytes, float] | dict[bytes, Session]) -> None:
    while len(held) >= MOST:
        del held[next(iter(held))]
