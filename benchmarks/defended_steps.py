"""One step of a feature party with SensFL or DP-SGD beside the plain step: processor time, in turns.

    python benchmarks/defended_steps.py [--rounds 30] [--json]

A step is forward, backward and optimiser on a batch of 128 (Adam); ratios are medians over rounds, in each of which all
ways take one step. SensFL computes every row of the Jacobian where width × inputs is at most 20,000, otherwise it takes
one projection; DP-SGD needs group normalisation, the plain step beside it has it too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table as Shown

from treetap import terminal
from treetap.neural.defences import DpSgd, FeatureDefences
from treetap.neural.draws import Draws
from treetap.neural.inputs import InputScaler
from treetap.neural.own_step import EXACT
from treetap.neural.params import DEFAULT, Bottom, SplitnnParams
from treetap.neural.sides import FeatureSide
from treetap.tables.features import Held
from treetap.tables.reading import Table
from treetap.tables.record_ids import Ids

BATCH = 128
PLAIN = "plain"
#: Name of a network → its settings, and a record's inputs.
NETWORKS: dict[str, tuple[Bottom, tuple[int, ...]]] = {
    "51 numbers, 200, width 200": (Bottom(hidden=(200,), width=200), (51,)),
    "120 numbers, 200, width 200": (Bottom(hidden=(200,), width=200), (120,)),
    "120 numbers, 3 × 200, width 200": (Bottom(hidden=(200, 200, 200), width=200), (120,)),
    "28 × 14, cnn 16-32, width 64": (Bottom("cnn", channels=(16, 32), width=64), (28, 14)),
    "28 × 14, cnn 16, width 1000": (Bottom("cnn", channels=(16,), width=1000), (28, 14)),
    "28 × 14, one residual block, width 1000": (Bottom("resnet", channels=(16,), blocks=(1,), width=1000), (28, 14)),
    "the same, batch normalisation": (
        Bottom("resnet", channels=(16,), blocks=(1,), width=1000, norm="batch"),
        (28, 14),
    ),
    "3 × 32 × 16, one residual block, width 1000": (
        Bottom("resnet", channels=(16,), blocks=(1,), width=1000),
        (3, 32, 16),
    ),
}
WAYS = {
    "record": FeatureDefences(0.1, "record"),
    "batch": FeatureDefences(0.1, "batch"),
    "dp_sgd": FeatureDefences(dp_sgd=DpSgd(1.0, 0.1)),
}


def side(name: str, defences: FeatureDefences | None) -> FeatureSide:
    """A feature party's side on two batches of random records."""
    bottom, shape = NETWORKS[name]
    draws, records = np.random.default_rng(0), 2 * BATCH
    ids = Ids.of(f"{number:04d}" for number in range(records))
    numbers = draws.normal(size=(records, shape[0] if len(shape) == 1 else 0))
    tensors = {} if len(shape) == 1 else {"x": draws.integers(0, 256, size=(records, *shape), dtype=np.uint8)}
    columns = [f"c{place}" for place in range(numbers.shape[1])]
    table = Table(Path("own.csv"), ids, columns, Held(numbers), None, np.arange(records), tensors=tensors)
    inputs = InputScaler.fit(table, np.arange(records)).apply(table)
    params = SplitnnParams(batch_size=BATCH, optimizer="adam", learning_rate=0.001, bottom={DEFAULT: bottom})
    return FeatureSide(params, "feature-b", inputs, Draws(b"benchmark"), defences=defences)


def measured(name: str, rounds: int) -> dict[str, Any]:
    """The plain step in milliseconds, and by way the median of its ratio to the plain step of the same round."""
    bottom, shape = NETWORKS[name]
    ways = {way: each for way, each in WAYS.items() if each.dp_sgd is None or bottom.norm == "group"}
    sides = {PLAIN: side(name, None)} | {way: side(name, defences) for way, defences in ways.items()}
    gradient = torch.from_numpy(np.random.default_rng(1).normal(size=(BATCH, bottom.width)).astype("f4")) / BATCH
    rows, spent = np.arange(BATCH), dict[str, list[float]]()
    for number in range(rounds + 2):
        for way, each in sides.items():
            start = time.thread_time()
            each.forward(rows)
            each.backward(gradient, 0.001, 0, number)
            if number >= 2:  # the first ones allocate
                spent.setdefault(way, []).append(time.thread_time() - start)
    numbers = bottom.width * int(np.prod(shape))
    return {
        "network": name,
        "jacobian": "every row" if numbers <= EXACT else "one projection",
        "plain_ms": 1000 * statistics.median(spent[PLAIN]),
        **{
            way: statistics.median(one / plain for one, plain in zip(spent[way], spent[PLAIN], strict=True))
            for way in ways
        },
    }


def main() -> int:
    """Print one line for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = [measured(name, given.rounds) for name in NETWORKS]
    if given.json:
        json.dump(found, sys.stdout, indent=1)
        return 0
    shown = Shown("network", "Jacobian", "plain step", "SensFL, record", "SensFL, batch", "DP-SGD")
    for each in found:
        ratios = [f"{each[way]:.2f} ×" if way in each else "–" for way in WAYS]
        shown.add_row(each["network"], each["jacobian"], f"{each['plain_ms']:.1f} ms", *ratios)
    terminal.out.print(shown)
    return 0


if __name__ == "__main__":
    sys.exit(main())
