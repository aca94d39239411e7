"""The results of an experiment as one self-contained HTML file; names are escaped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from treetap.attacks.verdict import Verdict
from treetap.lab.experiment.baselines import concluded
from treetap.lab.experiment.curves import (
    MOST_CLASSES,
    class_curves,
    history_pictures,
    legend,
    seeds_of,
    thresholds,
)
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.headline import Gain, compared, headline, stated
from treetap.lab.experiment.joint_model import received
from treetap.lab.experiment.results import (
    RunResult,
    spread,
    to_lower,
    warnings,
    worst_verdicts,
)
from treetap.lab.experiment.side_by_side import by_privacy
from treetap.lab.experiment.tables import (
    class_table,
    confusion,
    importances,
    metric_table,
    phases,
    predictions,
    residuals,
    run_table,
    traffic,
)
from treetap.neural.params import SplitnnParams
from treetap.pages import page
from treetap.pages.pictures import Bar, Bars, percent
from treetap.pages.section import Code, Facts, Key, Listed, Section, Terms, Text
from treetap.tables.labels import class_name
from treetap.trees.params import TreeParams
from treetap.wire.disclosure import CLASSES


def html(experiment: ExperimentFile, name: str, runs: Sequence[RunResult], file: str = "FILE") -> str:
    """The page of an experiment's finished runs; at least one. `name`: the experiment's; `file`: for a command line."""
    faults = [run for run in runs if run.audit_fault is not None]
    header = Section(
        "",
        [
            *(Text(said=sentence, style="notice") for sentence in warnings(runs)),
            *(Text(said=sentence, style="lead head") for sentence in concluded(runs)[:1]),
            Text(said=_model(experiment, runs)),
            *_at_once(experiment, file),
            *(Text(said=line, style="notice") for line in dict.fromkeys(line for run in runs for line in run.left_out)),
            *(Text(said=line, style="notice") for line in dict.fromkeys(line for run in runs for line in run.says)),
            *(
                Text("{}: the audit failed: ", run.planned.title, said=run.audit_fault or "", style="notice fault")
                for run in faults
            ),
        ],
    )
    closing = Text(
        "This file counts labels of held-out rows by class: protect it as you protect the labels. results.json "
        "beside it has every figure, predictions/ every prediction."
    )
    return page.html(f"Experiment {name}", header, sections(experiment, runs), Section("", [closing]))


def sections(experiment: ExperimentFile, runs: Sequence[RunResult]) -> list[Section]:
    """The sections of the page in order."""
    bars = beside([run.gain for run in runs])
    measured = Text(said=headline([run.gain for run in runs]) or "")
    parts = [bars, measured, Text(said=" ".join(concluded(runs)[1:]))] if bars else []
    together = Section("Together and alone", parts, "verdict")
    several, verdicts = len(runs) > 1, worst_verdicts(runs)
    audits = [(f"What attacks found, {run.planned.title}", _near(run.audit_report)) for run in runs if run.audit_report]
    kinds, _ = received([row for run in runs for row in run.traffic])
    learns = {kind: CLASSES[kind].tells for kind in kinds}
    words = Section("By privacy of the job", by_privacy(runs), "privacy")
    every = [
        Section("", [Section("", [together, words], style="stack"), learned(verdicts, len(runs))], style="cards-of"),
        _metrics(experiment, runs),
        _classes(runs),
        Section("Residuals", [residuals(runs)], "residuals"),
        _threshold(runs),
        _curves(runs),
        _history(runs),
        Section(
            "",
            [_importance(runs), Section("Time", [phases(runs), Section("Predictions", [predictions(runs)])], "time")],
            style="cards-of",
        ),
        Section(
            "Who received what",
            [
                Text(
                    "Bytes that each process received, by the class of what their reader learns"
                    f"{'; the mean of the runs' if several else ''}. The stronger a cell's colour, the more bytes "
                    "(logarithmic). Bytes measure volume, not harm."
                ),
                Key("chip", list(KINDS.items())),
                traffic(runs),
                Section("What the reader of each class learns", [Terms(learns)], folded=True),
            ],
            "traffic",
        ),
        Section("Audits", [Listed(audits)], "audits"),
    ]
    return [section for section in every if section]


def _metrics(experiment: ExperimentFile, runs: Sequence[RunResult]) -> Section:
    """Measures of every model, beside the settings."""
    folds = " Folds of one cross-validation share training rows: their deviation is no standard error."
    spread_words = f"Mean ± standard deviation (n − 1) over {len(runs)} runs.{folds if experiment.data.cv else ''}"
    weighed = "These measures weigh each row by column {}; what follows counts each row once."
    known = [run.stability for run in runs if run.stability is not None]
    stability = (
        f"Population stability index of the scores of held-out rows beside those of training rows: "
        f"{spread(known).written(3) if known else ''}. Up to 0.1 the two are alike; above 0.25 they are not, and "
        "probabilities should not be trusted."
    )
    figures = [metric_table(runs), run_table(runs), Text(stability if known else "", style="soft")]
    return Section(
        "Metrics",
        [
            Text(spread_words if len(runs) > 1 else "", style="soft"),
            *(Text(weighed, column, style="notice") for column in [experiment.data.weight] if column),
            _sides(figures, [Facts(_facts(experiment, runs), "settings")]),
        ],
        "metrics",
    )


def _classes(runs: Sequence[RunResult]) -> Section:
    """The confusion matrix beside the figures of each class."""
    mean = f", the mean of {seeds_of(runs)} seeds" if seeds_of(runs) > 1 else ""
    rule = "predicted is the most probable class"
    if thresholds(runs):
        rule = "a row is predicted to be of the class that has more than ½ of its probability"
    matrix, table = confusion(runs), class_table(runs)
    beside_matrix = Text(
        f"Held-out rows{mean}: true classes in rows, predicted ones in columns; {rule}. Shares, and the strength of "
        "the colour, are of the true class."
    )
    words = Text(
        "Precision: share right of those predicted to be of the class. Recall: share found of those that are. F1: "
        "their harmonic mean. Support: held-out rows that are of the "
        f"class{', the mean of the seeds' if mean else ''}.",
        style="soft",
    )
    sides = _sides([beside_matrix, matrix] if matrix else [], [table, words])
    return Section("Classes", [sides] if table else [], "classes")


def _threshold(runs: Sequence[RunResult]) -> Section | None:
    """Thresholds with their costs; None but of two classes."""
    if (best := thresholds(runs)) is None:
        return None
    name, table = best
    words = [
        Text(
            "A row is flagged as {} if its probability reaches a threshold. ½ is the best one if a missed row costs "
            "as much as a false alarm, and probabilities can be trusted. The table has the best ones for other costs.",
            name,
        ),
        Text(
            f"Chosen by the held-out rows themselves{', run by run, and averaged' if len(runs) > 1 else ''}: new rows "
            "do a little worse. “Cost beside ½”: 60 % means that it costs 60 % of what the threshold ½ does.",
            style="soft",
        ),
    ]
    return Section("Threshold", [_sides([table], words, "words")], "thresholds")


def _sides(left: Sequence[object], right: Sequence[object], style: str = "side") -> Section:
    """Parts beside others, which have this class in the style sheet."""
    return Section("", [Section("", left, style="side"), Section("", right, style=style)], style="sides")


def _curves(runs: Sequence[RunResult]) -> Section:
    """Curves of the classes with the most rows."""
    shown, several = class_curves(runs), len(runs) > 1
    every = [
        Section(f"class {name}", [Section("", pictures, style="grid")], folded=len(shown) > 1, open=number == 0)
        for number, (name, pictures) in enumerate(shown.items())
    ]
    classes = {name for run in runs for name in run.evaluation.classes}
    left_out = f" Shown are the {MOST_CLASSES} classes with the most rows."
    words = Text(
        f"Held-out rows, one class against the rest{', a line for each run' if several else ''}. Dashed: chance or, "
        "of calibration, probabilities that come true. Above that line: more rows are of the class than predicted. A "
        f"larger dot has more rows{' of all runs' if several else ''}, a hollow one fewer than "
        f"20.{left_out if 1 < len(every) < len(classes) else ''}"
    )
    return Section("Curves", [words, *every] if every else [], "curves")


def _history(runs: Sequence[RunResult]) -> Section:
    """The course of each measure over the rounds."""
    pictures, key = history_pictures(runs), [(style, label) for label, style in legend(runs)]
    parts = [
        Key("line", key),
        Section("", pictures, style="grid"),
        Listed([("All figures: history.csv", "history.csv")]),
    ]
    return Section("History", parts if pictures else [], "history")


def _importance(runs: Sequence[RunResult]) -> Section:
    """The features that the model looks at most."""
    bars, left_out = importances(runs)
    mean = "; mean ± standard deviation over the runs" if len(runs) > 1 else ""
    words = Text(
        f"Each feature's share of the gain of all splits, or of their number where no party keeps gains{mean}. It "
        "needs the models of all parties, which no party of a real federation has."
    )
    rest = f"{left_out} features with smaller shares are in results.json." if left_out else ""
    return Section("Importance", [words, bars, Text(rest, style="soft")] if bars else [], "importance")


def _facts(experiment: ExperimentFile, runs: Sequence[RunResult]) -> list[tuple[str, str]]:
    """Names and values of the settings that were run."""
    data, first, *others = experiment.data, *experiment.in_order
    held_out = f"{data.cv} folds" if data.cv is not None else f"{data.test_share:.0%} of the rows"
    roles = [("parties", ", ".join([first, *others]))]
    if not experiment.spread:
        roles = [("label holder", first), ("feature parties", ", ".join(others))]
    return [
        ("table", data.title),
        ("label", data.label),
        *([] if data.positive is None else [("class looked for", class_name(data.positive))]),
        ("protocol", experiment.job.protocol),
        ("objective", experiment.job.params().objective),
        *roles,
        ("columns", ", ".join(f"{name} {len(columns)}" for name, columns in runs[0].columns.items())),
        ("held out", held_out + ("" if data.time is None else f", the last by {data.time}")),
        ("seeds", ", ".join(dict.fromkeys(str(run.seed) for run in runs))),
        ("runs", str(len(runs))),
        ("treetap", version("treetap")),
        ("made", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def _model(experiment: ExperimentFile, runs: Sequence[RunResult]) -> str:
    """The model and the rows that it learned from, as one sentence."""
    params, grown = experiment.job.params(), [run.trees for run in runs if run.trees is not None]
    if isinstance(params, TreeParams):
        counts = sorted({trees["used"] for trees in grown}) or [params.n_estimators]
        trees = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
        rate = getattr(params, "learning_rate", None)
        what = f"{trees} trees of depth {params.max_depth}" + ("" if rate is None else f", learning rate {rate:g}")
    else:
        assert isinstance(params, SplitnnParams)
        what = f"{params.epochs} epochs of batches of {params.batch_size}"
    seconds = spread(math.fsum(run.seconds.values()) for run in runs).mean or 0.0
    rows = [spread(run.records[kind] for run in runs).mean or 0.0 for kind in ("train", "test")]
    of_runs = "" if len(runs) == 1 else f"{len(runs)} runs, each of "
    fewest = min((row.support for run in runs for row in run.evaluation.per_class), default=None)
    least = "" if fewest is None else f", {fewest:,} or more of each class"
    return (
        f"{what}. {of_runs.capitalize()}{rows[0]:,.0f} training rows and {rows[1]:,.0f} held-out ones{least}, "
        f"{seconds:.1f} s."
    )


def _at_once(experiment: ExperimentFile, file: str) -> list[Facts | Code]:
    """The defences that were on, and the next command: a frontier, or a federation where none is left to compare."""
    on = experiment.defences.named()
    on += [f"{name} of {party}" for party, own in experiment.of_columns.items() for name in own.named(columns=True)]
    after = f"treetap new federation {' '.join(f'{name}={name}.csv' for name in experiment.in_order)}"
    if not experiment.defence:
        with suppress(ValueError):  # of what no frontier compares
            experiment.check_rows()
            after = f"treetap frontier {file}"
    defended = Facts([("defences on", ", ".join(on) or "none"), ("privacy", experiment.job.privacy)])
    return [defended, Code("next", [after])]


#: Kind of disclosure class → its legend.
KINDS = {
    "open": "readable: tells of records",
    "sealed": "sealed: unreadable without a key or the other shares",
    "plain": "running the job: names, sizes, published figures",
}


#: Measure of a gain → the head of its bars, and the figures at their ends; of errors the largest has the whole length.
BESIDE: dict[str, tuple[str, float, float | None]] = {
    "auc": ("from 0.5, chance, to 1", 0.5, 1.0),
    "accuracy": ("of 100 %", 0.0, 1.0),
}


def beside(gains: Sequence[Gain | None]) -> Bars | None:
    """Bars of together and of each party alone."""
    means = compared(gains)
    if means is None:
        return None
    head, low, high = BESIDE.get(means.measure, ("error", 0.0, None))
    figures = {"together": means.together, **{f"{name} alone": value for name, value in means.alone.items()}}
    whole = (max(figures.values()) if high is None else high) - low
    bars = [
        Bar(
            name,
            "",
            [stated(means.measure, value, unit=True)],
            percent(max(0.0, value - low), whole),
            "graph" if name == "together" else "alone",
        )
        for name, value in figures.items()
    ]
    return Bars(("model", "held-out rows"), bars, "Together and alone", head)


def learned(verdicts: Sequence[tuple[Verdict, RunResult]], runs: int) -> Section | None:
    """The verdicts, those of a run together, with the address of the run's audit, and what to do."""
    if not verdicts:
        return None
    from treetap.attacks.report.verdict import Cure, Verdicts, lines  # the attacks need an extra

    addresses = {run.planned: _near(run.audit_report or "") for _, run in verdicts}
    last = list(addresses)[-1]
    parts = [
        Text(f"The worst of {runs} runs." if runs > 1 else "", style="soft"),
        *(
            Verdicts(lines(one for one, run in verdicts if run.planned == planned), address, planned == last)
            for planned, address in addresses.items()
        ),
        *(Cure(advice, _near(run.audit_report or ""), "notice") for advice, run in to_lower(verdicts)),
    ]
    return Section("What each side learned", parts, "learned")


def _near(report: str) -> str:
    """The address of an audit's report from the page, which lies beside the run's folder."""
    path = Path(report)
    return quote(f"{path.parent.name}/{path.name}")
