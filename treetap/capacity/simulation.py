"""One tree of boosting, simulated message by message as the parties exchange them (docs/protocol-boosting.md).

The label holder encrypts blocks on its workers, two under way at each, and sends a block to every feature party before
the next; feature parties have each worker add blocks to the root's cells while others arrive. Below the root all is in
turn: sums, packing, opening party by party, splits, instance spaces. Operations and sizes are those of the protocol;
what each takes was measured.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import simpy

from treetap.additive.sums.kernel_timings import BLOCK, KernelCosts
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, SMALLEST_BLOCK
from treetap.capacity.machines import Activity, Event
from treetap.capacity.measurements import HostCosts
from treetap.capacity.processes import Connection, PartyProcesses, Steps, World
from treetap.capacity.site import Site
from treetap.capacity.training import Level, PartyCounts, Training
from treetap.errors import BadInput

LABEL_HOLDER = "label holder"
#: Most blocks that are followed one by one; of more, several go together.
MOST_BLOCKS = 3_000


@dataclass(frozen=True)
class Sizes:
    """Bytes of messages of one tree, by the protocol's own messages.

    Attributes:
        block: a message of ciphertexts: bytes beside these.
        sampled: the drawn records, to each feature party.
        sums: per feature party and level the messages of candidate sums.
        children: per feature party and level the children of its splits.
        spaces: per feature party and level the instance spaces that it is sent.
        paths: the leaf paths, to each.
    """

    block: int
    sampled: int
    sums: Mapping[str, tuple[tuple[int, ...], ...]]
    children: Mapping[str, tuple[int, ...]]
    spaces: Mapping[str, tuple[int, ...]]
    paths: int


@dataclass(frozen=True)
class Simulated:
    """Findings of the simulation of one tree; `streamed_s`: when the last block had been added to the root's cells."""

    seconds: float
    streamed_s: float
    phases: Mapping[str, Activity]
    label_holder: PartyProcesses
    feature_parties: Mapping[str, PartyProcesses]
    connections: tuple[Connection, ...]
    counts: Mapping[str, PartyCounts]
    world: World


def simulate(training: Training, site: Site, host: HostCosts, kernels: KernelCosts, sizes: Sizes) -> Simulated:
    """Simulate one tree.

    Raises:
        BadInput: the site is none, or there is nothing to train.
    """
    site.check()
    if training.drawn < 1 or not training.levels:
        raise BadInput("a tree needs at least one record and one level")
    run = _Tree(training, site, host, kernels, sizes)
    run.world.env.run(until=run.world.env.process(run.grow()))
    return run.found()


class _Tree:
    """The processes of one tree."""

    def __init__(self, training: Training, site: Site, host: HostCosts, kernels: KernelCosts, sizes: Sizes) -> None:
        self.training, self.host, self.kernels, self.sizes = training, host, kernels, sizes
        self.world = World(site, host)
        self.holder = PartyProcesses(self.world, LABEL_HOLDER, site.key_nodes)
        self.others = {name: PartyProcesses(self.world, name, site.feature_party) for name in training.others}
        self.to = {name: Connection(self.world, self.holder, party) for name, party in self.others.items()}
        self.back = {name: Connection(self.world, party, self.holder) for name, party in self.others.items()}
        self.counts = {
            name: PartyCounts(training, columns, site.feature_party.all_workers)
            for name, columns in training.others.items()
        }
        self.arrived = {name: simpy.Store(self.world.env) for name in self.others}
        self.width = training.key.ciphertext_bytes
        blocks = -(-training.drawn // self._block_size())
        self.together = -(-blocks // MOST_BLOCKS)
        self.streamed_s = 0.0

    def found(self) -> Simulated:
        """The result."""
        env = self.world.env
        return Simulated(
            seconds=env.now,
            streamed_s=self.streamed_s,
            phases=self.world.activities,
            label_holder=self.holder,
            feature_parties=self.others,
            connections=(*self.to.values(), *self.back.values()),
            counts=self.counts,
            world=self.world,
        )

    def grow(self) -> Steps:
        """A tree from `begin_tree` to `store_tree`."""
        env, training = self.world.env, self.training
        adding = [env.process(self._add_blocks(name)) for name in self.others]
        yield env.process(self._stream())
        yield simpy.AllOf(env, adding)
        self.streamed_s = env.now
        for number, level in enumerate(training.levels):
            yield simpy.AllOf(env, [env.process(self._sums(name, number)) for name in self.others])
            yield env.process(self._choose(number, level))
            yield env.process(self._apply(number, level))
        yield self.holder.main.do(training.records * self.host.gradient_s, "decide")  # scores and metrics
        yield self._each(lambda name: self.to[name].deliver(self.sizes.paths, "decide"))
        yield from self._step("decide", 2)  # store_tree, the label holder last

    def _block_size(self) -> int:
        return max(1, min(BLOCK, max(SMALLEST_BLOCK, -(-self.training.drawn // len(self.holder.workers)))))

    def _each(self, action: object) -> Event:
        assert callable(action)
        return simpy.AllOf(self.world.env, [action(name) for name in self.others])

    def _step(self, phase: str, count: int = 1) -> Steps:
        """`count` steps that the coordinator asks for one after the other: each a call and its answer."""
        cost = self.host.send_message_s + self.host.receive_message_s
        for _ in range(count):
            yield self.holder.main.do(cost, phase)
            if not self.world.site.one_machine:
                yield self.world.env.timeout(2 * self.world.site.delay_s)

    def _stream(self) -> Steps:
        """Step 1: gradients, the drawn records, and the blocks of ciphertexts."""
        env, training, holder = self.world.env, self.training, self.holder
        yield from self._step("prepare")
        yield holder.main.do(training.records * self.host.gradient_s, "prepare")
        yield self._each(lambda name: self.to[name].deliver(self.sizes.sampled, "prepare"))
        size = self._block_size() * self.together
        starts = iter(range(0, training.drawn, size))
        pending: deque[tuple[int, Event]] = deque()
        number, held = 0, 0
        while True:
            while len(pending) < IN_FLIGHT_PER_WORKER * len(holder.workers):
                start = next(starts, None)
                if start is None:
                    break
                count = min(size, training.drawn - start)
                slots = 8 * len(training.slots.widths)
                seconds = count * self.kernels.encrypt_s
                worker = number % len(holder.workers)
                pending.append((count, holder.call(worker, seconds, slots * count, self.width * count, "encrypt")))
                number += 1
            if not pending:
                break
            count, ready = pending.popleft()
            yield ready
            if held:
                yield self._send_block(held)
            held = count
        yield self._send_block(held)
        del env

    def _send_block(self, count: int) -> Event:
        """One block, or several together, to every feature party."""
        messages = -(-count // self._block_size())
        size = count * self.width + messages * self.sizes.block

        def to(name: str) -> Event:
            return self.world.env.process(self._hand_over(name, size, messages, count))

        return self._each(to)

    def _hand_over(self, name: str, size: int, messages: int, count: int) -> Steps:
        """Deliver a block to a feature party, which begins with it."""
        yield self.to[name].deliver(size, messages=messages)
        yield self.arrived[name].put(count)

    def _add_blocks(self, name: str) -> Steps:
        """Step 2 at the root: a feature party's workers add blocks to their cells."""
        party, columns = self.others[name], self.training.others[name]
        workers, level = len(party.workers), self.counts[name].levels[0]
        per_record = level.products * workers / self.training.drawn * self.kernels.product_s + self.kernels.read_s
        left, number = self.training.drawn, 0
        under_way: deque[Event] = deque()
        codes = columns.row_bytes
        while left:
            count = yield self.arrived[name].get()
            left -= count
            size = count * (self.width + codes)
            under_way.append(party.call(number % workers, count * per_record, size, 0, "sum"))
            number += 1
            while len(under_way) > workers - 1:
                yield under_way.popleft()
        while under_way:
            yield under_way.popleft()

    def _sums(self, name: str, number: int) -> Steps:
        """Step 2: bins of every node, merged to candidates, packed and sent."""
        training, party, kernels = self.training, self.others[name], self.kernels
        columns, level, counts = training.others[name], training.levels[number], self.counts[name].levels[number]
        workers, nodes = len(party.workers), len(level.built)
        yield from self._step("sum")
        if number:
            yield party.main.do(sum(level.built) * self.host.space_s, "sum")
        products = counts.products if number else 0  # those of the root were made while blocks came
        places = 8 * sum(level.built) // workers if number else 0
        bins = nodes * columns.bins
        bytes_of_bins = bins * self.width
        seconds = products * kernels.product_s + bins * kernels.write_s
        yield party.everywhere(seconds, places, bytes_of_bins, "sum")
        candidates = nodes * columns.candidates
        merging = counts.merging * kernels.product_s + workers * bins * kernels.read_s + candidates * kernels.write_s
        each = bytes_of_bins, candidates * self.width // workers
        yield party.everywhere(merging / workers, *each, "sum")
        most = -(-counts.packings // workers)
        packed = [min(most, max(0, counts.packings - worker * most)) for worker in range(workers)]
        yield simpy.AllOf(
            self.world.env,
            [
                party.call(worker, count * kernels.pack_s, each[1], count * self.width, "pack")
                for worker, count in enumerate(packed)
                if count
            ],
        )
        for size in self.sizes.sums[name][number]:
            yield self.back[name].deliver(size)

    def _choose(self, number: int, level: Level) -> Steps:
        """Step 3: own candidate sums, then those of each feature party opened in turn."""
        holder, own = self.holder, self.training.own
        yield from self._step("decide")
        yield holder.main.do(sum(level.built) * len(own.shapes) * self.host.histogram_s, "decide")
        workers = len(holder.workers)
        for counts in self.counts.values():
            packed = counts.levels[number].packings
            shares = [packed * (k + 1) // workers - packed * k // workers for k in range(workers)]
            answer = 8 * len(self.training.slots.widths) * self.training.candidates_per_ciphertext
            yield simpy.AllOf(
                self.world.env,
                [
                    holder.call(worker, share * self.kernels.open_s, share * self.width, share * answer, "open")
                    for worker, share in enumerate(shares)
                    if share
                ],
            )

    def _apply(self, number: int, level: Level) -> Steps:
        """Steps 4 and 5: owners divide their nodes, the label holder checks the children and relays them."""
        records = self.training.records // max(len(level.owners), 1) if level.owners else 0
        parties = [self.holder, *self.others.values()]
        yield from self._step("decide")
        divided = [
            parties[owner].main.do(level.owners.count(owner) * records * self.host.split_s, "decide")
            for owner in sorted(set(level.owners))
        ]
        yield simpy.AllOf(self.world.env, divided)
        sent = [self.back[name].deliver(s[number], "decide") for name, s in self.sizes.children.items() if s[number]]
        yield simpy.AllOf(self.world.env, sent)
        yield from self._step("decide")
        yield self.holder.main.do(len(level.owners) * records * self.host.check_s, "decide")
        sent = [self.to[name].deliver(s[number], "decide") for name, s in self.sizes.spaces.items() if s[number]]
        yield simpy.AllOf(self.world.env, sent)
