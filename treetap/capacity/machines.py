"""Machines, processes and lines of a simulation: who waits for what.

A machine's cores are shared evenly by the processes that compute at that time, as a system's scheduler does it. A
process computes one thing at a time. A line has a bandwidth in each direction, a queue, and a delay.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from itertools import count
from typing import Any

import simpy

Event = simpy.Event


class Activity:
    """The times at which a phase is under way somewhere: their total, the first and the last."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env, self._active, self._since = env, 0, 0.0
        self.seconds, self.first, self.last = 0.0, float("inf"), 0.0

    def begin(self) -> None:
        """One process more works on it."""
        if not self._active:
            self._since = self._env.now
            self.first = min(self.first, self._since)
        self._active += 1

    def end(self) -> None:
        """One process fewer."""
        self._active -= 1
        if not self._active:
            self.seconds += self._env.now - self._since
            self.last = self._env.now


class Machine:
    """Cores that all running processes share evenly (processor sharing, in virtual time)."""

    def __init__(self, env: simpy.Environment, name: str, cores: int) -> None:
        self._env, self.name, self.cores = env, name, cores
        self._virtual, self._at = 0.0, float(env.now)
        self._running: list[tuple[float, int, Event]] = []
        self._numbers = count()
        self._version = 0
        self.busy = 0.0  # core seconds

    def run(self, seconds: float) -> Event:
        """An event after `seconds` of one core."""
        self._advance()
        done = self._env.event()
        heapq.heappush(self._running, (self._virtual + seconds, next(self._numbers), done))
        self.busy += seconds
        self._plan()
        return done

    def _rate(self) -> float:
        return min(1.0, self.cores / len(self._running)) if self._running else 0.0

    def _advance(self) -> None:
        self._virtual += (self._env.now - self._at) * self._rate()
        self._at = float(self._env.now)

    def _plan(self) -> None:
        """Wake at the end of the work that ends next."""
        self._version += 1
        if self._running:
            version, left = self._version, self._running[0][0] - self._virtual
            wake = self._env.timeout(max(0.0, left) / self._rate())
            assert wake.callbacks is not None
            wake.callbacks.append(lambda _: self._finish(version))

    def _finish(self, version: int) -> None:
        if version != self._version:
            return  # other work has come meanwhile
        self._advance()
        limit = self._running[0][0] + 1e-12
        self._virtual = max(self._virtual, self._running[0][0])
        while self._running and self._running[0][0] <= limit:
            heapq.heappop(self._running)[2].succeed()
        self._plan()


class Process:
    """One process of a machine: does one thing after another."""

    def __init__(self, machine: Machine, name: str, activities: dict[str, Activity]) -> None:
        self._machine, self.name, self._activities = machine, name, activities
        self._queue: deque[tuple[float, str, Event]] = deque()
        self._at_work = False
        self.seconds: defaultdict[str, float] = defaultdict(float)  # of a core, by phase

    def do(self, seconds: float, phase: str) -> Event:
        """An event once this and all earlier work is done."""
        done = self._machine._env.event()
        self._queue.append((seconds, phase, done))
        if not self._at_work:
            self._next()
        return done

    def _next(self) -> None:
        self._at_work = bool(self._queue)
        if not self._queue:
            return
        seconds, phase, done = self._queue.popleft()
        self.seconds[phase] += seconds
        activity = self._activities[phase]
        activity.begin()
        ended = self._machine.run(seconds)
        assert ended.callbacks is not None

        def finished(_: Event) -> None:
            activity.end()
            done.succeed()
            self._next()

        ended.callbacks.append(finished)


class Port:
    """A machine's connection to the others in one direction; `bytes_per_s` infinite: as on one machine."""

    def __init__(self, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.free_at = 0.0
        self.bytes = 0

    @property
    def seconds(self) -> float:
        """The time for which it is in use."""
        return self.bytes / self.bytes_per_s


class Line:
    """From one port through another, with a delay."""

    def __init__(self, env: simpy.Environment, out: Port, into: Port, delay_s: float) -> None:
        self._env, self._out, self._into, self._delay = env, out, into, delay_s
        self.bytes, self.messages = 0, 0

    def carry(self, size: int) -> Event:
        """An event when the last byte has arrived."""
        now = self._env.now
        out, into = self._out, self._into
        left = max(now, out.free_at) + size / out.bytes_per_s
        out.free_at = left
        came = max(left, into.free_at + size / into.bytes_per_s)
        into.free_at = came
        out.bytes += size
        into.bytes += size
        self.bytes += size
        self.messages += 1
        return self._env.timeout(came + self._delay - now)


def all_of(env: simpy.Environment, events: list[Any]) -> Event:
    """An event after all others."""
    return simpy.AllOf(env, events)
