"""The results of an experiment as one self-contained HTML file; names are escaped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from urllib.parse import quote

from treetap import terminal
from treetap.attacks.verdict import Verdict
from treetap.lab.experiment.baselines import concluded
from treetap.lab.experiment.curves import (
    MOST_CLASSES,
    class_curves,
    counted,
    history_pictures,
    legend,
    seeds_of,
    thresholds,
)
from treetap.lab.experiment.experiment_file import ExperimentFile
from treetap.lab.experiment.headline import Gain, compared, headline, stated
from treetap.lab.experiment.joint_model import PLAIN, received
from treetap.lab.experiment.results import (
    RunResult,
    measures,
    spread,
    summary,
    to_lower,
    warnings,
    worst_verdicts,
)
from treetap.lab.experiment.side_by_side import by_privacy
from treetap.neural.params import SplitnnParams
from treetap.pages import page
from treetap.pages.pictures import Bar, Bars, Matrix, heat, percent
from treetap.pages.section import Cell, Code, Facts, Key, Listed, Section, Table, Terms, Text
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
    "rmse": ("error", 0.0, None),
}


def beside(gains: Sequence[Gain | None]) -> Bars | None:
    """Bars of together and of each party alone."""
    means = compared(gains)
    if means is None:
        return None
    head, low, high = BESIDE[means.measure]
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


#: Most features of the table of importances.
MOST_FEATURES = 25


def metric_table(runs: Sequence[RunResult]) -> Table:
    """Every measure of every model over the runs."""
    rows = summary(runs).metrics
    names = measures(rows.values())
    return Table(
        ["", *names],
        [[label, *(row[name].written() if name in row else "–" for name in names)] for label, row in rows.items()],
        f"Mean ± standard deviation of {len(runs)} runs" if len(runs) > 1 else "Metrics of each model",
        style="cards",
    )


def run_table(runs: Sequence[RunResult]) -> Table:
    """The measures of the held-out rows of each run, and its records."""
    names = measures(run.metrics["test"] for run in runs)
    return Table(
        ["run", "training records", "held out", *names],
        [
            [
                run.planned.title,
                f"{run.records['train']:,}",
                f"{run.records['test']:,}",
                *(spread([run.metrics["test"].get(name)]).written() for name in names),
            ]
            for run in runs
        ],
        "Held-out rows, run by run",
        style="cards",
        folded=True,
    )


def confusion(runs: Sequence[RunResult]) -> Matrix | None:
    """Held-out rows of a seed by true and predicted class, with the share of the true class; None of a regression.

    Over several seeds their mean: each holds its own rows out, and a row counts once in each at most.
    """
    evaluations = [run.evaluation for run in runs if run.evaluation.confusion]
    if not evaluations:
        return None
    # runs of several seeds may hold out rows of different classes
    names = list(dict.fromkeys(name for evaluation in evaluations for name in evaluation.classes))
    counts = Counter[tuple[str, str]]()
    for it in evaluations:
        rows_of_class = zip(it.classes, it.confusion or [], strict=True)
        counts.update({(true, own): n for true, row in rows_of_class for own, n in zip(it.classes, row, strict=True)})
    seeds = seeds_of(runs)
    rows = [(name, "", "", _shares([counts[name, other] for other in names], k, seeds)) for k, name in enumerate(names)]
    return Matrix("true \\ predicted", names, rows, "Confusion matrix", "confusion")


def class_table(runs: Sequence[RunResult]) -> Table | None:
    """Figures per class and their averages over the runs; None of a regression."""
    evaluations = [run.evaluation for run in runs if run.evaluation.per_class]
    if not evaluations:
        return None
    shares, counts, rows, seeds = ("precision", "recall", "f1"), ("support", "predicted"), [], seeds_of(runs)
    for name in dict.fromkeys(name for evaluation in evaluations for name in evaluation.classes):
        given = [row for evaluation in evaluations for row in evaluation.per_class if row.name == name]
        # shares are means over the runs, counts are of the rows that a seed held out
        means = [spread(getattr(row, head) for row in given).written(3) for head in shares]
        rows.append([name, *means, *(counted(sum(getattr(row, head) for row in given) / seeds) for head in counts)])
    for kind in ("macro", "weighted"):
        means = [spread(evaluation.averages[kind][head] for evaluation in evaluations).written(3) for head in shares]
        rows.append([f"{kind} average", *means, "", ""])
    return Table(["class", *shares, *counts], rows, "Figures of each class", style="cards")


def residuals(runs: Sequence[RunResult]) -> Table | None:
    """Quantiles of target less prediction over the runs; None where there are classes."""
    quantiles = list(zip(*(run.evaluation.residuals for run in runs if run.evaluation.residuals), strict=True))
    if not quantiles:
        return None
    values = [spread(row["value"] for row in of_runs).written() for of_runs in quantiles]
    heads = [f"{of_runs[0]['share']:.0%}" for of_runs in quantiles]
    rows = [["target less prediction", *values]]
    return Table(["quantile", *heads], rows, "Quantiles of the residuals", style="cards")


def importances(runs: Sequence[RunResult]) -> tuple[Bars, int]:
    """Features by their share of the model's gain, or of its splits where no party keeps gains; how many are left out.

    Over several runs the mean of the shares ± standard deviation; a run that does not use a feature counts as 0.
    """
    shares: list[dict[tuple[str, str], float]] = []
    splits = Counter[tuple[str, str]]()
    for run in runs:
        # shares, since gains of two runs have no common scale
        whole = math.fsum(row.size for row in run.importance)
        shares.append({(row.party, row.feature): row.size / whole if whole else 0.0 for row in run.importance})
        splits.update({(row.party, row.feature): row.weight for row in run.importance})
    means = {key: spread([of_run.get(key, 0.0) for of_run in shares]) for key in splits}
    order = sorted(means, key=lambda key: -(means[key].mean or 0.0))
    most = max((means[key].mean or 0.0 for key in order), default=0.0)
    bars = []
    for key in order[:MOST_FEATURES]:
        count, mean = splits[key], means[key]
        many = f"{count / len(runs):.1f} splits" if len(runs) > 1 else f"{count} split{'' if count == 1 else 's'}"
        figures = [f"{mean.written(1, 100)} %, {many}"]
        bars.append(Bar(key[1], key[0], figures, percent(mean.mean or 0.0, most), "graph"))
    heads = ("feature", "share of the gain, splits")
    return Bars(heads, bars, "Importance of features"), max(0, len(order) - MOST_FEATURES)


def phases(runs: Sequence[RunResult]) -> Bars:
    """Seconds by phase."""
    seconds = summary(runs).seconds
    most = max((figure.mean or 0.0 for figure in seconds.values()), default=0.0)
    bars = [
        Bar(name, "", [f"{figure.written(2)} s"], percent(figure.mean or 0.0, most), "sealed")
        for name, figure in seconds.items()
    ]
    return Bars(("phase", "seconds"), bars, "Seconds by phase")


def traffic(runs: Sequence[RunResult]) -> Matrix:
    """Bytes by class and receiver, the mean of the runs."""
    totals, parties = received([row for run in runs for row in run.traffic])
    means = {kind: {party: size / len(runs) for party, size in row.items()} for kind, row in totals.items()}
    most = max((size for row in means.values() for size in row.values()), default=0.0)
    return Matrix(
        "class",
        parties,
        [
            (
                *(kind, "", CLASSES[kind].kind),
                [
                    Cell(terminal.size(size), "", heat(size, most)) if (size := row.get(party, 0.0)) else Cell("·")
                    for party in parties
                ],
            )
            for kind, row in means.items()
        ],
        "Who received what: bytes by class and receiver",
    )


def predictions(runs: Sequence[RunResult]) -> Table | None:
    """Each prediction protocol's seconds, largest difference from the centralised model, and bytes by class."""
    of_runs = [run.predict for run in runs if run.predict]
    if not of_runs:
        return None
    sent = [row for run in of_runs for one in run.values() for row in one.traffic]
    kinds, rows = sorted({row.disclosure for row in sent} - {*PLAIN}), []
    for protocol in of_runs[0]:
        every = [run[protocol] for run in of_runs]
        known = [one.max_difference for one in every if one.max_difference is not None]
        # where one run is not comparable, no largest difference is known
        worst = f"{max(known):.1e}" if len(known) == len(every) else "not comparable"
        size = terminal.size(sum(one.bytes for one in every) / len(every))
        sizes = Counter[str]()
        for row in (row for one in every for row in one.traffic):
            sizes[row.disclosure] += row.bytes
        by_kind = [terminal.size(sizes[kind] / len(every)) if sizes[kind] else "·" for kind in kinds]
        rows.append([protocol, spread(one.seconds for one in every).written(2), size, worst, *by_kind])
    heads = ["protocol", "seconds", "sent", "largest difference from the centralised model", *kinds]
    return Table(heads, rows, "Predictions by protocol", style="cards")


def _shares(row: list[int], own: int, seeds: int) -> list[Cell]:
    """Cells of the class number `own`, right in its own column and wrong in the others."""
    whole = sum(row)
    parts = [count / whole if whole else 0.0 for count in row]
    return [
        Cell(counted(count / seeds), f"{part:.1%}", f"{part:.2f}", "right" if k == own else "wrong")
        for k, (count, part) in enumerate(zip(row, parts, strict=True))
    ]
