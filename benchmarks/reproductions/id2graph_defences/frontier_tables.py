"""The tables of the page: points of frontiers, Table 3, and federations beside the count."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from claims import REPAIRS
from defended_cells import NO_LIMIT, wire_cells, wire_key
from frontiers import NAMES, Frontier
from id2graph_sets import SETS
from paper_ciphertexts import TABLE_3
from resumable import Results

Rows = list[list[str]]


def points(every: Sequence[Frontier]) -> Rows:
    """AUC and V-measure of ID2Graph of every point, the values of a defence side by side."""
    swept = [point.value for it in every for point in it.of("id_lmid", "paper") + it.of("label_dp")]
    values = sorted({value for value in swept if value is not None})
    rows = [["model", "set", "seeds", "CL", "defence", "", *(f"{value:g}" for value in values)]]
    for it in every:
        first = [it.model, SETS[it.set].title, f"{len(it.seeds)}", f"{it.at('none').v['cl']}"]
        for defence, counts in dict.fromkeys((point.defence, point.counts) for point in it.points):
            if defence in REPAIRS:
                continue
            found = {
                point.value: f"{point.auc.mean:.3f} / {point.v['id2graph'].mean:.3f}"
                for point in it.of(defence, counts)
            }
            alone = found.popitem()[1] if len(found) == 1 else ""
            shown = ", all count" if counts == "shown" else ""
            rows.append([*first, NAMES[defence] + shown, alone, *(found.get(value, "") for value in values)])
            first = [""] * len(first)
    return rows


def table_3(every: Sequence[Frontier], more: Sequence[Frontier]) -> Rows:
    """Ciphertexts with a defence ÷ without, the mean over the sets, and each; of `more` sets without a mean."""
    titles = list(dict.fromkeys(SETS[it.set].title for it in (*every, *more)))
    rows = [["model", "defence", "ξ, ε or trees", "paper", "counted as the paper", *titles, "on this wire", *titles]]
    for model, given in TABLE_3.items():
        some, others = ([it for it in each if it.model == model] for each in (every, more))
        asked: list[tuple[str, float, float | None]] = [(*key, printed) for key, printed in given.items()]
        if model == "forest":
            asked.append(("reduced_leakage", 1.0, None))
        for defence, value, printed in asked if some else []:
            counts = "paper" if defence == "id_lmid" else None
            cells = []
            for form in ("paper", "wire"):
                ratios = [it.ratio(defence, value, _all(form), counts) for it in (*some, *others)]
                cells += [f"**{statistics.fmean(ratios[: len(some)]):.3f}**", *(f"{ratio:.2f}" for ratio in ratios)]
            rows.append([model, NAMES[defence], f"{value:g}", "–" if printed is None else f"{printed:.3g}", *cells])
    return rows


def equal_trees(every: Sequence[Frontier]) -> Rows:
    """Boosting with an ID-LMID that forbids nothing: what class counts cost at equal trees."""
    rows = [
        ["set", "records", "candidates", "sums in a ciphertext, without → with", "all", "all, counted as the paper"]
    ]
    for it in every:
        if it.model != "boosting":
            continue
        cell = next(cell for cell in it.results if cell.value == NO_LIMIT)
        plain = next(each for each in it.results if each.defence == "none")
        groups = [it.results[each]["ciphertexts"]["wire"]["groups"] for each in (plain, cell)]
        ratios = [
            f"{it.ratio('id_lmid', NO_LIMIT, count, 'paper'):.3f}"
            for count in (_records, _candidates, _all("wire"), _all("paper"))
        ]
        rows.append([SETS[it.set].title, *ratios[:2], f"{groups[0]} → {groups[1]}", *ratios[2:]])
    return rows


def federations(results: Results) -> Rows:
    """Ciphertexts that real federations sent, beside those counted from the trees."""
    rows = [
        [
            "model",
            "defence",
            "ξ or trees",
            "records sent",
            "counted",
            "candidates sent",
            "counted",
            "sums in a ciphertext",
        ]
    ]
    for cell in wire_cells():
        found = results.get(wire_key(cell))
        if found is None:
            continue
        sent, counted = found["sent"], found["counted"]
        figures = [f"{each[kind]:,}" for kind in ("records", "candidates") for each in (sent, counted)]
        value = "" if cell.value is None else "∞" if cell.value == NO_LIMIT else f"{cell.value:g}"
        shown = " (shown)" if cell.counts == "shown" else ""
        rows.append([cell.model, NAMES[cell.defence] + shown, value, *figures, f"{counted['groups']}"])
    return rows


def _all(form: str) -> Callable[[dict[str, Any]], float]:
    """All ciphertexts of a result, as the `paper` counts them or on the `wire`."""
    return lambda result: float(sum(result["ciphertexts"][form][kind] for kind in ("records", "candidates")))


def _records(result: dict[str, Any]) -> float:
    return float(result["ciphertexts"]["wire"]["records"])


def _candidates(result: dict[str, Any]) -> float:
    return float(result["ciphertexts"]["wire"]["candidates"])
