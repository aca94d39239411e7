"""The attacks' settings, with the values of the ID2Graph paper as defaults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from attacks.id2graph.chunked import CHUNK_EDGES
from attacks.id2graph.communities import ENGINES
from treetap.errors import BadInput
from treetap.protocols.registry import training

#: The paper's discount per tree (its η): 1 for independent trees, less for trees in sequence.
INDEPENDENT_DISCOUNT = 1.0
SEQUENTIAL_DISCOUNT = 0.6

_WHOLE = {
    "chunk_size": (2, 2**31),
    "max_entries": (1, 2**40),
    "runs": (1, 1000),
    "passes": (1, 100_000),
    "starts": (1, 1000),
    "iterations": (1, 1_000_000),
    "seed": (0, 2**31 - 1),
}
_REAL = {
    "discount": (0.0, 1.0),
    "alpha": (0.0, 1e6),
    "chunk_weight": (0.0, 1e9),
    "tolerance": (0.0, 1.0),
    "kmeans_tolerance": (0.0, 1.0),
}
_CHOICE = {"chunk_edges": CHUNK_EDGES, "engine": ENGINES}


@dataclass(frozen=True)
class Settings:
    """Parameters of all attacks; each reads its own.

    `discount` weighs tree t with discount^(t−1) (1 for independent trees, 0.6 for trees in sequence); `alpha` weighs
    the one-hot groups against the features. `chunk_size`, `chunk_weight`, `chunk_edges`: B, w' and the reading of
    algorithm 3. `columns`: numbers of the features to cluster on; None means all. Louvain: `engine`, `runs` per engine,
    `passes`, `tolerance`; `max_entries` bounds the matrix of the exact form. k-means: `starts`, `iterations`,
    `kmeans_tolerance`.

    Raises:
        BadInput: on construction; names every wrong field and its range.
    """

    discount: float = INDEPENDENT_DISCOUNT
    alpha: float = 3.0
    chunk_size: int = 1000
    chunk_weight: float = 100.0
    chunk_edges: str = "paper"
    columns: tuple[int, ...] | None = None
    engine: str = "auto"
    runs: int = 5
    passes: int = 100
    tolerance: float = 1e-6
    max_entries: int = 15_000_000
    starts: int = 10
    iterations: int = 300
    kmeans_tolerance: float = 1e-4
    seed: int = 0

    def __post_init__(self) -> None:
        wrong: list[str] = []
        for name, (low, high) in _WHOLE.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                wrong.append(f"{name} must be a whole number in [{low}, {high}], not {value!r}")
        for name, (least, most) in _REAL.items():
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if not number or not least <= value <= most or (name == "discount" and value == 0):
                opening = "(" if name == "discount" else "["
                wrong.append(f"{name} must be a number in {opening}{least:g}, {most:g}], not {value!r}")
        for name, choices in _CHOICE.items():
            if getattr(self, name) not in choices:
                wrong.append(f"{name} must be one of {', '.join(choices)}, not {getattr(self, name)!r}")
        columns: Any = self.columns
        if columns is not None:
            numbers = isinstance(columns, list | tuple) and all(type(j) is int and j >= 0 for j in columns)
            if not numbers or not columns or len(set(columns)) < len(columns):
                wrong.append(f"columns must be distinct column numbers from 0, at least one, not {columns!r}")
            else:
                object.__setattr__(self, "columns", tuple(columns))  # a list from a file is not hashable
        if wrong:
            raise BadInput("attack settings: " + "; ".join(wrong))

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> Settings:
        """Read settings from a mapping. Raises BadInput naming every unknown or wrong field."""
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise BadInput(f"attack settings: unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return cls(**given)

    def of(self, *names: str) -> dict[str, Any]:
        """The settings with these names, for the parameters of a result."""
        every = asdict(self)
        return {name: every[name] for name in names}


def usual_discount(protocol: str) -> float:
    """The paper's discount for the trees of a protocol that trains."""
    trees = training(protocol).trees
    return SEQUENTIAL_DISCOUNT if trees is not None and trees.sequential else INDEPENDENT_DISCOUNT
