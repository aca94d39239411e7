"""Time each operation of encrypted histograms on a lattice beside Paillier with gmpy2, in one process.

    python benchmarks/lattice_training.py [--forms avx512 avx2 plain] [--rounds 9] [--json]
    python benchmarks/lattice_training.py jobs [--depth 3 6] [--rounds 2] [--json]

A ratio is what gmpy2 takes for a Paillier encryption (2,048-bit key, short exponent of 256 bits by windows of 8,
Chinese remainder theorem) or for an addition, by what the operation takes in the same round: medians over rounds, in
CPU time. Operations are those of `treetap.native.histograms`, without messages and processes: words of a record, packed
for the wire; sums of words and second halves, of a record and column; a candidate's hiding, four first halves and
opening. Second halves are of 32 blocks of 4,096 records.

`jobs`: the encrypted part of five trees on 30,000 records of credit default, 12 + 11 columns, by production's own code
for both roles (`encrypted_parts`), in the fastest form. TREETAP_DATA must name the folder with credit_default.parquet.
"""

from __future__ import annotations

import argparse
import json
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict

import encrypted_parts
import gmpy2
import numpy as np
from backends import add_forms, left_open, machine, print_machine
from gmpy2 import mpz

from treetap.native import arithmetic
from treetap.native.histogram_arrays import DEGREE, Binned, Moduli
from treetap.native.histograms import Histograms
from treetap.native.library import Form

FORMS: tuple[Form, ...] = ("avx512", "avx2", "plain")
ENCRYPTION, ADDITION = "Paillier encryption", "Paillier addition"
KEY_BITS = 2048
BLOCKS, CANDIDATES = 32, 256
TREES = 5
#: Operation → what gmpy2 does instead, and the ratio that is asked for.
TARGETS = {
    "words of a record, 3 words": (ENCRYPTION, 500),
    "words of a record, 4 words": (ENCRYPTION, 500),
    "sum of words, 32 bins": (ADDITION, 1000),
    "sum of words, 255 bins": (ADDITION, 1000),
    "second halves, 32 bins": (ADDITION, 40),
    "second halves, 64 bins": (ADDITION, 0),
    "second halves, 255 bins": (ADDITION, 5),
    "hide a candidate": (ADDITION, 1 / 20),
    "first halves of a candidate": (ADDITION, 1 / 3),
    "open a candidate": (ADDITION, 1 / 3),
}
#: Operation → (the run, how many times it does it).
Runs = dict[str, tuple[Callable[[], object], int]]


def by_gmpy2() -> Runs:
    """A Paillier encryption and an addition, as gmpy2 does them with the secret key's primes at hand."""
    p, q = (gmpy2.next_prime(mpz(secrets.randbits(KEY_BITS // 2) | 3 << (KEY_BITS // 2 - 2))) for _ in "pq")
    n, squares = p * q, (p * p, q * q)
    modulus, inverse = n * n, gmpy2.invert(squares[0], squares[1])
    base = gmpy2.powmod(-(mpz(secrets.randbelow(int(n))) ** 2), n, modulus)
    tables = []
    for square in squares:
        power, rows = base % square, []
        for _ in range(32):
            rows.append([mpz(1)])
            for _ in range(255):
                rows[-1].append(rows[-1][-1] * power % square)
            power = rows[-1][-1] * power % square
        tables.append(rows)

    def encryption() -> mpz:
        parts = []
        exponent = secrets.token_bytes(32)
        for rows, square in zip(tables, squares, strict=True):
            part = rows[0][exponent[0]]
            for row, digit in zip(rows[1:], exponent[1:], strict=True):
                part = part * row[digit] % square
            parts.append(part)
        return (1 + n * 12345) * (parts[0] + squares[0] * ((parts[1] - parts[0]) * inverse % squares[1])) % modulus

    ciphertexts = [encryption() for _ in range(300)]

    def additions() -> None:
        total = ciphertexts[0]
        for _ in range(3):
            for ciphertext in ciphertexts:
                total = total * ciphertext % modulus

    return {ENCRYPTION: (lambda: [encryption() for _ in range(100)], 100), ADDITION: (additions, 900)}


def by_kernels(form: Form) -> Runs:
    """The operations of `TARGETS` in one form, over arrays that are made here."""
    kernels, numbers, seed = Histograms(form), np.random.default_rng(1), secrets.token_bytes(32)
    public, records = kernels.public(seed, 0, BLOCKS), BLOCKS * DEGREE
    values = numbers.integers(0, 1 << 63, (2, 8 * DEGREE)).astype(np.uint64)
    runs: Runs = {}

    def encrypts(moduli: Moduli) -> Callable[[], object]:
        held = kernels.secrets(seed, len(moduli.less))
        return lambda: kernels.encrypt(public[:8], 0, held, seed, moduli, values)

    three, four = Moduli(38, (0, 1, 3)), Moduli(32, (0, 1, 3, 5))
    for moduli in (three, four):
        runs[f"words of a record, {len(moduli.less)} words"] = (encrypts(moduli), 8 * DEGREE)
    words = numbers.integers(0, 1 << 52, (8 * DEGREE, 4, 2)).astype(np.uint64)

    def sums(bins: int) -> Callable[[], object]:
        binned = Binned(numbers.integers(0, bins, (8, 8 * DEGREE)).astype(np.uint8), (bins,) * 8)
        totals = np.zeros((binned.cells, 4, 2), dtype=np.uint64)
        return lambda: kernels.sum_words(words, binned, 0, totals)

    def seconds(bins: int) -> Callable[[], object]:
        binned = Binned(numbers.integers(0, bins, (1, records)).astype(np.uint8), (bins,))
        totals = np.zeros((bins, 2, DEGREE), dtype=np.uint64)
        return lambda: kernels.cells(public, binned, 0, range(bins), totals)

    for bins in (32, 255):
        runs[f"sum of words, {bins} bins"] = (sums(bins), 8 * 8 * DEGREE)
    for bins in (32, 64, 255):
        runs[f"second halves, {bins} bins"] = (seconds(bins), records)
    of_candidates = numbers.integers(0, 1 << 52, (CANDIDATES, 2, DEGREE)).astype(np.uint64)
    of_words = numbers.integers(0, 1 << 52, (CANDIDATES, 4, 2)).astype(np.uint64)
    u, second, _ = kernels.hide(of_candidates, public[:1], 41, seed, 0)
    firsts, held = kernels.answer(of_words, words[:DEGREE], u, 64, 41, seed, 0), kernels.secrets(seed, 4)
    runs["hide a candidate"] = (lambda: kernels.hide(of_candidates, public[:1], 41, seed, 0), CANDIDATES)
    runs["first halves of a candidate"] = (
        lambda: kernels.answer(of_words, words[:DEGREE], u, 64, 41, seed, 0),
        CANDIDATES,
    )
    runs["open a candidate"] = (lambda: kernels.open(second, firsts, held, 41, four), CANDIDATES)
    return runs


def timed(run: Callable[[], object], times: int) -> float:
    """CPU microseconds of one of `times` operations."""
    start = time.process_time()
    run()
    return (time.process_time() - start) / times * 1e6


def measured(form: Form, rounds: int) -> dict[str, dict[str, float]]:
    """Operation → its least microseconds, the median ratio to what gmpy2 does instead, and the ratio asked for."""
    runs = by_gmpy2() | by_kernels(form)
    took = [{name: timed(*run) for name, run in runs.items()} for _ in range(rounds)]
    return {
        name: {
            "us": min(each_round[name] for each_round in took),
            "ratio": statistics.median(each_round[instead] / each_round[name] for each_round in took),
            "asked": float(asked),
        }
        for name, (instead, asked) in (TARGETS | {ENCRYPTION: (ENCRYPTION, 1), ADDITION: (ADDITION, 1)}).items()
    }


def jobs(depths: Sequence[int], rounds: int) -> list[dict[str, object]]:
    """A row for each depth and scheme: the least CPU seconds, and the median ratio of pairs."""
    arithmetic.use("gmpy2")
    key, rows = encrypted_parts.key(), list[dict[str, object]]()
    for depth in depths:
        job = encrypted_parts.job(depth, TREES)
        pairs = [(encrypted_parts.by_paillier(job, key), encrypted_parts.by_lattice(job)) for _ in range(rounds)]
        paillier, lattice = (min(both, key=lambda took: took.cpu_s) for both in zip(*pairs, strict=True))
        ratio = statistics.median(before.cpu_s / after.cpu_s for before, after in pairs)
        rows.append({"depth": depth, "scheme": "paillier", **asdict(paillier)})
        rows.append({"depth": depth, "scheme": "lattice", **asdict(lattice), "ratio": ratio})
    return rows


def show_jobs(rows: Sequence[dict[str, object]]) -> None:
    """A line for each."""
    print(f"{'depth':>5} {'scheme':10} {'words':>8} {'CPU s':>8} {'MB there':>9} {'MB back':>8} {'gmpy2 / this':>13}")
    for row in rows:
        words = f"{row['words']} x {row['word_bits']}" if row["words"] else ""
        ratio = f"{row['ratio']:13.1f}" if "ratio" in row else ""
        sent, returned = (float(str(row[name])) / 1e6 for name in ("sent", "returned"))
        print(f"{row['depth']:5} {row['scheme']:10} {words:>8} {row['cpu_s']:8.3f} {sent:9.1f} {returned:8.1f} {ratio}")


def main() -> None:
    """Print a table for each form, or of jobs; or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("operations", "jobs"), default="operations")
    parser.add_argument("--depth", type=int, nargs="+", default=[3], help="of jobs (default: 3)")
    add_forms(parser, FORMS)
    parser.add_argument("--rounds", type=int, default=9, help="(default: 9)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.what == "jobs":
        of_jobs = jobs(args.depth, args.rounds)
        if args.json:
            print(json.dumps({"machine": machine(["auto"]), "jobs": of_jobs}, indent=2))
        else:
            print_machine(["auto"])
            show_jobs(of_jobs)
        return
    lacking = left_open(args.forms)
    figures = {form: measured(form, args.rounds) for form in args.forms if form not in lacking}
    if args.json:
        print(json.dumps({"machine": machine(args.forms), "operations": figures}, indent=2))
        return
    print_machine(args.forms)
    for form, rows in figures.items():
        print(f"{form:32} {'least':>12} {'gmpy2 / this':>14} {'asked':>10}")
        for name, row in rows.items():
            print(f"  {name:30} {row['us']:9.4f} us {row['ratio']:14.4g} {row['asked']:10.4g}")


if __name__ == "__main__":
    main()
