"""Time the lattice backend: single operations, then a whole masked inference on the workers of two parties.

    python benchmarks/lattice.py --records 30000 --columns 1600 --workers 1

The whole inference runs owner and member in this process over threads of their own: no network, keys and
arithmetic as in a federation. Its numbers are random; its cost does not depend on them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.library.lattice.budgets import noise_budget
from treetap.lattice.kernels import LatticeKeyHolder, LatticeMember, MaskedSum, Member
from treetap.lattice.parameters import Parameters
from treetap.lattice.scheme import LatticeKey
from treetap.usage import measure
from treetap.workers.engines import ThreadEngine

ROUNDS = 4
GROUP = 16


def best(action: Callable[[], object], count: int = 20) -> float:
    """Milliseconds of processor time of one call, best round: all operations run on one thread."""
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(count):
            action()
        times.append((time.process_time() - start) / count)
    return min(times) * 1e3


def operations(parameters: Parameters) -> dict[str, float]:
    """Single operations in this process: milliseconds, bytes, bits of noise budget."""
    figures: dict[str, float] = {}
    start = time.perf_counter()
    key = LatticeKey(parameters)
    public = key.public_bytes()
    member = Member(parameters, public)
    figures["keys and contexts, ms"] = (time.perf_counter() - start) * 1e3
    figures["public key, bytes"] = len(public)
    rng = np.random.default_rng(0)
    column = rng.integers(-1000, 1000, parameters.degree)
    mask = rng.random(parameters.degree) < 0.5
    fresh = key.encrypt(column)
    figures["encrypt, ms"] = best(lambda: key.encrypt(column))
    figures["ciphertext from the owner, bytes"] = len(fresh)
    total = MaskedSum(member)
    count = max(1, min(20, parameters.columns // ROUNDS))
    figures["mask and add, ms"] = best(lambda: total.add(mask, [fresh]), count)
    figures["mask and refresh for the next member, ms"] = best(lambda: member.pass_on(mask, [fresh]), 5)
    figures["flooding noise, ms"] = best(lambda: member.scheme.ring.flood(parameters.flood), 5)
    start = time.perf_counter()
    answer = total.finish()[0]
    figures["finish, ms"] = (time.perf_counter() - start) * 1e3
    figures["ciphertext returned, bytes"] = len(answer)
    figures["open, ms"] = best(lambda: key.decrypt(answer, parameters.degree))
    figures["budget fresh, bits"] = noise_budget(key, fresh)
    figures["budget after one mask and refresh, bits"] = noise_budget(key, member.pass_on(mask, [fresh])[0])
    figures["budget returned, bits"] = noise_budget(key, answer)
    return figures


async def whole(parameters: Parameters, records: int, columns: int, workers: int) -> dict[str, Any]:
    """Every column of every block through an owner's and a member's workers."""
    engines = ThreadEngine(workers, 20.0, print), ThreadEngine(workers, 20.0, print)
    figures: dict[str, Any] = {}
    rng = np.random.default_rng(1)
    start = time.perf_counter()
    key = LatticeKey(parameters)
    owner = LatticeKeyHolder(engines[0], key)
    member = LatticeMember(engines[1], parameters, key.public_bytes())
    await member.start()
    figures["keys to the workers, s"] = time.perf_counter() - start
    sent = 0
    expected = np.zeros(records, dtype=np.int64)
    opened = np.zeros(records, dtype=np.int64)
    mask_store: list[np.ndarray] = []

    def groups(first: int, n: int) -> Iterator[np.ndarray]:
        for at in range(0, columns, GROUP):
            size = min(GROUP, columns - at)
            values = rng.integers(-500, 500, (size, n))
            masks = rng.random((size, n)) < 0.5
            mask_store.append(masks)
            expected[first : first + n] += (values * masks).sum(axis=0)
            yield values

    start = time.perf_counter()
    for block, first in enumerate(range(0, records, parameters.degree)):
        n = min(parameters.degree, records - first)
        under_way: set[asyncio.Task[None]] = set()
        async for ciphertexts in owner.encrypt(groups(first, n)):
            sent += sum(map(len, ciphertexts))
            masks = list(mask_store.pop(0))
            places = [(column, 0) for column in range(len(masks))]
            under_way.add(asyncio.create_task(member.add(block, masks, ciphertexts, places)))
            if len(under_way) >= 2 * workers:
                done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        await asyncio.gather(*under_way)
        opened[first : first + n] = (await owner.open(await member.finish(block), n))[0]
    figures["whole inference, s"] = time.perf_counter() - start
    figures["all sums right"] = bool((opened == expected).all())
    figures["sent by the owner, MB"] = sent / 2**20
    for engine in engines:
        await engine.close()
    figures["this process: CPU, s"] = measure().cpu_seconds
    figures["this process: peak, MB"] = measure().peak_rss_mb
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trees", type=int, default=100, help="trees that add up (default 100)")
    parser.add_argument("--columns", type=int, default=1600, help="columns in one sum (default 1600)")
    parser.add_argument("--members", type=int, default=1, help="feature parties in the chain (default 1)")
    parser.add_argument("--records", type=int, default=0, help="records of a whole inference (default: none)")
    parser.add_argument("--workers", type=int, default=1, help="threads of each party (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    parameters = Parameters.choose(args.trees, args.columns, args.members)
    figures: dict[str, Any] = {
        "parameters": vars(parameters),
        "masks hidden by, bits": parameters.statistical_bits,
        "operations": operations(parameters),
    }
    if args.records:
        one = Parameters.choose(args.trees, args.columns, 1)
        figures["whole"] = asyncio.run(whole(one, args.records, args.columns, args.workers))
    if args.json:
        print(json.dumps(figures, indent=2))
        return
    for name, value in figures.items():
        for label, figure in value.items() if isinstance(value, dict) else ((name, value),):
            print(f"{label:<48} {round(figure, 3) if isinstance(figure, float) else figure}")


if __name__ == "__main__":
    main()
