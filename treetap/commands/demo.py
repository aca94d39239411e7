"""`treetap demo`: a whole federation on loopback, on data that ships with scikit-learn.

The same processes, wire and job as in production. The centralised trainer gets the same rows, once with all columns and
once with what each party has that has labels, so that the report compares gain and cost of the federation.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from pydantic import ValidationError
from rich.table import Table
from rich.text import Text

from treetap import terminal
from treetap.commands.experiment.experiment_file import AuditTable, DataTable, ExperimentFile
from treetap.commands.experiment.joined_table import read_table
from treetap.commands.experiment.party_table import PartyTable
from treetap.commands.experiment.report import metrics_table, received_table, seconds_table
from treetap.commands.experiment.results import Importance, Results, RunResult
from treetap.commands.experiment.run import run_seed
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.jobs.progress_view import backends_line
from treetap.commands.local_federation import clean_end, keep_table, working_folder
from treetap.errors import BadInput
from treetap.neural.params import SplitnnParams
from treetap.protocols.key_options import PAILLIER, SCHEMES
from treetap.protocols.libraries import require_library
from treetap.protocols.registry import training
from treetap.strict import WHOLE, faults_of
from treetap.trees.params import TreeParams
from treetap.version import install
from treetap.wire.transcript import summarise

LABEL = "benign"
#: What was measured of each nucleus, and the columns of a measure: its mean, standard error and worst value.
MEASURES = (
    *("radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "concave_points"),
    *("symmetry", "fractal_dimension"),
)
FORMS = ("mean_{}", "{}_error", "worst_{}")
#: Protocol → the keys of its job.
JOBS: dict[str, dict[str, Any]] = {
    "boosting": {"n_estimators": 10, "max_depth": 3},
    "pivodl": {"n_estimators": 3, "max_depth": 3, "max_bin": 16, "epsilon": 8.0, "clip": 0.5},
    # its batches follow the order of the records, and initial weights the seed: the centralised model is the same one
    "splitnn": {
        "epochs": 5,
        "batch_size": 32,
        "bottom": {"default": {"hidden": [16], "width": 8}},
        "top": {"hidden": [8]},
        "alignment": "sorted-ids",
        "reproducible": True,
    },
}
#: Settings of the label holder's attacks on columns: few steps, so that the demo takes no longer than it must.
COLUMN_ATTACKS = {"matched": 16, "match_steps": 100}
ALGORITHMS = {"boosting": "SecureBoost", "pivodl": "PIVODL", "splitnn": "A split network"}


def run(
    *,
    as_json: bool,
    workdir: Path | None,
    audit_report: Path | None,
    key_bits: int | None = None,
    protocol: str = "boosting",
    scheme: str = PAILLIER,
) -> None:
    """Run the demo of a protocol and print its report; the audit's goes to `audit_report` too, if given."""
    if scheme not in SCHEMES:
        raise BadInput(f"--scheme {scheme}: must be one of {', '.join(SCHEMES)}")
    if key_bits is not None and key_bits not in (offered := SCHEMES[scheme].key_bits):
        *most, last = offered or ("",)
        lengths = f"must be {', '.join(map(str, most))} or {last}" if offered else f"scheme {scheme} has no keys"
        raise BadInput(f"--key-bits {key_bits}: {lengths}")
    if protocol not in JOBS:
        raise BadInput(f"--protocol {protocol}: must be one of {', '.join(JOBS)}")
    require_library(protocol, training(protocol))
    with clean_end(), working_folder(workdir, "treetap-demo-") as folder:
        names = write_breast_cancer(folder / "breast_cancer.parquet")
        experiment = federation_of(folder, names, protocol, {"scheme": scheme, "key_bits": key_bits})
        table = read_table(experiment, folder)
        if not as_json:
            introduce(experiment, table)
        result = run_seed(experiment, table, 0, folder / "federation")
        second = experiment.in_order[1]
        transcript = summarise(folder / "federation" / second / "state" / "transcripts" / "experiment")
        if audit_report is not None and result.audit_report is not None:
            _copy(Path(result.audit_report), audit_report)
        if as_json:
            document = Results.of([result]).plain()
            document["runs"][0]["transcript"] = transcript
            print(json.dumps(document, indent=1, allow_nan=False))
        else:
            from treetap.commands.audit.local_job import DOCUMENT  # attacks and their libraries come after the training

            document_file = folder / "federation" / DOCUMENT
            audit = None if result.audit_report is None else json.loads(document_file.read_text())
            report(result, audit, noisy=experiment.job.params().adds_noise)
        if result.audit_fault is not None:
            raise BadInput(f"the audit failed: {result.audit_fault}")


def write_breast_cancer(path: Path) -> list[str]:
    """The breast cancer table (569 × 30) as Parquet; returns its columns: means, errors, worst values."""
    library = importlib.util.find_spec("sklearn")  # its file alone: the library takes a second to import
    if library is None or library.origin is None:
        raise BadInput(f"the demo's data ships with scikit-learn: {install('demo')}")
    file = Path(library.origin).parent / "datasets" / "data" / "breast_cancer.csv"
    names = [form.format(measure) for form in FORMS for measure in MEASURES]
    options = pacsv.ReadOptions(column_names=[*names, LABEL], skip_rows=1)  # the first row counts records and columns
    try:
        table = pacsv.read_csv(file, options)
    except (OSError, pa.ArrowException) as failure:
        raise BadInput(f"{file}: scikit-learn's breast cancer data cannot be read: {failure}") from None
    keep_table(table, path)
    return names


def federation_of(
    workdir: Path, names: list[str], protocol: str, keys: Mapping[str, str | int | None]
) -> ExperimentFile:
    """The parties of a protocol's demo; `keys`: what its job says of them where it has any, without what is None.

    The label holder has the standard error of each measure, feature parties have its mean and its worst value. Where
    labels are spread four hospitals have a quarter of the columns and of the labels each.
    """
    if training(protocol).one_role:
        hospitals = ("north", "south", "east", "west")
        parties = [
            PartyTable(name=name, columns=names[number::4], label_share=0.25) for number, name in enumerate(hospitals)
        ]
    else:
        columns = {"label-holder": names[10:20], "feature-b": names[:10], "feature-c": names[20:]}
        parties = [
            PartyTable(name=name, columns=own, labels=name == "label-holder", record="received")
            for name, own in columns.items()
        ]
    named = {name: value for name, value in keys.items() if value is not None and training(protocol).grows_trees}
    try:
        job = JobTable.model_validate({"protocol": protocol, **named, "alignment": "psi", **JOBS[protocol]})
    except ValidationError as failure:
        raise BadInput("; ".join(fault.removeprefix(f"{WHOLE}: ") for fault in faults_of(failure, JobTable))) from None
    return ExperimentFile(
        data=DataTable(path=str(workdir / "breast_cancer.parquet"), label=LABEL, compare=True),
        party=parties,
        job=job,
        audit=AuditTable(features=COLUMN_ATTACKS),
    )


def introduce(experiment: ExperimentFile, table: pa.Table) -> None:
    """Print the parties."""
    count = len(experiment.party)
    who = Table("party", "columns", "labels", title=f"569 records, split by columns between {count} processes")
    for party in experiment.party:
        names = party.columns or []
        labels = "all" if party.labels else f"{party.label_share:.0%}" if party.label_share else ""
        who.add_row(party.name, f"{len(names)}: {names[0]}, {names[1]}, …", labels)
    terminal.out.print(who)
    job, params = experiment.job, experiment.job.params()
    if isinstance(params, TreeParams):
        encrypted = f"{job.scheme.title()} {job.key.bits} bits" if job.key.bits else f"sums on a {job.scheme}"
        what = f"{params.n_estimators} trees of depth {params.max_depth}, {encrypted}"
    else:
        assert isinstance(params, SplitnnParams)
        what = f"{params.epochs} epochs of batches of {params.batch_size}"
    terminal.out.print(f"{ALGORITHMS[job.protocol]}, {what}, mutual TLS, {table.num_rows} records, 20 % held out\n")


def _copy(report: Path, to: Path) -> None:
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(report.read_bytes())
    except OSError as failure:
        raise BadInput(f"--audit-report {to}: cannot be written: {failure.strerror}") from None


def report(run: RunResult, audit: dict[str, Any] | None, *, noisy: bool) -> None:
    """Print metrics, costs, disclosures, importances and the audit's figures; `noisy`: leaf weights have noise."""
    shown = {"federation, train": run.metrics["train"], "federation, test": run.metrics["test"]}
    shown |= {name: row for name, row in run.metrics.items() if name not in ("train", "test")}
    terminal.out.print(metrics_table(shown, "What federating gains"))
    for sentence in run.privacy:
        terminal.out.print(terminal.text(sentence))
    if noisy:
        terminal.out.print("The centralised models have no noise. Without epsilon the federation's equals the first.\n")
    else:
        same = run.metrics["test"] == run.metrics["centralised, test"]
        verdict = ("equal", "green") if same else ("not equal: a defect, please report it", "red")
        said = Text.assemble("The federation's test metrics and the centralised model's are ", verdict, ".\n")
        terminal.out.print(said)
    if run.importance:
        terminal.out.print(importance_table(run.importance))
    terminal.out.print(seconds_table(run.seconds))
    terminal.out.print(terminal.text(backends_line(run.arithmetic)))
    terminal.out.print(received_table(run.traffic))
    if audit is not None:
        from attacks.report import print_summary

        print_summary(audit, terminal.out)
    terminal.out.print("What each class reveals: docs/threats.md. What the attacks do: docs/audit.md.")


def importance_table(rows: Sequence[Importance]) -> Table:
    """The features that the model looks at most; bars are of gain or, where no party keeps gains, of splits."""
    heads = ["feature", "party", "splits", *(["mean gain"] if any(row.gain is not None for row in rows) else []), ""]
    top = Table(*heads, title="What the model looks at")
    most = max(row.size for row in rows)
    for row in rows[:8]:
        gain = [] if len(heads) == 4 else ["–" if row.gain is None else f"{row.gain:.2f}"]
        top.add_row(row.feature, row.party, str(row.weight), *gain, "█" * max(1, round(24 * row.size / most)))
    return top
