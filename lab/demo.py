"""`treetap demo`: a whole federation on loopback, on data that ships with scikit-learn.

The same processes, wire and job as in production. The centralised trainer gets the same rows, once with all columns and
once with what each party has that has labels, so that the report compares gain and cost of the federation.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
from pydantic import ValidationError
from rich.text import Text

from treetap import terminal
from treetap.attacks.verdict import Verdict
from treetap.commands.jobs.job_file import JobTable
from treetap.commands.jobs.progress_view import backends_line
from treetap.errors import BadInput
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.file_tables import AuditTable, DataTable, PartyTable
from treetap.lab.experiment.joined_table import read_table
from treetap.lab.experiment.results import Results, RunResult, harm
from treetap.lab.experiment.run import run_seed
from treetap.lab.experiment.side_by_side import add_other, by_privacy
from treetap.lab.local_federation import clean_end, keep_table, working_folder
from treetap.models.durable import make_ignored_folder
from treetap.neural.params import SplitnnParams
from treetap.pages.printing import print_section, print_words
from treetap.pages.section import Section
from treetap.pages.section import Text as Sentence
from treetap.protocols.key_options import KEY_LENGTHS, LATTICE, PAILLIER, SCHEMES, key_faults
from treetap.protocols.libraries import require_library
from treetap.protocols.registry import training
from treetap.strict import WHOLE, faults_of
from treetap.trees.job_params import JobParams
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
#: An experiment in the clone; a wheel has it not.
STORY = Path(__file__).parents[2] / "examples" / "loans" / "exp.toml"
ALGORITHMS = {"boosting": "SecureBoost", "pivodl": "PIVODL", "splitnn": "A split network"}


def _check(protocol: str, scheme: str, key_bits: int | None) -> None:
    """Raise `BadInput` for an unknown word, a length of key that its scheme has not, and a missing library."""
    if scheme not in SCHEMES:
        raise BadInput(key_faults(scheme, 0, "")[0])
    if key_bits is not None and scheme == LATTICE:
        raise BadInput(f"--key-bits {key_bits}: scheme {scheme} has no keys")
    if key_bits not in (None, *KEY_LENGTHS):
        *most, last = KEY_LENGTHS
        raise BadInput(f"--key-bits {key_bits}: must be {', '.join(map(str, most))} or {last}")
    if protocol not in JOBS:
        raise BadInput(f"--protocol {protocol}: must be one of {', '.join(JOBS)}")
    require_library(protocol, training(protocol))


def page_of(protocol: str, workdir: Path | None, report: Path | None, *, as_json: bool = False) -> Path | None:
    """The copy of the audit's page that outlives the demo, its folder made; None where `workdir` keeps the page.

    `report`: where it is asked for; None: in `workdir`, else below runs/. Raises BadInput where that folder cannot be
    made: before any training.
    """
    if report is None and (workdir is not None or as_json):
        return None
    path = report or Path("runs", f"demo-{protocol}.html")
    try:
        make_ignored_folder(path.parent, 0o777)
    except OSError as failure:
        raise _unwritten(path, failure) from None
    return path


def _unwritten(path: Path, failure: OSError) -> BadInput:
    return BadInput(f"--report {path}: cannot be written: {failure.strerror}")


def run(
    protocol: str = "boosting",
    *,
    as_json: bool = False,
    details: bool = False,
    workdir: Path | None = None,
    report: Path | None = None,
    scheme: str = PAILLIER,
    key_bits: int | None = None,
) -> None:
    """Run the demo of a protocol; print what it shows, and keep the audit's page."""
    _check(protocol, scheme, key_bits)
    page = page_of(protocol, workdir, report, as_json=as_json)
    with clean_end(), working_folder(workdir, "treetap-demo-") as held:
        # the page is called by this folder
        folder = held if workdir is not None else held / "demo"
        folder.mkdir(exist_ok=True)
        names = write_breast_cancer(folder / "breast_cancer.parquet")
        experiment = federation_of(folder, names, protocol, {"scheme": scheme, "key_bits": key_bits})
        table = read_table(experiment, folder)
        if not as_json:
            introduce(experiment, table)
        result = run_seed(experiment, table, 0, folder / "federation", ALGORITHMS[protocol])
        add_other(result, experiment, table, folder)
        second = experiment.in_order[1]
        transcript = summarise(folder / "federation" / second / "state" / "transcripts" / "experiment")
        kept = None if result.audit_report is None else Path(result.audit_report)
        if page is not None and kept:
            try:
                page.write_bytes(kept.read_bytes())
            except OSError as failure:
                raise _unwritten(page, failure) from None
            kept = page
        if as_json:
            document = Results.of([result]).plain()
            document["runs"][0]["transcript"] = transcript
            print(json.dumps(document, indent=1, allow_nan=False))
        else:
            # attacks, pages and their libraries come after the training
            from treetap.lab.experiment.audited import DOCUMENT
            from treetap.lab.experiment.kept import shown

            audit = json.loads((folder / "federation" / DOCUMENT).read_text()) if result.audit else None
            if details:
                detail(result, audit)
            conclude(result, experiment.job.params())
            if kept:
                terminal.out.print(f"report: {shown(kept)}", soft_wrap=True)
            terminal.out.print(f"next: {following()}", soft_wrap=True)
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
    """Say in two sentences what is trained, and who has what."""
    job, params = experiment.job, experiment.job.params()
    if isinstance(params, TreeParams):
        encrypted = f"{job.scheme.title()} of {job.key.bits} bits" if job.key.bits else f"sums on a {job.scheme}"
        what = f"{params.n_estimators} trees of depth {params.max_depth}, {encrypted}"
    else:
        assert isinstance(params, SplitnnParams)
        what = f"{params.epochs} epochs of batches of {params.batch_size}"
    records = f"{table.num_rows} records of breast cancer, 20 % held out"
    parties = f"{len(experiment.party)} parties, a process each, mutual TLS"
    terminal.out.print(f"{ALGORITHMS[job.protocol]}: {what}; {records}; {parties}.")
    have: dict[str, list[str]] = {}
    for party in experiment.party:
        part = f"{100 * party.label_share:.0f} % of the labels and " if party.label_share else ""
        labels = "the labels and " if party.labels else part
        have.setdefault(f"{labels}{len(party.columns or [])} columns", []).append(party.name)
    who = [
        f"{' and '.join(names)} have {what} each" if names[1:] else f"{names[0]} has {what}"
        for what, names in have.items()
    ]
    terminal.out.print(terminal.text(f"{'; '.join(who)}."))


def conclude(run: RunResult, params: JobParams) -> None:
    """Print what federating gains, what each side learned and what to do about it, and both words of privacy."""
    # of several parties' columns those that were read most
    worst: dict[tuple[str, str], Verdict] = {}
    for it in run.verdicts:
        key = it.party, it.learned
        worst[key] = max(it, worst.get(key, it), key=harm)
    terminal.out.print()
    brief = {
        "verdicts": [it.model_copy(update={"other": None}) for it in worst.values()],
        "to_do": {learned: cure.splitlines()[0] for learned, cure in run.to_do.items()},
    }
    from treetap.lab.experiment.command import verdict as verdict_of  # it needs what pages need

    print_words(terminal.out, *verdict_of([run.model_copy(update=brief)]))
    if params.adds_noise:
        terminal.out.print("Leaf weights have noise; without it the model would be that of the joined table.")
    else:
        same = run.metrics["test"] == run.metrics["centralised, test"]
        verdict = ("equal", "green") if same else ("not equal: a defect, please report it", "red")
        terminal.out.print(Text.assemble("By its test metrics the model and the joined table's are ", verdict, "."))
    print_section(Section("", by_privacy([run])), terminal.out)


def detail(run: RunResult, audit: dict[str, Any] | None) -> None:
    """Print metrics, costs, disclosures, importances and the audit's figures."""
    from treetap.lab.experiment.tables import importances, metric_table, phases, traffic  # after the training

    terminal.out.print()
    parts = [
        metric_table([run]),
        *(Sentence("{}", sentence, where="terminal") for sentence in run.privacy),
        importances([run])[0],
        phases([run]),
        Sentence("{}", backends_line(run.arithmetic), where="terminal"),
        traffic([run]),
    ]
    print_section(Section("", parts), terminal.out)
    if audit is not None:
        from treetap.attacks.report.page import print_summary

        print_summary(audit, terminal.out)
    terminal.out.print("Classes of messages: docs/threats.md. Attacks: docs/measure.md.")


def following() -> str:
    """The command to try next: in a clone the experiment of its own table, else a party for a table of the reader's."""
    from treetap.lab.experiment.kept import shown

    return f"treetap experiment {shown(STORY)}" if STORY.exists() else "treetap new party --table YOUR.csv"
