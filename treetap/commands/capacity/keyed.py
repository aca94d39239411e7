"""A tree whose values are ciphertexts under a key, one for each drawn record.

At the root blocks of ciphertexts pass a line of stations: the label holder's main process and workers, the series of
messages to each feature party, and there the main process and workers again. The first block passes all of them, then
the slowest station sets the pace.
"""

from __future__ import annotations

import math

from treetap.additive.sums.joint_cells import BATCH
from treetap.additive.sums.kernel_timings import KernelCosts
from treetap.additive.sums.key_holder import IN_FLIGHT_PER_WORKER, block_size
from treetap.commands.capacity.measuring import HostCosts
from treetap.commands.capacity.question import Site
from treetap.commands.capacity.training import PartyCounts, Training
from treetap.commands.capacity.tree import FRAME, LONG, Part, Party, Tree
from treetap.protocols.growth import sums_of_nodes


class KeyedTree(Tree):
    """A tree under a key; `kernels`: the costs under it."""

    def __init__(self, job: Training, site: Site, host: HostCosts, kernels: KernelCosts) -> None:
        self.kernels, self._width = kernels, job.key.ciphertext_bytes
        super().__init__(job, site, host)

    def _prepare(self) -> None:
        job = self.job
        self.counts = {name: PartyCounts(job, job.others[name], party.workers) for name, party in self.others.items()}

    def operations(self) -> dict[str, dict[str, int]]:
        return self.job.operations(self.counts)

    def facts(self) -> dict[str, int | float | str]:
        job = self.job
        return {
            "key_bits": job.key.bits,
            "obfuscation": job.obfuscation,
            "candidates_per_ciphertext": job.candidates_per_ciphertext,
        }

    def worker_bytes(self, party: Party) -> float:
        """Blocks under way, or the ciphertexts and bins of its records and the places that the fullest level sums."""
        job = self.job
        if party is self.holder:
            size = block_size(job.drawn, party.workers, self._width)
            return IN_FLIGHT_PER_WORKER * size * (len(job.slots.widths) * LONG + self._width)
        row = job.others[party.name].row_bytes
        built = max((sum(level.built) for level in job.levels[1:]), default=0) / party.workers
        held = job.drawn / party.workers * (self.kernels.number_bytes + row) + built * (row + LONG)
        return held + 4 * LONG * min(BATCH, built * self.counts[party.name].groups)

    def _values(self, number: int) -> None:
        """Step 1, and step 2 at the root; the root's ciphertexts serve all nodes."""
        if not number:
            self._stream()

    def _stream(self) -> None:
        """Blocks of ciphertexts pass a line of stations."""
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

    def _open(self, number: int) -> None:
        workers, opened = self.holder.workers, self._plain * self.job.candidates_per_ciphertext
        for counts in self.counts.values():
            packed = counts.levels[number].packings
            shares = [packed // workers + (worker < packed % workers) for worker in range(min(packed, workers))]
            most, works = max(shares, default=0), [share * self.kernels.open_s for share in shares]
            self._together([self._calls(self.holder, works, most * self._width, most * opened, "open")])
