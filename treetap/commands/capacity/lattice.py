"""A tree whose values are words on a lattice, by the way that the layout chooses (`treetap.lattice.histogram_ways`).

The label holder's workers encrypt words of all records, for each node that is built or once a tree. They follow each
other to every feature party and wait there. Then each party adds up the words of one node after the other, hides and
returns the sums. By queries, the products of its cells' indicators depend on no values, and a party makes them in the
first tree; by sets it makes those of every node.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from treetap.commands.capacity.measuring import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import HOLDER, PartyColumns, Training
from treetap.commands.capacity.tree import FRAME, LONG, MESSAGE, Part, Party, Tree
from treetap.lattice.histogram_key_holder import BLOCK_BYTES, IN_FLIGHT_PER_WORKER, blocks_together
from treetap.lattice.histogram_parameters import HistogramParameters
from treetap.lattice.histogram_scheme import blocks_of, first_halves_bytes, radices
from treetap.lattice.histogram_sets import CELLS_AT_ONCE
from treetap.lattice.histogram_sums import features_of
from treetap.lattice.histogram_timings import LatticeCosts
from treetap.lattice.histogram_ways import Needs, Way, built_nodes, way_of
from treetap.native.histogram_arrays import DEGREE, MOST_BLOCKS, WORD_BYTES

#: Bytes of a block's public polynomial as its transform, of sums of products of a cell or candidate, and of a u_k.
_PUBLIC, _PRODUCT, _MASK = 8 * 4 * DEGREE, 16 * DEGREE, DEGREE
#: Bytes of a node's number and of a word's sum in a worker.
_NODE, _SUM = 5, 16
#: Bytes of a record's place in a block.
_PLACE = 4


class Share(NamedTuple):
    """A worker's part of a feature party's columns."""

    cells: int
    candidates: int


class LatticeTree(Tree):
    """A tree on a lattice; `agreed`: the sizes of its job; `costs`: of one worker."""

    def __init__(self, job: Training, site: Site, host: HostCosts, agreed: HistogramParameters, costs: LatticeCosts):
        self.agreed, self.costs, self._width = agreed, costs, agreed.words * WORD_BYTES
        super().__init__(job, site, host)

    def _prepare(self) -> None:
        needs = Needs.of(self.job.params)
        self.way = way_of(self.agreed, built_nodes(self.job.params, needs), needs)
        self.shares = {name: shares(self.job.others[name], party.workers) for name, party in self.others.items()}
        if self.way is Way.SETS:
            return
        longest = max(self._multiply(name) for name in self.others)
        on_cores = sum(self.once_cpu.values()) / self.site.cores
        self.once_s = max(longest, on_cores) if self.site.one_machine else longest

    def nodes(self, number: int) -> int:
        """Nodes of a level that are built."""
        return len(self.job.levels[number].built)

    def renewed(self, number: int) -> int:
        """Times that second halves are drawn and sent at a level: for every node, or for a few queries of the tree."""
        return self._begun(number, 1 if self.way is Way.SETS else self.agreed.queries_per_second_half)

    def queries(self, number: int) -> int:
        """Times that all records are encrypted at a level: for every node, or for as many as secrets may serve."""
        return self._begun(number, self.way.nodes_per_query(self.agreed))

    def _begun(self, number: int, every: int) -> int:
        """The number of groups, of `every` nodes of the tree, that begin at a level."""
        asked = sum(map(self.nodes, range(number)))
        return ceil((asked + self.nodes(number)) / every) - ceil(asked / every)

    def calls(self) -> list[int]:
        """Records of each call that encrypts words of a node; the last are zeros."""
        records, size = self.agreed.records, DEGREE * blocks_together(self.agreed, self.holder.workers)
        full, rest = divmod(records, size)
        return [size] * full + [rest] * (rest > 0) + [DEGREE]

    def messages(self) -> int:
        """Messages of a node's words to one party."""
        most = BLOCK_BYTES // self._width
        return sum(-(-records // most) for records in self.calls())

    def returned(self, name: str, number: int) -> int:
        """Bytes of the sums that a feature party returns at a level."""
        candidates = self.job.others[name].candidates
        firsts = self.nodes(number) * first_halves_bytes(self.agreed, candidates)
        return firsts + self.renewed(number) * candidates * self.agreed.second_half_bytes + _NODE * self.nodes(number)

    def operations(self) -> dict[str, dict[str, int]]:
        trees, levels = self.job.params.n_estimators, range(len(self.job.levels))
        nodes, renewed = trees * sum(map(self.nodes, levels)), trees * sum(map(self.renewed, levels))
        counts = {name: columns.candidates for name, columns in self.job.others.items()}
        words = (self.agreed.records + DEGREE) * trees * sum(map(self.queries, levels))
        totals = {HOLDER: {"encryptions": words, "openings": nodes * sum(counts.values())}}
        for name, count in counts.items():
            added = nodes * self.agreed.records * len(self.job.others[name].shapes)
            totals[name] = {"additions": added, "answered": nodes * count, "hidden": renewed * count}
        return totals

    def facts(self) -> dict[str, int | float | str]:
        agreed = self.agreed
        return {
            "way": str(self.way),
            "words": agreed.words,
            "word_bits": agreed.word_bits,
            "reply_bits": agreed.reply_bits,
            "hiding_bits": round(agreed.hiding_bits, 1),
            "queries_per_second_half": agreed.queries_per_second_half,
        }

    def worker_bytes(self, party: Party) -> float:
        """Public polynomials and words under way, or all bins and what is kept of cells and candidates."""
        agreed, blocks = self.agreed, blocks_of(self.agreed.records)
        if party is self.holder:
            own, kept = -(-blocks // party.workers), sum(columns.candidates for columns in self.job.others.values())
            words = blocks_together(agreed, party.workers) * DEGREE * (self._width + self._plain)
            return own * _PUBLIC + IN_FLIGHT_PER_WORKER * words + kept / party.workers * LONG * DEGREE
        columns, most = self.job.others[party.name], max(self.shares[party.name])
        public = min(blocks, MOST_BLOCKS) * _PUBLIC
        if self.way is Way.SETS:
            return agreed.records / party.workers * self._width + public + min(most.cells, CELLS_AT_ONCE) * _PRODUCT
        held = (most.cells + most.candidates) * _PRODUCT + most.candidates * _MASK
        return agreed.records * columns.row_bytes + held + public + 2 * BLOCK_BYTES + columns.bins * agreed.words * _SUM

    def _multiply(self, name: str) -> float:
        """Products of all indicators in all blocks: seconds of the busiest worker."""
        blocks = blocks_of(self.agreed.records)
        works = [share.cells * self._products(blocks) for share in self.shares[name]]
        self.once_cpu[name] = sum(works)
        return max(works)

    def _products(self, blocks: int) -> float:
        """Seconds of a cell's products in `blocks` blocks."""
        return blocks * self.costs.product_s + -(-blocks // MOST_BLOCKS) * self.costs.inverse_s

    def _values(self, number: int) -> None:
        """Words of each query, encrypted by the label holder's workers in turn, pass to every feature party."""
        holder, site, nodes, calls = self.holder, self.site, self.queries(number), self.calls()
        if not nodes:  # those of an earlier one serve
            return
        parties, begin, messages = [holder, *self.others.values()], self.seconds, nodes * self.messages()
        before = [(party.main_s, party.workers_s) for party in parties]
        mean = sum(calls) / len(calls)
        encrypt_s = self.agreed.words * self.costs.encrypt_s
        into, work, out, inner = self._call(
            holder, nodes * len(calls), mean * encrypt_s, mean * self._plain, mean * self._width
        )
        busiest = max(sum(calls[worker :: holder.workers]) for worker in range(min(holder.workers, len(calls))))
        encrypting = nodes * busiest * work / mean
        holder.busiest_s += encrypting
        holder.workers_s += nodes * len(calls) * work
        size = nodes * sum(calls) * self._width / messages + FRAME
        send, on_line, receive = self._message(size)
        series = send + on_line + receive + 2 * self._delay_s + (len(self.others) - 1) * max(send, on_line)
        for name in self.others:
            self._sent(self.to[name], size, messages, "send")
        # a message leaves when the next is there; at the end those of the last call are to go
        last = min(messages, 1 + self.messages() / len(calls)) * series
        first = into + work + out
        longest = max(first + messages * series, first - work + encrypting + last, first + nodes * len(calls) * inner)
        spent = [
            (party.main_s - main, party.workers_s - workers)
            for party, (main, workers) in zip(parties, before, strict=True)
        ]
        longest = max(longest, first + max(main for main, _ in spent))
        if site.one_machine:  # while workers encrypt, they and the main processes that receive share the cores
            crowded = max(0.0, (holder.workers + len(self.others)) / site.cores - 1)
            longest = max(longest, first + messages * series + crowded * encrypting)
            longest = max(longest, sum(main + workers for main, workers in spent) / site.cores)
        self.seconds = end = begin + longest
        self._under_way("encrypt", min(encrypting, longest), begin, end - last)
        self._under_way("send", min(messages * (send + receive), longest - first), begin + first, end)

    def _sums(self, name: str, number: int) -> list[Part]:
        """Step 2: words of one node after the other are added up; then its candidates are hidden and answered."""
        party, columns, costs, agreed = self.others[name], self.job.others[name], self.costs, self.agreed
        built, own, halves = self.job.levels[number].built, self.shares[name], agreed.second_half_bytes
        most = max(share.candidates for share in own)
        below = sum(built) if number else 0
        parts = [self._step("sum"), self._main(party, below * self.host.space_s, "sum")]
        hiding = [share.candidates * costs.hide_s for share in own if share.candidates]
        answering = [share.candidates * agreed.words * costs.answer_s for share in own if share.candidates]
        zeros = DEGREE * self._width
        if self.way is Way.SETS:
            parts += [self._take(party, 0.0) for _ in range(self.queries(number))]
            for records in built:
                parts += self._sum_set(party, columns, records)
        else:
            parts += [self._add(party, columns) for _ in built]
            parts += [self._calls(party, hiding, 0, most * halves, "hide") for _ in range(self.renewed(number))]
            parts += [
                self._calls(party, answering, most * agreed.words * _SUM + zeros, most * agreed.words * LONG, "hide")
                for _ in built
            ]
        size = self.returned(name, number)
        count = max(1, -(-size // MESSAGE))
        phase, seconds, cpu = self._sent(self.back[name], size / count + FRAME, count, "send")
        _, _, receive = self._message(size / count + FRAME)
        # the label holder's main process receives from all parties, one message after the other
        return [*parts, Part(phase, max(seconds, count * len(self.others) * receive), cpu)]

    def _add(self, party: Party, columns: PartyColumns) -> Part:
        """Words of a node, one message after the other, and the sums of all workers in the end."""
        words = self.agreed.words
        a_record = words * (self.costs.read_s + len(columns.shapes) * self.costs.sum_s)
        adding = self._take(party, self.agreed.records * a_record)
        taken = self._calls(party, [0.0] * party.workers, 0, columns.bins * words * _SUM, "sum")
        return Part("sum", adding.seconds + taken.seconds, adding.cpu + taken.cpu)

    def _sum_set(self, party: Party, columns: PartyColumns, records: int) -> list[Part]:
        """A node's own words are added up; then worker by worker its candidates are multiplied, hidden and answered."""
        agreed, costs, own = self.agreed, self.costs, self.shares[party.name]
        workers, blocks, most = party.workers, min(blocks_of(agreed.records), records), max(self.shares[party.name])
        adding = records / workers * agreed.words * (costs.read_s + len(columns.shapes) * costs.sum_s)
        hiding = [
            share.cells * self._products(blocks) + share.candidates * (costs.hide_s + agreed.words * costs.answer_s)
            for share in own
            if share.candidates
        ]
        row = columns.row_bytes + _PLACE
        return [
            self._calls(party, [adding] * workers, records / workers * row, columns.bins * agreed.words * _SUM, "sum"),
            self._calls(party, hiding, records * row, most.candidates * agreed.second_half_bytes, "hide"),
        ]

    def _take(self, party: Party, seconds: float) -> Part:
        """Words of all records go to the workers, one message after the other; `seconds`: of work on all."""
        records, count = self.agreed.records, self.messages()
        into, work, out, inner = self._call(party, count, seconds / count, records * self._width / count, 0)
        party.busiest_s += count * work
        party.workers_s += count * work
        return Part("sum", count * (into + work + out + inner), count * (into + work + out))

    def _open(self, number: int) -> None:
        """Each party's second halves are kept, and the first halves of each node opened."""
        holder, agreed, costs = self.holder, self.agreed, self.costs
        for columns in self.job.others.values():
            share, more = divmod(columns.candidates, holder.workers)
            counts = [share + (worker < more) for worker in range(holder.workers)]
            most, some = counts[0], [count for count in counts if count]
            firsts, opened = most * agreed.words * LONG, most * self._plain
            parts = [
                self._calls(
                    holder, [count * costs.keep_s for count in some], most * agreed.second_half_bytes, 0, "open"
                )
                for _ in range(self.renewed(number))
            ]
            parts += [
                self._calls(holder, [n * agreed.words * costs.open_s for n in some], firsts, opened, "open")
                for _ in range(self.nodes(number))
            ]
            self._together(parts)


def shares(columns: PartyColumns, workers: int) -> list[Share]:
    """The cells and candidates of each worker."""
    cells, counts = radices(columns.shapes), [shape.sums for shape in columns.shapes]
    return [
        Share(sum(cells[feature] for feature in own), sum(counts[feature] for feature in own))
        for own in features_of(columns.shapes, workers)
    ]
