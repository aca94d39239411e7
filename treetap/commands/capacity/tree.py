"""Time of one tree of boosting, stage by stage as the parties go through it (docs/protocol-boosting.md).

At the root the label holder's blocks of ciphertexts pass a line of stations: its main process and workers, the series
of messages to each feature party, and there the main process and workers again. The first block passes all of them,
then the slowest sets the pace. Everything else is in turn: sums, packing, opening party by party, splits, instance
spaces. Operations and sizes are those of the protocol; what each takes was measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treetap.additive.sums.kernel_timings import BLOCK, KernelCosts
from treetap.additive.sums.key_holder import SMALLEST_BLOCK
from treetap.commands.capacity.measurements import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import Level, PartyCounts, Training

#: The phases of a tree, in the order in which they begin, each with those who are at work.
PHASES = {
    "prepare": "gradients, drawn records",
    "encrypt": "label holder's workers",
    "send": "ciphertexts and sums, between parties",
    "sum": "feature parties' workers",
    "pack": "feature parties' workers",
    "open": "label holder's workers",
    "decide": "own sums, splits, children, scores",
}


class Part(NamedTuple):
    """Work that one party does by itself: seconds from begin to end, and of processors."""

    phase: str
    seconds: float
    cpu: float


@dataclass
class Party:
    """One party's machines, and what its processes and lines do in a tree."""

    name: str
    nodes: int
    workers: int
    main_s: float = 0.0
    busiest_s: float = 0.0  # of a worker
    workers_s: float = 0.0  # of all
    sent: float = 0.0  # bytes to other parties
    received: float = 0.0
    inner: float = 0.0  # bytes from the first machine to the party's others, or back: the fuller direction


@dataclass
class Connection:
    """From one party to another: the messages of a series follow each other, each once the last was taken."""

    sender: Party
    receiver: Party
    bytes: float = 0
    messages: int = 0
    seconds: float = 0.0  # in which a message is on its way, until the sender knows that it was taken


class Tree:
    """One tree: its time, what each party did, and when each phase was under way."""

    def __init__(self, training: Training, site: Site, host: HostCosts, kernels: KernelCosts, sizes) -> None:
        self.training, self.site, self.host, self.kernels, self.sizes = training, site, host, kernels, sizes
        holder, other = site.machines
        self.holder = Party("label holder", holder, holder * site.workers_each)
        self.others = {name: Party(name, other, other * site.workers_each) for name in training.others}
        self.to = {name: Connection(self.holder, party) for name, party in self.others.items()}
        self.back = {name: Connection(party, self.holder) for name, party in self.others.items()}
        self.counts = {name: PartyCounts(training, training.others[name], party.workers) for name, party in self.others.items()}
        self.width, self.slots = training.key.ciphertext_bytes, 8 * len(training.slots.widths)
        self.spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
        self.seconds = 0.0
        self._grow()

    def _grow(self) -> None:
        """From `begin_tree` to `store_tree`."""
        training = self.training
        gradients = training.records * self.host.gradient_s
        self._together([self._step("prepare"), self._main(self.holder, gradients, "prepare")])
        self._together(*([self._deliver(self.to[name], [self.sizes.sampled], "prepare")] for name in self.others))
        self._stream()
        self.streamed_s = self.seconds
        for number, level in enumerate(training.levels):
            self._together(*(self._sums(name, number) for name in self.others))
            self._choose(number, level)
            self._apply(number, level)
        self._together([self._main(self.holder, gradients, "decide")])  # scores and metrics
        self._together(*([self._deliver(self.to[name], [self.sizes.paths], "decide")] for name in self.others))
        self._together([self._step("decide"), self._step("decide")])  # store_tree, the label holder last

    def _together(self, *branches: Sequence[Part]) -> None:
        """A stage in which every branch is done part by part, at the same time as the others."""
        longest = max((sum(part.seconds for part in branch) for branch in branches), default=0.0)
        cpu = sum(part.cpu for branch in branches for part in branch) / self.site.cores
        stretch = max(1.0, cpu / longest) if self.site.one_machine and longest else 1.0
        for branch in branches:
            at = self.seconds
            for phase, seconds, _ in branch:
                self.spans[phase].append((at, at + seconds * stretch))
                at += seconds * stretch
        self.seconds += longest * stretch

    def _main(self, party: Party, seconds: float, phase: str) -> Part:
        party.main_s += seconds
        return Part(phase, seconds, seconds)

    def _step(self, phase: str) -> Part:
        """A step that the coordinator asks for: a call and its answer."""
        cost = self.host.send_message_s + self.host.receive_message_s
        self.holder.main_s += cost
        return Part(phase, cost + 2 * self.site.delay_s, cost)

    def _deliver(self, connection: Connection, sizes: Sequence[float], phase: str = "send") -> Part:
        """A series of messages."""
        host, size, count = self.host, sum(sizes), len(sizes)
        send = count * host.send_message_s + size * host.send_byte_s
        receive = count * host.receive_message_s + size * host.receive_byte_s
        connection.sender.main_s += send
        connection.receiver.main_s += receive
        connection.sender.sent += size
        connection.receiver.received += size
        seconds = send + size / self.site.bytes_per_s + receive + 2 * count * self.site.delay_s
        connection.bytes += size
        connection.messages += count
        connection.seconds += seconds
        return Part(phase, seconds, send + receive)

    def _calls(self, party: Party, works: Sequence[float], size_in: float, size_out: float, phase: str) -> Part:
        """Kernels of so many seconds on as many workers at once, which take and return so many bytes each."""
        host, count, far = self.host, len(works), 1 - 1 / party.nodes
        if not works:
            return Part(phase, 0.0, 0.0)
        works = [work + (size_in + size_out) * host.worker_byte_s for work in works]
        into, out = host.call_s + size_in * host.pipe_byte_s, size_out * host.pipe_byte_s
        party.main_s += count * (into + out)
        party.busiest_s += max(works)
        party.workers_s += sum(works)
        party.inner += count * far * max(size_in, size_out)
        pace = max(into, out, far * max(size_in, size_out) / self.site.inner_bytes_per_s)
        return Part(phase, into + max(works) + out + (count - 1) * pace, count * (into + out) + sum(works))

    def _stream(self) -> None:
        """Step 1, and step 2 at the root: blocks of ciphertexts pass a line of stations."""
        training, holder, site, host, kernels = self.training, self.holder, self.site, self.host, self.kernels
        size = max(1, min(BLOCK, max(SMALLEST_BLOCK, -(-training.drawn // holder.workers)), training.drawn))
        blocks, message = training.drawn / size, size * self.width + self.sizes.block
        coding = host.call_s + size * (self.slots + self.width) * host.pipe_byte_s
        encrypting = size * (kernels.encrypt_s + (self.slots + self.width) * host.worker_byte_s)
        sending, receiving = (
            host.send_message_s + message * host.send_byte_s,
            host.receive_message_s + message * host.receive_byte_s,
        )
        on_line, parties = message / site.bytes_per_s, len(self.others)
        series = sending + on_line + receiving + 2 * site.delay_s + (parties - 1) * max(sending, on_line)
        rows = {name: size * (self.width + columns.row_bytes) for name, columns in training.others.items()}
        handing = {name: host.call_s + row * host.pipe_byte_s for name, row in rows.items()}
        adding = {
            name: size * (self.counts[name].levels[0].products * party.workers / training.drawn * kernels.product_s + kernels.read_s)
            + rows[name] * host.worker_byte_s
            for name, party in self.others.items()
        }
        last = max(self.others, key=lambda name: adding[name])
        head = [coding, encrypting, series, handing[last], adding[last]]
        paces = [
            (coding + parties * sending) * blocks,
            encrypting * self._rounds(size, holder.workers),
            series * blocks,
            (receiving + handing[last]) * blocks,
            adding[last] * self._rounds(size, self.others[last].workers),
        ]
        longest = max(sum(head) - first + all_blocks for first, all_blocks in zip(head, paces, strict=True))
        main, work = blocks * (coding + parties * sending), blocks * encrypting
        cpu = main + work + blocks * sum(receiving + handing[name] + adding[name] for name in self.others)
        on_first = cpu if site.one_machine else main + work / holder.nodes
        longest = max(longest, on_first / site.cores)
        begin = self.seconds
        self.seconds += longest

    def _rounds(self, size: int, workers: int) -> float:
        """Blocks of the busiest worker."""
        full, rest = divmod(self.training.drawn, size)
        return max(-(-full // workers), full // workers + rest / size)


    def _sums(self, name: str, number: int) -> list[Part]:
        """Step 2: bins of every node, merged to candidates, packed and sent."""
        party, kernels, columns = self.others[name], self.kernels, self.training.others[name]
        built, counts, workers = self.training.levels[number].built, self.counts[name].levels[number], party.workers
        products = counts.products if number else 0  # those of the root were made while blocks came
        bins, candidates = len(built) * columns.bins, len(built) * columns.candidates
        summing = products * kernels.product_s + bins * kernels.write_s
        merging = counts.merging * kernels.product_s + workers * bins * kernels.read_s + candidates * kernels.write_s
        merged, most = candidates * self.width / workers, -(-counts.packings // workers)
        packed = [count for w in range(workers) if (count := min(most, counts.packings - w * most)) > 0]
        return [
            self._step("sum"),
            self._main(party, sum(built) * self.host.space_s if number else 0.0, "sum"),
            self._calls(party, [summing] * workers, 8 * sum(built) / workers if number else 0.0, bins * self.width, "sum"),
            self._calls(party, [merging / workers] * workers, bins * self.width, merged, "sum"),
            self._calls(party, [count * kernels.pack_s for count in packed], merged, most * self.width, "pack"),
            self._deliver(self.back[name], self.sizes.sums[name][number]),
        ]

    def _choose(self, number: int, level: Level) -> None:
        """Step 3: own candidate sums, then those of each feature party opened in turn."""
        own = sum(level.built) * len(self.training.own.shapes) * self.host.histogram_s
        self._together([self._step("decide"), self._main(self.holder, own, "decide")])
        workers, opened = self.holder.workers, self.slots * self.training.candidates_per_ciphertext
        for counts in self.counts.values():
            packed = counts.levels[number].packings
            shares = [packed // workers + (worker < packed % workers) for worker in range(min(packed, workers))]
            works = [share * self.kernels.open_s for share in shares]
            most = max(shares, default=0)
            self._together([self._calls(self.holder, works, most * self.width, most * opened, "open")])

    def _apply(self, number: int, level: Level) -> None:
        """Steps 4 and 5: owners divide their nodes, the label holder checks the children and relays them."""
        records, sizes = self.training.records / max(len(level.owners), 1), self.sizes
        parties = [self.holder, *self.others.values()]
        self._together([self._step("decide")])
        dividing = [(parties[owner], level.owners.count(owner) * records) for owner in set(level.owners)]
        self._together(*([self._main(party, count * self.host.split_s, "decide")] for party, count in dividing))
        self._together(*([self._deliver(self.back[n], [s[number]], "decide")] for n, s in sizes.children.items() if s[number]))
        checking = len(level.owners) * records * self.host.check_s
        self._together([self._step("decide"), self._main(self.holder, checking, "decide")])
        self._together(*([self._deliver(self.to[n], [s[number]], "decide")] for n, s in sizes.spaces.items() if s[number]))
