"""The folder of an experiment: what its file and its table say is checked, and its results are kept there.

Each run, and each training of a row `[[defence]]`, is whole or not there, and the folder says with what all were made.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import pyarrow as pa
from pydantic import BaseModel, ValidationError

from treetap import terminal
from treetap.commands.jobs.planned_costs import planned
from treetap.errors import BadInput, cannot
from treetap.lab.experiment.baselines import check
from treetap.lab.experiment.experiment_file import ExperimentFile, Trainer, TrainingResult, TrainingResults
from treetap.lab.experiment.file_tables import AuditTable, lacking
from treetap.lab.experiment.joined_table import content_digest, labels_of, read_table, refuse_constant, split
from treetap.lab.experiment.party_tables import Split, with_classes, with_positive
from treetap.lab.experiment.results import Logged, PlannedRun, Results, RunResult
from treetap.lab.local_federation import empty_folder, keep_table, to_toml
from treetap.models.durable import ignored_by_git, make_folder, make_ignored_folder, write_whole
from treetap.protocols.prediction import FORMATS
from treetap.protocols.registry import training
from treetap.tables.labels import Labels
from treetap.tables.source_keys import SourceKeys
from treetap.version import PROTOCOL_VERSION, install

#: "empty": the folder is new or empty; "numbered": the first of FOLDER, FOLDER-2, … that is not there; "resumed": it
#: has results of the same experiment.
Place = Literal["empty", "numbered", "resumed"]
#: The folder of results without --workdir, in the current one.
RUNS = Path("runs")
#: The table of an experiment that was given in memory, in the folder of its results.
TABLE = "table.parquet"
#: Most records of a table that is compared and audited unless its file says otherwise.
MOST_RECORDS = 100_000
RESULTS, MADE_WITH, FILE, PREDICTIONS = "results.json", "made-with.json", "experiment.toml", "predictions"
#: The finished trainings of rows `[[defence]]`, by name.
POINTS = "points.json"
MODELS = "models"
#: Libraries whose releases a result may depend on, beside Python's.
LIBRARIES = ("treetap", "numpy", "pyarrow")
#: What a person does whose folder cannot be resumed.
_AGAIN = "leave out --resume, and the experiment is made again"
#: Most folders of one name.
_MOST = 100_000
#: Keys of the file that may change between the runs of one folder: which runs and rows there are, and where the table,
#: of the same content, comes from.
_FREE = {"data.seed", "defence", *(f"data.{name}" for name in SourceKeys.model_fields)}


def made_with(experiment: ExperimentFile, digest: str, trainer: Trainer = "federation") -> dict[str, Any]:
    """All that a run depends on beside its seed and fold, as JSON types; `digest`: of the table's content."""
    content = json.loads(experiment.model_dump_json(exclude_none=True, exclude={"output"}))
    tables = {name: value for name, value in content.items() if isinstance(value, dict)}
    keys = {f"{table}.{key}": value for table, values in tables.items() for key, value in values.items()}
    lists = {name: value for name, value in content.items() if not isinstance(value, dict)}
    return {
        "versions": {
            "python": platform.python_version(),
            "protocol": PROTOCOL_VERSION,
            **{name: version(name) for name in LIBRARIES},
        },
        "content of the table": digest,
        **({"trainer": trainer} if experiment.defence else {}),
        "experiment": {name: value for name, value in {**keys, **lists}.items() if name not in _FREE},
    }


def new_folder(folder: Path) -> Path:
    """Make the first of FOLDER, FOLDER-2, FOLDER-3, … that is not there.

    Git ignores it, or the folder above it where that is made too: tables with labels lie below it.

    Raises:
        BadInput: it cannot be made.
    """
    with cannot("be made", folder, more="; name another --workdir"):
        make_ignored_folder(folder.parent)
        for number in range(1, _MOST):
            made = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
            try:
                made.mkdir(mode=0o700)
            except FileExistsError:
                continue
            ignored_by_git(made)
            return made.resolve()
    raise BadInput(f"{folder}: {_MOST} folders have this name; name another --workdir")


Document = TypeVar("Document", bound=BaseModel)


@dataclass
class Kept:
    """An experiment whose file, table and splits are checked, with its results in a folder.

    `experiment`: with what its file leaves open settled; `left_out`: of which what is not done, and why. `splits`: of
    all runs. `runs`, `points`: results of finished runs, and by name of trainings of rows `[[defence]]`.
    """

    experiment: ExperimentFile
    table: pa.Table
    labels: Labels
    splits: list[tuple[PlannedRun, Split]]
    left_out: list[str]
    folder: Path
    runs: list[RunResult]
    points: dict[str, TrainingResult]

    def predictions(self, run: PlannedRun) -> Path:
        """The file of a run's predictions."""
        asked = self.experiment.predict
        form = FORMATS[0] if asked is None else asked.format
        make_folder(self.folder / PREDICTIONS)
        return self.folder / PREDICTIONS / f"{run.name}.{form}"

    def add(self, run: RunResult) -> None:
        """Keep a run's report; it is on disk when this returns."""
        self.runs.append(run)
        self.write(None)

    def add_point(self, training: str, result: TrainingResult) -> None:
        """Keep what a training of a row came to; it is on disk when this returns."""
        self.points[training] = result
        self.write_beside(POINTS, TrainingResults(points=self.points).model_dump_json(indent=1))

    def write(self, mlflow: Logged | None) -> Results:
        """The document, which is on disk when this returns; `mlflow`: where the runs were logged to, if they should."""
        results = Results.of(self.runs, self.folder, mlflow)
        self.write_beside(RESULTS, results.written())
        return results

    def write_beside(self, name: str, content: str) -> None:
        """Write a file of the folder; it is on disk when this returns."""
        write_whole(self.folder / name, content.encode())


def remove_private_keys(federation: Path) -> None:
    """Delete the private keys of a federation's throw-away authority and processes, which have ended."""
    for path in (federation / "certs").glob("*.key"):
        path.unlink()


def _check(folder: Path, settings: Mapping[str, Any]) -> None:
    if not (folder / MADE_WITH).is_file():
        raise BadInput(f"--resume {folder}: holds no experiment's results; name the folder that a run said it wrote")
    if shown := changes(_flat(_read_settings(folder / MADE_WITH)), _flat(settings)):
        raise BadInput(
            f"--resume {folder}: was made with another experiment: {shown}. Runs of one folder differ in "
            "their seeds alone: undo the change, or leave out --resume"
        )


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without the tables `experiment` and `versions`, whose keys stand beside the others."""
    tables = {name: settings.get(name, {}) for name in ("experiment", "versions")}
    return {
        **{name: value for name, value in settings.items() if name not in tables},
        **tables["experiment"],
        **tables["versions"],
    }


def _read(path: Path) -> bytes:
    with cannot("be read", path):
        return path.read_bytes()


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read(path))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: is damaged; {_AGAIN}")
    return content


def _read_document(path: Path, schema: type[Document]) -> Document | None:
    """The kept results of finished runs; None where none has finished."""
    if not path.exists():
        return None
    try:
        return schema.model_validate_json(_read(path), strict=True)
    except ValidationError as failure:
        first = failure.errors(include_input=False, include_url=False)[0]
        fault = f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}"
        raise BadInput(f"{path}: is damaged, or not of this version's form ({fault}); {_AGAIN}") from None


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The settings that differ, as JSON, in words; empty where none does."""
    different = [name for name in {**now, **before} if json.dumps(before.get(name)) != json.dumps(now.get(name))]
    return "; ".join(f"{name} was {_short(before.get(name))}, now {_short(now.get(name))}" for name in different)


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def opened(
    experiment: ExperimentFile,
    folder: Path,
    *,
    base: Path = Path(),
    place: Place = "empty",
    name: str = "the experiment",
    file: str | None = None,
    table: pa.Table | None = None,
    trainer: Trainer = "federation",
) -> Kept:
    """Check an experiment before its first run, and make its folder.

    Args:
        experiment: the checked file; `ExperimentFile.model_validate` makes one of a dictionary.
        folder: of the results (docs/experiment.md has all of its files).
        base: folder from which relative paths in the experiment start.
        place: "empty": the folder is new or empty; "numbered": take the first of FOLDER, FOLDER-2, … that is not there;
            "resumed": it has results of the same experiment: run only the seeds and folds that it lacks.
        name: of the experiment in messages about it.
        file: text of the experiment's file, of which the folder gets a copy; by default one is made of `experiment`.
        table: in the place of the source that `[data]` names, which is ignored: the joined table, kept as
            `table.parquet`. Relative paths of `label_rows` are not for such an experiment.
        trainer: of the rows `[[defence]]`.

    Raises:
        BadInput: the experiment, its table or the folder cannot be used; of "resumed", the folder holds no results, or
            results of another experiment or form, or damaged ones.
    """
    with _as_file(experiment, table, base) as (readable, where):
        given = with_frontier(readable, base)
        joined = read_table(given, where, None if file is None else Path(name))
        labels = labels_of(given, joined)
        given, left_out = with_usual(with_classes(given, labels), joined.num_rows)
        # a fault in the last split is reported before the first run
        splits = [(run, split(given, joined, run.seed, run.fold)) for run in given.runs]
        sizes = len(splits[0][1].train), [len(splits[0][1].columns[party]) for party in given.in_order[1:]]
        jobs, said = planned(given.job, given.job.drafts(given.spec), *sizes, len(labels.classes))
        for sentence in said:
            terminal.err.print(terminal.text(sentence), soft_wrap=True)
        given = given.model_copy(update={"job": jobs[0]})
        refuse_constant(given, joined, splits)
        defended = [given] if given.defended else []
        defended += [given.planned(plan) for plan in (given.plans if given.defence else ())]
        for one in defended:
            for _, rows in splits:
                check(Path(name), one, rows, len(labels.classes))
        text = file if file is not None else to_toml(experiment.model_dump(mode="json", exclude_unset=True))
        settings = made_with(given, content_digest(joined), trainer)
        of_runs, of_rows = None, None
        if place == "resumed":
            _check(folder, settings)
            of_runs = _read_document(folder / RESULTS, Results)
            of_rows = _read_document(folder / POINTS, TrainingResults)
        else:
            folder = new_folder(folder) if place == "numbered" else empty_folder(folder)
            write_whole(folder / MADE_WITH, json.dumps(settings, indent=1).encode())
            if table is not None:
                shutil.copy(where / TABLE, folder / TABLE)  # with its mode: it is not for others
        write_whole(folder / FILE, text.encode())
    runs, points = of_runs.runs if of_runs else [], of_rows.points if of_rows else {}
    return Kept(with_positive(given, labels), joined, labels, splits, left_out, folder.resolve(), runs, points)


def with_frontier(experiment: ExperimentFile, base: Path) -> ExperimentFile:
    """The experiment with the place of the audit's frontier, if it has one, which is read before the first run."""
    if experiment.audit is None or experiment.audit.frontier is None:
        return experiment
    from treetap.attacks.advice.advise import given

    path = base / experiment.audit.frontier
    given(path, experiment.job.protocol, None)
    return experiment.model_copy(update={"audit": experiment.audit.model_copy(update={"frontier": path})})


def with_usual(experiment: ExperimentFile, records: int) -> tuple[ExperimentFile, list[str]]:
    """The experiment with `compare` and `[audit]` settled, and what is left out that its file did not turn off.

    Both are on for trees and tables of up to `MOST_RECORDS` records; `records`: of the joined table.
    """
    large, said = _too_much(experiment, records), []
    compare, audit = experiment.data.compare, experiment.audit
    if compare is None:
        compare = not large
        if large:
            alone = "each party" if experiment.spread else experiment.in_order[0]
            said.append(f"Not compared with {alone} alone: {large}. To do so:\n    compare = true  # in [data]")
    if audit is None and large:
        said.append(f"Not audited: {large}. To do so:\n    [audit]")
    elif audit is None and (hindrance := _hindrance(experiment)):
        said.append(f"Not audited: {hindrance}.")
    elif audit is None:
        audit = AuditTable()
    if audit is not None and audit.run and records > MOST_RECORDS:
        said.append(f"Not run by another privacy: {large}.")
    data = experiment.data.model_copy(update={"compare": compare})
    return experiment.model_copy(update={"data": data, "audit": audit}), said


def _too_much(experiment: ExperimentFile, records: int) -> str:
    """The reason for which neither is on by itself; empty where both are."""
    if not training(experiment.job.protocol).grows_trees:
        return "it would train further networks"
    return f"the table has {records:,} records, more than {MOST_RECORDS:,}" if records > MOST_RECORDS else ""


def _hindrance(experiment: ExperimentFile) -> str:
    """The reason for which no audit is possible; empty where one is."""
    silent = [party.name for party in experiment.party if party.record == "off" and not party.labels]
    if silent:
        return f"{silent[0]} has record = 'off' and keeps no transcript"
    return f"it needs {missing}: {install('audit')}" if (missing := lacking()) else ""


@contextmanager
def _as_file(experiment: ExperimentFile, table: pa.Table | None, base: Path) -> Iterator[tuple[ExperimentFile, Path]]:
    """The experiment with the file that its table is read from, and the folder from which the file's path starts."""
    if table is None:
        yield experiment, base
        return
    with tempfile.TemporaryDirectory(prefix="treetap-") as held:
        keep_table(table, Path(held) / TABLE)
        kept = ("date_format", "missing", "duplicates", "normalise")  # as the frame has them
        source = {name: field.default for name, field in SourceKeys.model_fields.items() if name not in kept}
        source["path"] = Path(TABLE)
        yield experiment.model_copy(update={"data": experiment.data.model_copy(update=source)}), Path(held)


def shown(folder: Path) -> str:
    """A path as a person would type it here."""
    return os.path.relpath(folder) if folder.is_relative_to(Path.cwd()) else str(folder)
