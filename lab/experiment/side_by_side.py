"""A second run of the same parties by another word of `privacy`, and both side by side: measure, leaks, seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pydantic import ValidationError

from treetap.attacks.verdict import Verdict
from treetap.commands.jobs import progress_view
from treetap.commands.jobs.job_file import JobTable
from treetap.errors import ConfigError, TreetapError, one_line, quoted
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.kept import remove_private_keys
from treetap.lab.experiment.results import PrivacyRow, RunResult, harm, measures, spread
from treetap.lab.experiment.run import Live, run_seed
from treetap.models.durable import remove_folder
from treetap.pages.section import Table, Text
from treetap.protocols.job_spec import PRIVACY, PRIVATE, PUBLISHED
from treetap.strict import WHOLE, faults_of

#: The word beside which all others are shown.
BESIDE = PRIVATE
#: What others learn: feature parties of labels, the label holder of columns.
DIRECTIONS = ("labels", "columns")
TITLE = "By privacy of the job: what others learned of labels and columns, before → after"


def other_word(experiment: ExperimentFile) -> str:
    """The word of the second run."""
    return PUBLISHED if experiment.job.privacy == BESIDE else BESIDE


def by_other_word(experiment: ExperimentFile) -> ExperimentFile:
    """The same parties with a job by that word. Raises ConfigError: it cannot be."""
    try:
        job = experiment.job.with_privacy(other_word(experiment))
    except ValidationError as fault:
        said = (it.removeprefix(f"{WHOLE}: ") for it in faults_of(fault, JobTable))
        raise ConfigError("; ".join(said)) from None
    changed = {"job": job, "data": experiment.data.model_copy(update={"compare": False})}
    if experiment.predict is not None:
        changed["predict"] = experiment.predict.model_copy(update={"protocols": None})
    other = experiment.model_copy(update=changed)
    job.drafts(other.spec)
    return other


def add_other(
    run: RunResult,
    experiment: ExperimentFile,
    table: pa.Table,
    folder: Path,
    live: Live = progress_view.live,
    *,
    keep_keys: bool = True,
) -> None:
    """Run the same rows by the other word, below a folder of its name, and give the run the rows of both words."""
    rows = [PrivacyRow.of(run, experiment.job.privacy)]
    word = other_word(experiment)
    place = folder / word / run.planned.name
    remove_folder(place)  # what an earlier attempt left
    try:
        other, title = by_other_word(experiment), f"{run.planned.title}, {word}"
        rows.append(PrivacyRow.of(run_seed(other, table, run.seed, place, title, fold=run.fold, live=live), word))
    except TreetapError as refusal:
        rows.append(PrivacyRow(privacy=word, refused=one_line(str(refusal))))
    finally:
        if not keep_keys:
            remove_private_keys(place)
    run.by_privacy = sorted(rows, key=lambda row: PRIVACY.index(row.privacy))


def by_privacy(runs: Sequence[RunResult]) -> list[Table | Text]:
    """A row for each word: the measure, the worst verdict of each direction, wall time; or why its job is refused.

    Empty where one word alone was run.
    """
    rows, lines = [row for run in runs for row in run.by_privacy], []
    # that of the verdict, else the first one
    name = next(
        iter([*(run.gain.measure for run in runs if run.gain is not None), *measures(row.test for row in rows)]), ""
    )
    for word in PRIVACY:
        if own := [row for row in rows if row.privacy == word and not row.refused]:
            learned = (_worst([it for row in own for it in row.verdicts if it.learned == what]) for what in DIRECTIONS)
            seconds = f"{spread(row.seconds for row in own).written(1)} s"
            lines.append([word, spread(row.test.get(name) for row in own).written(), *learned, seconds])
    refused = dict.fromkeys((row.privacy, row.refused) for row in rows if row.refused)
    said = [Text(f"{word} refuses this job: ", said=f"{why}.", where="both") for word, why in refused]
    if len(lines) < 2:
        return [*said]
    costs = f"{quoted(BESIDE)} costs no accuracy; its dealer is a stand-in here: docs/defend.md"
    heads = ["privacy", name, *DIRECTIONS, "time"]
    return [Table(heads, lines, TITLE, words=(2, 3), style="cards"), *(said or [Text(said=costs, where="both")])]


def _worst(verdicts: Sequence[Verdict]) -> str:
    """The word of the worst verdict with its figures."""
    it = max(verdicts, key=harm, default=None)
    if it is None or it.before is None or it.after is None:
        return "not measured"
    scale, digits, unit = (1, 2, "") if it.measure == "AUC" else (100, 0, " %")
    return f"{it.word}: {scale * it.before:.{digits}f} → {scale * it.after:.{digits}f}{unit}"
