"""Time the building blocks of the homomorphic layer: one table of figures, or JSON.

    python benchmarks/he_blocks.py [--arithmetic gmpy2 auto …] [--bits 2048] [--workers 2] [--json]

Per operation the best of several rounds, so that a busy machine disturbs little, by each name after --arithmetic
(docs/deploy.md), with ratios to gmpy2. Joint cells and whole pipelines run once, by the last.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from backends import add_arithmetic, backends, machine
from gmpy2 import mpz

from treetap.additive.paillier.key_proof import check as check_proof
from treetap.additive.paillier.public_key import Packer, TwistedObfuscators
from treetap.additive.paillier.secret_key import SecretKey
from treetap.additive.residues.batches import Cells
from treetap.additive.sums.joint_cells import bin_products, plan
from treetap.additive.sums.key_holder import KeyHolder
from treetap.additive.sums.tree_sums import EncryptedSums
from treetap.native import arithmetic
from treetap.protocols.key_options import OBFUSCATIONS
from treetap.trees.slots import Slots, width_for
from treetap.usage import measure
from treetap.workers.engines import ThreadEngine

FRACTION_BITS = 24
ROUNDS = 5


def best(action: Callable[[], object], count: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Microseconds per item of `count` items, best round."""
    times = []
    for _ in range(ROUNDS):
        start = clock()
        action()
        times.append(clock() - start)
    return min(times) / count * 1e6


def operations(key: SecretKey, slots: Slots) -> dict[str, float]:
    """Single operations in this process, in microseconds unless named otherwise."""
    public, ring = key.public, key.public.ring
    figures: dict[str, float] = {}
    figures["bytes of a ciphertext"] = public.ciphertext_bytes
    figures["bits of a plaintext"] = public.plain_bits
    proof = key.prove(b"bench")
    check = functools.partial(check_proof, public.n, proof, b"bench")
    figures["prove the key's form, CPU"] = best(lambda: key.prove(b"bench"), 1, time.process_time)
    figures["check that proof, CPU"] = best(check, 1, time.process_time)
    figures["bytes of that proof"] = len(proof)
    for kind in OBFUSCATIONS:
        start = time.perf_counter()
        key.prepare(kind)
        if kind != "standard":
            figures[f"tables {kind}, s"] = time.perf_counter() - start
        count = 40 if kind == "standard" else 2000
        plains = [(-1) ** place * (place << slots.bits - 12) for place in range(count)]
        figures[f"encrypt {kind}"] = best(functools.partial(key.encrypt_many, plains, kind), len(plains))
    for kind in OBFUSCATIONS:
        source, count = TwistedObfuscators(public, kind), 8 if kind == "standard" else 64
        figures[f"obfuscator {kind}, non-owner"] = best(functools.partial(source.draw, count), count)
    blob = key.encrypt_many(range(2000), "short-exponent")
    values = public.read(blob)
    figures["product of ciphertexts"] = best(lambda: ring.multiply(values, values[::-1]), len(values))
    rows = np.arange(len(values))
    figures["product into 32 cells"] = best(lambda: ring.cell_products(values, Cells(rows, rows % 32, 32)), len(values))
    count = 8 * public.ciphertext_bytes
    figures["decrypt"] = best(lambda: key.decrypt_many(blob[:count]), 8)
    figures["bytes to numbers"] = best(lambda: public.read(blob), len(values))
    figures["numbers to bytes"] = best(lambda: public.write(values), len(values))
    groups = slots.groups_per_plaintext(public.plain_bits)
    packer = Packer(public, slots.bits, groups)
    figures["candidates per plaintext"] = groups
    figures["pack and re-randomise, each of eight"] = best(lambda: packer.pack_fresh(values[: 8 * groups]), 8)
    return figures


def pairs(bits: int, slots: Slots, names: Sequence[arithmetic.Name]) -> dict[str, dict[str, float]]:
    """Single operations by each backend, beside the bare product of gmpy2, and gmpy2's ratios to the others."""
    figures: dict[str, dict[str, float]] = {}
    for name in names:
        arithmetic.use(name)
        key = SecretKey.generate(bits, allow_breakable=True)
        bare = gmpy2_product(8 * key.public.ciphertext_bytes)
        figures[name] = {"gmpy2 product of that many bits, bare loop": bare} | operations(key, slots)
    for name in names if "gmpy2" in names else ():
        if name != "gmpy2":
            figures[f"gmpy2 / {name}"] = {
                title: value / figures[name][title]
                for title, value in figures["gmpy2"].items()
                if title in figures[name]
            }
    return figures


def gmpy2_product(bits: int) -> float:
    """Microseconds of a product modulo a number of `bits` bits: by it figures of different machines are compared."""
    modulus = mpz(secrets.randbits(bits)) | (mpz(1) << (bits - 1)) | 1
    values = [mpz(secrets.randbelow(int(modulus))) for _ in range(400)]

    def multiply() -> None:
        product = values[0]
        for value in values[1:]:
            product = product * value % modulus

    return best(multiply, len(values) - 1)


def tables(records: int) -> dict[str, tuple[np.ndarray, list[tuple[int, bool]]]]:
    """Codes and shapes of three kinds of table."""
    rng = np.random.default_rng(0)
    mixed = [2] * 8 + [5] * 4 + [32] * 4
    fields = rng.integers(0, 8, (records, 4))
    one_hot = np.concatenate([np.eye(8, dtype=np.int64)[fields[:, place]] for place in range(4)], axis=1)
    return {
        "10 of 32 bins": (rng.integers(0, 32, (records, 10)), [(32, False)] * 10),
        "8 of 2, 4 of 5, 4 of 32 bins": (
            np.stack([rng.integers(0, bins, records) for bins in mixed], axis=1),
            [(bins, False) for bins in mixed],
        ),
        "32 one-hot columns of 4 fields": (one_hot, [(2, False)] * 32),
    }


def joint_cells(key: SecretKey, records: int) -> dict[str, dict[str, float]]:
    """One node's bins with and without joint cells, in this process: seconds and products."""
    distinct = key.public.read(key.encrypt_many(range(500), "short-exponent"))
    values, node = distinct[np.arange(records) % len(distinct)], np.arange(records)
    figures: dict[str, dict[str, float]] = {}
    for title, (codes, shapes) in tables(records).items():
        radices = [bins for bins, _ in shapes]
        figures[title] = {}
        start = time.perf_counter()
        plan(codes, radices)
        figures[title]["plan, s"] = time.perf_counter() - start
        for name, on in (("off", False), ("on", True)):
            start = time.perf_counter()
            products = bin_products(key.public.ring, values, [(node, codes)], radices, on).computed
            figures[title][f"{name}, s"] = time.perf_counter() - start
            figures[title][f"{name}, products"] = products
    return figures


async def pipeline(key: SecretKey, slots: Slots, records: int, workers: int) -> dict[str, Any]:
    """One tree's root and a level of two nodes through threads: seconds, and MB of this process."""
    figures: dict[str, Any] = {}

    def lap(name: str, start: float) -> None:
        figures[name] = time.perf_counter() - start

    start = time.perf_counter()
    engine = ThreadEngine(workers, 20.0, print)
    rng = np.random.default_rng(1)
    one = 1 << FRACTION_BITS
    columns = [rng.integers(-one, one, records), rng.integers(0, one, records), np.ones(records, dtype=np.int64)]
    codes, shapes = tables(records)["10 of 32 bins"]
    owner = KeyHolder(engine, key, slots, "short-exponent")
    start = time.perf_counter()
    await owner.start()
    lap("owner started, s", start)
    start = time.perf_counter()
    blocks = [block async for block in owner.encrypt_blocks(columns)]
    lap("encrypt all, s", start)
    sums = EncryptedSums(engine, key.public, slots, codes, shapes)
    start = time.perf_counter()
    for first, blob in blocks:
        await sums.add_block(np.arange(first, first + len(blob) // key.public.ciphertext_bytes), blob)
    lap("root: blocks added, s", start)
    order = rng.permutation(sums.n_candidates)
    start = time.perf_counter()
    root = await sums.candidates(None, order)
    lap("root: candidates, s", start)
    start = time.perf_counter()
    await owner.open(root, sums.n_candidates)
    lap("root: open, s", start)
    left = rng.random(records) < 0.3
    start = time.perf_counter()
    level = await sums.candidates([np.flatnonzero(left), np.flatnonzero(~left)[: records // 4]], order)
    lap("two nodes of 30 and 25 %: candidates, s", start)
    start = time.perf_counter()
    await owner.open(level, 2 * sums.n_candidates)
    lap("two nodes: open, s", start)
    figures["operations"] = sums.operations | {"products": sums.products}
    figures["peak of this process, MB"] = round(measure().peak_rss_mb, 1)
    await engine.close()
    return figures


def show(figures: dict[str, Any], indent: str = "") -> None:
    """Print nested figures, one a line."""
    for name, value in figures.items():
        if isinstance(value, dict):
            print(f"{indent}{name}")
            show(value, indent + "  ")
        else:
            print(f"{indent}{name:<48} {round(value, 3) if isinstance(value, float) else value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=2048, help="key size (default 2048)")
    parser.add_argument("--records", type=int, default=10_000, help="records of the tables (default 10000)")
    parser.add_argument("--workers", type=int, default=2, help="threads (default 2)")
    add_arithmetic(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    names = backends(args.arithmetic)
    arithmetic.use(names[-1])
    key = SecretKey.generate(args.bits, allow_breakable=True)
    width = width_for(args.records, 1 << FRACTION_BITS)
    slots = Slots((width, width, width_for(args.records, 1)))
    figures = {
        "machine": machine(args.arithmetic),
        "key bits": args.bits,
        "records": args.records,
        "operations, microseconds": pairs(args.bits, slots, names),
        "joint cells": joint_cells(key, args.records),
        f"pipeline, {args.workers} workers": asyncio.run(pipeline(key, slots, args.records, args.workers)),
    }
    if args.json:
        print(json.dumps(figures, indent=2))
    else:
        show(figures)


if __name__ == "__main__":
    main()
