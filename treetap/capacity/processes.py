"""The processes of a party in a simulation: a main process, workers, and calls between them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import simpy

from treetap.capacity.machines import Activity, Event, Line, Machine, Port, Process
from treetap.capacity.measurements import HostCosts
from treetap.capacity.site import Nodes, Site

Steps = Generator[Event, Any, None]
#: The phases of a tree, in the order in which they begin.
PHASES = ("prepare", "encrypt", "send", "sum", "pack", "open", "decide")


class World:
    """State that all processes of a simulation share."""

    def __init__(self, site: Site, host: HostCosts) -> None:
        self.env = simpy.Environment()
        self.site, self.host = site, host
        self.activities = {phase: Activity(self.env) for phase in PHASES}
        self.machines: list[Machine] = []
        self._shared: Machine | None = None

    def machine(self, name: str, cores: int) -> Machine:
        """A machine; the same one each time where all processes share one."""
        if self.site.one_machine and self._shared is not None:
            return self._shared
        found = Machine(self.env, name, cores)
        self.machines.append(found)
        self._shared = found
        return found


class PartyProcesses:
    """One party: the main process holds the ends of its lines, and each worker has a queue."""

    def __init__(self, world: World, name: str, nodes: Nodes) -> None:
        self.world, self.name, self.nodes = world, name, nodes
        machines = [world.machine(f"{name} node {place + 1}", nodes.cores) for place in range(nodes.count)]
        self.main = Process(machines[0], name, world.activities)
        self.workers = [
            Process(machines[worker % nodes.count], f"{name} worker {worker}", world.activities)
            for worker in range(nodes.all_workers)
        ]
        rate = float("inf") if world.site.one_machine else world.site.bits_per_s / 8
        inner = float("inf") if world.site.one_machine else world.site.inner_bits_per_s / 8
        self.out, self.into = Port(rate), Port(rate)
        self._inner_out, self._inner_into = Port(inner), Port(inner)
        far = [Port(inner) for _ in range(nodes.count)]
        self._there = [Line(world.env, self._inner_out, far[place], 0.0) for place in range(nodes.count)]
        self._back = [Line(world.env, far[place], self._inner_into, 0.0) for place in range(nodes.count)]

    @property
    def inner_bytes(self) -> int:
        """Bytes between the main process and workers on other nodes."""
        return self._inner_out.bytes + self._inner_into.bytes

    @property
    def inner_seconds(self) -> float:
        """The time for which the fuller direction of the first node's inner connection is in use."""
        return max(self._inner_out.seconds, self._inner_into.seconds)

    def call(self, worker: int, seconds: float, size_in: int, size_out: int, phase: str) -> Event:
        """A kernel on a worker that takes and returns this many bytes."""
        return self.world.env.process(self._call(worker, seconds, size_in, size_out, phase))

    def _call(self, worker: int, seconds: float, size_in: int, size_out: int, phase: str) -> Steps:
        host, place = self.world.host, worker % self.nodes.count
        yield self.main.do(host.call_s + size_in * host.pipe_byte_s, phase)
        if place:
            yield self._there[place].carry(size_in)
        yield self.workers[worker].do(seconds + (size_in + size_out) * host.worker_byte_s, phase)
        if place:
            yield self._back[place].carry(size_out)
        yield self.main.do(size_out * host.pipe_byte_s, phase)

    def everywhere(self, seconds: float, size_in: int, size_out: int, phase: str) -> Event:
        """The same kernel on every worker at once; sizes of each."""
        calls = [self.call(worker, seconds, size_in, size_out, phase) for worker in range(len(self.workers))]
        return simpy.AllOf(self.world.env, calls)


class Connection:
    """From one party to another: the messages of a series follow each other, each once the last was taken."""

    def __init__(self, world: World, sender: PartyProcesses, receiver: PartyProcesses) -> None:
        self._world, self.sender, self.receiver = world, sender, receiver
        delay = 0.0 if world.site.one_machine else world.site.delay_s
        self.line = Line(world.env, sender.out, receiver.into, delay)
        self._back = delay
        self.seconds = 0.0  # in which a message is on its way, until the sender knows that it was taken

    def deliver(self, size: int, phase: str = "send", *, messages: int = 1) -> Event:
        """`messages` messages of this size together, one after the other."""
        return self._world.env.process(self._deliver(size, phase, messages))

    def _deliver(self, size: int, phase: str, messages: int) -> Steps:
        host, begin = self._world.host, self._world.env.now
        yield self.sender.main.do(messages * host.send_message_s + size * host.send_byte_s, phase)
        yield self.line.carry(size)
        self.line.messages += messages - 1
        yield self.receiver.main.do(messages * host.receive_message_s + size * host.receive_byte_s, phase)
        waits = self._back + (messages - 1) * 2 * self._back
        if waits:
            yield self._world.env.timeout(waits)
        self.seconds += self._world.env.now - begin
