"""Small federations whose parties have columns of text that trees split as categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tests.worlds import SIX, Floats, Tables, World

#: The columns of each party: categories of text, or 0 for numbers.
COLUMNS = {"label-holder": (6, 0), "feature-b": (7, 3, 0), "feature-c": (0, 5)}
#: A category of new records that training has not seen.
UNSEEN = 90


def categorical_world(
    n: int = 80,
    columns: Mapping[str, Sequence[int]] = COLUMNS,
    *,
    missing: float = 0.0,
    objective: str = "binary:logistic",
    classes: int = 2,
    fresh: int = 15,
    seed: int = 0,
) -> World:
    """A world of n records; every category occurs in training, since codes are places among those that do.

    Every column but each party's last has a share of `missing` cells; of the new records' cells some are missing too,
    and some categories are new.
    """
    rng = np.random.default_rng(seed)
    signal, total = 0.4 * rng.normal(size=n + fresh), n + fresh
    blocks: list[Floats] = []
    for counts in columns.values():
        block = np.empty((total, len(counts)))
        for j, count in enumerate(counts):
            block[:, j] = np.concatenate([np.arange(count), rng.integers(0, count or 5, total - count)])
            signal += rng.normal(size=count)[block[:, j].astype(int)] if count else 0.3 * block[:, j]
        gone = rng.random(block.shape) < missing
        gone[:, -1] = False
        for j, count in enumerate(counts):
            for code in range(count):
                having = np.flatnonzero(block[:n, j] == code)
                if gone[having, j].all():
                    gone[having[0], j] = False
        gone[n:] = rng.random((fresh, len(counts))) < 0.2
        block[gone] = np.nan
        new = rng.random((fresh, len(counts))) < 0.2
        new[:, [count == 0 for count in counts]] = False
        block[n:][new] = UNSEEN
        blocks.append(block)
    if objective == "reg:squarederror":
        y: Any = signal
    else:
        y = np.searchsorted(np.quantile(signal, np.linspace(0, 1, classes + 1)[1:-1]), signal)
    tables: Tables = {}
    categories: dict[tuple[str, int], int] = {}
    for m, (party, counts) in enumerate(columns.items()):
        names = [f"{party[-1]}{j}" for j in range(len(counts))]
        categories |= {(party, j): count for j, count in enumerate(counts) if count}
        content = {}
        for table, rows in (("train", rng.permutation(n)), ("predict", n + rng.permutation(fresh))):
            order = np.roll(rows, m)
            cells: dict[str, Any] = {"id": [f"r{i:05d}" for i in order]}
            for j, (name, count) in enumerate(zip(names, counts, strict=True)):
                column = blocks[m][order, j]
                text = [None if np.isnan(value) else f"kind {int(value):02d}" for value in column]
                cells[name] = pa.array(text, pa.string()) if count else column
            if m == 0 and table == "train":
                cells["y"] = y[order]
            content[table] = pa.table(cells)
        tables[party] = (names, content)
    assert list(columns) == list(SIX[: len(columns)])
    return World(tables, [x[:n] for x in blocks], y[:n], [x[n:] for x in blocks], classes, categories=categories)
