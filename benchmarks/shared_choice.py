"""The choice on shares of a stage, between a label holder and one feature party: processor time, bytes, rounds.

    python benchmarks/shared_choice.py                        # a table of sizes, all roles in this process
    python benchmarks/shared_choice.py --link 10 100          # two processes, 10 ms one way, 100 Mbit/s, dealt before
    python benchmarks/shared_choice.py --lies 20              # how often other numbers than the protocol's are noticed

Candidates' sums are random and as wide as a job's of so many records. Of three runs the least processor time is told.
The link is emulated at the receiver: a message counts as there after its bytes at the rate and the latency.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import queue
import resource
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tests.shares.parties import UNIT, Node, Rule, integers, masked_sums, pair, run, sides, whole
from treetap.arrays import Words
from treetap.errors import Malformed
from treetap.native.rings import add
from treetap.shares.choice import Stage, tell
from treetap.shares.streams import Dealer, Round, Rounds, Side

RULE = Rule(UNIT, UNIT)
Change = Callable[[int, bytes], bytes]


def unchanged(_number: int, data: bytes) -> bytes:
    """A message as it is."""
    return data


#: (records, nodes, candidates)
SIZES = (
    *((30_000, 1, n) for n in (167, 800, 3_000, 13_000, 100_000)),
    *((30_000, 4, n) for n in (167, 700)),
    *((1_000_000, nodes, n) for nodes, n in ((1, 3_000), (1, 13_000), (4, 1_550))),
)


class Case:
    """A stage of random nodes, what L gives, and the winners."""

    def __init__(self, records: int, nodes: int, candidates: int) -> None:
        rng, most, made = np.random.default_rng(3), records * UNIT, []
        for _ in range(nodes):
            x, y = rng.integers(-most // 8, most // 8, candidates), rng.integers(0, most // 4, candidates)
            node = int(rng.integers(-most // 16, most // 16)), most // 4
            made.append(Node(node, [*zip(x.tolist(), y.tolist(), strict=True)]))
        widest = [*made, Node((most - 1, most // 4), [])]
        self.stage = Stage(RULE.widths(widest, candidates), candidates, nodes, nodes)
        self.own, self.want = RULE.own(made, [RULE.floor(node) for node in made], self.stage.widths)
        self.nodes, self.sums = made, masked_sums(self.stage, made)

    def parties(self, choice: Any = whole, dealt: Change = unchanged) -> tuple[Rounds[Any], Rounds[Any], float]:
        """L, F, and the dealer's seconds. `choice`: what they compute; `dealt`: changes F's corrections."""
        start, dealer = time.process_time(), Dealer()
        self.stage.deal(dealer)
        dealer.corrections[1][:] = [dealt(1, b"".join(dealer.corrections[1]))]
        spent, (last, first) = time.process_time() - start, sides(dealer)
        l_party = choice(last, self.sums[0], self.stage, self.own, RULE)
        return l_party, choice(first, self.sums[1], self.stage, None, RULE), spent


def watched(party: Rounds[Any], spent: list[float], change: Change = unchanged) -> Rounds[Any]:
    """A party with its processor time in each round, and its messages changed."""
    got: Any = None
    for number in itertools.count():
        start = time.process_time()
        try:
            said = party.send(got)
        except StopIteration as end:
            return end.value
        spent.append(time.process_time() - start)
        got = yield said._replace(send=change(number, said.send))


def table() -> None:
    """All sizes."""
    print("records nodes candidates | CPU s: L, F, dealer | MB: L to F, F to L, dealt | rounds | right")
    for records, nodes, candidates in SIZES:
        case, rows = Case(records, nodes, candidates), []
        for _ in range(3):
            last, first, dealt = case.parties()
            spent, seen = (list[float](), list[float]()), list[tuple[Round, Round]]()
            _, told = run(watched(last, spent[0]), watched(first, spent[1]), seen)
            rows.append((sum(spent[0]), sum(spent[1]), dealt))
        sent = [sum(len(said[k].send) for said in seen) / 1e6 for k in (0, 1)]
        figures = " ".join(f"{min(column):.4f}" for column in zip(*rows, strict=True))
        megabytes = f"{sent[0]:.2f} {sent[1]:.2f} {sum(case.stage.dealt_bytes) / 1e6:.2f}"
        print(records, nodes, candidates, "|", figures, "|", megabytes, "|", len(seen), "|", told.tolist() == case.want)
    print("peak MiB of all roles in one process", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)


def link(seconds: float, rate: float, nodes: int = 4, candidates: int = 700) -> None:
    """A stage between two processes. `rate` in bytes a second."""
    case = Case(30_000, nodes, candidates)
    parties = case.parties()[:2]
    ends, waiting = socket.socketpair(), queue.Queue[bytes]()
    child = os.fork()
    party, end, free, told = parties[child == 0], ends[child == 0], 0.0, None
    got: Any = None
    writer = threading.Thread(target=lambda: [*map(end.sendall, iter(waiting.get, b""))])
    writer.start()
    start, spent, rounds, incoming = time.monotonic(), time.process_time(), 0, end.makefile("rb")
    while told is None:
        try:
            said = party.send(got)
        except StopIteration as done:
            told = done.value
            continue
        if said.send:
            free = max(free, time.monotonic()) + len(said.send) / rate
            waiting.put(struct.pack("<d", free + seconds) + said.send)
        got = b""
        if said.due:
            (there,) = struct.unpack("<d", incoming.read(8))
            got = incoming.read(said.due)
            time.sleep(max(0.0, there - time.monotonic()))
        rounds += 1
    waiting.put(b"")
    writer.join()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    wall, cpu = time.monotonic() - start, time.process_time() - spent
    print(f"{nodes} nodes x {candidates}: {rounds} rounds, {wall:.3f} s, of these L's processor {cpu:.3f} s")


def lies(tries: int) -> dict[str, dict[str, int]]:
    """What becomes of a node, of which F has 20 candidates, if a number is another one than the protocol's.

    A party sends other bytes in one of its messages, or the dealer another number among F's corrections, which is not
    opened. The scores of F's winner are compared with those of the left set that it has won by, as in a job.
    """
    case = Case(40, 1, 20)
    every = {who: Counter[str]() for who in ("label holder", "feature party", "dealer")}

    def other(at: int, number: int, data: bytes) -> bytes:
        return os.urandom(len(data)) if number == at else data

    def another(_number: int, data: bytes) -> bytes:
        numbers = np.frombuffer(data, np.uint64).copy()
        numbers[int.from_bytes(os.urandom(4)) % len(numbers)] ^= np.uint64(int.from_bytes(os.urandom(8)))
        return numbers.tobytes()

    for liar, (who, found) in enumerate(every.items()):
        for number in [*range(28)] * tries:
            parties = list(case.parties(scored, another if who == "dealer" else unchanged)[:2])
            if who != "dealer":
                parties[liar] = watched(parties[liar], [], partial(other, number))
            try:
                (mine, _), (theirs, told) = run(parties[0], parties[1])
            except (Malformed, AssertionError):
                found["noticed by the order"] += 1
                continue
            score, won = tuple(integers(add(mine, theirs)[:, 0])), int(told[0])
            if won and score != RULE.fraction(case.nodes[0], case.nodes[0].left[won - 1]):
                found["noticed by the score"] += 1
            else:
                found["the same winner" if told.tolist() == case.want else "another"] += 1
    return {who: dict(found) for who, found in every.items()}


def scored(side: Side, masked: Words, stage: Stage, own: Any, rule: Rule) -> Rounds[tuple[Words, Any]]:
    """The choice: the party's share of the winner's score, and what it is told."""
    champions = yield from pair(side, masked, stage, own, rule)
    return champions.fractions, (yield from tell(side, champions))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--link", nargs=2, type=float, metavar=("MS", "MBIT"))
    options.add_argument("--lies", type=int, metavar="TRIES")
    given = options.parse_args()
    if given.link:
        link(given.link[0] / 1e3, given.link[1] * 125_000)
    elif given.lies:
        print(json.dumps(lies(given.lies)))
    else:
        table()
