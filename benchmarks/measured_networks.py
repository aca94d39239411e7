"""Tables of defences of split networks, which the audit of a network advises by.

    python benchmarks/measured_networks.py

Writes `attacks/advice/networks/SET.json` by the results in `benchmarks/reproductions/splitnn/results.jsonl`, which
`networks.py figure-6 both advised floors` there measures, one seed: a party with half of the columns or of the
images, the label holder with the other half. Nothing is trained here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treetap.attacks.advice.networks import PARTY, NetworkPoint, NetworkTable

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "reproductions" / "splitnn" / "results.jsonl"
OUT = HERE.parent / "attacks" / "advice" / "networks"
#: Set of the reproduction → name, classes, records of the training, share of the largest class among them.
SETS: Mapping[str, tuple[str, int, int, float]] = {
    "fashion": ("Fashion-MNIST", 10, 20_000, 0.1),
    "obesity": ("obesity", 7, 1689, 281 / 1689),
}
#: Labels that the attacks know.
KNOWN = 40
#: Keys of a cell that are a defence of the label holder.
DEFENCES = ("dimip", "gradient", "label_dp")
#: Of PPDL: the share of a gradient's numbers that returns, and the threshold.
_SHARE, _THRESHOLD = 0.5, 0.0001


def table(name: str, results: Mapping[str, dict[str, Any]]) -> NetworkTable:
    """The table of a set. `results`: by their keys. Raises KeyError where a result is missing."""
    title, classes, records, majority = SETS[name]
    usual: dict[str, Any] = {"set": name, "seed": 0}
    cells = [json.loads(key) for key in results]
    # one defence alone, and nothing else that differs
    chosen = [
        it
        for it in cells
        if it.items() >= usual.items() and len(it.keys() - usual.keys()) == 1 and it.keys() & {*DEFENCES}
    ]
    points = [
        NetworkPoint(
            defences=_written(cell),
            accuracy=results[_key(cell)]["accuracy"],
            log=attacked["gradient_labels"],
            model=attacked["completion_mlp"],
        )
        for cell in (usual, *sorted(chosen, key=_key))
        if (attacked := results.get(_key(cell | {"asked": "attacks"}))) is not None
    ]
    return NetworkTable(
        table=title,
        classes=classes,
        records=records,
        known=KNOWN,
        majority=majority,
        untrained=results[_key(usual | {"asked": "floors"})]["completion_mlp"],
        alone=results[_key(usual | {"way": "alone"})]["accuracy"],
        points=points,
    )


def _written(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The defences of a cell as the label holder's file has them."""
    written: dict[str, Any] = {}
    if "dimip" in cell:
        written["dimip"] = {PARTY: cell["dimip"]}
    if "label_dp" in cell:
        written["label_dp"] = {"epsilon": cell["label_dp"]}
    if "gradient" in cell:
        kind, *numbers = cell["gradient"].split()
        values = [float(number) for number in numbers]
        written["gradient"] = {"kind": kind} | {
            "noise": lambda: {"scale": values[0]},
            "compression": lambda: {"share": values[0]},
            "ppdl": lambda: {"share": _SHARE, "scale": values[0], "threshold": _THRESHOLD},
            "levels": lambda: {"levels": int(values[0]), "scale": values[1]},
        }[kind]()
    return written


def _key(cell: Mapping[str, Any]) -> str:
    return json.dumps(dict(cell), sort_keys=True)


def results_at_hand() -> dict[str, dict[str, Any]]:
    """The results of the reproduction by their keys."""
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {_key(row["trial"]): row for row in rows}


def main() -> None:
    """Write the files."""
    results = results_at_hand()
    OUT.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        text = table(name, results).model_dump_json(indent=1) + "\n"
        (OUT / f"{name}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
