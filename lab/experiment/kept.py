"""The folder of an experiment: its results on disk, each run whole or not there, and with what they were made."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from treetap.errors import BadInput
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.results import Logged, PlannedRun, Results, RunResult
from treetap.models.durable import ignored_by_git, make_folder, make_ignored_folder, remove_folder, write_whole
from treetap.tables.source_keys import SourceKeys
from treetap.version import PROTOCOL_VERSION

RESULTS, MADE_WITH, FILE, PREDICTIONS = "results.json", "made-with.json", "experiment.toml", "predictions"
MODELS = "models"
#: Libraries whose releases a result may depend on, beside Python's.
LIBRARIES = ("treetap", "numpy", "pyarrow")
#: What a person does whose folder cannot be resumed.
_AGAIN = "leave out --resume, and the experiment is made again"
#: Most folders of one name.
_MOST = 100_000
#: Keys of the file that may change between the runs of one folder: which runs there are, and where the table, of the
#: same content, comes from.
_FREE = {"data.seed", *(f"data.{name}" for name in SourceKeys.model_fields)}


def made_with(experiment: ExperimentFile, digest: str) -> dict[str, Any]:
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
        "experiment": {name: value for name, value in {**keys, **lists}.items() if name not in _FREE},
    }


def new_folder(folder: Path) -> Path:
    """Make the first of FOLDER, FOLDER-2, FOLDER-3, … that is not there.

    Git ignores it, or the folder above it where that is made too: tables with labels lie below it.

    Raises:
        BadInput: it cannot be made.
    """
    try:
        make_ignored_folder(folder.parent)
        for number in range(1, _MOST):
            made = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
            try:
                made.mkdir(mode=0o700)
            except FileExistsError:
                continue
            ignored_by_git(made)
            return made.resolve()
    except OSError as failure:
        raise BadInput(f"{folder}: cannot be made: {failure.strerror or failure}; name another --workdir") from None
    raise BadInput(f"{folder}: {_MOST} folders have this name; name another --workdir")


class Kept:
    """Results in a folder.

    Args:
        folder: new and empty, or with `resume` one that holds some.
        settings: as `made_with` gives them.
        file: the experiment's file, of which a copy is kept.

    Raises:
        BadInput: with `resume`, the folder holds no results, or results of another experiment or form, or damaged ones.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], file: str, *, resume: bool) -> None:
        self.folder = folder.resolve()
        self.runs: list[RunResult] = []
        if resume:
            _check(folder, settings)
            self.runs = _read_results(folder / RESULTS) if (folder / RESULTS).exists() else []
        else:
            self.write_beside(MADE_WITH, json.dumps(settings, indent=1))
        self.write_beside(FILE, file)

    def holds(self, run: PlannedRun) -> bool:
        """True if a run has finished."""
        return any(kept.planned == run for kept in self.runs)

    def begin(self, run: PlannedRun) -> Path:
        """The folder of a run's federation; what an earlier attempt left there is removed."""
        remove_folder(self.folder / run.name)
        return self.folder / run.name

    def predictions(self, run: PlannedRun, form: str) -> Path:
        """The file of a run's predictions in a format."""
        make_folder(self.folder / PREDICTIONS)
        return self.folder / PREDICTIONS / f"{run.name}.{form}"

    def model(self, run: PlannedRun) -> Path:
        """The file of a run's model for XGBoost."""
        make_folder(self.folder / MODELS)
        return self.folder / MODELS / f"{run.name}.json"

    def add(self, run: RunResult) -> None:
        """Keep a run's report; it is on disk when this returns."""
        self.runs.append(run)
        self.write(None)

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
    try:
        return path.read_bytes()
    except OSError as failure:
        raise BadInput(f"{path}: cannot be read: {failure.strerror or failure}") from None


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read(path))
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise BadInput(f"{path}: is damaged; {_AGAIN}")
    return content


def _read_results(path: Path) -> list[RunResult]:
    try:
        return Results.model_validate_json(_read(path), strict=True).runs
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
