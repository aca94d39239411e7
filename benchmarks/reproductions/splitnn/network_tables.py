"""The tables of the page."""

from __future__ import annotations

from dataclasses import replace

from marked_tables import Rows
from network_catalogue import SETS
from network_cells import (
    ALONE,
    BASELINES,
    CURVE,
    DIMIP,
    FEDERATED,
    GRADIENT,
    MOMENTUM,
    MULTI_HEAD,
    TABLES,
    TURNS,
    WEIGHTS,
    Cell,
    both,
)
from network_figures import BINARY, Figures, gain
from seed_figures import federation_rows, shown

SHARES = (0.0, 0.1, 0.3)
#: Prototypes of centralised code, before: together, after quitting without dropout, after with p 0.1, alone; percent.
PROTOTYPES = {
    "fashion": "87.7 / 68.7 / 83.5 / 85.6",
    "cifar10": "60.4 / 44.7 / 54.9 (p 0.3) / 57.1",
    "obesity": "96.5 / 53.1 / 94.8 / 94.7",
    "har": "97.1 / 54.4 / 89.1 / 92.1",
    "drive": "91.8 / 19.9 / 88.2 / 91.1",
}
#: The paper's Table 1 and its text on Figure 3: CIFAR-10 with ResNet-18.
PAPER_CIFAR = {"p 0": ("74.53", "51.24"), "alone": ("62.84", "–")}


def quitting(figures: Figures, name: str, paper: dict[str, tuple[str, str]] | None = None) -> Rows:
    """By way of training the accuracy with both parties and after quitting, beside the paper's."""
    extra = ["paper: together", "after quitting"] if paper else []
    rows = [["training", "seeds", "together, %", "after quitting, %", *extra]]
    ways = {f"p {share:g}": Cell(name, 0, dropout=share) for share in SHARES}
    ways |= {"a further head": Cell(name, 0, way=MULTI_HEAD), "alone": Cell(name, 0, way=ALONE)}
    for title, cell in ways.items():
        found = figures.of(cell, "accuracy")
        if found is not None:
            after = "" if cell.way == ALONE else shown(figures.of(cell, "accuracy_after"))
            beside = list((paper or {}).get(title, ("–", "–"))) if paper else []
            rows.append([title, str(len(found.values)), found.text(), after, *beside])
    return rows


def quitting_tables(figures: Figures) -> Rows:
    """Each table a row: together, after quitting by chance of dropout, a further head, alone."""
    heads = [f"after, p {share:g}" for share in SHARES]
    rows = [
        [
            "set",
            "measure",
            "seeds",
            "together, p 0",
            "together, p 0.1",
            *heads,
            "a further head: after",
            "alone",
            "prototypes",
        ]
    ]
    for name, turns in [*((name, False) for name in TABLES), *((name, True) for name in TURNS)]:
        measure = "auc" if name in BINARY else "accuracy"
        cell = Cell(name, 0, turns=turns)
        found = figures.of(cell, measure)
        if found is None:
            continue
        ways = [replace(cell, dropout=share) for share in SHARES]
        rows.append(
            [
                SETS[name].title + (", every second column" if turns else ""),
                "AUC" if name in BINARY else "accuracy",
                str(len(found.values)),
                found.text(),
                shown(figures.of(ways[1], measure)),
                *(shown(figures.of(each, f"{measure}_after")) for each in ways),
                shown(figures.of(replace(cell, way=MULTI_HEAD), f"{measure}_after")),
                shown(figures.of(replace(cell, way=ALONE), measure)),
                "" if turns else PROTOTYPES.get(name, ""),
            ]
        )
    return rows


#: Columns of attacks: title, figure, factor.
_ATTACKS = (
    ("completion, 40 labels", "completion_mlp", 100.0),
    ("one layer", "completion_linear", 100.0),
    ("all labels", "completion_mlp_all", 100.0),
    ("one layer, all labels", "completion_linear_all", 100.0),
    ("gradient clusters", "clusters", 1.0),
    ("gradient labels", "gradient_labels", 100.0),
)


def attacked(figures: Figures, cells: dict[str, Cell], *, after: bool = False) -> Rows:
    """Each cell a row: accuracy, gain over alone that is left, and the attacks."""
    quit_ = ["after quitting, %"] if after else []
    rows = [
        ["defence", "seeds", "accuracy, %", *quit_, "gain over alone, points", *(title for title, _, _ in _ATTACKS)]
    ]
    for title, cell in cells.items():
        found = figures.of(cell, "accuracy")
        if found is None:
            continue
        more = [shown(figures.of(cell, "accuracy_after"))] if after else []
        attacks = [shown(figures.attack(cell, name), factor, 1 if factor > 1 else 2) for _, name, factor in _ATTACKS]
        rows.append([title, str(len(found.values)), found.text(), *more, gain(figures.kept(cell)), *attacks])
    return rows


def dimip_cells(name: str = "fashion") -> dict[str, Cell]:
    """DIMIP by λ, and without the random-label term."""
    weights = (0.0, *sorted((*CURVE, DIMIP))) if name == "fashion" else (0.0, *WEIGHTS)
    cells = {f"λ {weight:g}": Cell(name, 0, dimip=weight) for weight in weights}
    if name == "fashion":
        cells |= {f"λ {DIMIP:g} without L_R": Cell(name, 0, dimip=DIMIP, random_labels=False)}
        for weight in (0.0, DIMIP):
            cells[f"λ {weight:g}, momentum {MOMENTUM:g}"] = Cell(name, 0, dimip=weight, momentum=MOMENTUM)
    return cells


def baseline_cells() -> dict[str, Cell]:
    """The four baselines on returned gradients."""
    return {each: Cell("fashion", 0, gradient=each) for kind in BASELINES.values() for each in kind}


def active_cells() -> dict[str, Cell]:
    """Active completion: under DIMIP and under the baselines."""
    weights = {f"λ {weight:g}": Cell("fashion", 0, amplified=True, dimip=weight) for weight in (0.0, 0.03, DIMIP)}
    return weights | {each: Cell("fashion", 0, amplified=True, gradient=each) for each in GRADIENT}


def joint_cells() -> dict[str, Cell]:
    """Dropout and DIMIP together."""
    return {
        f"p {share:g}, λ {weight:g}": Cell("fashion", 0, dropout=share, dimip=weight)
        for share in (0.0, 0.3)
        for weight in (0.0, 0.03, DIMIP)
    }


def both_cells() -> dict[str, Cell]:
    """Each defence and each pair."""
    return {_title(cell): cell for cell in both((0,))}


def _title(cell: Cell) -> str:
    parts = [f"DIMIP λ {cell.dimip:g}"] if cell.dimip else []
    parts += [cell.gradient] if cell.gradient else []
    parts += [f"label DP ε {cell.label_dp:g}"] if cell.label_dp else []
    return " + ".join(parts) or "none"


def floors(figures: Figures) -> Rows:
    """The floors, which need no federation: an untrained bottom with a head, and training from scratch."""
    rows = [["set", "bottom", "40 labels, %", "40 labels, one layer", "all labels", "all labels, one layer"]]
    for name in ("fashion", "cifar10"):
        for title, way in (("untrained", ""), ("from scratch", "_tuned")):
            keys = [f"completion_{head}{way}{labels}" for labels in ("", "_all") for head in ("mlp", "linear")]
            cells = [figures.floor(name, key) for key in keys]
            if cells[0] is not None:
                rows.append([SETS[name].title, title, *map(shown, cells)])
    return rows


def federations(figures: Figures) -> Rows:
    """One cell of each figure: how far the weights of a federation lie from those of the centralised code."""
    return federation_rows((cell.name(), figures.federation(cell)) for cell in FEDERATED)
