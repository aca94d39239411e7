"""Time products and squares modulo one number by every form of the native kernels, beside gmpy2 in the same run.

    python benchmarks/kernels.py [--bits 4096 2048 1366] [--forms ifma avx2] [--seconds 4] [--json]

Each figure is the least of many short runs, taken in turn, on one core: others who use the machine disturb little. A
ratio is gmpy2's time of `a * b % n`, or `a * a % n`, by that of the form. Wide vectors slow the clock of some
processors: name one form at a time there. Numbers stay in the core's cache; how fast memory is does not show.
"""

from __future__ import annotations

import argparse
import json
import secrets
import time
from collections.abc import Callable

import numpy as np
from backends import add_forms, left_open, machine, print_machine
from gmpy2 import mpz

from treetap.native.library import FORMS, Form
from treetap.native.numbers import WORDS, Modulus

#: Seconds that a run should take.
RUN = 0.001
OPERATIONS = ("product", "square")
#: Title → nanoseconds of one product or square.
Figures = dict[str, float]
Run = Callable[[int], object]


def by_gmpy2(modulus: int, square: bool) -> Run:
    """Products of two numbers as Python calls GMP for them."""
    n = mpz(modulus)
    left, right = mpz(secrets.randbelow(modulus)), mpz(secrets.randbelow(modulus))
    if square:
        right = left

    def run(count: int) -> None:
        for _ in range(count):
            left * right % n

    return run


def by_kernels(modulus: int, square: bool, form: Form) -> Run:
    """Products of as many numbers as a vector has lanes, again and again."""
    words = WORDS[form]
    kernel = Modulus(modulus, words.limbs_for(modulus.bit_length()), form)
    numbers = [np.stack([kernel.constant(secrets.randbelow(modulus)) for _ in range(words.lanes)]) for _ in "ab"]
    out = np.empty((words.lanes, kernel.limbs), dtype=np.uint64)
    left, right = numbers[0], numbers[0 if square else 1]
    rows = np.arange(1 << 16) % words.lanes

    def run(count: int) -> None:
        at = rows[:count]
        kernel.products(left, right, at, at, out, at)

    return run


def counted(run: Run) -> int:
    """Products that take about `RUN`, a multiple of eight."""
    took = min(timed(run, 64) for _ in range(5))
    return max(8, min(1 << 16, int(RUN / took * 64) // 8 * 8))


def timed(run: Run, count: int) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    run(count)
    return time.perf_counter() - start


def measured(modulus: int, forms: list[Form], seconds: float) -> dict[str, Figures]:
    """Name of an arithmetic → nanoseconds by operation."""
    runs: dict[tuple[str, str], tuple[Run, int]] = {}
    for operation in OPERATIONS:
        square = operation == "square"
        for name, run in [("gmpy2", by_gmpy2(modulus, square))] + [
            (form, by_kernels(modulus, square, form)) for form in forms
        ]:
            runs[name, operation] = run, counted(run)
    least = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, (run, count) in runs.items():
            least[key] = min(least[key], timed(run, count) / count * 1e9)
    figures: dict[str, Figures] = {}
    for (name, operation), took in least.items():
        figures.setdefault(name, {})[operation] = took
        figures[name][f"{operation}, gmpy2 / this"] = least["gmpy2", operation] / took
    return figures


def main() -> None:
    """Print one table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, nargs="+", default=[4096, 2048, 1366], help="lengths of the modulus")
    add_forms(parser, FORMS)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each length (default: 4)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    lacking = left_open(args.forms)
    forms = [form for form in args.forms if form not in lacking]
    figures = {
        str(bits): measured(secrets.randbits(bits) | 1 | 1 << (bits - 1), forms, args.seconds) for bits in args.bits
    }
    if args.json:
        print(json.dumps({"machine": machine(args.forms), "ns": figures}, indent=2))
        return
    print_machine(args.forms)
    print(f"{'bits':>6} {'':8} {'product':>10} {'ratio':>6} {'square':>10} {'ratio':>6}")
    for bits, rows in figures.items():
        for name, row in rows.items():
            parts = [f"{row[op]:7.0f} ns {row[f'{op}, gmpy2 / this']:6.2f}" for op in OPERATIONS]
            print(f"{bits:>6} {name:8} {' '.join(parts)}")


if __name__ == "__main__":
    main()
