"""The results of an experiment: what `results.json` has, pages and tracking tools show, and the Python API returns.

A key that a run does not have is left out. A measure that is undefined (no AUC of one class) or infinite is None.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, get_args

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from treetap.attacks.verdict import Learned, Verdict
from treetap.commands.leakage import TreeAccount
from treetap.lab.experiment.headline import Gain, headline
from treetap.models.store import names_in
from treetap.protocols.job_spec import PRIVACY
from treetap.strict import Figure, Part

#: Held-out records of a class below which measures rest on few.
CASES = 100

#: Name of a measure → its figure.
Measures = dict[str, Figure]
#: Trees or epochs of the job, of the training, and of predictions.
Rounds = Annotated[dict[Literal["planned", "grown", "used"], int], Field(min_length=3)]
#: Keys of an audit under which a label holder has its results by the party whose columns it attacks.
OF_COLUMNS = ("victims", "columns_read")
#: Measures in the order of all tables; others follow as they come.
_ORDER = ("auc", "ks", "accuracy", "logloss", "rmse")


@dataclass(frozen=True)
class PlannedRun:
    """A run. `fold`: from 1, of a cross-validation; None where rows are held out once."""

    seed: int
    fold: int | None = None

    @property
    def title(self) -> str:
        """A name for people."""
        return f"seed {self.seed}" + ("" if self.fold is None else f", fold {self.fold}")

    @property
    def name(self) -> str:
        """The name of its folder and of its files."""
        return self.title.replace(", ", "-").replace(" ", "-")

    @property
    def keys(self) -> dict[str, int]:
        """Its entries in a report."""
        return {"seed": self.seed} | ({} if self.fold is None else {"fold": self.fold})


class ClassFigures(Part):
    """Held-out rows of a class, and how well it was predicted."""

    name: str = Field(alias="class")
    precision: float
    recall: float
    f1: float
    support: int
    predicted: int


class RocPoint(Part):
    """Shares of false alarms and of positives found at a threshold, which is null above all predictions."""

    false: float
    true: float
    threshold: Figure


class Roc(Part):
    """The curve of a class against the rest."""

    name: str = Field(alias="class")
    auc: Figure
    average_precision: Figure
    points: list[RocPoint]


class Bin(Part):
    """Rows of nearly one predicted probability; means are null of none."""

    low: float
    high: float
    records: int
    mean: Figure
    observed: Figure


class Calibration(Part):
    """The bins of a class."""

    name: str = Field(alias="class")
    bins: list[Bin]


class Evaluation(Part):
    """The document of `treetap.trees.evaluation` on held-out rows: of classes, or of a regression `residuals`."""

    version: int
    objective: str
    records: int
    measures: Measures
    classes: list[str] = []
    confusion: list[list[int]] | None = None
    per_class: list[ClassFigures] = []
    averages: dict[str, dict[str, float]] = {}
    roc: list[Roc] = []
    calibration: list[Calibration] = []
    residuals: list[Annotated[dict[Literal["share", "value"], float], Field(min_length=2)]] = []


class Traffic(Part):
    """Messages of a step that carried a disclosure class, and the bytes of that class in them."""

    sender: str = Field(alias="from")
    receiver: str = Field(alias="to")
    step: str
    disclosure: str = Field(alias="class")
    messages: int
    bytes: int


class Importance(Part):
    """The splits by a feature; mean gain and cover are null where no party keeps gains."""

    party: str
    feature: str
    weight: int
    gain: Figure
    cover: Figure

    @property
    def size(self) -> float:
        """The total gain or, where no party keeps gains, the number of splits."""
        return self.weight * (1.0 if self.gain is None else self.gain)


class Prediction(Part):
    """A prediction of the held-out rows. `max_difference`: from the centralised scores; None: not comparable."""

    seconds: float
    bytes: int
    max_difference: Figure
    traffic: list[Traffic]


class Defended(Part):
    """The settings of defences, what they mean as sentences, and of trees what the label holder kept to itself.

    `variants`: the models of one training with noisy labels, and their measures of held-out rows.
    """

    table: dict[str, Any]
    parties: dict[str, dict[str, Any]]
    says: list[str]
    local_subtrees: int | None = None
    hidden_nodes: int | None = None
    max_difference: Figure = None
    variants: dict[str, Measures] = {}


class PrivacyRow(Part):
    """A run by one word of `privacy`: measures of the held-out rows, wall time, verdicts; or why its job is refused."""

    privacy: Literal[PRIVACY]  # type: ignore[valid-type] # the one list
    test: Measures = {}
    seconds: float | None = None
    verdicts: list[Verdict] = []
    refused: str = ""

    @classmethod
    def of(cls, run: RunResult, word: str) -> PrivacyRow:
        """The row of a finished run."""
        fault = "" if run.audit_fault is None else f"the audit failed: {run.audit_fault}"
        seconds = math.fsum(run.seconds.values())
        return cls(privacy=word, test=run.metrics["test"], seconds=seconds, verdicts=run.verdicts, refused=fault)


#: Before each line that is to be pasted.
_SET_IN = "\n    "


def _whole(said: object) -> object:
    """A text, from the text and the lines to paste that JSON has apart."""
    match said:
        case {"says": str(says), "paste": [*lines]} if all(isinstance(line, str) for line in lines):
            return _SET_IN.join([says, *lines])
    return said


#: A text that may end with lines to paste: in JSON they have a field of their own.
Said: TypeAlias = Annotated[
    str,
    BeforeValidator(_whole),
    PlainSerializer(lambda said: {"says": said.split(_SET_IN)[0], "paste": said.split(_SET_IN)[1:]}, when_used="json"),
]


class RunResult(Part):
    """A run from start to end, with its costs by the parties' own accounts.

    What follows its training is assigned as it comes.
    """

    model_config = ConfigDict(frozen=False, validate_assignment=True)

    traffic: list[Traffic]
    ciphertexts: dict[str, int]
    operations: dict[str, int]
    seconds_by_step: dict[str, dict[str, float]]
    peak_rss_mb: dict[str, float]
    cpu_seconds: dict[str, float]
    importance: list[Importance]
    seed: int
    fold: int | None = None
    metrics: dict[str, Measures]
    gain: Gain | None = None
    left_out: list[Said] = []
    data: list[Said] = []
    evaluation: Evaluation
    stability: float | None = None
    history: list[Measures]
    seconds: dict[str, float]
    arithmetic: dict[str, str]
    model: dict[str, Path]
    columns: dict[str, list[str]]
    dropped_columns: dict[str, list[str]] = {}
    records: Annotated[dict[Literal["train", "test"], int], Field(min_length=2)]
    privacy: list[str] = []
    leakage: list[TreeAccount]
    trees: Rounds | None = None
    epochs: Rounds | None = None
    defences: Defended | None = None
    predict: dict[str, Prediction] = {}
    audit: dict[str, dict[str, Any]] | None = None
    verdicts: list[Verdict] = []
    to_do: dict[Learned, Said] = {}
    audit_fault: str | None = None
    audit_report: str | None = None
    audit_seconds: float | None = None
    by_privacy: list[PrivacyRow] = []
    xgboost: str | None = None
    xgboost_fault: str | None = None

    @property
    def federation(self) -> Path:
        """The folder of its federation: a folder for each process, certificates, and the audit."""
        return next(iter(self.model.values())).parents[3]

    @property
    def planned(self) -> PlannedRun:
        """The run that this is the result of."""
        return PlannedRun(self.seed, self.fold)

    @property
    def metric_rows(self) -> dict[str, Measures]:
        """All rows of metrics, those of repaired models included."""
        variants = {} if self.defences is None else self.defences.variants
        return self.metrics | {f"{name}, test": measured for name, measured in variants.items()}

    @property
    def says(self) -> list[str]:
        """The sentences about noise and defences, and what was withheld."""
        if (defended := self.defences) is None:
            return self.privacy
        if defended.local_subtrees is None:
            return [*self.privacy, *defended.says]
        return [
            *(*self.privacy, *defended.says),
            f"Grown by the label holder alone: {defended.local_subtrees} subtrees, {defended.hidden_nodes} nodes below "
            "their roots that no other party knows.",
        ]


class Spread(Part):
    """Mean over runs, None where a value is undefined; standard deviation of a sample, None of one value."""

    mean: float | None
    sd: float | None
    runs: int

    def written(self, digits: int = 4, scale: float = 1.0) -> str:
        """Both for a reader, times a scale."""
        if self.mean is None:
            return "undefined"
        return f"{scale * self.mean:.{digits}f}" + ("" if self.sd is None else f" ± {scale * self.sd:.{digits}f}")


class Summary(Part):
    """Metrics by row and seconds by phase over all runs; each is of the runs that have it."""

    runs: int
    metrics: dict[str, dict[str, Spread]]
    seconds: dict[str, Spread]


class Logged(Part):
    """The address of a tracking server, with the run there, or the fault for which it has not taken the results."""

    address: str
    experiment: str
    run: str | None = None
    fault: str | None = None


def warnings(runs: Sequence[RunResult]) -> list[str]:
    """Sentences for a person about the data of finished runs, each once."""
    return list(dict.fromkeys([*(line for run in runs for line in run.data), *_few_cases(runs)]))


def _few_cases(runs: Sequence[RunResult]) -> list[str]:
    cases, seeds = Counter[str](), len({run.seed for run in runs})
    for run in runs:
        cases.update({row.name: row.support for row in run.evaluation.per_class})
    name = min(cases, key=cases.__getitem__, default="")
    if not cases or (count := round(cases[name] / seeds)) >= CASES:
        return []
    said = f"The measures below rest on few held-out rows of class {name!r}: {count}. More rows would tell more"
    once = "; so would each row held out once:\n    cv = 5  # in [data]"
    return [f"{said}." if runs[0].fold is not None else said + once]


class Results(Part):
    """The document of an experiment. `folder`: of all its files, None if none is kept.

    `headline`: together against alone in one line, None without a comparison. `warnings`: about the data, sentences.
    """

    headline: str | None = None
    warnings: list[Said] = []
    runs: list[RunResult]
    summary: Summary
    folder: str | None
    mlflow: Logged | None = None

    @classmethod
    def of(cls, runs: Sequence[RunResult], folder: Path | None = None, mlflow: Logged | None = None) -> Results:
        """The document of these runs."""
        further: dict[str, Any] = {} if mlflow is None else {"mlflow": mlflow}
        return cls(
            headline=headline([run.gain for run in runs]),
            warnings=warnings(runs),
            runs=list(runs),
            summary=summary(runs),
            folder=None if folder is None else str(folder),
            **further,
        )

    def written(self) -> str:
        """The document as it is printed and stored."""
        return json.dumps(self.plain(), indent=1, allow_nan=False)


def worst_verdicts(runs: Sequence[RunResult]) -> list[tuple[Verdict, RunResult]]:
    """Of each party and direction the worst verdict of all runs, with its run."""
    every: dict[tuple[str, str, str], tuple[Verdict, RunResult]] = {}
    for run in runs:
        for it in run.verdicts:
            key = (it.party, it.learned, it.of)
            if key not in every or harm(it) > harm(every[key][0]):
                every[key] = it, run
    return list(every.values())


def harm(it: Verdict) -> tuple[int, float]:
    """The order of verdicts from the best to the worst."""
    return it.rank, it.share or 0.0


def to_lower(verdicts: Sequence[tuple[Verdict, RunResult]]) -> list[tuple[str, RunResult]]:
    """For each direction the cure for the worst of the verdicts, and its run, whose audit has more."""
    advised = []
    for learned in get_args(Learned):
        of = [row for row in verdicts if row[0].learned == learned]
        worst = max(of, key=lambda row: harm(row[0]), default=None)
        if worst is not None and learned in worst[1].to_do:
            advised.append((worst[1].to_do[learned], worst[1]))
    return advised


def spread(values: Iterable[float | None]) -> Spread:
    """Mean and standard deviation (n − 1 in the denominator); one that is undefined leaves both so."""
    every = list(values)
    known = [value for value in every if value is not None]
    if len(known) < len(every) or not known:
        return Spread(mean=None, sd=None, runs=len(every))
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Spread(mean=statistics.fmean(known), sd=deviation, runs=len(every))


def measures(rows: Iterable[Iterable[str]]) -> list[str]:
    """The names of measures of some rows, each once."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [name for name in _ORDER if name in names] + [name for name in names if name not in _ORDER]


def summary(runs: Sequence[RunResult]) -> Summary:
    """Means and standard deviations over all runs."""
    rows = [run.metric_rows for run in runs]
    names = {row: measures(of_run.get(row, {}) for of_run in rows) for row in names_in(rows)}
    # a mean is of the runs that have the row or the phase
    return Summary(
        runs=len(runs),
        metrics={
            row: {name: spread(of_run[row].get(name) for of_run in rows if row in of_run) for name in named}
            for row, named in names.items()
        },
        seconds={
            phase: spread(run.seconds[phase] for run in runs if phase in run.seconds)
            for phase in names_in([run.seconds for run in runs])
        },
    )


def histories_csv(runs: Sequence[RunResult]) -> str:
    """`seed`, with cross-validation `fold`, `round` from 0, and a column for each metric; empty where it is none."""
    keys = list(dict.fromkeys(key for run in runs for key in run.planned.keys))
    names, content = names_in([row for run in runs for row in run.history]), io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow([*keys, "round", *names])
    for run in runs:
        for number, row in enumerate(run.history):
            values = ("" if row.get(name) is None else repr(row[name]) for name in names)
            writer.writerow([*(run.planned.keys.get(key, "") for key in keys), number, *values])
    return content.getvalue()
