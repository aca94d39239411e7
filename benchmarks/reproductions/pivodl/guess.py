"""Table III of the PIVODL paper, and what the announced gains undo: the label guess of every party, from transcripts.

    python benchmarks/reproductions/pivodl/guess.py [--sets credit bank] [--seeds 0] [--draws 20] [--workdir DIR]

1. A federation of processes trains without noise, and every party keeps its transcript.
2. Each party's guess by the leaf weights that it received (Definition 9), over records that it does not label.
3. For each ε the weights of leaves below a party's own splits get noise, drawn anew 20 times as the parties draw it;
   the trees stay those of the exact training. Means over the draws, with the 95 % interval of the mean.

The paper gives the mean over the parties of one training. Here a party counts that received a weight for at least one
record of another. Needs TREETAP_DATA; a folder given by --workdir keeps the transcripts, and is not trained again.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from cells import EPSILONS, Cell  # noqa: E402
from paper import GUESS  # noqa: E402
from worlds import drawn, experiment_of  # noqa: E402

from treetap import terminal  # noqa: E402
from treetap.attacks.pivodl.evidence import SharedLabelEvidence  # noqa: E402
from treetap.attacks.pivodl.label_guess import received, score, summed  # noqa: E402
from treetap.attacks.pivodl.schema import GuessFigures  # noqa: E402
from treetap.attacks.registry import Needs, rows  # noqa: E402
from treetap.attacks.view.own_table import load_labels, load_own_table  # noqa: E402
from treetap.attacks.view.view import View, read_view  # noqa: E402
from treetap.errors import BadInput, TreetapError  # noqa: E402
from treetap.lab.experiment.file_tables import AuditTable  # noqa: E402
from treetap.lab.experiment.party_tables import (  # noqa: E402
    ID,
    labels_file,
    write_tables,
)
from treetap.lab.local_federation import LocalFederation, clean_end, working_folder  # noqa: E402
from treetap.party.pivodl.leaf_weights import NoiseLedger  # noqa: E402
from treetap.privacy.zcdp import LeafWeightPrivacy  # noqa: E402
from treetap.tables.labels import Labels  # noqa: E402
from treetap.trees.pivodl_params import PivodlParams  # noqa: E402
from treetap.wire.v2 import jobs_pb2  # noqa: E402

JOB = "guess"
FIGURES = ("accuracy", "inverted", "majority", "auc")


@dataclass(frozen=True)
class Seen:
    """One party's view with its columns, and the labels of all records."""

    view: View
    features: npt.NDArray[np.float64]
    labels: Labels


class _Memory:
    """The lines of a ledger of noise that is thrown away after a draw."""

    def lines(self, name: str) -> _Memory:
        del name
        return self

    def read(self) -> list[dict[str, Any]]:
        return []

    def put(self, line: dict[str, Any], number: int) -> None:
        del line, number


def transcripts(cell: Cell, folder: Path) -> dict[str, Seen]:
    """Every party's view; trains first unless the folder has the transcripts."""
    here = drawn(cell)
    experiment = here.experiment.model_copy(update={"audit": AuditTable()})
    names = [party.name for party in experiment.party]
    paths = {name: folder / name / "state" / "transcripts" / JOB for name in names}
    if not all(path.is_dir() for path in paths.values()):
        settings = write_tables(experiment, here.table, here.split, folder)
        with clean_end(), LocalFederation(folder, settings) as federation:
            first, *others = experiment.in_order
            operator = federation.operator
            spec = experiment.job.spec(first, others, "train")
            name = operator.submit(jobs_pb2.SubmitRequest(job=JOB, spec=spec))
            status = operator.watch(name, lambda _: None)
        if status.state != "finished":
            raise TreetapError(status.error or status.state)
    found = {}
    for name, path in paths.items():
        view = read_view(path, party=name)
        own = load_own_table(folder / name / "train.parquet", view, ID, here.split.columns[name])
        labels = load_labels(labels_file(experiment, folder), experiment.data.label, own, ID)
        found[name] = Seen(view, own.features, labels)
    return found


def exact(seen: dict[str, Seen]) -> dict[str, dict[str, Any]]:
    """All attacks on every party's transcript without noise."""
    found = {}
    for name, each in seen.items():
        assert each.view.pivodl is not None
        evidence = SharedLabelEvidence(each.view.pivodl, each.view.records, each.features, each.labels)
        found[name] = {attack: row.run(evidence).plain() for attack, row in rows(Needs.SHARED_LABELS).items()}
    return found


def noised(seen: dict[str, Seen], params: PivodlParams, count: int) -> dict[str, dict[str, Any]]:
    """Means over the parties, of all received weights and of those below own splits alone, over the draws of noise."""
    privacy = LeafWeightPrivacy.of(params)
    assert privacy is not None
    draws: dict[str, list[list[float]]] = {"all": [], "as source": []}
    for _ in range(count):
        guesses: dict[str, list[GuessFigures]] = {kind: [] for kind in draws}
        for each in seen.values():
            view, ledger = each.view.pivodl, NoiseLedger(_Memory(), privacy)  # type: ignore[arg-type]
            assert view is not None
            noised = {place: ledger.released(*place, value) for place, value in received(view, own=True).items()}
            records, truth = each.view.records, each.labels.values
            guesses["all"].append(score(summed(view, records, {**received(view), **noised}), truth))
            guesses["as source"].append(score(summed(view, records, noised), truth))
        for kind, found in guesses.items():
            draws[kind].append(means([guess.plain() for guess in found]))
    return {kind: interval(found) for kind, found in draws.items()}


def means(guesses: Sequence[dict[str, Any]]) -> list[float]:
    """The figures' means over the parties that have any."""
    some = [guess for guess in guesses if guess["auc"] is not None]
    return [float(np.mean([guess[name] for guess in some])) for name in FIGURES]


def interval(draws: list[list[float]]) -> dict[str, Any]:
    """Mean of each figure, and the 95 % interval of the mean AUC over the draws."""
    values = np.array(draws)
    mean = values.mean(axis=0)
    quantile = float(student.ppf(0.975, len(values) - 1))
    half = quantile * values[:, -1].std(ddof=1) / math.sqrt(len(values))
    return {
        **{name: round(float(value), 4) for name, value in zip(FIGURES, mean, strict=True)},
        "auc_interval": [round(float(mean[-1] - half), 4), round(float(mean[-1] + half), 4)],
        "auc_spread": round(float(values[:, -1].std(ddof=1)), 4),
    }


def measured(cell: Cell, folder: Path, epsilons: Sequence[float], draws: int) -> dict[str, Any]:
    """The figures of one training."""
    seen = transcripts(cell, folder)
    found = exact(seen)
    params = experiment_of(cell).job.params()
    assert isinstance(params, PivodlParams)
    guesses = [each["label_guess"] for each in found.values()]
    first = [each["gain_inversion"]["by_tree"][0] for each in found.values()]
    return {
        "set": cell.set,
        "seed": cell.seed,
        "parties": {
            name: {
                "label_guess": {key: value for key, value in each["label_guess"].items() if "by_tree" not in key},
                "gain_inversion": each["gain_inversion"],
                "differential": each["differential"],
                "disclosed": each["disclosed"],
            }
            for name, each in found.items()
        },
        "without noise": {
            "all": dict(zip(FIGURES, means(guesses), strict=True)),
            "as source": dict(zip(FIGURES, means([guess["as_source"] for guess in guesses]), strict=True)),
        },
        "first tree": {key: sum(row[key] for row in first) for key in ("splits", "tried", "solved", "exact")},
        **{
            f"epsilon {epsilon:g}": noised(
                seen,
                PivodlParams(**{**params.to_dict(), "classes": (), "epsilon": epsilon}),  # type: ignore[arg-type]
                draws,
            )
            for epsilon in epsilons
        },
    }


def show(found: dict[str, Any]) -> None:
    """Print a training's figures beside the paper's."""
    terminal.out.print(f"[b]{found['set']}[/b], seed {found['seed']}", highlight=False)
    rows = terminal.table("weights", "accuracy", "inverted", "majority", "AUC", "95 % interval", "paper's accuracy")
    for epsilon in (None, *EPSILONS):
        if epsilon is not None and f"epsilon {epsilon:g}" not in found:
            continue
        name = "without noise" if epsilon is None else f"epsilon {epsilon:g}"
        for kind, figures in found[name].items():
            low, high = figures.get("auc_interval", (None, None))
            shown = "" if low is None else f"{low:.3f} to {high:.3f}"
            paper = f"{GUESS[found['set']][epsilon]:.4f}" if kind == "as source" else ""
            rows.add_row(f"{name}, {kind}", *(f"{figures[each]:.4f}" for each in FIGURES), shown, paper)
    terminal.out.print(rows)
    rows = terminal.table("party", "records", "guess, AUC", "own labels, nodes", "own labels, columns", "first tree")
    for name, each in found["parties"].items():
        guess, first = each["label_guess"], each["gain_inversion"]["by_tree"][0]
        models = (guess[key] for key in ("own_labels_and_spaces", "own_labels_and_columns"))
        aucs = ("–" if model is None else f"{model['auc']:.4f}" for model in models)
        solved = f"{first['exact']} exact of {first['solved']} solved, {first['tried']} tried, {first['splits']} splits"
        auc = "–" if guess["auc"] is None else f"{guess['auc']:.4f}"
        rows.add_row(name, f"{guess['records']:,}", auc, *aucs, solved)
    terminal.out.print(rows)


def main() -> int:
    """Measure and print; with --json also write a line for each training."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=("credit", "bank"), default=["credit"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epsilons", nargs="+", type=float, choices=EPSILONS, default=list(EPSILONS))
    parser.add_argument("--draws", type=int, default=20, help="of the noise, 2 or more")
    parser.add_argument("--workdir", type=Path, help="keep transcripts in this folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures too, a JSON line each")
    given = parser.parse_args()
    if given.draws < 2:
        raise BadInput("--draws must be 2 or more: the interval is of the spread between draws")
    for name in given.sets:
        for seed in given.seeds:
            kept = given.workdir and given.workdir / f"{name}-{seed}"
            if kept is not None:
                kept.mkdir(parents=True, exist_ok=True)
                found = measured(Cell("processes", name, seed), kept, given.epsilons, given.draws)
            else:
                with working_folder(None, "treetap-") as folder:
                    found = measured(Cell("processes", name, seed), folder, given.epsilons, given.draws)
            show(found)
            if given.json is not None:
                with given.json.open("a") as lines:
                    lines.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TreetapError as failure:
        terminal.err.print(f"guess.py: {failure}", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2 if isinstance(failure, BadInput) else 1)
