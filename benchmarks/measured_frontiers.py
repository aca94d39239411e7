"""Frontiers of public tables, which the audit advises by: what each defence leaves to an attacker, and what it costs.

    python benchmarks/measured_frontiers.py [--sets NAME …] [--protocols NAME …] [--workdir FOLDER]

Writes `attacks/advice/frontiers/SET-PROTOCOL.json`, documents as `treetap frontier` makes them, with the points of all
defences and of settings of the job that one may take for defences. Models are trained on the joined table, three seeds
each: two parties with half of the columns, 80 % of the records, the parameters of the ID2Graph paper. Needs the
`audit` extra, and TREETAP_DATA, the folder of the tables. Finished trainings are kept in FOLDER; the same command goes
on with what is missing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treetap.lab.experiment.defence_points import trained
from treetap.lab.experiment.experiment_file import ExperimentFile, Plan, TrainingResult
from treetap.lab.experiment.frontier import document, training_name
from treetap.lab.experiment.joined_table import content_digest
from treetap.lab.experiment.kept import Place, opened
from treetap.privacy.frontiers import FrontierDocument, Measured, MeasuredAlone, MeasuredPoint, Recommended

OUT = Path(__file__).resolve().parents[1] / "attacks" / "advice" / "frontiers"
HOLDER, OTHER = "label-holder", "feature-party"
SEEDS = [0, 1, 2]
#: Most records of a table; of a larger one as many are drawn, and of each class at least `LEAST`.
RECORDS, LEAST = 15_000, 20
DEFENCES: list[dict[str, Any]] = [
    {"reduced_leakage": {"trees": 1}},
    {"id_lmid": {"xi": [0.1, 0.25, 0.5, 1.0, 2.0]}},
    {"label_dp": {"epsilon": [0.5, 1.0, 2.0, 4.0], "stages": 2}, "grafting": True},
]
ATTACKS = ["id2graph-quotient", "uni", "uni+cl", "own-cuts"]


@dataclass(frozen=True)
class PublicTable:
    """A table: its file in TREETAP_DATA (None: comes with scikit-learn) and its label."""

    file: str | None
    label: str


SETS = {
    "breast_cancer": PublicTable(None, "target"),
    "obesity": PublicTable("obesity.parquet", "NObeyesdad"),
    "credit_default": PublicTable("credit_default.parquet", "default.payment.next.month"),
    "fars": PublicTable("fars.parquet", "target"),
}
#: Settings of the job that make trees weaker, and do not withhold anything.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "boosting": [
        {"learning_rate": 0.05},
        {"subsample": 0.5},
        {"party_dropout": {OTHER: 0.5}},
        {"max_depth": 2},
        {"model": "additive", "n_estimators": 10},
    ],
    "forest": [{"subsample": 0.3}, {"party_dropout": {OTHER: 0.5}}, {"max_depth": 2}],
}


def table_of(name: str) -> pa.Table:
    """The table, a draw of its records if it is large."""
    it = SETS[name]
    if it.file is None:
        from sklearn.datasets import load_breast_cancer

        data = load_breast_cancer()
        names = [str(column).replace(" ", "_") for column in data.feature_names]
        return pa.table({column: data.data[:, j] for j, column in enumerate(names)} | {it.label: data.target})
    if "TREETAP_DATA" not in os.environ:
        sys.exit(f"measured_frontiers: set TREETAP_DATA to the folder with {it.file}")
    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / it.file)
    if table.num_rows <= RECORDS:
        return table
    classes = np.unique(np.asarray(table.column(it.label).to_pylist()), return_inverse=True)[1]
    draw = np.random.default_rng(0)
    kept = []
    for each in range(int(classes.max()) + 1):
        rows = draw.permutation(np.flatnonzero(classes == each))
        kept.append(rows[: max(LEAST, round(len(rows) * RECORDS / table.num_rows))])
    return table.take(pa.array(np.sort(np.concatenate(kept))))


def experiment(name: str, path: Path, protocol: str, classes: int, job: dict[str, Any], rows: list[Any]) -> Any:
    """A frontier of that table and protocol. `job`: what differs from the paper's; `rows`: its `[[defence]]`."""
    own: dict[str, Any] = {"subsample": 0.8}
    if protocol == "boosting":
        own = {"learning_rate": 0.3}
        if classes > 2:
            own |= {"objective": "multi:softprob", "multi_strategy": "multi_output_tree"}
    common = {"protocol": protocol, "n_estimators": 5, "max_bin": 32, "colsample_bytree": 0.8}
    common |= {} if "model" in job else {"max_depth": 6}
    return ExperimentFile.model_validate(
        {
            "data": {"path": str(path), "label": SETS[name].label, "encode": "ordinal", "seed": SEEDS},
            "party": [{"name": HOLDER, "labels": True, "share": 0.5}, {"name": OTHER, "share": 0.5}],
            "job": common | own | job,
            "audit": {"attacks": ATTACKS},
            "defence": rows,
        }
    )


def measure(asked: ExperimentFile, folder: Path) -> FrontierDocument:
    """All points of a frontier; each training is on disk before the next one begins."""
    place: Place = "resumed" if folder.exists() else "empty"
    kept = opened(asked, folder, base=Path(), place=place, name=folder.name, trainer="centralised")
    found = dict[Plan, list[TrainingResult]]()
    for plan in asked.plans:
        for seed in SEEDS:
            name = training_name(plan, seed)
            if name not in kept.points:
                with tempfile.TemporaryDirectory(prefix="treetap-frontiers-") as held:
                    kept.add_point(name, trained(kept.experiment, kept.table, plan, seed, Path(held), "centralised"))
                print(f"{folder.name}: {name}", file=sys.stderr, flush=True)
            found.setdefault(plan, []).append(kept.points[name])
    return document(kept.experiment, content_digest(kept.table), "centralised", found)


def points(name: str, path: Path, protocol: str, classes: int, kept: Path) -> FrontierDocument:
    """The frontier of all defences, and as points of the defence "job" the settings that are none."""
    whole = measure(experiment(name, path, protocol, classes, {}, DEFENCES), kept / f"{name}-{protocol}")
    more = []
    for number, settings in enumerate(SETTINGS[protocol]):
        asked = experiment(name, path, protocol, classes, settings, [])
        (point,) = measure(asked, kept / f"{name}-{protocol}-setting-{number}").points
        more.append(point.model_copy(update={"defence": "job", "settings": settings}))
    every = [*map(_reduced, whole.points), *map(_reduced, more)]
    # what is recommended is of one's own table
    return whole.model_copy(
        update={
            "points": every,
            "before": _rounded(whole.before),
            "alone": MeasuredAlone(auc=_rounded(whole.alone.auc), accuracy=_rounded(whole.alone.accuracy)),
            "recommended": Recommended(point=None, says="Of a public table: nothing is recommended by it alone."),
        }
    )


def _reduced(point: MeasuredPoint) -> MeasuredPoint:
    """A point without the figures by party, of which there is one, to four decimals."""
    return point.model_copy(
        update={
            "auc": _rounded(point.auc),
            "accuracy": _rounded(point.accuracy),
            "v_measure": {attack: _rounded(it) for attack, it in point.v_measure.items()},
            **{name: _rounded(getattr(point, name)) for name in ("added", "gain")},
            "parties": {},
        }
    )


def _rounded(it: Measured) -> Measured:
    return Measured(
        mean=None if it.mean is None else round(it.mean, 4),
        sd=None if it.sd is None else round(it.sd, 4),
    )


def _asked(given: argparse.Namespace) -> Iterator[tuple[str, str]]:
    return ((name, protocol) for name in given.sets for protocol in given.protocols)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--protocols", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--workdir", type=Path, default=Path("measured-frontiers"), help="finished trainings")
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="treetap-frontiers-") as folder:
        for name, protocol in _asked(given):
            table, path = table_of(name), Path(folder) / f"{name}.parquet"
            pq.write_table(table, path)
            classes = len(table.column(SETS[name].label).unique())
            made = points(name, path, protocol, classes, given.workdir)
            (OUT / f"{name}-{protocol}.json").write_text(made.model_dump_json() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
