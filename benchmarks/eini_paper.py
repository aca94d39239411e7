"""The Fed-EINI paper's Table IV and Figure 8 (Chen et al. 2021, section VI): accuracy and growth of inference.

    python benchmarks/eini_paper.py accuracy [--sets credit_default] [--shares 0.2 0.8 1] [--protocols …]
    python benchmarks/eini_paper.py growth [--records 1000 2000 4000 8000] [--features 10 15 23] [--trees 10 20 100]

Needs TREETAP_DATA (credit_default.parquet, give_me_some_credit.parquet). 100 trees of depth 4 unless varied, the label
holder with 5 columns; 60 % of the records train, 20 % are predicted. Predictions are those of real processes over
mutual TLS with models that the centralised trainer grew (benchmarks/shards.py).

`accuracy` predicts the same records by every protocol and compares AUC and KS. `growth` varies records, features and
trees, one at a time, around the first number of records, all features and 100 trees, on credit default, and draws the
seconds. The paper's keys of 512 bits protect nothing and are for comparison only; growth uses them unless told.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from shards import LABELS, Model, Setting, predict, serving

from treetap import terminal
from treetap.errors import TreetapError

#: What is asked of a prediction, by the name of the way.
WAYS: dict[str, dict[str, str]] = {
    "interactive": {"protocol": "interactive"},
    "per-tree": {"protocol": "interactive", "form": "per-tree"},
    "eini": {"protocol": "eini"},
    "eini-lattice": {"protocol": "eini-lattice"},
}
COLORS = {"interactive": "#777777", "per-tree": "#b2182b", "eini": "#2166ac", "eini-lattice": "#1b7837"}
OUT = Path("runs/eini-growth.svg")


def run(
    workdir: Path, setting: Setting, records: int | None, ways: Sequence[str], key_bits: int
) -> list[dict[str, Any]]:
    """One setting by several ways, the first `records` test rows or all."""
    model = Model(workdir, setting)
    count = len(model.test) if records is None else records
    with serving(model, {count: model.write_tables(workdir, count)}, key_bits, 0.0) as federation:
        return [
            {"way": way} | predict(federation, model, count, **WAYS[way], key_bits=key_bits if way == "eini" else 0)
            for way in ways
        ]


def accuracy(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """Table IV: AUC and KS of every way on samples of the sets."""
    found = []
    for name in given.sets:
        for share in given.shares:
            for result in run(workdir, Setting(data=name, share=share), given.limit, given.protocols, given.key_bits):
                found.append({"set": name, "share": share} | result)
    return found


def growth(given: argparse.Namespace, workdir: Path) -> list[dict[str, Any]]:
    """Figure 8: seconds by records, by features, by trees."""
    base = given.records[0]
    points: list[tuple[str, int, Setting, int]] = [
        *(("records", count, Setting(), count) for count in given.records),
        *(("features", count, Setting(columns=count), base) for count in given.features),
        *(("trees", count, Setting(trees=count), base) for count in given.trees),
    ]
    found = []
    for varied, value, setting, records in points:
        for result in run(workdir, setting, records, given.protocols, given.key_bits):
            found.append({"varied": varied, "value": value} | result)
    return found


def draw(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Seconds over what is varied, a panel each, a line per way."""
    from matplotlib.figure import Figure

    varied = list(dict.fromkeys(each["varied"] for each in results))
    figure = Figure(figsize=(3.4 * len(varied), 3.0), layout="constrained")
    panels = figure.subplots(1, len(varied), squeeze=False)[0]
    for panel, name in zip(panels, varied, strict=True):
        for way in dict.fromkeys(each["way"] for each in results):
            points = [
                (each["value"], each["seconds"]) for each in results if (each["varied"], each["way"]) == (name, way)
            ]
            panel.plot(*zip(*points, strict=True), marker="o", markersize=4, color=COLORS[way], label=way)
        panel.set_xlabel(name)
        panel.set_xticks(sorted({each["value"] for each in results if each["varied"] == name}))
        panel.set_ylim(bottom=0)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("seconds")
    panels[0].legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def report(results: Sequence[dict[str, Any]], names: Sequence[str]) -> None:
    """A line per result, of the figures with these names."""
    table = Table(*names)
    for each in results:
        table.add_row(*(f"{each[name]:.5g}" if isinstance(each[name], float) else str(each[name]) for name in names))
    terminal.out.print(table)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "growth"])
    parser.add_argument("--sets", nargs="+", choices=list(LABELS), default=list(LABELS), metavar="SET")
    parser.add_argument("--shares", nargs="+", type=float, default=[0.2, 0.8, 1.0])
    parser.add_argument("--limit", type=int, help="records of accuracy; all of the test part unless told")
    parser.add_argument("--records", nargs="+", type=int, default=[1000, 2000, 4000, 8000])
    parser.add_argument("--features", nargs="+", type=int, default=[10, 15, 23])
    parser.add_argument("--trees", nargs="+", type=int, default=[10, 20, 100])
    parser.add_argument("--protocols", nargs="+", choices=list(WAYS), metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--key-bits", type=int, help="of eini; 2048 for accuracy, 512 for growth")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help=f"the picture of growth (default: {OUT})")
    parser.add_argument("--workdir", type=Path, default=Path(tempfile.gettempdir()) / "treetap-eini")
    parser.add_argument("--json", action="store_true", dest="as_json")
    given = parser.parse_args()
    if "TREETAP_DATA" not in os.environ:
        sys.exit("eini_paper: set TREETAP_DATA to the folder with the public tables")
    grows = given.what == "growth"
    given.protocols = given.protocols or (["per-tree", "eini"] if grows else ["interactive", "eini-lattice"])
    given.key_bits = given.key_bits or (512 if grows else 2048)
    given.workdir.mkdir(parents=True, exist_ok=True)
    try:
        results = (growth if grows else accuracy)(given, given.workdir.resolve())
    except TreetapError as failure:
        sys.exit(f"eini_paper: {failure}")
    if grows:
        draw(results, given.out)
    if given.as_json:
        print(json.dumps({"results": results, "picture": str(given.out) if grows else None}, indent=1))
        return
    report(
        results,
        ["varied", "value", "way", "seconds", "cpu_s"]
        if grows
        else ["set", "share", "way", "records", "seconds", "auc", "ks", "max_difference"],
    )
    if grows:
        terminal.out.print(f"picture: {given.out}", highlight=False)


if __name__ == "__main__":
    main()
