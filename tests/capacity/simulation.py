"""A tree of boosting event by event: the oracle of the estimate in `treetap.commands.capacity.tree`.

A machine's cores are shared evenly by the processes that compute at that time, as a system's scheduler does it. A
process computes one thing at a time. A port, of a machine or of a party's line, carries one message after the other.
Costs, counts of operations and sizes of messages are those of the estimate; who waits for what is followed here as the
parties' code has it, block by block.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from typing import Any

import simpy

from treetap.additive.sums.kernel_timings import KernelCosts
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, block_size
from treetap.commands.capacity.measuring import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import HOLDER, Level, PartyCounts, Training
from treetap.commands.capacity.tree import FRAME, MESSAGE
from treetap.protocols.growth import branches_of_leaves, drawn_sets, left_records, records_of_nodes, sums_of_nodes
from treetap.protocols.messages import Bound, Series

Steps = Generator[simpy.Event, Any, None]


class Machine:
    """Cores that all running processes share evenly."""

    def __init__(self, env: simpy.Environment, cores: int) -> None:
        self._env, self._cores, self._running, self._other_share = env, cores, 0, env.event()

    def run(self, seconds: float) -> Steps:
        """Take `seconds` of one core."""
        self._share(1)
        while seconds > 1e-12:
            begin, share = self._env.now, min(1.0, self._cores / self._running)
            yield self._env.timeout(seconds / share) | self._other_share
            seconds -= (self._env.now - begin) * share
        self._share(-1)

    def _share(self, more: int) -> None:
        """Begin or end a process's work; if that changes the others' share, they plan anew."""
        self._running += more
        if self._running + (more < 0) > self._cores:
            self._other_share.succeed()
            self._other_share = self._env.event()


class Process:
    """One process of a machine: does one thing after another."""

    def __init__(self, env: simpy.Environment, machine: Machine) -> None:
        self._env, self._machine, self._turn = env, machine, simpy.Resource(env)

    def do(self, seconds: float) -> simpy.Event:
        """An event once this and all earlier work is done."""
        return self._env.process(self._do(seconds))

    def _do(self, seconds: float) -> Steps:
        with self._turn.request() as turn:
            yield turn
            yield from self._machine.run(seconds)


class Port:
    """A connection in one direction."""

    def __init__(self, mbit_s: float) -> None:
        self.bytes_per_s, self.free_at = mbit_s * 1e6 / 8, 0.0


class Party:
    """The processes of one party: the main process holds the ends of its lines, and each worker has a queue."""

    def __init__(self, tree: SimulatedTree, name: str, nodes: int) -> None:
        env, site = tree.env, tree.site
        self.name, self.nodes, self._env, self._host = name, nodes, env, tree.host
        machines = [tree.machine() for _ in range(nodes)]
        self.main = Process(env, machines[0])
        self.workers = [Process(env, machines[worker % nodes]) for worker in range(nodes * site.workers_each)]
        line, inner = (math.inf, math.inf) if site.one_machine else (site.bandwidth, site.inner_bandwidth)
        self.out, self.into, self._inner_out, self._inner_into = Port(line), Port(line), Port(inner), Port(inner)
        self._far = [Port(inner) for _ in range(nodes)]

    def call(self, worker: int, seconds: float, size_in: float, size_out: float) -> simpy.Event:
        """An event once a worker's kernel has answered: it takes and returns this many bytes."""
        return self._env.process(self._call(worker, seconds, size_in, size_out))

    def _call(self, worker: int, seconds: float, size_in: float, size_out: float) -> Steps:
        host, far = self._host, worker % self.nodes
        yield self.main.do(host.call_s + size_in * host.pipe_byte_s)
        if far:
            yield carry(self._env, size_in, self._inner_out, self._far[far])
        yield self.workers[worker].do(seconds + (size_in + size_out) * host.worker_byte_s)
        if far:
            yield carry(self._env, size_out, self._far[far], self._inner_into)
        yield self.main.do(size_out * host.pipe_byte_s)


def carry(env: simpy.Environment, size: float, out: Port, into: Port, delay_s: float = 0.0) -> simpy.Event:
    """An event when the last byte has come through both ports, which a message passes at the same time."""
    out.free_at = max(env.now, out.free_at) + size / out.bytes_per_s
    into.free_at = max(out.free_at, into.free_at + size / into.bytes_per_s)
    return env.timeout(into.free_at + delay_s - env.now)


class SimulatedTree:
    """One tree, simulated.

    `seconds`: from `begin_tree` to `store_tree`. `streamed_s`: until the last block has been added to the root's cells.
    """

    def __init__(self, job: Training, site: Site, host: HostCosts, kernels: KernelCosts) -> None:
        self.env, self.job, self.site, self.host, self.kernels = simpy.Environment(), job, site, host, kernels
        self._machines = list[Machine]()
        self._delay_s = 0.0 if site.one_machine else site.delay / 1e3
        holder, other = site.machines
        self.holder = Party(self, HOLDER, holder)
        self.others = {name: Party(self, name, other) for name in job.others}
        self._plain = 8 * len(job.slots.widths)
        self._prepare()
        self.streamed_s = 0.0
        self.env.run(until=self.env.process(self._grow()))
        self.seconds = float(self.env.now)

    def machine(self) -> Machine:
        """A new machine; the same one each time where all processes share one."""
        if not (self.site.one_machine and self._machines):
            self._machines.append(Machine(self.env, self.site.cores))
        return self._machines[-1]

    def _all(self, events: Iterable[simpy.Event]) -> simpy.Event:
        """An event after all others."""
        return simpy.AllOf(self.env, list(events))

    def _each(self, steps: Callable[[str], Steps]) -> simpy.Event:
        """An event once every feature party has done something."""
        return self._all(self.env.process(steps(name)) for name in self.others)

    def _grow(self) -> Steps:
        """A tree from `begin_tree` to `store_tree`."""
        yield from self._step()
        yield self.holder.main.do(self.job.records * self.host.gradient_s)
        yield self._to_all(drawn_sets)
        for number, level in enumerate(self.job.levels):
            yield from self._values(number)
            self.streamed_s = self.streamed_s or self.env.now
            yield self._each(lambda name, number=number: self._sums(name, number))  # type: ignore[misc]
            yield from self._choose(number, level)
            yield from self._apply(number, level)
        yield self.holder.main.do(self.job.records * self.host.gradient_s)  # scores and metrics
        yield self._to_all(branches_of_leaves)
        yield from self._step()  # store_tree
        yield from self._step()  # and at the label holder last

    def _step(self) -> Steps:
        """A step that the coordinator asks for: a call and its answer."""
        yield self.holder.main.do(self.host.send_message_s + self.host.receive_message_s)
        yield self.env.timeout(2 * self._delay_s)

    def _to_all(self, bound: Bound, level: int = 0) -> simpy.Event:
        return self._each(lambda name: self._series(self.holder, self.others[name], bound, level))

    def _series(self, sender: Party, receiver: Party, bound: Bound, level: int) -> Steps:
        """Messages of one series, each once the last was taken."""
        size = bound(self.job.sizes, Series(sender.name, receiver.name, 0, level))
        count = max(1, -(-size // MESSAGE))
        for _ in range(count):
            yield from self._message(sender, receiver, size / count + FRAME)

    def _message(self, sender: Party, receiver: Party, size: float) -> Steps:
        host = self.host
        yield sender.main.do(host.send_message_s + size * host.send_byte_s)
        yield carry(self.env, size, sender.out, receiver.into, self._delay_s)
        yield receiver.main.do(host.receive_message_s + size * host.receive_byte_s)
        yield self.env.timeout(self._delay_s)

    def _prepare(self) -> None:
        job = self.job
        self.counts = {
            name: PartyCounts(job, job.others[name], len(party.workers)) for name, party in self.others.items()
        }
        self._arrived = {name: simpy.Store(self.env) for name in self.others}
        self._width = job.key.ciphertext_bytes

    def _values(self, number: int) -> Steps:
        """The root's ciphertexts serve all nodes."""
        if not number:
            adding = [self.env.process(self._add_blocks(name)) for name in self.others]
            yield from self._stream()
            yield self._all(adding)

    def _stream(self) -> Steps:
        """Step 1: the blocks of ciphertexts as `KeyHolder` makes them.

        A block leaves when the next is there, since the last of a series says that it is.
        """
        job, holder, workers = self.job, self.holder, len(self.holder.workers)
        size = block_size(job.drawn, workers, self._width)
        blocks = deque(min(size, job.drawn - start) for start in range(0, job.drawn, size))
        pending = deque[tuple[int, simpy.Event]]()
        begun = held = 0
        while blocks or pending:
            while blocks and len(pending) < IN_FLIGHT_PER_WORKER * workers:
                count = blocks.popleft()
                seconds, plain = count * self.kernels.encrypt_s, count * self._plain
                pending.append((count, holder.call(begun % workers, seconds, plain, count * self._width)))
                begun += 1
            count, ready = pending.popleft()
            yield ready
            if held:
                yield self._each(lambda name, held=held: self._hand_over(name, held))  # type: ignore[misc]
            held = count
        yield self._each(lambda name: self._hand_over(name, held))

    def _hand_over(self, name: str, count: int) -> Steps:
        """A block to a feature party."""
        yield from self._message(self.holder, self.others[name], count * self._width + FRAME)
        yield self._arrived[name].put(count)

    def _add_blocks(self, name: str) -> Steps:
        """Step 2 at the root: a feature party's workers add blocks to their cells, all but one under way on return."""
        party, row = self.others[name], self._width + self.job.others[name].row_bytes
        workers, left, number = len(party.workers), self.job.drawn, 0
        products = self.counts[name].levels[0].products * workers / left
        under_way = deque[simpy.Event]()
        while left:
            count = yield self._arrived[name].get()
            left -= count
            seconds = count * (products * self.kernels.product_s + self.kernels.read_s)
            under_way.append(party.call(number % workers, seconds, count * row, 0))
            number += 1
            while len(under_way) > workers - 1:
                yield under_way.popleft()
        yield self._all(under_way)

    def _sums(self, name: str, number: int) -> Steps:
        """Step 2: bins of every node, merged to candidates, packed and sent."""
        party, kernels, columns = self.others[name], self.kernels, self.job.others[name]
        built, counts, workers = self.job.levels[number].built, self.counts[name].levels[number], len(party.workers)
        yield from self._step()
        below = sum(built) if number else 0  # the root's products were made while blocks came
        yield party.main.do(below * self.host.space_s)
        bins, candidates = len(built) * columns.bins, len(built) * columns.candidates
        summing = (counts.products if number else 0) * kernels.product_s + bins * kernels.write_s
        merging = counts.merging * kernels.product_s + workers * bins * kernels.read_s + candidates * kernels.write_s
        every, merged, most = range(workers), candidates * self._width / workers, -(-counts.packings // workers)
        yield self._all(party.call(worker, summing, 8 * below / workers, bins * self._width) for worker in every)
        yield self._all(party.call(worker, merging / workers, bins * self._width, merged) for worker in every)
        packed = [min(most, max(0, counts.packings - worker * most)) for worker in every]
        yield self._all(
            party.call(worker, count * kernels.pack_s, merged, count * self._width)
            for worker, count in enumerate(packed)
            if count
        )
        yield from self._series(party, self.holder, sums_of_nodes, number)

    def _choose(self, number: int, level: Level) -> Steps:
        """Step 3: own candidate sums, then those of the feature parties."""
        yield from self._step()
        yield self.holder.main.do(sum(level.built) * len(self.job.own.shapes) * self.host.histogram_s)
        yield from self._open(number)

    def _open(self, number: int) -> Steps:
        """Those of each feature party in turn."""
        holder, workers = self.holder, len(self.holder.workers)
        opened = self._plain * self.job.candidates_per_ciphertext
        for counts in self.counts.values():
            packed = counts.levels[number].packings
            shares = [packed * (k + 1) // workers - packed * k // workers for k in range(workers)]
            yield self._all(
                holder.call(worker, share * self.kernels.open_s, share * self._width, share * opened)
                for worker, share in enumerate(shares)
                if share
            )

    def _apply(self, number: int, level: Level) -> Steps:
        """Steps 4 and 5: owners divide their nodes, the label holder checks the children and relays them."""
        records, parties = self.job.records / len(level.owners), [self.holder, *self.others.values()]
        yield from self._step()
        yield self._all(
            party.main.do(level.owners.count(owner) * records * self.host.split_s)
            for owner, party in enumerate(parties)
        )
        yield self._all(
            self.env.process(self._series(party, self.holder, left_records, number))
            for owner, party in enumerate(self.others.values(), 1)
            if owner in level.owners
        )
        yield from self._step()
        yield self.holder.main.do(len(level.owners) * records * self.host.check_s)
        if number + 1 < len(self.job.levels):
            yield self._to_all(records_of_nodes, number + 1)
