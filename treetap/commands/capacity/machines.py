"""Machines, processes and lines of a simulation: who waits for what.

A machine's cores are shared evenly by the processes that compute at that time, as a system's scheduler does it. A
process computes one thing at a time. A line has a bandwidth in each direction, a queue, and a delay.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import simpy

from treetap.commands.capacity.measurements import HostCosts
from treetap.commands.capacity.question import Site

Steps = Generator[simpy.Event, Any, None]
#: The phases of a tree, in the order in which they begin.
PHASES = ("prepare", "encrypt", "send", "sum", "pack", "open", "decide")


@dataclass
class World:
    """State that all processes of a simulation share; `work`: when each phase was under way at some process."""

    site: Site
    host: HostCosts
    env: simpy.Environment = field(default_factory=simpy.Environment)
    machines: list[Machine] = field(default_factory=list)
    work: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {phase: [] for phase in PHASES})

    def machine(self) -> Machine:
        """A new machine; the same one each time where all processes share one."""
        if not (self.site.one_machine and self.machines):
            self.machines.append(Machine(self.env, self.site.cores))
        return self.machines[-1]

    def port(self, mbit_s: float) -> Port:
        """A connection in one direction, without a limit on one machine."""
        return Port(inf if self.site.one_machine else mbit_s * 1e6 / 8)

    @property
    def delay_s(self) -> float:
        """Time of a message between parties, one way."""
        return 0.0 if self.site.one_machine else self.site.delay / 1e3

    def all(self, events: Iterable[simpy.Event]) -> simpy.Event:
        """An event after all others."""
        return simpy.AllOf(self.env, list(events))

    def carry(self, size: float, out: Port, into: Port, delay_s: float = 0.0) -> simpy.Event:
        """An event when the last byte has come through both ports."""
        now = self.env.now
        out.free_at = max(now, out.free_at) + size / out.bytes_per_s
        into.free_at = max(out.free_at, into.free_at + size / into.bytes_per_s)
        out.bytes += size
        into.bytes += size
        return self.env.timeout(into.free_at + delay_s - now)

    def spans(self) -> dict[str, tuple[float, float, float]]:
        """Of each phase that took time: how long it was under way, when it began, and when it ended."""
        spans = {}
        for phase, intervals in self.work.items():
            seconds = last = 0.0
            for begin, end in sorted(intervals):  # without what two processes did at once
                seconds += max(0.0, end - max(begin, last))
                last = max(last, end)
            if seconds:
                spans[phase] = seconds, min(intervals)[0], last
        return spans


class Machine:
    """Cores that all running processes share evenly, as a system's scheduler does it."""

    def __init__(self, env: simpy.Environment, cores: int) -> None:
        self._env, self.cores, self._running, self._other_share = env, cores, 0, env.event()

    def run(self, seconds: float) -> Steps:
        """Take `seconds` of one core."""
        self._share(1)
        while seconds > 1e-12:
            begin, share = self._env.now, min(1.0, self.cores / self._running)
            yield self._env.timeout(seconds / share) | self._other_share
            seconds -= (self._env.now - begin) * share
        self._share(-1)

    def _share(self, more: int) -> None:
        """Begin or end a process's work; if that changes the others' share, they plan anew."""
        self._running += more
        if self._running + (more < 0) > self.cores:
            self._other_share.succeed()
            self._other_share = self._env.event()


class Process:
    """One process of a machine: does one thing after another."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world, self._machine, self._turn = world, machine, simpy.Resource(world.env)
        self.seconds = 0.0  # of a core

    def do(self, seconds: float, phase: str) -> simpy.Event:
        """An event once this and all earlier work is done."""
        return self._world.env.process(self._do(seconds, phase))

    def _do(self, seconds: float, phase: str) -> Steps:
        with self._turn.request() as turn:
            yield turn
            begin = self._world.env.now
            yield from self._machine.run(seconds)
        self._world.work[phase].append((begin, self._world.env.now))
        self.seconds += seconds


@dataclass
class Port:
    """A machine's connection to the others in one direction."""

    bytes_per_s: float
    free_at: float = 0.0
    bytes: float = 0

    @property
    def seconds(self) -> float:
        """The time for which it is in use."""
        return self.bytes / self.bytes_per_s


class Party:
    """The processes of one party: the main process holds the ends of its lines, and each worker has a queue."""

    def __init__(self, world: World, name: str, nodes: int) -> None:
        self.world, self.name, self.nodes, site = world, name, nodes, world.site
        machines = [world.machine() for _ in range(nodes)]
        self.main = Process(world, machines[0])
        self.workers = [Process(world, machines[worker % nodes]) for worker in range(nodes * site.workers_each)]
        self.out, self.into = world.port(site.bandwidth), world.port(site.bandwidth)
        self.inner_out, self.inner_into = world.port(site.inner_bandwidth), world.port(site.inner_bandwidth)
        self._far = [world.port(site.inner_bandwidth) for _ in range(nodes)]

    def call(self, worker: int, seconds: float, size_in: float, size_out: float, phase: str) -> simpy.Event:
        """A kernel on a worker that takes and returns this many bytes."""
        return self.world.env.process(self._call(worker, seconds, size_in, size_out, phase))

    def _call(self, worker: int, seconds: float, size_in: float, size_out: float, phase: str) -> Steps:
        host, far = self.world.host, worker % self.nodes
        yield self.main.do(host.call_s + size_in * host.pipe_byte_s, phase)
        if far:
            yield self.world.carry(size_in, self.inner_out, self._far[far])
        yield self.workers[worker].do(seconds + (size_in + size_out) * host.worker_byte_s, phase)
        if far:
            yield self.world.carry(size_out, self._far[far], self.inner_into)
        yield self.main.do(size_out * host.pipe_byte_s, phase)


@dataclass
class Connection:
    """From one party to another: the messages of a series follow each other, each once the last was taken."""

    sender: Party
    receiver: Party
    bytes: float = 0
    messages: int = 0
    seconds: float = 0.0  # in which a message is on its way, until the sender knows that it was taken

    def deliver(self, size: float, phase: str = "send", messages: int = 1) -> simpy.Event:
        """`messages` messages of this size together, one after the other."""
        return self.sender.world.env.process(self._deliver(size, phase, messages))

    def _deliver(self, size: float, phase: str, messages: int) -> Steps:
        world, host = self.sender.world, self.sender.world.host
        begin = world.env.now
        self.bytes += size
        self.messages += messages
        yield self.sender.main.do(messages * host.send_message_s + size * host.send_byte_s, phase)
        yield world.carry(size, self.sender.out, self.receiver.into, world.delay_s)
        yield self.receiver.main.do(messages * host.receive_message_s + size * host.receive_byte_s, phase)
        yield world.env.timeout((2 * messages - 1) * world.delay_s)
        self.seconds += world.env.now - begin
