"""Left bits: processor time and bytes of oblivious transfers, base transfers apart.

    python benchmarks/left_bits.py [--records 10000 30000 1000000] [--repeat 5]

Both parties take turns in this process; each figure is the least of the repeats, in processor time.
"""

from __future__ import annotations

import argparse
from time import process_time

import numpy as np

from treetap.native.library import processor
from treetap.transfers.base import BaseReceiver, BaseSender
from treetap.transfers.extension import ReceiverSeeds, SenderSeeds, Stream, choose, receive, send


def unmarked(stream: Stream) -> None:
    """The streams of a benchmark are forgotten."""


def base_transfers() -> tuple[list[float], ReceiverSeeds, SenderSeeds, int]:
    """Seconds of both parties, seeds, and bytes."""
    t = [process_time()]
    sender = BaseSender(b"session")
    t.append(process_time())
    receiver = BaseReceiver(b"session", sender.point)
    t.append(process_time())
    seeds = sender.seeds(receiver.choices, unmarked)
    seconds = [process_time() - t[2] + t[1] - t[0], t[2] - t[1]]
    return seconds, seeds, receiver.seeds(unmarked), len(sender.point) + len(receiver.choices)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", nargs="+", type=int, default=[10_000, 30_000, 100_000, 1_000_000])
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    runs = [base_transfers() for _ in range(args.repeat)]
    _, holder, party, size = runs[0]
    seconds = np.min([run[0] for run in runs], axis=0)
    print(processor())
    print(
        f"base transfers: label holder {1e3 * seconds[0]:.1f} ms, feature party {1e3 * seconds[1]:.1f} ms, {size} bytes"
    )
    print("\n  records  label holder, us a record  feature party, us a record  bytes a record")
    for records in args.records:
        inside, left = np.random.default_rng(0).random((2, records)) < 0.5
        times = []
        for node in range(args.repeat):
            t = [process_time()]
            message, chosen = choose(holder, (records, node), inside)
            t.append(process_time())
            reply = send(party, (records, node), message, left)
            t.append(process_time())
            assert (receive(chosen, reply) == (inside & left)).all()
            times.append([process_time() - t[2] + t[1] - t[0], t[2] - t[1]])
        each = np.min(times, axis=0) / records * 1e6
        print(f"{records:9,}  {each[0]:25.3f}  {each[1]:26.3f}  {(len(message) + len(reply)) / records:14.3f}")


if __name__ == "__main__":
    main()
