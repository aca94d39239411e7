"""`treetap demo`: a whole federation on loopback, on data that ships with scikit-learn.

The same processes, wire and job as in production. The centralised trainer gets the same rows,
once with all columns and once with the label holder's alone, so that the report compares gain and cost of
the federation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table
from rich.text import Text

from attacks.report import print_summary
from treetap import terminal
from treetap.commands.audit import local_job
from treetap.commands.experiment.experiment_file import AuditTable, DataTable, ExperimentFile
from treetap.commands.experiment.joined_table import read_table
from treetap.commands.experiment.party_table import PartyTable
from treetap.commands.experiment.report import document, metrics_table, received_table, seconds_table
from treetap.commands.experiment.run import run_seed
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.local_federation import clean_end, working_folder
from treetap.errors import BadInput
from treetap.wire.transcript_summary import summarise

LABEL = "benign"


def run(*, as_json: bool, workdir: Path | None, key_bits: int, audit_report: Path | None) -> None:
    """Run the demo and print its report; the audit's goes to `audit_report` too, if given."""
    if key_bits not in (1024, 2048, 3072):
        raise BadInput(f"--key-bits {key_bits}: must be 1024, 2048 or 3072")
    with clean_end(), working_folder(workdir, "treetap-demo-") as folder:
        columns = write_breast_cancer(folder / "breast_cancer.parquet")
        experiment = federation_of(folder, columns, key_bits)
        table = read_table(experiment, folder)
        if not as_json:
            introduce(experiment, table)
        found = run_seed(experiment, table, 0, folder / "federation")
        transcript = summarise(folder / "federation" / "feature-b" / "state" / "transcripts" / "experiment")
        if audit_report is not None:
            _copy(Path(found["audit_report"]), audit_report)
        if as_json:
            print(document([found | {"transcript": transcript}]))
        else:
            report(found, json.loads((folder / "federation" / local_job.DOCUMENT).read_text()))


def write_breast_cancer(path: Path) -> dict[str, list[str]]:
    """The breast cancer table (569 × 30) as Parquet; returns its columns in three groups, one per party."""
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise BadInput("the demo's data ships with scikit-learn: pip install 'treetap[demo]'") from None
    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    content: dict[str, Any] = {name: data.data[:, j] for j, name in enumerate(names)}
    content[LABEL] = data.target
    pq.write_table(pa.table(content), path)
    return {"label-holder": names[10:20], "feature-b": names[:10], "feature-c": names[20:]}


def federation_of(workdir: Path, columns: dict[str, list[str]], key_bits: int) -> ExperimentFile:
    """Label holder with the standard error of each measure, feature parties with its mean and its worst value."""
    return ExperimentFile(
        data=DataTable(path=str(workdir / "breast_cancer.parquet"), label=LABEL, compare=True),
        party=[PartyTable(name=name, columns=names, labels=name == "label-holder") for name, names in columns.items()],
        job=JobTable.model_validate({"n_estimators": 10, "max_depth": 3, "key_bits": key_bits, "alignment": "psi"}),
        audit=AuditTable(),
    )


def introduce(experiment: ExperimentFile, table: pa.Table) -> None:
    """Print the parties."""
    who = Table("party", "columns", "labels", title="569 records, split by columns between three processes")
    for party in experiment.party:
        names = party.columns or []
        who.add_row(party.name, f"{len(names)}: {names[0]}, {names[1]}, …", "yes" if party.labels else "")
    terminal.out.print(who)
    job, params = experiment.job, experiment.job.params()
    terminal.out.print(
        f"SecureBoost, {params.n_estimators} trees of depth {params.max_depth}, Paillier {job.key_bits} bits, "
        f"mutual TLS, {table.num_rows} records, 20 % held out\n"
    )


def _copy(report: Path, to: Path) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(report.read_bytes())
    except OSError as failure:
        raise BadInput(f"--audit-report {to}: cannot be written: {failure.strerror}") from None


def report(found: dict[str, Any], audit: dict[str, Any]) -> None:
    """Print metrics, costs, disclosures, importances and the audit's figures."""
    shown = {"federation, train": found["metrics"]["train"], "federation, test": found["metrics"]["test"]}
    shown |= {name: row for name, row in found["metrics"].items() if name not in ("train", "test")}
    terminal.out.print(metrics_table(shown, "What federating gains"))
    same = found["metrics"]["test"] == found["metrics"]["centralised, test"]
    verdict = ("equal", "green") if same else ("not equal: a defect, please report it", "red")
    terminal.out.print(Text.assemble("The federation's test metrics and the centralised model's are ", verdict, ".\n"))
    top = Table("feature", "party", "splits", "mean gain", "", title="What the model looks at")
    largest = max((row["gain"] * row["weight"] for row in found["importance"]), default=1.0)
    for row in found["importance"][:8]:
        bar = "█" * max(1, round(24 * row["gain"] * row["weight"] / largest))
        top.add_row(row["feature"], row["party"], str(row["weight"]), f"{row['gain']:.2f}", bar)
    terminal.out.print(top)
    terminal.out.print(seconds_table(found["seconds"]))
    terminal.out.print(received_table(found["traffic"]))
    print_summary(audit, terminal.out)
    terminal.out.print("What each class reveals: docs/threats.md. What the attacks do: docs/audit.md.")
