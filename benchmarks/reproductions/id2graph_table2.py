"""The ID2Graph paper's Table 2: V-measures of what a feature party learns of the labels, ours beside the paper's.

    python benchmarks/reproductions/id2graph_table2.py --sets breastcancer obesity
    python benchmarks/reproductions/id2graph_table2.py --check

Two parties with a random half of the columns each (images: the left and the right half), 80 % of the records, five
trees of depth 6, seeds 42 to 46; the party without labels runs four attacks on what it saw. `cl` clusters its own
columns, `uni` joins records that share a leaf, `uni+cl` does both, ID2Graph clusters columns and communities of the
graph of shared leaves. The graph is built as in the paper, in chunks for its four largest sets, whose edges between
chunks are self-loops as printed, or `linked` as the text says; and with equal records merged, which needs no chunks.

Small sets are trained by a real federation over sockets with keys of 1024 bits, the others centrally, which gives the
same leaves: --check trains breast cancer both ways and compares. Every result goes into the results file at once, and
the same command goes on after an interruption. Needs TREETAP_DATA, the folder of the public tables, for all sets but
breast cancer, and the `audit` extra.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from id2graph_runs import add_over, collect, ended, parser_of, summary, way
from id2graph_sets import MODELS, PAPER_SETS, SETS
from id2graph_trial import BASELINES, LINKED, QUOTIENT, WAYS, Trial
from rich.table import Table

from treetap import terminal

TITLES = {
    "cl": "CL",
    "uni": "UNI",
    "uni+cl": "UNI+CL",
    "id2graph": "ID2Graph",
    LINKED: "chunks linked",
    QUOTIENT: "merged",
}


def rows_of(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row per set and model: for every attack ours and the paper's mean and standard deviation."""
    rows = []
    for name, given in SETS.items():
        for model in MODELS:
            some = [each for each in results if (each["trial"]["set"], each["trial"]["model"]) == (name, model)]
            if not some:
                continue
            graph = "id2graph-chunked" if given.chunked else "id2graph"
            ours = {kind: summary(some, kind) for kind in BASELINES}
            ours |= {"id2graph": summary(some, graph), **{kind: summary(some, kind) for kind in (LINKED, QUOTIENT)}}
            exact = {"id2graph, not in chunks": summary(some, "id2graph")} if given.chunked else {}
            rows.append(
                {
                    "set": name,
                    "model": model,
                    "records": some[0]["records"],
                    "seeds": [each["trial"]["seed"] for each in some],
                    "over": some[0]["trial"]["over"],
                    "remark": given.remark,
                    "ours": {kind: found for kind, found in (ours | exact).items() if found is not None},
                    "paper": given.paper[model],
                    "seconds": sum(each["seconds"] for each in some),
                }
            )
    return rows


def cells_of(row: dict[str, Any]) -> list[str]:
    """A row as text: set, model, how, and for every attack ours and the paper's figure."""
    cells = [SETS[row["set"]].title, row["model"], row["over"], f"{len(row['seeds'])}"]
    for kind in TITLES:
        cells.append(_text(row["ours"].get(kind)))
        if kind in row["paper"]:
            cells.append(_text(row["paper"][kind]))
    return cells


def _text(figure: tuple[float, float | None] | None) -> str:
    if figure is None:
        return "–"
    return " ± ".join(f"{part:.3f}".replace("0.", ".", 1) for part in figure if part is not None)


def headers() -> list[str]:
    """The titles above `cells_of`."""
    found = ["set", "model", "trained", "seeds"]
    for kind, title in TITLES.items():
        found += [title] if kind in (LINKED, QUOTIENT) else [title, "paper"]
    return found


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table as it stands in the README."""
    lines = [headers(), ["---"] * len(headers()), *map(cells_of, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def report(rows: Sequence[dict[str, Any]]) -> None:
    """The table for a person, a line per attack, and remarks on the sets."""
    table = Table("set", "model", "trained", "seeds", "attack", "ours", "paper")
    for row in rows:
        for place, (kind, title) in enumerate(TITLES.items()):
            of = cells_of(row)[:4] if place == 0 else [""] * 4
            table.add_row(*of, title, _text(row["ours"].get(kind)), _text(row["paper"].get(kind)))
        table.add_section()
    terminal.out.print(table)
    for remark in dict.fromkeys(f"{SETS[row['set']].title}: {row['remark']}" for row in rows if row["remark"]):
        terminal.out.print(remark, highlight=False)


def check(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every seed and model trained both ways: whether the attacker's leaves and all figures are the same."""
    by_trial = {tuple(each["trial"][key] for key in ("model", "seed", "over")): each for each in results}
    found = []
    for model, seed, over in by_trial:
        if over != WAYS[0] or (model, seed, WAYS[1]) not in by_trial:
            continue
        wire, central = by_trial[model, seed, WAYS[0]], by_trial[model, seed, WAYS[1]]
        figures = [
            {kind: {key: each[key] for key in each if key != "seconds"} for kind, each in one["attacks"].items()}
            for one in (wire, central)
        ]
        equal = {"leaves": wire["leaves"] == central["leaves"], "figures": figures[0] == figures[1]}
        v = wire["attacks"]["id2graph"]["v_measure"]
        found.append({"model": model, "seed": seed, **equal, "id2graph": v})
    return found


def main() -> int:
    """Run what is missing and print."""
    parser = parser_of(__doc__, PAPER_SETS)
    add_over(parser, "auto")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--check", action="store_true", help="breast cancer both ways; exit status 1 if they differ")
    given = parser.parse_args()
    if given.check:
        trials = [
            Trial("breastcancer", model, seed, over) for model in given.models for seed in given.seeds for over in WAYS
        ]
        compared = check(collect(given.results, trials, only_stored=given.show))
        same = all(each["leaves"] and each["figures"] for each in compared)
        if given.as_json:
            print(json.dumps({"equal": same, "compared": compared}, indent=1))
        else:
            table = Table("model", "seed", "same leaves", "same figures", "V of ID2Graph")
            for each in compared:
                words = ["yes" if each[key] else "no" for key in ("leaves", "figures")]
                table.add_row(each["model"], str(each["seed"]), *words, f"{each['id2graph']:.3f}")
            terminal.out.print(table)
        return 0 if same else 1
    trials = [
        Trial(name, model, seed, way(name, given.over))
        for name in given.sets
        for model in given.models
        for seed in given.seeds
    ]
    results = collect(given.results, trials, only_stored=given.show)
    rows = rows_of(results)
    if given.as_json:
        print(json.dumps({"rows": rows, "results": results}, indent=1))
    elif given.markdown:
        print(markdown(rows))
    else:
        report(rows)
    return 0


if __name__ == "__main__":
    ended(main)
