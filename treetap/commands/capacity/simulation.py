"""One tree of boosting, simulated message by message as the parties exchange them (docs/protocol-boosting.md).

The label holder encrypts blocks on its workers, two under way at each, and sends a block to every feature party before
the next; feature parties have each worker add blocks to the root's cells while others arrive. Below the root all is in
turn: sums, packing, opening party by party, splits, instance spaces. Operations and sizes are those of the protocol;
what each takes was measured.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import simpy

from treetap.additive.sums.kernel_timings import BLOCK, KernelCosts
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, SMALLEST_BLOCK
from treetap.commands.capacity.machines import Connection, Party, Steps, World
from treetap.commands.capacity.measurements import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import Level, PartyCounts, Training

#: Most blocks that are followed one by one; of more, several go together.
MOST_BLOCKS = 3_000


@dataclass(frozen=True)
class Sizes:
    """Bytes of messages of one tree, by the protocol's own messages."""

    block: int  # a message of ciphertexts, beside these
    sampled: int  # the drawn records, to each feature party
    sums: Mapping[str, tuple[tuple[int, ...], ...]]  # per feature party and level the messages of candidate sums
    children: Mapping[str, tuple[int, ...]]  # per feature party and level the children of its splits
    spaces: Mapping[str, tuple[int, ...]]  # per feature party and level the instance spaces that it is sent
    paths: int  # the leaf paths, to each


def simulate(training: Training, site: Site, host: HostCosts, kernels: KernelCosts, sizes: Sizes) -> Tree:
    """Simulate one tree."""
    tree = Tree(training, World(site, host), kernels, sizes)
    tree.world.env.run(until=tree.world.env.process(tree.grow()))
    return tree


def block_records(drawn: int, workers: int) -> int:
    """Records of a block, as `KeyHolder.encrypt_blocks` cuts them for a label holder with so many workers."""
    return max(1, min(BLOCK, max(SMALLEST_BLOCK, -(-drawn // workers))))


class Tree:
    """The processes of one tree, and once it is simulated what it took.

    `streamed_s`: when the last block had been added to the root's cells.
    """

    def __init__(self, training: Training, world: World, kernels: KernelCosts, sizes: Sizes) -> None:
        self.training, self.world, self.host, self.kernels, self.sizes = training, world, world.host, kernels, sizes
        holder, other = world.site.machines
        self.holder = Party(world, "label holder", holder)
        self.others = {name: Party(world, name, other) for name in training.others}
        self.to = {name: Connection(self.holder, party) for name, party in self.others.items()}
        self.back = {name: Connection(party, self.holder) for name, party in self.others.items()}
        self.counts = {
            name: PartyCounts(training, training.others[name], len(party.workers))
            for name, party in self.others.items()
        }
        self._arrived = {name: simpy.Store(world.env) for name in self.others}
        self._width = training.key.ciphertext_bytes
        self._block = block_records(training.drawn, len(self.holder.workers))
        self.streamed_s = 0.0

    @property
    def seconds(self) -> float:
        """The time of the tree."""
        return float(self.world.env.now)

    def grow(self) -> Steps:
        """A tree from `begin_tree` to `store_tree`."""
        env, training = self.world.env, self.training
        adding = [env.process(self._add_blocks(name)) for name in self.others]
        yield env.process(self._stream())
        yield self.world.all(adding)
        self.streamed_s = env.now
        for number, level in enumerate(training.levels):
            yield self._each(lambda name, number=number: env.process(self._sums(name, number)))  # type: ignore[misc]
            yield from self._choose(number, level)
            yield from self._apply(number, level)
        yield self.holder.main.do(training.records * self.host.gradient_s, "decide")  # scores and metrics
        yield self._each(lambda name: self.to[name].deliver(self.sizes.paths, "decide"))
        yield from self._step("decide", 2)  # store_tree, the label holder last

    def _each(self, action: Callable[[str], simpy.Event]) -> simpy.Event:
        """An event once every feature party has done something."""
        return self.world.all(map(action, self.others))

    def _step(self, phase: str, count: int = 1) -> Steps:
        """`count` steps that the coordinator asks for one after the other: each a call and its answer."""
        for _ in range(count):
            yield self.holder.main.do(self.host.send_message_s + self.host.receive_message_s, phase)
            yield self.world.env.timeout(2 * self.world.delay_s)

    def _stream(self) -> Steps:
        """Step 1: gradients, the drawn records, and the blocks of ciphertexts."""
        training, holder, slots = self.training, self.holder, 8 * len(self.training.slots.widths)
        yield from self._step("prepare")
        yield holder.main.do(training.records * self.host.gradient_s, "prepare")
        yield self._each(lambda name: self.to[name].deliver(self.sizes.sampled, "prepare"))
        size = self._block * math.ceil(training.drawn / self._block / MOST_BLOCKS)
        blocks = [min(size, training.drawn - start) for start in range(0, training.drawn, size)]
        pending: deque[tuple[int, simpy.Event]] = deque()
        begun = held = 0
        while begun < len(blocks) or pending:
            while begun < len(blocks) and len(pending) < IN_FLIGHT_PER_WORKER * len(holder.workers):
                count, worker = blocks[begun], begun % len(holder.workers)
                seconds = count * self.kernels.encrypt_s
                pending.append((count, holder.call(worker, seconds, slots * count, self._width * count, "encrypt")))
                begun += 1
            count, ready = pending.popleft()
            yield ready
            if held:
                yield self._send_block(held)
            held = count
        yield self._send_block(held)

    def _send_block(self, count: int) -> simpy.Event:
        """One block, or several together, to every feature party, which begins with it."""
        messages = -(-count // self._block)
        size = count * self._width + messages * self.sizes.block

        def hand_over(name: str) -> Steps:
            yield self.to[name].deliver(size, messages=messages)
            yield self._arrived[name].put(count)

        return self._each(lambda name: self.world.env.process(hand_over(name)))

    def _add_blocks(self, name: str) -> Steps:
        """Step 2 at the root: a feature party's workers add blocks to their cells."""
        party, row = self.others[name], self._width + self.training.others[name].row_bytes
        workers, left, number = len(party.workers), self.training.drawn, 0
        products = self.counts[name].levels[0].products * workers / left
        under_way: deque[simpy.Event] = deque()
        while left:
            count = yield self._arrived[name].get()
            left -= count
            seconds = count * (products * self.kernels.product_s + self.kernels.read_s)
            under_way.append(party.call(number % workers, seconds, count * row, 0, "sum"))
            number += 1
            while len(under_way) > workers - 1:
                yield under_way.popleft()
        while under_way:
            yield under_way.popleft()

    def _sums(self, name: str, number: int) -> Steps:
        """Step 2: bins of every node, merged to candidates, packed and sent."""
        party, kernels, columns = self.others[name], self.kernels, self.training.others[name]
        built, counts, workers = (
            self.training.levels[number].built,
            self.counts[name].levels[number],
            len(party.workers),
        )
        yield from self._step("sum")
        if number:
            yield party.main.do(sum(built) * self.host.space_s, "sum")
        products = counts.products if number else 0  # those of the root were made while blocks came
        places = 8 * sum(built) // workers if number else 0
        bins, candidates = len(built) * columns.bins, len(built) * columns.candidates
        summing = products * kernels.product_s + bins * kernels.write_s
        yield self.world.all(
            party.call(worker, summing, places, bins * self._width, "sum") for worker in range(workers)
        )
        merging = counts.merging * kernels.product_s + workers * bins * kernels.read_s + candidates * kernels.write_s
        merged = candidates * self._width // workers
        yield self.world.all(
            party.call(worker, merging / workers, bins * self._width, merged, "sum") for worker in range(workers)
        )
        most = -(-counts.packings // workers)
        packed = [min(most, max(0, counts.packings - worker * most)) for worker in range(workers)]
        yield self.world.all(
            party.call(worker, count * kernels.pack_s, merged, count * self._width, "pack")
            for worker, count in enumerate(packed)
            if count
        )
        for size in self.sizes.sums[name][number]:
            yield self.back[name].deliver(size)

    def _choose(self, number: int, level: Level) -> Steps:
        """Step 3: own candidate sums, then those of each feature party opened in turn."""
        holder, workers = self.holder, len(self.holder.workers)
        yield from self._step("decide")
        own = sum(level.built) * len(self.training.own.shapes)
        yield holder.main.do(own * self.host.histogram_s, "decide")
        opened = 8 * len(self.training.slots.widths) * self.training.candidates_per_ciphertext
        for counts in self.counts.values():
            packed = counts.levels[number].packings
            shares = [packed * (k + 1) // workers - packed * k // workers for k in range(workers)]
            yield self.world.all(
                holder.call(worker, share * self.kernels.open_s, share * self._width, share * opened, "open")
                for worker, share in enumerate(shares)
                if share
            )

    def _apply(self, number: int, level: Level) -> Steps:
        """Steps 4 and 5: owners divide their nodes, the label holder checks the children and relays them."""
        records = self.training.records // max(len(level.owners), 1)
        parties, sizes = [self.holder, *self.others.values()], self.sizes
        yield from self._step("decide")
        yield self.world.all(
            parties[owner].main.do(level.owners.count(owner) * records * self.host.split_s, "decide")
            for owner in sorted(set(level.owners))
        )
        yield self.world.all(
            self.back[name].deliver(s[number], "decide") for name, s in sizes.children.items() if s[number]
        )
        yield from self._step("decide")
        yield self.holder.main.do(len(level.owners) * records * self.host.check_s, "decide")
        yield self.world.all(
            self.to[name].deliver(s[number], "decide") for name, s in sizes.spaces.items() if s[number]
        )
