"""A tree on a lattice event by event: the oracle of the estimate in `treetap.commands.capacity.lattice`."""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import simpy

from tests.capacity.simulation import SimulatedTree, Steps
from treetap.commands.capacity.lattice import LatticeTree
from treetap.commands.capacity.tree import FRAME, MESSAGE
from treetap.lattice.histogram_key_holder import BLOCK_BYTES, IN_FLIGHT_PER_WORKER
from treetap.lattice.histogram_ways import Way
from treetap.native.histogram_arrays import DEGREE, WORD_BYTES


class SimulatedLatticeTree(SimulatedTree):
    """The tree of an estimate, whose sizes and costs these are; the first tree's products are left out, as there."""

    def __init__(self, estimate: LatticeTree) -> None:
        self._estimate, self._agreed, self._costs = estimate, estimate.agreed, estimate.costs
        self._width = estimate.agreed.words * WORD_BYTES
        super().__init__(estimate.job, estimate.site, estimate.host, None)  # type: ignore[arg-type]

    def _prepare(self) -> None:
        pass

    def _values(self, number: int) -> Steps:
        """Words of each node: calls in order, a few ahead; a message leaves when the next is there."""
        holder, workers = self.holder, len(self.holder.workers)
        held = 0
        for _ in range(self._estimate.queries(number)):
            calls, pending, begun = deque(self._estimate.calls()), deque[tuple[int, simpy.Event]](), 0
            while calls or pending:
                while calls and len(pending) < IN_FLIGHT_PER_WORKER * workers:
                    count = calls.popleft()
                    seconds = count * self._agreed.words * self._costs.encrypt_s
                    answer = holder.call(begun % workers, seconds, count * self._plain, count * self._width)
                    pending.append((count, answer))
                    begun += 1
                count, ready = pending.popleft()
                yield ready
                for message in self._parts(count):
                    if held:
                        yield self._each(lambda name, held=held: self._hand(name, held))  # type: ignore[misc]
                    held = message
        if held:
            yield self._each(lambda name: self._hand(name, held))

    def _parts(self, count: int) -> list[int]:
        most = BLOCK_BYTES // self._width
        return [min(most, count - start) for start in range(0, count, most)]

    def _hand(self, name: str, count: int) -> Steps:
        yield from self._message(self.holder, self.others[name], count * self._width + FRAME)

    def _sums(self, name: str, number: int) -> Steps:
        """Each node's words, then what hides its candidates."""
        party, columns, costs, agreed = self.others[name], self.job.others[name], self._costs, self._agreed
        workers, shares = len(party.workers), self._estimate.shares[name]
        built, every = self.job.levels[number].built, agreed.queries_per_second_half
        asked = sum(len(level.built) for level in self.job.levels[:number])
        yield from self._step()
        yield party.main.do((sum(built) if number else 0) * self.host.space_s)
        turn = 0
        if self._estimate.way is Way.SETS:
            for _ in range(self._estimate.queries(number)):
                for count in (part for call in self._estimate.calls()[:-1] for part in self._parts(call)):
                    yield party.call(turn % workers, 0.0, count * self._width, 0)
                    turn += 1
            for records in built:
                yield from self._set(name, records)
            built = ()
        for place in range(len(built)):
            for count in (part for call in self._estimate.calls()[:-1] for part in self._parts(call)):
                seconds = count * agreed.words * (costs.read_s + len(columns.shapes) * costs.sum_s)
                yield party.call(turn % workers, seconds, count * self._width, 0)
                turn += 1
            yield self._all(party.call(k, 0.0, 0, columns.bins * agreed.words * 16) for k in range(workers))
            if not (asked + place) % every:
                yield self._all(
                    party.call(k, share.candidates * costs.hide_s, 0, share.candidates * agreed.second_half_bytes)
                    for k, share in enumerate(shares)
                )
            yield self._all(
                party.call(
                    k,
                    share.candidates * agreed.words * costs.answer_s,
                    share.candidates * agreed.words * 16 + DEGREE * self._width,
                    share.candidates * agreed.words * 8,
                )
                for k, share in enumerate(shares)
            )
        size = self._estimate.returned(name, number)
        count = -(-size // MESSAGE)
        for _ in range(count):
            yield from self._message(party, self.holder, size / count + FRAME)

    def _set(self, name: str, records: int) -> Steps:
        """A node's own words, and what hides its candidates."""
        party, columns, costs, agreed = self.others[name], self.job.others[name], self._costs, self._agreed
        workers, row = len(party.workers), columns.row_bytes + 4
        adding = records / workers * agreed.words * (costs.read_s + len(columns.shapes) * costs.sum_s)
        yield self._all(
            party.call(k, adding, records / workers * row, columns.bins * agreed.words * 16) for k in range(workers)
        )
        blocks = min(-(-agreed.records // DEGREE), records)
        yield self._all(
            party.call(
                k,
                share.cells * (blocks * costs.product_s + -(-blocks // 64) * costs.inverse_s)
                + share.candidates * (costs.hide_s + agreed.words * costs.answer_s),
                records * row,
                share.candidates * agreed.second_half_bytes,
            )
            for k, share in enumerate(self._estimate.shares[name])
        )

    def _open(self, number: int) -> Steps:
        holder, workers, agreed, costs = self.holder, len(self.holder.workers), self._agreed, self._costs
        for columns in self.job.others.values():
            ends = [columns.candidates * k // workers for k in range(workers + 1)]
            counts = [last - first for first, last in pairwise(ends)]
            for _ in range(self._estimate.renewed(number)):
                yield self._all(
                    holder.call(k, count * costs.keep_s, count * agreed.second_half_bytes, 0)
                    for k, count in enumerate(counts)
                )
            for _ in self.job.levels[number].built:
                yield self._all(
                    holder.call(
                        k,
                        count * agreed.words * costs.open_s,
                        count * agreed.words * 8,
                        count * self._plain,
                    )
                    for k, count in enumerate(counts)
                )
