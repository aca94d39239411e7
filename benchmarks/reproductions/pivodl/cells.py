"""What the reproduction of PIVODL measures: each cell of a table or point of a figure, once per seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

SETS = ("credit", "bank", "energy")
#: The ranges of the paper's Table II.
PARTIES, DEPTHS, TREES, EPSILONS = (2, 4, 6, 8, 10), (2, 3, 4, 5, 6), (2, 3, 4, 5, 6), (2.0, 4.0, 6.0, 8.0, 10.0)
#: The paper's default ε.
EPSILON = 8.0
ACCOUNTINGS = ("zcdp", "paper")
#: Draws of the noise for each seed of the credit set's default setting.
DRAWS = range(10)
#: Who has the labels: spread over all parties, or all with the first.
SPREAD, ONE = "spread", "one"


@dataclass(frozen=True)
class Cell:
    """One training, with the paper's defaults.

    Attributes:
        over: "centralised" (the reference on the joined table, which the federation equals bit for bit), "processes"
            (a process per party, sockets, certificates) or "plain" (in one process, without encryption).
        set: of `sets.SETS`.
        seed: draws test rows, the parties' columns and labels, and with "centralised" the noise.
        draw: of the noise, of "centralised".
        system: "pivodl", "pivodl, modified" (the paper's modification for labels of one party) or "boosting"
            (SecureBoost).
        labels: `SPREAD` or `ONE`.
        accounting, wire_form: this project's, or the paper's way of this step alone.
    """

    over: str
    set: str
    seed: int
    draw: int = 0
    system: str = "pivodl"
    labels: str = SPREAD
    parties: int = 4
    depth: int = 3
    trees: int = 5
    epsilon: float | None = None
    accounting: str = "zcdp"
    key_bits: int = 512
    wire_form: str = "compact"
    gain_comparison: str = "announce"

    def key(self) -> dict[str, Any]:
        """The cell as it stands in the file of results: what differs from the defaults."""
        usual = asdict(Cell(self.over, self.set, self.seed))
        changed = {name: value for name, value in asdict(self).items() if value != usual[name]}
        return {"over": self.over, "set": self.set, "seed": self.seed, **changed}

    @property
    def of_earlier_code(self) -> bool:
        """True for a training over processes with one of the paper's ways alone: there is no such job any more."""
        ways = self.accounting != "zcdp", self.wire_form != "compact", self.system == "pivodl, modified"
        return self.over != "centralised" and any(ways)

    def name(self) -> str:
        """A few words for the line of progress."""
        return ", ".join(f"{name} {value}" for name, value in self.key().items())


def swept(cell: Cell, noise: Sequence[dict[str, Any]] = ({},)) -> Iterator[Cell]:
    """A cell with each number of parties, each depth and each number of trees of Table II, for each way of noise."""
    for changes in noise:
        usual = replace(cell, **changes)
        yield from (replace(usual, parties=value) for value in PARTIES)
        yield from (replace(usual, depth=value) for value in DEPTHS)
        yield from (replace(usual, trees=value) for value in TREES)


def figures(seeds: Sequence[int]) -> list[Cell]:
    """Figures 6 to 9: test measures by parties, depth, trees and ε."""
    ways: list[dict[str, Any]] = [{}, *({"epsilon": EPSILON, "accounting": each} for each in ACCOUNTINGS)]
    cells: list[Cell] = []
    for seed in seeds:
        for name in SETS:
            usual = Cell("centralised", name, seed)
            cells += swept(usual, ways)
            cells += [replace(usual, epsilon=value, accounting=each) for each in ACCOUNTINGS for value in EPSILONS]
    return unique(cells)


def times(seeds: Sequence[int]) -> list[Cell]:
    """Figures 10 to 15: time and traffic by parties, depth and trees, with keys of 512 bits as in the paper."""
    return unique(cell for seed in seeds for name in SETS for cell in swept(Cell("processes", name, seed)))


def plain(seeds: Sequence[int]) -> list[Cell]:
    """Figures 10 to 12, panels (b): time without encryption."""
    return unique(cell for seed in seeds for name in SETS for cell in swept(Cell("plain", name, seed)))


def traffic(seeds: Sequence[int]) -> list[Cell]:
    """The bytes of both forms of the wire: of each set, by the parties of the first, at the depth 6 of the last."""
    cells: list[Cell] = []
    for seed in seeds:
        for name in SETS:
            cells += [replace(Cell("processes", name, seed), wire_form=form) for form in ("compact", "paper")]
        cells += [replace(Cell("processes", SETS[0], seed), wire_form="paper", parties=value) for value in PARTIES]
        deepest = Cell("processes", SETS[-1], seed, depth=DEPTHS[-1])
        cells += [deepest, replace(deepest, wire_form="paper")]
    return unique(cells)


def scaling(seeds: Sequence[int]) -> list[Cell]:
    """Time by 3 to 10 parties and by 2 to 6 trees, of the first set."""
    usual = [Cell("processes", SETS[0], seed) for seed in seeds]
    return unique(
        [replace(cell, parties=value) for value in range(3, 11) for cell in usual]
        + [replace(cell, trees=value) for value in TREES for cell in usual]
    )


def credit(seeds: Sequence[int]) -> list[Cell]:
    """The default setting of the first set over processes: two lengths of keys, with and without noise."""
    first = Cell("processes", SETS[0], seeds[0])
    cells = [replace(first, key_bits=bits, wire_form=form) for bits in (512, 2048) for form in ("compact", "paper")]
    noise = [replace(first, epsilon=EPSILON, accounting=each) for each in ACCOUNTINGS]
    every = [Cell("centralised", SETS[0], seed) for seed in seeds]
    drawn = [replace(cell, epsilon=EPSILON, draw=draw) for cell in every for draw in DRAWS]
    return cells + noise + every + [replace(cell, accounting=each) for each in ACCOUNTINGS for cell in drawn]


def tables(seeds: Sequence[int]) -> list[Cell]:
    """Table IV and Figure 16: all labels with one party, by three systems and by depth; by parties the third."""
    cells: list[Cell] = []
    for seed in seeds:
        one = Cell("processes", SETS[0], seed, labels=ONE)
        systems = [replace(one, system=system) for system in ("boosting", "pivodl", "pivodl, modified")]
        cells += systems
        cells += [replace(each, depth=value) for each in (systems[0], systems[2]) for value in DEPTHS]
        cells += [replace(systems[2], parties=value) for value in PARTIES]
    return unique(cells)


def secure(seeds: Sequence[int]) -> list[Cell]:
    """Gains that are announced, and gains that are compared in secret."""
    first = Cell("processes", SETS[0], seeds[0])
    return [first, replace(first, gain_comparison="secure")]


#: The commands, in the order in which `all` runs them.
SWEEPS = {
    "credit": credit,
    "figures": figures,
    "tables": tables,
    "scaling": scaling,
    "traffic": traffic,
    "times": times,
    "plain": plain,
    "secure": secure,
}


def changed(cell: Cell, field: str, value: float) -> Cell:
    """The cell with another value of one field: a whole number, but for ε."""
    changes: dict[str, Any] = {field: value if field == "epsilon" else int(value)}
    return replace(cell, **changes)


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """Each cell once, in order."""
    return list(dict.fromkeys(cells))
