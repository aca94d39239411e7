"""The trainings of the reproduction of the paper's defences: a set, a model, a seed, a defence and its setting."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

SETS = ("breastcancer", "obesity", "credit_default", "fars")
#: Beside these, for Table 3 alone: it has more classes.
MORE_SETS = ("drive",)
MODELS = ("forest", "boosting")
#: The seed of the real federations.
WIRE_SEED = 42
SEEDS = (42, 43, 44, 45, 46)
#: The values of the paper for ξ and ε are 0.1, 0.5, 1 and 2.
XI = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
XI_SHOWN = (0.1, 0.25, 0.5, 1.0, 2.0)
#: A ξ that forbids nothing: equal trees, for the count of ciphertexts in boosting.
NO_LIMIT = 1000.0
EPSILON = (0.1, 0.5, 1.0, 2.0)
#: The four models of one training with label DP, by their names in a frontier.
LABEL_DP = ("label_dp", "label_dp + refit", "grafting", "grafting + refit")


@dataclass(frozen=True)
class Cell:
    """One training.

    `own`: the label holder has half of the columns (Figures 8 and 9), or none (Figure 10). `value`: ξ, ε, or the number
    of trees of Reduced-Leakage. `counts`: of ID-LMID: the records of a set that Eq. 6 counts.
    """

    set: str
    model: str
    seed: int
    own: bool = True
    defence: str = "none"
    value: float | None = None
    counts: str | None = None

    @property
    def points(self) -> tuple[str, ...]:
        """The defences of which this training gives a point."""
        return LABEL_DP if self.defence == "label_dp" else (self.defence,)

    def key(self) -> dict[str, object]:
        """The cell in a file of results."""
        return asdict(self)

    def name(self) -> str:
        """The cell for progress."""
        words = [self.set, self.model, str(self.seed), "" if self.own else "no columns", self.defence]
        words += ["" if self.value is None else f"{self.value:g}", self.counts or ""]
        return " ".join(word for word in words if word)


def cells(sets: Sequence[str], models: Sequence[str], seeds: Iterable[int], *, own: bool) -> Iterator[Cell]:
    """All cells with such a label holder, those of one seed together; models that share noisy labels stand together."""
    for seed in seeds:
        for name in sets:
            for defence, value, counts in defences(own=own):
                for model in models:
                    if not (model == "boosting" and counts == "shown"):  # all records are drawn: both counts are one
                        yield Cell(name, model, seed, own, defence, value, counts)
            if own and "boosting" in models:
                yield Cell(name, "boosting", seed, own, "id_lmid", NO_LIMIT, "paper")


def defences(*, own: bool) -> list[tuple[str, float | None, str | None]]:
    """Defence, value and counts of every point; without own columns a label holder cannot grow a tree alone."""
    found: list[tuple[str, float | None, str | None]] = [("none", None, None)]
    if own:
        found.append(("reduced_leakage", 1.0, None))
    found += [("id_lmid", xi, "paper") for xi in XI]
    if own:
        found += [("id_lmid", xi, "shown") for xi in XI_SHOWN]
    found += [("label_dp", epsilon, None) for epsilon in EPSILON]
    return found


def wire_cells() -> list[Cell]:
    """Both models on breast cancer as real federations, with the defences that change how many ciphertexts go."""
    found = []
    for model in MODELS:
        asked = [("none", None, None), ("reduced_leakage", 1.0, None), ("id_lmid", 0.5, "paper")]
        asked += [("id_lmid", NO_LIMIT, "paper"), *([("id_lmid", 0.5, "shown")] if model == "forest" else [])]
        found += [Cell("breastcancer", model, WIRE_SEED, True, *each) for each in asked]
    return found


def wire_key(cell: Cell) -> dict[str, object]:
    """A federation's result in a file of results."""
    return cell.key() | {"over": "wire"}
