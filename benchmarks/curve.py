"""Time blinded identifiers by every form of the native kernels, beside libsodium in the same run.

    python benchmarks/curve.py [--forms ifma avx2] [--seconds 4] [--json]

A point is raised, checked, or hashed from an id of 16 bytes. Each figure is the least of many short runs, taken in
turn, in processor time of one core: others who use the machine disturb little. Wide vectors slow the clock of some
processors: name one form at a time there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
from backends import add_forms, left_open, machine, print_machine

from treetap.native.curve import Curve
from treetap.native.library import FORMS, Form
from treetap.psi.group import DOMAIN, Exponent
from treetap.psi.lists import Group, SodiumGroup

OPERATIONS = ("hash", "raise", "check")
#: Points of a run: several batches of the kernels, and some milliseconds of libsodium.
POINTS, POINTS_OF_LIBSODIUM = 1_024, 64
Run = Callable[[], object]


def runs_of(group: Group, count: int) -> dict[str, Run]:
    """What each operation does with so many points."""
    texts = b"".join(b"patient-%08d" % number for number in range(count))
    ends = (np.arange(count + 1, dtype=np.int64) * 16).tobytes()
    points, scalar = group.hash_ids(DOMAIN, texts, ends), Exponent.draw().for_kernel()
    return {
        "hash": lambda: group.hash_ids(DOMAIN, texts, ends),
        "raise": lambda: group.raise_points(scalar, points),
        "check": lambda: group.leading_valid(points),
    }


def measured(forms: list[Form], seconds: float) -> dict[str, dict[str, float]]:
    """Name of an arithmetic → microseconds a point by operation, and libsodium's by these."""
    runs: dict[tuple[str, str], tuple[Run, int]] = {}
    for form in forms:
        runs |= {(form, name): (run, POINTS) for name, run in runs_of(Curve(form), POINTS).items()}
    sodium = runs_of(SodiumGroup(), POINTS_OF_LIBSODIUM)
    runs |= {("libsodium", name): (run, POINTS_OF_LIBSODIUM) for name, run in sodium.items()}
    least = dict.fromkeys(runs, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for key, (run, count) in runs.items():
            start = time.process_time()
            run()
            least[key] = min(least[key], (time.process_time() - start) / count * 1e6)
    figures: dict[str, dict[str, float]] = {}
    for (name, operation), took in least.items():
        row = figures.setdefault(name, {})
        row[operation], row[f"{operation}, libsodium / this"] = took, least["libsodium", operation] / took
    return figures


def main() -> None:
    """Print one table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_forms(parser, FORMS)
    parser.add_argument("--seconds", type=float, default=4.0, help="in all (default: 4)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    lacking = left_open(args.forms)
    figures = measured([form for form in args.forms if form not in lacking], args.seconds)
    if args.json:
        print(json.dumps({"machine": machine(args.forms), "us": figures}, indent=2))
        return
    print_machine(args.forms)
    print(" " * 10 + "".join(f"{operation:>12}  ratio" for operation in OPERATIONS))
    for name, row in figures.items():
        parts = [f"{row[op]:9.2f} us {row[f'{op}, libsodium / this']:6.1f}" for op in OPERATIONS]
        print(f"{name:10}{''.join(parts)}")


if __name__ == "__main__":
    main()
