"""The cells of the reproduction: each training of a table or figure, once per seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from keyed_cells import KeyedCell, KeyedScale

#: How a network is trained: by both parties, by the label holder alone, or with a further head for its own embedding.
TOGETHER, ALONE, MULTI_HEAD = "together", "alone", "multi-head"
#: λ of DIMIP in the sweeps, 0 being no defence.
WEIGHTS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
#: The four baselines on returned gradients (the paper's section 5.1), weak to strong: kind and its numbers.
BASELINES = {
    "noise": ("noise 0.0001", "noise 0.001", "noise 0.01"),
    "compression": ("compression 0.9", "compression 0.99", "compression 0.999"),
    "ppdl": ("ppdl 0.0001", "ppdl 0.001", "ppdl 0.01"),
    "levels": ("levels 2 0.0001", "levels 2 0.001", "levels 2 0.01"),
}
#: λ of the curve beside 0 and 0.3.
CURVE = (0.03, 0.1, 1.0)
#: Of the table of defences: λ, ε, and one defence of gradients of each kind.
DIMIP, EPSILON = 0.3, 2.0
GRADIENT = tuple(kind[1] for kind in BASELINES.values())
#: The momentum that a job has unless it says otherwise.
MOMENTUM = 0.9
TABLES = ("obesity", "har", "drive", "fars", "credit", "bank")
#: Those with each defence.
ADVISED = ("obesity",)
#: Those that are also divided by turns.
TURNS = ("obesity", "drive")


@dataclass(frozen=True)
class Cell(KeyedCell):
    """One training.

    Attributes:
        set: of `network_sets.SETS`.
        seed: draws the records, and everything that is drawn in training.
        way: `TOGETHER`, `ALONE` or `MULTI_HEAD`.
        dropout: the chance that the feature party sits out a batch (Party-wise Dropout).
        dimip: λ; 0: no DIMIP. `random_labels`: False leaves its L_R out.
        gradient: a defence of the returned gradients, its kind and numbers: see `network_trainings.gradient_defence`.
        label_dp: ε of noisy labels, drawn in `stages`; 0: labels as they are.
        amplified: the feature party scales its steps (active model completion).
        turns: of tables, the parties own every second column each, not a half of them.
        momentum: of SGD, for images.
    """

    way: str = TOGETHER
    dropout: float = 0.0
    dimip: float = 0.0
    random_labels: bool = True
    gradient: str = ""
    label_dp: float = 0.0
    stages: int = 1
    amplified: bool = False
    turns: bool = False
    momentum: float = 0.0


@dataclass(frozen=True)
class Scale(KeyedScale):
    """Changes of a cell against the settings of its set; `resnet`: ResNet-18 in the place of small bottoms."""

    resnet: bool = False


def quitting(name: str, seeds: Sequence[int], shares: Sequence[float], *, turns: bool = False) -> list[Cell]:
    """A set with each chance of dropout, the label holder alone and the further head."""
    found: list[Cell] = []
    for seed in seeds:
        usual = Cell(name, seed, turns=turns)
        found += [replace(usual, dropout=share) for share in shares]
        found += [replace(usual, way=way) for way in (ALONE, MULTI_HEAD)]
    return found


def figure_3(seeds: Sequence[int]) -> list[Cell]:
    """Quitting on Fashion-MNIST."""
    return quitting("fashion", seeds, (0.0, 0.1, 0.3))


def figure_4(seeds: Sequence[int]) -> list[Cell]:
    """Quitting on CIFAR-10, the paper's Table 1 and Figure 3."""
    return quitting("cifar10", seeds, (0.0, 0.1, 0.3))


def figure_5(seeds: Sequence[int]) -> list[Cell]:
    """Quitting on tables; of the small ones also where parties own every second column."""
    halves = [cell for name in TABLES for cell in quitting(name, seeds, (0.0, 0.1, 0.3))]
    return halves + [cell for name in TURNS for cell in quitting(name, seeds, (0.0, 0.1, 0.3), turns=True)]


def figure_6(seeds: Sequence[int]) -> list[Cell]:
    """DIMIP on Fashion-MNIST: by λ, without its random-label term, under active completion, with dropout; baselines.

    All seeds for the figures that are asked for; the curves have the first.
    """
    core = [Cell("fashion", seed) for seed in seeds]
    found = core + [replace(each, dimip=0.3) for each in core]
    found += [replace(each, dimip=0.3, random_labels=False) for each in core]
    first = core[0]
    found += [replace(first, dimip=weight) for weight in CURVE]
    found += [replace(first, dimip=weight, momentum=MOMENTUM) for weight in (0.0, DIMIP)]
    found.append(replace(first, way=ALONE, momentum=MOMENTUM))
    found += [replace(first, gradient=each) for kind in BASELINES.values() for each in kind]
    found += [replace(first, amplified=True, dimip=weight) for weight in (0.0, 0.03, 0.3)]
    found += [replace(first, amplified=True, gradient=kind[1]) for kind in BASELINES.values()]
    return found + [replace(first, dropout=0.3, dimip=weight) for weight in (0.0, 0.03, 0.3)]


def weights(seeds: Sequence[int]) -> list[Cell]:
    """DIMIP by λ on CIFAR-10."""
    return [Cell("cifar10", seed, dimip=weight) for seed in seeds for weight in (0.0, *WEIGHTS)]


def both(seeds: Sequence[int]) -> list[Cell]:
    """Each defence on Fashion-MNIST, and each pair of them that a job can have."""
    found = []
    for seed in seeds:
        usual = Cell("fashion", seed)
        singles: list[dict[str, Any]] = [{}, {"dimip": DIMIP}, {"label_dp": EPSILON}]
        singles += [{"gradient": each} for each in GRADIENT]
        pairs = [a | b for a, b in combinations(singles[1:], 2) if not a.keys() & b.keys()]
        found += [replace(usual, **each) for each in (*singles, *pairs)]
    return found


def advised(seeds: Sequence[int]) -> list[Cell]:
    """Each defence on tables, weak to strong, and the label holder alone: what the advice of an audit is by."""
    found = []
    for name in ADVISED:
        for seed in seeds:
            usual = Cell(name, seed)
            found += [usual, replace(usual, way=ALONE)]
            found += [replace(usual, dimip=weight) for weight in (CURVE[0], DIMIP)]
            found += [replace(usual, gradient=each) for kind in BASELINES.values() for each in kind]
            found.append(replace(usual, label_dp=EPSILON))
    return found


#: Sweep → its cells by seeds, and how many seeds it has unless the person says.
SWEEPS: dict[str, tuple[Callable[[Sequence[int]], list[Cell]], int]] = {
    "figure-3": (figure_3, 3),
    "figure-4": (figure_4, 3),
    "figure-5": (figure_5, 3),
    "figure-6": (figure_6, 3),
    "weights": (weights, 1),
    "both": (both, 1),
    "advised": (advised, 1),
}
#: Those whose cells are attacked.
ATTACKED = ("figure-6", "weights", "both", "advised")
#: One cell of each figure, which a federation of processes trains too, on some records.
FEDERATED = (
    Cell("fashion", 0, dropout=0.1),
    Cell("cifar10", 0, dropout=0.3),
    Cell("drive", 0, dropout=0.1),
    Cell("fashion", 0, dimip=DIMIP),
    Cell("fashion", 0, gradient="noise 0.001"),
)
FEDERATED_SCALE = Scale(most=2000, epochs=2)
