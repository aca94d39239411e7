"""Figures 8 to 10 in SVG: AUC of the test records against the V-measure of an attack, a panel for each set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from frontiers import WORST, Frontier, Point
from id2graph_sets import SETS

LABELS = {"id2graph": "ID2Graph", "uni": "UNI", "uni+cl": "UNI+CL", WORST: "CL or ID2Graph"}
SMALL, LARGE = 3.0, 8.0


class Look(NamedTuple):
    """How a defence is drawn: its name, colour and marker."""

    title: str
    colour: str
    marker: str
    filled: bool = True


Looks = Mapping[tuple[str, str | None], Look]
LOOKS: Looks = {
    ("reduced_leakage", None): Look("Reduced-Leakage", "#e69f00", "^"),
    ("id_lmid", "paper"): Look("ID-LMID", "#0072b2", "o"),
    ("id_lmid", "shown"): Look("ID-LMID, all records count", "#0072b2", "o", filled=False),
    ("label_dp", None): Look("label DP", "#b4232a", "s"),
    ("grafting", None): Look("Grafting-LDP", "#009e73", "D"),
    ("grafting + refit", None): Look("Grafting-LDP + refit", "#009e73", "D", filled=False),
}
#: For a choice: the defences as one would run them, all records counting in forests; in boosting both counts are one.
CHOICE: Looks = {
    ("reduced_leakage", None): LOOKS["reduced_leakage", None],
    ("id_lmid", "shown"): LOOKS["id_lmid", "paper"],
    ("label_dp", None): LOOKS["label_dp", None],
    ("label_dp + refit", None): Look("label DP + refit", "#b4232a", "s", filled=False),
    ("grafting + refit", None): LOOKS["grafting + refit", None],
}


def write_pictures(every: Sequence[Frontier], without: Sequence[Frontier], out: Path) -> None:
    """The figures of the frontiers at hand."""
    if every:
        _draw(every, ["id2graph"], out / "figure-8.svg", "Figure 8")
        _draw(every, ["uni", "uni+cl"], out / "figure-9.svg", "Figure 9")
        _draw(every, [WORST], out / "choice.svg", "What a defence leaves to the better of two attacks", CHOICE)
    if without:
        _draw(without, ["id2graph"], out / "figure-10.svg", "Figure 10")


def _draw(
    every: Sequence[Frontier], attacks: Sequence[str], path: Path, title: str, looks: Looks | None = None
) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    mpl.rcParams.update({"svg.hashsalt": "treetap", "svg.fonttype": "none", "font.size": 9})
    rows = [(model, attack) for model in ("forest", "boosting") for attack in attacks]
    sets = list(dict.fromkeys(it.set for it in every))
    made, axes = pyplot.subplots(
        len(rows), len(sets), figsize=(2.9 * len(sets), 2.5 * len(rows) + 0.6), squeeze=False, layout="constrained"
    )
    handles: dict[str, Any] = {}
    for row, (model, attack) in zip(axes, rows, strict=True):
        for here, name in zip(row, sets, strict=True):
            found = next((it for it in every if (it.set, it.model) == (name, model)), None)
            if found is None:
                here.set_visible(False)
                continue
            handles |= _panel(here, found, attack, looks or LOOKS)
            here.set_title(f"{SETS[name].title}, {model}", fontsize=9)
        row[0].set_ylabel(f"V-measure of {LABELS[attack]}")
    for here in axes[-1]:
        here.set_xlabel("AUC of the test records")
    made.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path, metadata={"Date": None, "Title": title})
    pyplot.close(made)


def _panel(here: Any, it: Frontier, attack: str, looks: Looks) -> dict[str, Any]:
    """Draw one frontier; the legend's handles by their names."""
    plain = it.at("none")
    found = {
        "CL": here.axhline(plain.v["cl"].mean, color="#555555", linewidth=0.8, linestyle="--"),
        "AUC without a defence": here.axvline(plain.auc.mean, color="#555555", linewidth=0.8, linestyle=":"),
        "no defence": here.plot(plain.auc.mean, plain.v[attack].mean, "x", color="black", markersize=6)[0],
    }
    for (defence, counts), look in looks.items():
        points = it.of(defence, counts) or (it.of(defence, "paper") if looks is CHOICE else [])
        if not points:
            continue
        line = here.plot(*_means(points, attack), color=look.colour, linewidth=0.8, alpha=0.6)[0]
        for place, point in enumerate(points):
            size = SMALL + (LARGE - SMALL) * place / max(1, len(points) - 1)
            face = look.colour if look.filled else "none"
            x, y = ([each] for each in (point.auc.mean, point.v[attack].mean))
            mark = here.plot(x, y, look.marker, color=look.colour, markerfacecolor=face, markersize=size, alpha=0.85)[0]
            found[look.title] = mark
        line.set_zorder(1)
    here.set_ylim(bottom=min(0.0, here.get_ylim()[0]))
    here.grid(alpha=0.25)
    return found


def _means(points: Sequence[Point], attack: str) -> tuple[list[float], list[float]]:
    return [point.auc.mean for point in points], [point.v[attack].mean for point in points]
