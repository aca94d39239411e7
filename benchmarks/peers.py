"""treetap beside SecretFlow's SGB, OpenMined's PSI, and XGBoost and scikit-learn on the joined table, in one run.

    python benchmarks/peers.py [--only NAME …] [--systems NAME …] [--limit 900] [--results benchmarks/peers.jsonl]
    python -m tools.renderers.peers

Each cell is one case by one system, a line of the results; what is there is not run again, so that an interrupted run
goes on. Tables are generated (`generated_tables.py`), two parties with half of the columns each, 32 bins, learning rate
0.3, λ 1; `forest` is obesity (`forest.py`), `PIVODL` credit_default with labels at three parties: both need
TREETAP_DATA. Versions of the other systems are pinned in `peers.txt` and installed into an environment of their own
below runs/, without what their trees do not use; where that fails, or a system has no such training, the cell holds the
reason. CPU: SecretFlow's and treetap's processes from their start to their end, keys and alignment included, but not
the imports of the server from which treetap's are forked; of XGBoost, scikit-learn and predictions the calls alone.
--limit: seconds after which a cell is given up, and says so.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent / "reproductions"))
from generated_tables import ID, LABEL, Plan, write
from measured_trainings import TRAINING
from resumable import Results

from treetap import terminal
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.run import run_seed
from treetap.native import library

HERE = Path(__file__).parent
RESULTS, PINNED = HERE / "peers.jsonl", HERE / "peers.txt"
#: Where the other systems are installed.
INSTALLED = HERE.parent / "runs" / "peers"
BINS, RATE = 32, 0.3
#: What a cell holds, if it was measured.
KEPT = ("wall_s", "cpu_s", "bytes", "auc", "largest_process_mib")


@dataclass(frozen=True)
class Case:
    """A size. `kind`: what is done with it."""

    records: int
    columns: int = 0
    trees: int = 5
    depth: int = 3
    classes: int = 2
    kind: str = "boosting"

    @property
    def plan(self) -> Plan:
        """Its tables."""
        return Plan(self.records, self.columns, classes=self.classes)


CASES: Mapping[str, Case] = {
    "30,000 × 23": Case(30_000, 23),
    "10,000 × 50": Case(10_000, 50),
    "5,000 × 1,600": Case(5_000, 1_600, trees=2),
    "1 M × 50": Case(1_000_000, 50),
    "ten classes": Case(10_000, 20, trees=3, classes=10),
    "300 trees": Case(10_000, 20, trees=300),
    "depth 8": Case(30_000, 24, trees=1, depth=8),
    "forest": Case(0, kind="forest"),
    "PIVODL": Case(30_000, 23, kind="pivodl"),
    "1 M predictions": Case(1_000_000, 40, kind="predictions"),
    "1 M ids": Case(1_000_000, kind="ids"),
}


class Left(Exception):
    """A cell that is not measured, with the reason."""


def command(words: list[str | Path], limit_s: float) -> dict[str, Any]:
    """The JSON that a command prints last.

    Raises:
        Left: it failed, or ran for longer.
    """
    return commands([words], limit_s)[0]


def commands(all_words: list[list[str | Path]], limit_s: float) -> list[dict[str, Any]]:
    """The same of several commands at once: one that fails ends all."""
    ends = time.monotonic() + limit_s
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="treetap-bench-")))
        begun = []
        for number, words in enumerate(all_words):
            out, err = (folder / f"{number}.{name}" for name in ("out", "err"))
            with out.open("w") as said, err.open("w") as told:
                process = subprocess.Popen(words, stdout=said, stderr=told, start_new_session=True)
            held.callback(_end, process)
            begun.append((process, out, err))
        try:
            for process, _, err in begun:
                if process.wait(max(0.1, ends - time.monotonic())):
                    raise Left((err.read_text().strip().splitlines() or [f"exit status {process.returncode}"])[-1])
        except subprocess.TimeoutExpired:
            raise Left(f"not done after {limit_s:g} s") from None
        return [_last_json(out.read_text()) for _, out, _ in begun]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_json(said: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(said[said.rfind("\n{") + 1 :])
    return found


def by_treetap(case: Case, scheme: str, limit_s: float) -> dict[str, Any]:
    """The benchmark of this project for such a case."""
    python: list[str | Path] = [sys.executable]
    if case.kind == "ids":
        run = command([*python, HERE / "psi.py", "--ids", str(case.records), "--json"], limit_s)["runs"][0]
        return {"wall_s": run["align_s"], "cpu_s": run["cpu_s_of_the_whole_job"]}
    if case.kind == "predictions":
        words = ["--records", str(case.records), "--columns", str(case.columns // 2), "--json"]
        run = command([*python, HERE / "large_predictions.py", *words], limit_s)
        return {"wall_s": run["predict_s"], "cpu_s": run["cpu_s"]}
    if case.kind == "pivodl":
        return _pivodl(case, scheme)
    if case.kind == "forest":
        words = ["--scheme", scheme, "--binning", "global", "--json"]
        run = command([*python, HERE / "forest.py", *words], limit_s)["runs"][0]
        return {**run, "largest_process_mib": run["largest_process_mb"]}
    sizes = {name: getattr(case, name) for name in ("records", "columns", "trees", "depth", "classes")}
    words = [word for name, size in sizes.items() for word in (f"--{name}", str(size))]
    return command([*python, HERE / "large_training.py", *words, "--scheme", scheme, "--json"], limit_s)


def _pivodl(case: Case, scheme: str) -> dict[str, Any]:
    """A training of three parties, each with columns and labels."""
    if scheme == "lattice":
        raise Left("PIVODL has Paillier alone")
    if "TREETAP_DATA" not in os.environ:
        raise Left("TREETAP_DATA is not set")
    label = "default.payment.next.month"
    data = {"path": "$TREETAP_DATA/credit_default.parquet", "label": label, "compare": False}
    parties = [
        {"name": name, "share": share, "label_share": share} for name, share in zip("abc", (0.3, 0.4, 0.3), strict=True)
    ]
    job = {"protocol": "pivodl", "n_estimators": case.trees, "max_depth": case.depth, "max_bin": BINS}
    setting = ExperimentFile.model_validate({"data": data, "party": parties, "job": job})
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        result = run_seed(setting, read_table(setting, Path()), 0, Path(folder) / "federation")
    return {
        "wall_s": sum(result.seconds[phase] for phase in TRAINING),
        "cpu_s": sum(result.cpu_seconds.values()),
        "bytes": sum(row.bytes for row in result.traffic),
        "auc": result.metrics["test"]["auc"],
        "largest_process_mib": max(result.peak_rss_mb.values()),
    }


def by_secretflow(case: Case, schema: str, limit_s: float) -> dict[str, Any]:
    """Two processes of SecretFlow."""
    if case.kind != "boosting" or case.classes > 2:
        raise Left("SGB has no such training")
    python = installed(limit_s)
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as name:
        folder = Path(name)
        columns, labels = joined(case)
        half = -(-case.columns // 2)
        for party, own in (("alice", columns[:, :half]), ("bob", columns[:, half:])):
            np.savez(folder / f"{party}.npz", x=np.nan_to_num(own), y=labels if party == "alice" else np.empty(0))
        (folder / "ports.json").write_text(json.dumps({party: _free_port() for party in ("alice", "bob")}))
        script, sizes = HERE / "peer_systems.py", [str(case.trees), str(case.depth), schema]
        parties = [[python, script, "secretflow", folder, party, *sizes] for party in ("alice", "bob")]
        alice, bob = commands(parties, limit_s)
    return {**alice, "cpu_s": alice["cpu_s"] + bob["cpu_s"]}


def by_openmined(case: Case, _: str, limit_s: float) -> dict[str, Any]:
    """Both roles of OpenMined's protocol."""
    if case.kind != "ids":
        raise Left("OpenMined's PSI intersects ids")
    return command([installed(limit_s), HERE / "peer_systems.py", "psi", str(case.records)], limit_s)


def by_library(case: Case, name: str, _: float) -> dict[str, Any]:
    """XGBoost or scikit-learn in this process, on the joined table: what a training without parties costs."""
    if case.kind == "ids" or (case.kind, name) == ("predictions", "scikit-learn"):
        raise Left("nothing of the kind")
    if case.kind == "forest":
        return _forest(name)
    columns, labels = joined(case)
    if case.kind == "pivodl" and name != "xgboost":
        raise Left("nothing of the kind")
    some = slice(2000) if case.kind == "predictions" else slice(None)
    model = _model(case, name)
    begun, cpu = time.monotonic(), time.process_time()
    model.fit(columns[some], labels[some])
    if case.kind == "predictions":
        begun, cpu = time.monotonic(), time.process_time()
        model.predict_proba(columns)
    return {"wall_s": time.monotonic() - begun, "cpu_s": time.process_time() - cpu}


def _model(case: Case, name: str) -> Any:
    if name == "xgboost":
        import xgboost

        sizes = {"n_estimators": case.trees, "max_depth": case.depth, "max_bin": BINS, "learning_rate": RATE}
        return xgboost.XGBClassifier(tree_method="hist", reg_lambda=1.0, **sizes)
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_iter=case.trees, max_depth=case.depth, max_bins=BINS, learning_rate=RATE, early_stopping=False
    )


def _forest(name: str) -> dict[str, Any]:
    """scikit-learn's forest on obesity."""
    if name != "scikit-learn":
        raise Left("nothing of the kind")
    if "TREETAP_DATA" not in os.environ:
        raise Left("TREETAP_DATA is not set")
    from sklearn.ensemble import RandomForestClassifier

    table = pq.read_table(Path(os.environ["TREETAP_DATA"]) / "obesity.parquet").to_pandas()
    labels = table.pop("NObeyesdad")
    columns = np.stack([table[column].astype("category").cat.codes for column in table], axis=1)
    begun, cpu = time.monotonic(), time.process_time()
    RandomForestClassifier(5, max_depth=6, random_state=0).fit(columns, labels)
    return {"wall_s": time.monotonic() - begun, "cpu_s": time.process_time() - cpu}


def joined(case: Case) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Columns (N, d) and labels (N,) of the case's tables, joined by id."""
    with tempfile.TemporaryDirectory(prefix="treetap-bench-") as folder:
        tables = [pq.read_table(path).sort_by(ID) for path in write(case.plan, Path(folder)).values()]
    columns = [each.column(name).to_numpy() for each in tables for name in each.column_names if name[0] == "x"]
    return np.stack(columns, axis=1), tables[0].column(LABEL).to_numpy()


def installed(limit_s: float) -> Path:
    """The Python of the other systems' environment, which is made if it is not there.

    Raises:
        Left: it cannot be made.
    """
    python, done = INSTALLED / "bin" / "python", INSTALLED / "installed.txt"
    if not done.exists() or done.read_text() != PINNED.read_text():
        terminal.err.print(f"installing what {PINNED.name} names into {INSTALLED}: 2 GB, minutes, once")
        venv.create(INSTALLED, with_pip=True, clear=True)
        words: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--requirement", PINNED]
        try:
            ended = subprocess.run(words, check=False, capture_output=True, text=True, timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise Left(f"not installed after {limit_s:g} s") from None
        if ended.returncode:
            errors = [line for line in ended.stderr.splitlines() if line.startswith("ERROR")]
            raise Left(f"does not install: {(errors or ['pip failed'])[-1]}")
        done.write_text(PINNED.read_text())
    return python


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


#: System → how it runs a case, and what this is given beside it.
SYSTEMS: Mapping[str, tuple[Callable[[Case, str, float], dict[str, Any]], str]] = {
    "treetap, lattice": (by_treetap, "lattice"),
    "treetap, Paillier": (by_treetap, "paillier"),
    "SecretFlow, OU": (by_secretflow, "ou"),
    "SecretFlow, Paillier": (by_secretflow, "paillier"),
    "OpenMined": (by_openmined, ""),
    "XGBoost, joined": (by_library, "xgboost"),
    "scikit-learn, joined": (by_library, "scikit-learn"),
}


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE")
    given = parser.parse_args()
    results = Results(given.results)
    for case in given.only:
        for system in given.systems:
            trial = {"case": case, "system": system}
            if results.get(trial) is not None:
                continue
            run, word = SYSTEMS[system]
            try:
                found = run(CASES[case], word, given.limit)
                cell: dict[str, Any] = {name: found[name] for name in KEPT if name in found}
            except Left as reason:
                cell = {"left": str(reason)}
            results.add({"trial": trial, **cell, "processor": library.processor(), "load": os.getloadavg()[0]})
            terminal.out.print(f"{case}, {system}: {cell}")


if __name__ == "__main__":
    main()
