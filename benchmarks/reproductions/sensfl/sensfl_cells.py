"""The cells of the reproduction: each training of a table, once per seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from keyed_cells import KeyedCell, KeyedScale

IMAGES, TABLES = ("fashion", "cifar10"), ("bank", "credit")
#: The columns that are guessed: S1 and S2 of the paper.
ATTRIBUTES = {"bank": ("loan", "job"), "credit": ("SEX", "EDUCATION")}
#: Width of the embedding in the paper's tables, and all that it tries.
WIDTH = dict.fromkeys(IMAGES, 1000) | dict.fromkeys(TABLES, 200)
WIDTHS = dict.fromkeys(IMAGES, (500, 800, 1000)) | dict.fromkeys(TABLES, (100, 150, 200))
#: ε of the paper, and that of three clients.
EPSILON = dict.fromkeys(IMAGES, 0.1) | dict.fromkeys(TABLES, 0.01)
OF_THREE = 1.0
SWEPT = (0.01, 0.001, 0.1)
#: The paper's noise scales of DP-SGD, and its clip.
NOISES, CLIP = (0.1, 0.01), 1.0
BATCH_SIZE = 128
#: The readings of the norm, the likelier one first.
NORMS = ("batch", "record")
DEPTHS = (1, 2, 3)
#: Residual blocks of the bottoms that have such.
BLOCKS = (1, 3)


@dataclass(frozen=True)
class Cell(KeyedCell):
    """One training, and the attacks on what its label holder has read.

    Attributes:
        set: of `network_catalogue.SETS`.
        seed: draws the records, and everything that is drawn in training and in attacks.
        depth: M1 to M3 of the paper: hidden layers of tables, convolutions or residual blocks of images.
        width: of the embedding; 0: the paper's.
        sensitivity: ε of SensFL, 0 without; `norm`: the reading of its norm.
        noise: σ of DP-SGD, 0 without; `on_mean`: taken as the deviation of the noise on the mean of a batch in units of
            the clip, not on the sum.
        parties: 2, or 3: the label holder and two feature parties, of which the first is attacked.
        group: group normalisation without DP-SGD, which needs it.
        residual: residual blocks with a linear layer from all places, and not convolutions with pooling.
        averaged: the average over all places after the residual blocks.
    """

    depth: int = 1
    width: int = 0
    sensitivity: float = 0.0
    norm: str = ""
    noise: float = 0.0
    on_mean: bool = False
    parties: int = 2
    group: bool = False
    residual: bool = False
    averaged: bool = False

    @property
    def defence(self) -> str:
        """The defence in words."""
        if self.sensitivity:
            return f'SensFL "{self.norm}", ε {self.sensitivity:g}'
        if self.noise:
            return f"DP-SGD, noise {self.noise:g}" + (" on the mean" if self.on_mean else "")
        return "clean" + (", group norm" if self.group else "")

    @property
    def multiplier(self) -> float:
        """The noise multiplier of Abadi et al.: the deviation on the sum of a batch in units of the clip."""
        return self.noise * BATCH_SIZE if self.on_mean else self.noise


def sensitive(plain: Cell, epsilon: float, norm: str = NORMS[0]) -> Cell:
    """A cell under SensFL."""
    return replace(plain, sensitivity=epsilon, norm=norm)


def main_rows(plain: Cell) -> list[Cell]:
    """A cell without a defence, and under SensFL as the paper is likely to mean it."""
    return [plain, sensitive(plain, EPSILON[plain.set])]


def other_rows(plain: Cell) -> list[Cell]:
    """The other defences of a table: DP-SGD, on tables in both readings of its noise, and SensFL by the other norm."""
    noised = [replace(plain, noise=noise) for noise in NOISES]
    on_mean = [replace(each, on_mean=True) for each in noised if plain.set in TABLES]
    other = sensitive(plain, EPSILON[plain.set], NORMS[1])
    return [noised[0], other, *on_mean, noised[1]]


def _by_model(names: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """The rows of a table at the paper's width, the most telling first; M2, M3 and other defences with one seed."""
    first = [Cell(name, seeds[0], depth) for depth in DEPTHS for name in names]
    found = [cell for plain in first if plain.depth == 1 for cell in main_rows(plain)]
    found += [other_rows(plain)[0] for plain in first if plain.depth == 1]
    found += [cell for seed in seeds[1:] for name in names for cell in main_rows(Cell(name, seed))]
    found += [cell for plain in first if plain.depth == 1 for cell in other_rows(plain)]
    found += [cell for plain in first if plain.depth > 1 for cell in main_rows(plain)]
    return found + [cell for plain in first if plain.depth > 1 for cell in other_rows(plain)]


def table_1(seeds: Sequence[int]) -> list[Cell]:
    """Images (Table 1 of the paper)."""
    return _by_model(IMAGES, seeds)


def table_2(seeds: Sequence[int]) -> list[Cell]:
    """Tables (Table 2 of the paper)."""
    return _by_model(TABLES, seeds)


def residual(seeds: Sequence[int]) -> list[Cell]:
    """Images by bottoms of residual blocks and width; with the average over places at the paper's width alone."""
    found = []
    for width in range(3):
        for name in IMAGES:
            for depth in BLOCKS:
                for seed in seeds:
                    plain = _usual(Cell(name, seed, depth, WIDTHS[name][2 - width], residual=True))
                    found += main_rows(plain)
                    found += [] if width else main_rows(replace(plain, averaged=True))
    return found


def table_3(seeds: Sequence[int]) -> list[Cell]:
    """Images of three parties under ε 1, and of two as in Table 1 (Table 3 of the paper)."""
    found = []
    for depth in DEPTHS:
        for name in IMAGES:
            for seed in seeds:
                three = Cell(name, seed, depth, parties=3)
                found += [three, sensitive(three, OF_THREE), *main_rows(Cell(name, seed, depth))]
    return found


def widths(seeds: Sequence[int]) -> list[Cell]:
    """Images by width of the embedding (Figure 4 of the paper)."""
    plain = [Cell(name, seed, width=width) for name in IMAGES for width in WIDTHS[name] for seed in seeds]
    return [cell for each in plain for cell in main_rows(_usual(each))]


def sweep(seeds: Sequence[int]) -> list[Cell]:
    """Tables by hidden layers, width, ε and norm (Figure 5 of the paper, and ε)."""
    found = []
    for depth in DEPTHS:
        for width in range(3):
            for name in TABLES:
                for seed in seeds:
                    plain = _usual(Cell(name, seed, depth, WIDTHS[name][2 - width]))
                    found.append(plain)
                    found += [sensitive(plain, each, norm) for each in SWEPT for norm in NORMS]
    return found


def projected(seeds: Sequence[int]) -> list[Cell]:
    """A cell of each network, which is measured untrained, and some under SensFL, which are measured trained."""
    plain = [Cell(name, seed, depth) for name in (*TABLES, *IMAGES) for depth in DEPTHS for seed in seeds]
    blocks = [Cell(name, seed, depth, residual=True) for name in IMAGES for depth in BLOCKS for seed in seeds]
    plain += [*blocks, *(replace(cell, averaged=True) for cell in blocks)]
    trained = [Cell(name, seed) for name in ("credit", "fashion") for seed in seeds]
    return plain + [sensitive(cell, EPSILON[cell.set], norm) for cell in trained for norm in NORMS]


def _usual(cell: Cell) -> Cell:
    """The cell as the tables name it, without the width that it has anyway."""
    return replace(cell, width=0) if cell.width == WIDTH[cell.set] else cell


#: Sweep → its cells by seeds, and how many seeds it has unless the person says.
SWEEPS: dict[str, tuple[Callable[[Sequence[int]], list[Cell]], int]] = {
    "table-1": (table_1, 3),
    "table-2": (table_2, 3),
    "table-3": (table_3, 1),
    "residual": (residual, 1),
    "widths": (widths, 1),
    "sweep": (sweep, 1),
}


#: One cell of each table, which a federation of processes trains too, on some records.
FEDERATED = (
    Cell("fashion", 0, sensitivity=EPSILON["fashion"], norm="batch"),
    Cell("bank", 0, sensitivity=EPSILON["bank"], norm="batch"),
    Cell("credit", 0, sensitivity=EPSILON["credit"], norm="record"),
    Cell("fashion", 0, sensitivity=OF_THREE, norm="batch", parties=3),
)
FEDERATED_SCALE = KeyedScale(most=1000, epochs=2)
