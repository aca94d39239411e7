"""Time of one tree of boosting, stage by stage as the parties go through it (docs/protocol-boosting.md).

At the root blocks of ciphertexts pass a line of stations: the label holder's main process and workers, the series of
messages to each feature party, and there the main process and workers again. The first block passes all of them, then
the slowest station sets the pace. Everything else is in turn: sums, packing, opening party by party, splits, instance
spaces. Operations and sizes are those of the protocol; what each takes was measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treetap.additive.sums.kernel_timings import KernelCosts
from treetap.additive.sums.key_holder import block_size
from treetap.commands.capacity.measuring import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import HOLDER, Level, PartyCounts, Training
from treetap.protocols.growth import branches_of_leaves, drawn_sets, left_records, records_of_nodes, sums_of_nodes
from treetap.protocols.messages import Bound, Series

#: The phases of a tree, in the order in which they begin, each with what is at work.
PHASES = {
    "prepare": "gradients, drawn records",
    "encrypt": "label holder's workers",
    "send": "ciphertexts and sums, between parties",
    "sum": "feature parties' workers",
    "pack": "feature parties' workers",
    "open": "label holder's workers",
    "decide": "own sums, splits, children, scores",
}
#: Bytes of a message beside its content: the job, its digest, the place in the series.
FRAME = 64
#: Most bytes of a message.
MESSAGE = 1 << 20


class Part(NamedTuple):
    """Work that is done without a pause: seconds from begin to end, and of processors."""

    phase: str
    seconds: float
    cpu: float


@dataclass
class Party:
    """Machines and workers of one party, and what a tree asks of them."""

    name: str
    nodes: int
    workers: int
    main_s: float = 0.0  # of the main process
    busiest_s: float = 0.0  # of the worker that has most to do
    workers_s: float = 0.0  # of all workers
    sent: float = 0.0  # bytes to other parties
    received: float = 0.0
    inner_out: float = 0.0  # bytes to workers on further machines
    inner_into: float = 0.0


@dataclass
class Connection:
    """From one party to another: the messages of a series follow each other, each once the last was taken."""

    sender: Party
    receiver: Party
    bytes: float = 0
    messages: int = 0
    seconds: float = 0.0  # in which a message is on its way, until the sender knows that it was taken


class Tree:
    """One tree: its time, what each party does, and when each phase is under way.

    `streamed_s`: when the last block has been added to the root's cells. `phases`: for how long each is under way, and
    when it begins and ends.
    """

    def __init__(self, job: Training, site: Site, host: HostCosts, kernels: KernelCosts) -> None:
        self.job, self.site, self.host, self.kernels = job, site, host, kernels
        self.bytes_per_s = math.inf if site.one_machine else site.bandwidth * 1e6 / 8
        self.inner_bytes_per_s = math.inf if site.one_machine else site.inner_bandwidth * 1e6 / 8
        self._delay_s = 0.0 if site.one_machine else site.delay / 1e3
        holder, other = site.machines
        self.holder = Party(HOLDER, holder, holder * site.workers_each)
        self.others = {name: Party(name, other, other * site.workers_each) for name in job.others}
        self.to = {name: Connection(self.holder, party) for name, party in self.others.items()}
        self.back = {name: Connection(party, self.holder) for name, party in self.others.items()}
        self.counts = {name: PartyCounts(job, job.others[name], party.workers) for name, party in self.others.items()}
        self.phases = dict[str, tuple[float, float, float]]()
        self.seconds = 0.0
        self._width, self._plain = job.key.ciphertext_bytes, 8 * len(job.slots.widths)
        gradients = job.records * host.gradient_s
        self._together([self._step("prepare"), self._main(self.holder, gradients, "prepare")])
        self._to_all(drawn_sets, "prepare")
        self._stream()
        self.streamed_s = self.seconds
        for number, level in enumerate(job.levels):
            self._together(*(self._sums(name, number) for name in self.others))
            self._choose(number, level)
            self._apply(number, level)
        self._together([self._main(self.holder, gradients, "decide")])  # scores and metrics
        self._to_all(branches_of_leaves, "decide")
        self._together([self._step("decide"), self._step("decide")])  # store_tree, the label holder last

    def _together(self, *branches: Sequence[Part]) -> None:
        """A stage whose branches are done at the same time, each part by part."""
        longest = max(sum(part.seconds for part in branch) for branch in branches)
        # on one machine branches take turns on its cores, once they have more work than these
        shared = sum(part.cpu for branch in branches for part in branch) / self.site.cores
        stretch = shared / longest if self.site.one_machine and shared > longest else 1.0
        busy: dict[str, float] = {}
        for branch in branches:
            at, own = self.seconds, defaultdict[str, float](float)
            for phase, seconds, cpu in branch:
                own[phase] += min(seconds, cpu) * stretch
                self._under_way(phase, 0.0, at, at + seconds * stretch)
                at += seconds * stretch
            busy |= {phase: max(seconds, busy.get(phase, 0.0)) for phase, seconds in own.items()}
        for phase, seconds in busy.items():
            self._under_way(phase, seconds, math.inf, 0.0)
        self.seconds += longest * stretch

    def _under_way(self, phase: str, seconds: float, first: float, last: float) -> None:
        """Count a stage in which a phase is under way for so long."""
        before, begun, ended = self.phases.get(phase, (0.0, math.inf, 0.0))
        self.phases[phase] = before + seconds, min(begun, first), max(ended, last)

    def _main(self, party: Party, seconds: float, phase: str) -> Part:
        """Work of a main process."""
        party.main_s += seconds
        return Part(phase, seconds, seconds)

    def _step(self, phase: str) -> Part:
        """A step that the coordinator asks for: a call and its answer."""
        _, seconds, cpu = self._main(self.holder, self.host.send_message_s + self.host.receive_message_s, phase)
        return Part(phase, seconds + 2 * self._delay_s, cpu)

    def _to_all(self, bound: Bound, phase: str, level: int = 0) -> None:
        """Messages of the label holder to every feature party."""
        self._together(*([self._series(self.to[name], bound, phase, level)] for name in self.others))

    def _series(self, line: Connection, bound: Bound, phase: str, level: int = 0) -> Part:
        """A series of messages, of a length by the row that declares them; of no content none but an empty one."""
        size = bound(self.job.sizes, Series(line.sender.name, line.receiver.name, 0, level))
        count = max(1, -(-size // MESSAGE))
        return self._sent(line, size / count + FRAME, count, phase)

    def _sent(self, line: Connection, size: float, count: float, phase: str) -> Part:
        """The messages, `count` of this size, from one party to another."""
        send, on_line, receive = self._message(size)
        line.sender.main_s += count * send
        line.receiver.main_s += count * receive
        line.sender.sent += count * size
        line.receiver.received += count * size
        seconds = count * (send + on_line + receive + 2 * self._delay_s)
        line.bytes += count * size
        line.messages += math.ceil(count)
        line.seconds += seconds
        return Part(phase, seconds, count * (send + receive))

    def _message(self, size: float) -> tuple[float, float, float]:
        """Seconds of a message at the sender's main process, on the line, and at the receiver's."""
        send = self.host.send_message_s + size * self.host.send_byte_s
        return send, size / self.bytes_per_s, self.host.receive_message_s + size * self.host.receive_byte_s

    def _calls(self, party: Party, works: Sequence[float], size_in: float, size_out: float, phase: str) -> Part:
        """Kernels of `works` seconds, each on a worker of its own; `size_in`, `size_out`: of a call and its answer."""
        if not works:
            return Part(phase, 0.0, 0.0)
        into, work, out, inner = self._call(party, len(works), max(works), size_in, size_out)
        party.busiest_s += work
        party.workers_s += sum(works) + len(works) * (work - max(works))
        crowded = 1.0 if self.site.one_machine else max(1.0, len(works) / party.nodes / self.site.cores)
        seconds = into + work * crowded + out + (len(works) - 1) * max(into, out, inner)
        return Part(phase, seconds, len(works) * (into + out + work))  # the busiest may be alone at the end

    def _call(self, party: Party, count: float, work: float, size_in: float, size_out: float) -> tuple[float, ...]:
        """Seconds of a call of a worker: at the main process, at the worker, again there, and between machines."""
        host, far = self.host, 1 - 1 / party.nodes
        party.inner_out += count * far * size_in
        party.inner_into += count * far * size_out
        into, out = host.call_s + size_in * host.pipe_byte_s, size_out * host.pipe_byte_s
        party.main_s += count * (into + out)
        inner = far * max(size_in, size_out) / self.inner_bytes_per_s
        return into, work + (size_in + size_out) * host.worker_byte_s, out, inner

    def _stream(self) -> None:
        """Step 1, and step 2 at the root: blocks of ciphertexts pass a line of stations."""
        job, site, holder, kernels, count = self.job, self.site, self.holder, self.kernels, len(self.others)
        parties, begin = [holder, *self.others.values()], self.seconds
        before = [(party.main_s, party.workers_s) for party in parties]
        size = min(job.drawn, block_size(job.drawn, holder.workers, self._width))
        blocks, message, plain = job.drawn / size, size * self._width + FRAME, size * self._plain
        send, on_line, receive = self._message(message)
        series = send + on_line + receive + 2 * self._delay_s + (count - 1) * max(send, on_line)
        into, work, out, inner = self._call(holder, blocks, size * kernels.encrypt_s, plain, size * self._width)
        encrypting = self._work(holder, size, work)
        # a block leaves when the next is there; workers end their last round together, and its blocks are then to go
        going = min(math.ceil(blocks), (math.ceil(blocks) - 1) % holder.workers + 2)
        longest = tail = last = tail_cpu = 0.0
        for name, party in self.others.items():
            self._sent(self.to[name], message, blocks, "send")
            products = self.counts[name].levels[0].products * party.workers / job.drawn
            adding = size * (products * kernels.product_s + kernels.read_s)
            row = self._width + job.others[name].row_bytes
            handing, adding, _, spreading = self._call(party, blocks, adding, size * row, 0)
            rounds = math.ceil(going / party.workers)
            tail = max(tail, handing + max(going * series + adding, series + rounds * adding))
            tail_cpu += going * (send + receive + handing + adding)
            last = max(last, handing + adding)
            stations = [  # one block's time at each, and that of all blocks
                (into + out, blocks * (into + out + count * send)),
                (work, encrypting),
                (inner, blocks * inner),
                (series, blocks * series),
                (handing, blocks * (receive + handing)),
                (spreading, blocks * spreading),
                (adding, self._work(party, size, adding)),
            ]
            longest = max(longest, sum(one for one, _ in stations) + max(every - one for one, every in stations))
        longest = max(longest, into + encrypting + out + tail)
        spent = [
            (party.main_s - main, party.workers_s - workers)
            for party, (main, workers) in zip(parties, before, strict=True)
        ]
        on_cores = [
            (main + workers / party.nodes) / site.cores for (main, workers), party in zip(spent, parties, strict=True)
        ]
        if site.one_machine:  # main processes disturb workers, as far as cores are in use; some are idle at the end
            busy = sum(on_cores)
            longest += min(1.0, busy / longest) * sum(main for main, _ in spent) / site.cores
            longest = max(longest, busy + max(0.0, tail - tail_cpu / site.cores))
        else:
            longest = max(longest, on_cores[0] + tail, into + work + out + series + max(on_cores[1:]))
        self.seconds = end = begin + longest
        sent = begin + into + work + out
        self._under_way("encrypt", min(encrypting, end - tail - begin), begin, max(sent, end - tail))
        self._under_way("send", min(blocks * (send + receive), end - sent), sent, end - last)
        self._under_way("sum", min(blocks * (handing + adding), end - sent - series), sent + series, end)

    def _work(self, party: Party, size: int, seconds: float) -> float:
        """Time of the busiest worker with its share of all blocks, each of `seconds`."""
        full, rest = divmod(self.job.drawn, size)
        busiest = seconds * max(-(-full // party.workers), full // party.workers + rest / size)
        party.busiest_s += busiest
        party.workers_s += seconds * self.job.drawn / size
        return busiest

    def _sums(self, name: str, number: int) -> list[Part]:
        """Step 2: bins of every node, merged to candidates, packed and sent."""
        party, columns, kernels = self.others[name], self.job.others[name], self.kernels
        built = self.job.levels[number].built
        counts, workers, nodes = self.counts[name].levels[number], party.workers, len(built)
        below = sum(built) if number else 0  # the root's products were made while blocks came
        bins, merged = nodes * columns.bins * self._width, nodes * columns.candidates * self._width / workers
        summing = (counts.products if number else 0) * kernels.product_s + nodes * columns.bins * kernels.write_s
        merging = counts.merging * kernels.product_s + workers * nodes * columns.bins * kernels.read_s
        merging += nodes * columns.candidates * kernels.write_s
        most = -(-counts.packings // workers)
        packed = [min(most, counts.packings - start) for start in range(0, counts.packings, max(most, 1))]
        return [
            self._step("sum"),
            self._main(party, below * self.host.space_s, "sum"),
            self._calls(party, [summing] * workers, 8 * below / workers, bins, "sum"),
            self._calls(party, [merging / workers] * workers, bins, merged, "sum"),
            self._calls(party, [count * kernels.pack_s for count in packed], merged, most * self._width, "pack"),
            self._series(self.back[name], sums_of_nodes, "send", number),
        ]

    def _choose(self, number: int, level: Level) -> None:
        """Step 3: own candidate sums, then those of each feature party opened in turn."""
        own = sum(level.built) * len(self.job.own.shapes) * self.host.histogram_s
        self._together([self._step("decide"), self._main(self.holder, own, "decide")])
        workers, opened = self.holder.workers, self._plain * self.job.candidates_per_ciphertext
        for counts in self.counts.values():
            packed = counts.levels[number].packings
            shares = [packed // workers + (worker < packed % workers) for worker in range(min(packed, workers))]
            most, works = max(shares, default=0), [share * self.kernels.open_s for share in shares]
            self._together([self._calls(self.holder, works, most * self._width, most * opened, "open")])

    def _apply(self, number: int, level: Level) -> None:
        """Steps 4 and 5: owners divide their nodes, the label holder checks the children and relays them."""
        records, parties = self.job.records / max(len(level.owners), 1), [self.holder, *self.others.values()]
        self._together([self._step("decide")])
        divided = [level.owners.count(owner) * records * self.host.split_s for owner in range(len(parties))]
        self._together(
            *([self._main(party, seconds, "decide")] for party, seconds in zip(parties, divided, strict=True))
        )
        winners = [name for owner, name in enumerate(self.others, 1) if owner in level.owners]
        if winners:
            self._together(*([self._series(self.back[name], left_records, "decide", number)] for name in winners))
        checking = len(level.owners) * records * self.host.check_s
        self._together([self._step("decide"), self._main(self.holder, checking, "decide")])
        if number + 1 < len(self.job.levels):
            self._to_all(records_of_nodes, "decide", number + 1)
