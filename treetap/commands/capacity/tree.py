"""Time of one tree of boosting, stage by stage as the parties go through it (docs/protocol-boosting.md).

Stages are in turn: values of nodes, sums, opening party by party, splits, instance spaces. What is encrypted, and how,
is in `keyed` and `lattice`. Operations and sizes are those of the protocol; what each takes was measured.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from treetap.commands.capacity.measuring import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import HOLDER, Level, Training
from treetap.protocols.growth import branches_of_leaves, drawn_sets, left_records, records_of_nodes
from treetap.protocols.messages import Bound, Series

#: The phases of a tree, in the order in which they begin, each with what is at work.
PHASES = {
    "prepare": "gradients, drawn records",
    "encrypt": "label holder's workers",
    "send": "ciphertexts and sums, between parties",
    "sum": "feature parties' workers",
    "pack": "feature parties' workers",
    "hide": "feature parties' workers",
    "open": "label holder's workers",
    "decide": "own sums, splits, children, scores",
}
#: Bytes of a message beside its content: the job, its digest, the place in the series.
FRAME = 64
#: Most bytes of a message.
MESSAGE = 1 << 20
#: Bytes of a number of an array, a position, a sum or a value.
LONG = 8


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


class Tree(ABC):
    """One tree: its time, what each party does, and when each phase is under way.

    `streamed_s`: when the root's values are with the feature parties. `phases`: for how long each is under way, and
    when it begins and ends. `once_s`: what the first tree takes longer than the others; `once_cpu`: seconds of workers
    in that, by party.
    """

    once_s = 0.0

    def __init__(self, job: Training, site: Site, host: HostCosts) -> None:
        self.job, self.site, self.host = job, site, host
        self.bytes_per_s = math.inf if site.one_machine else site.bandwidth * 1e6 / 8
        self.inner_bytes_per_s = math.inf if site.one_machine else site.inner_bandwidth * 1e6 / 8
        self._delay_s = 0.0 if site.one_machine else site.delay / 1e3
        holder, other = site.machines
        self.holder = Party(HOLDER, holder, holder * site.workers_each)
        self.others = {name: Party(name, other, other * site.workers_each) for name in job.others}
        self.to = {name: Connection(self.holder, party) for name, party in self.others.items()}
        self.back = {name: Connection(party, self.holder) for name, party in self.others.items()}
        self.once_cpu = dict[str, float]()
        self.phases = dict[str, tuple[float, float, float]]()
        self.seconds = 0.0
        self._plain = 8 * len(job.slots.widths)
        self._prepare()
        gradients = job.records * host.gradient_s
        self._together([self._step("prepare"), self._main(self.holder, gradients, "prepare")])
        self._to_all(drawn_sets, "prepare")
        self.streamed_s = 0.0
        for number, level in enumerate(job.levels):
            self._values(number)
            self.streamed_s = self.streamed_s or self.seconds
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

    @abstractmethod
    def _prepare(self) -> None:
        """Count what follows from the machines, before the tree begins."""

    @abstractmethod
    def _values(self, number: int) -> None:
        """The values of the nodes of a level go to the feature parties, as far as they are not there yet."""

    @abstractmethod
    def _sums(self, name: str, number: int) -> list[Part]:
        """Step 2: the sums of every node's candidates, made and sent."""

    @abstractmethod
    def _open(self, number: int) -> None:
        """The sums of each feature party, opened in turn."""

    @abstractmethod
    def operations(self) -> dict[str, dict[str, int]]:
        """Operations of all trees by party and by the names of its account."""

    @abstractmethod
    def facts(self) -> dict[str, int | float | str]:
        """Entries of the answer about the scheme."""

    @abstractmethod
    def worker_bytes(self, party: Party) -> float:
        """Memory of a worker at its fullest, beside that of one without ciphertexts."""

    def _choose(self, number: int, level: Level) -> None:
        """Step 3: own candidate sums, then those of the feature parties."""
        own = sum(level.built) * len(self.job.own.shapes) * self.host.histogram_s
        self._together([self._step("decide"), self._main(self.holder, own, "decide")])
        self._open(number)

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
