"""`treetap.experiment` and `treetap.audit`: the commands of these names, with objects in the place of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treetap.api.errors import checked
from treetap.api.frames import arrow_of
from treetap.api.loopback import quiet
from treetap.api.results import AuditResult, ExperimentResult
from treetap.commands.experiment.all_runs import PAGE, TABLE, run_experiment
from treetap.commands.experiment.command import RUNS
from treetap.commands.experiment.experiment_file import ExperimentFile
from treetap.commands.jobs import progress_view
from treetap.strict import load, text_of


def experiment(
    file: str | Path | Mapping[str, Any],
    *,
    frame: Any = None,
    workdir: str | Path | None = None,
    verbose: bool = True,
) -> ExperimentResult:
    """Split one table between parties and run the federation on it, once per seed or fold.

    Args:
        file: an experiment file (docs/experiment.md), or its content as a dictionary.
        frame: the joined table as a data frame, in the place of `[data] path`.
        workdir: a new or empty folder for the results; by default the next free one of `runs/NAME`.
        verbose: show progress.

    Raises:
        ValueError: the experiment or its table cannot be used.
        TreetapError: a run failed; results of those that finished are in the folder.
    """
    place = None if isinstance(file, Mapping) else Path(file)
    with checked(ExperimentFile):
        if place is not None:
            given = load(place, ExperimentFile)
        else:
            assert isinstance(file, Mapping)
            usual = {} if frame is None else {"path": TABLE}
            given = ExperimentFile.model_validate({**file, "data": {**usual, **file.get("data", {})}})
        name = "experiment" if place is None else place.stem
        document = run_experiment(
            given,
            RUNS / name if workdir is None else Path(workdir),
            base=Path() if place is None else place.absolute().parent,
            table=None if frame is None else arrow_of(frame),
            file=None if place is None else text_of(place),
            name=name if place is None else str(place),
            place="numbered" if workdir is None else "empty",
            live=progress_view.live if verbose else lambda _: quiet(),
        )
    folder = Path(document["folder"])
    return ExperimentResult(document, folder, folder / PAGE)


def audit(
    run: str | Path | ExperimentResult,
    *,
    attacks: Sequence[str] | None = None,
    by_tree: bool = True,
    number: int = 0,
) -> AuditResult:
    """Attack the transcripts of a run's feature parties, and measure what each could infer about the labels.

    Args:
        run: a folder that holds audit.toml, or a result of `treetap.experiment` with an `audit` table.
        attacks: their names; by default all that fit (docs/audit.md).
        by_tree: also figures after the first tree, the first two, ….
        number: of a result, which of its runs.

    Raises:
        ImportError: the attacks need the extra `audit`.
        ValueError: there is no audit.toml, an attack is not known, or a transcript was changed.
    """
    folder = run.federation(number) if isinstance(run, ExperimentResult) else Path(run)
    try:
        from treetap.commands.audit import local_job
    except ModuleNotFoundError as missing:
        raise ImportError(
            f"treetap.audit needs {missing.name}: pip install 'treetap[audit]'", name=missing.name
        ) from None
    with checked():
        document = local_job.audit_folder(folder, attacks=attacks, by_tree=by_tree)
    return AuditResult(document, folder / local_job.REPORT)
