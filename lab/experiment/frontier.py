"""`treetap frontier`: what each defence leaves to attackers of labels and of columns, against its cost in accuracy.

A frontier as one HTML file, as a picture, and in the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from treetap import terminal
from treetap.attacks.advice.names import named
from treetap.attacks.report import glossary
from treetap.attacks.report.glossary import ATTACKS
from treetap.commands.jobs import progress_view
from treetap.errors import BadInput, ConfigError, TreetapError, one_line
from treetap.lab.experiment import defence_points
from treetap.lab.experiment.defence_points import ALONE, MEASURES, attacks_of
from treetap.lab.experiment.experiment_file import (
    JOB,
    Cells,
    ExperimentFile,
    Plan,
    Trainer,
    TrainingResult,
    recommended_rows,
)
from treetap.lab.experiment.joined_table import content_digest
from treetap.lab.experiment.kept import RUNS, Kept, opened, shown
from treetap.lab.experiment.panels import LOOKS, RING, explained, of_attacks, of_columns, of_guesses, placed, written
from treetap.lab.experiment.recommended import RULE, recommend, told_apart
from treetap.lab.experiment.results import spread
from treetap.lab.experiment.side_by_side import by_other_word, other_word
from treetap.lab.local_federation import clean_end, working_folder
from treetap.models.durable import write_whole
from treetap.pages.page import drawn, render
from treetap.pages.printing import print_section, print_words
from treetap.pages.section import Section, Table, Text
from treetap.privacy.frontiers import (
    VERSION,
    FrontierDocument,
    Measured,
    MeasuredAlone,
    MeasuredCells,
    MeasuredPoint,
)
from treetap.strict import load, text_of


def html(document: FrontierDocument) -> str:
    """The page: what to take, the panel that decides, a table of all points; by attack, folded; notes."""
    return _render("frontier.html.j2", document)


def picture(document: FrontierDocument) -> str:
    """The panel that decides, and those of columns below it, as an SVG file."""
    return _render("picture.svg.j2", document)


def _render(template: str, document: FrontierDocument) -> str:
    return render(
        "treetap.lab.experiment",
        template,
        document=document,
        main=[of_guesses(document), *of_columns(document)],
        panels=of_attacks(document),
        looks=[LOOKS[name] for name in LOOKS if any(point.defence == name for point in document.points)],
        headline=", ".join(both_alone(document)),
        table=table_of(document),
        by_attack=by_attack(document),
        rule=RULE,
        ring=f"{RING:g}",
        words=glossary,
    )


def both_alone(document: FrontierDocument) -> list[str]:
    """The AUC of the federation without a defence, and that of the label holder alone; a spread is in the table."""
    without = document.undefended
    rows = {} if without is None else {"together": without.auc.mean}
    rows[f"{document.label_holder} alone"] = document.alone.auc.mean
    return [f"{name} {'undefined' if mean is None else f'{mean:.3f}'} AUC" for name, mean in rows.items()]


def table_of(document: FrontierDocument) -> Table:
    """All points: setting, AUC, gain, what the best attack has above own columns, cells read, variance explained."""
    cells = any(point.cells is not None for point in document.points)
    heads = ["setting", "AUC", "above alone", f"labels guessed, {document.measure}", "taken away"]
    return Table(
        [*heads, *(["columns: cells read", "variance explained"] if cells else [])],
        [
            [
                _name(document, number),
                written(point.auc),
                "–" if point.gain.mean is None else f"{point.gain.mean:+.3f}".replace("-", "−"),
                _guessed(document, point),
                _taken(document, point),
                *([placed(point.cells), explained(point.cells)] if cells else []),
            ]
            for number, point in enumerate(document.points)
        ],
        "All points",
        style="dense",
    )


def by_attack(document: FrontierDocument) -> Table:
    """All points: accuracy, and V-measure by attack."""
    return Table(
        ["setting", "accuracy", *(ATTACKS[attack].label for attack in document.attacks)],
        [
            [
                _name(document, number),
                written(point.accuracy),
                *(written(point.v_measure[attack]) for attack in document.attacks),
            ]
            for number, point in enumerate(document.points)
        ],
        "V-measure by attack",
        style="dense",
    )


def print_frontier(document: FrontierDocument) -> None:
    """The part of the page to decide by: both AUCs, the recommended point with its lines, and all points."""
    print_words(terminal.out, *both_alone(document), document.recommended.says)
    paste = (line for file, lines in document.recommended.lines.items() for line in (f"# {file}", *lines))
    print_words(terminal.out, *(f"    {line}" for line in paste))
    points = Section("", [table_of(document), *(Text(said=sentence, where="terminal") for sentence in document.says)])
    print_section(points, terminal.out)


def _name(document: FrontierDocument, number: int) -> str:
    """A point by its defence and settings; the recommended one is marked."""
    point = document.points[number]
    return named(point.defence, point.settings) + (" ← take this" if number == document.recommended.point else "")


def _guessed(document: FrontierDocument, point: MeasuredPoint) -> str:
    before, it = document.before.mean, point.added
    return "–" if before is None or it.mean is None else written(it.model_copy(update={"mean": before + it.mean}))


def _taken(document: FrontierDocument, point: MeasuredPoint) -> str:
    """The share of what the training adds without a defence that a point takes away."""
    without = document.undefended
    added = None if without is None else without.added.mean
    if point is without or not added or point.added.mean is None:
        return "–"
    taken = 100 * (1 - point.added.mean / added)
    return f"{taken:.0f} %" if taken >= 0.5 else "nothing"


LARGEST = "V-measures are those of the feature party where they are largest, in each seed."
CENTRALISED = (
    "Models were trained on the joined table, without sockets and encryption: they are the trees that a federation "
    "finds, and views and attacks are those of its feature parties."
)
NOISY = (
    "Each training with label_dp drew its own noisy labels and charged them to a ledger of its own, which is gone with "
    "its folder: no party's ledger has them. Whoever publishes several of these models spends the sum of their ε."
)
REPAIRED = (
    "label_dp, label_dp + refit, grafting and grafting + refit are one training each: feature parties saw the same, "
    "hence their V-measures are equal, and so are the cells read."
)
CELLS_READ = (
    "Cells read: the share of the cells (record, column) of a feature party that the label holder placed in their bins "
    "by the sums that it opened, or by left sets of won splits if these place more, of the party where it is largest, "
    "in each seed; in brackets what left sets alone place, and what it would place if all links between trees were "
    "given. Variance explained: of the places of values in columns of numbers, by the places that the label holder "
    "expects, 0 before the training; cells that it cannot place may have an order that it knows."
)
CELLS_UNREAD = "Cells read are not measured: {}. These points say nothing of what the label holder reads in columns."
RANKED = (
    "Labels guessed: by the draws of known labels, and the attacks, of an experiment's audit, whose figures they are; "
    "± of one seed is by these draws."
)
GROUPED = (
    "Labels guessed: by groups after all trees. The audit of an experiment groups after fewer too, and has the best."
)
NO_SUMS = "a training on the joined table opens no sums, --trainer federation does"
NOTHING_SENT = "a training on the joined table sends nothing, --trainer federation does"
NO_RECORD = 'record = "off" keeps no sums'

DOCUMENT, PAGE = "frontier.json", "frontier.html"


def run_file(file: Path, *, as_json: bool, trainer: Trainer, workdir: Path | None, resume: Path | None) -> None:
    """Compare the rows of a file, or the usual ones where it has none, and print what to take.

    Results are kept in `runs/NAME` unless an option says otherwise.
    """
    if workdir is not None and resume is not None:
        raise BadInput("--workdir and --resume exclude each other: give one")
    experiment = load(file, ExperimentFile)
    if not experiment.defence:
        bare = any(party.labels and party.columns == [] for party in experiment.party)
        experiment = experiment.model_copy(update={"defence": recommended_rows(experiment.job, bare=bare)})
        try:
            experiment.check_rows()
        except ValueError as fault:
            raise ConfigError(f"{file}: {fault}") from None
    kept = opened(
        experiment,
        resume or workdir or RUNS / file.stem,
        base=file.absolute().parent,
        place="resumed" if resume else "empty" if workdir else "numbered",
        name=str(file),
        file=text_of(file),
        trainer=trainer,
    )
    say = (lambda made: print(made.model_dump_json(indent=1), flush=True)) if as_json else print_frontier
    try:
        with clean_end():
            compare_rows(kept, trainer, say)
    except OSError as failure:
        raise TreetapError(f"{failure.filename or kept.folder}: {failure.strerror or failure}") from failure
    except BaseException:
        again = f"treetap frontier {file} --trainer {trainer} --resume {shown(kept.folder)}"
        terminal.err.print(f"stopped; go on with the trainings that are missing: {again}", soft_wrap=True)
        raise
    if not as_json and (kept.folder / PAGE).exists():
        terminal.out.print(f"frontier: {shown(kept.folder / PAGE)}", soft_wrap=True)


def compare_rows(kept: Kept, trainer: Trainer, say: Callable[[FrontierDocument], None] = lambda _: None) -> None:
    """Train what the folder lacks of the rows, write their document and their page.

    Each result is on disk before the next training begins. `say`: prints the document before it is drawn.
    """
    experiment = kept.experiment
    plans, other, notes = experiment.plans, Plan(JOB, changes={"privacy": other_word(experiment)}), list[str]()
    try:
        if trainer == "centralised":
            raise ConfigError(NOTHING_SENT)
        by_other_word(experiment)
        plans.append(other)
    except ConfigError as refusal:
        notes.append(_not_there(other, refusal))
    every = [
        (training_name(plan, seed), plan, seed)  # seeds of one plan together
        for plan in plans
        for seed in experiment.data.seeds
    ]
    missing = [row for row in every if row[0] not in kept.points]
    done = len(every) - len(missing)
    if missing:
        terminal.err.print(f"{len(every)} trainings, {done} of them finished already", soft_wrap=True)
    for number, (name, plan, seed) in enumerate(missing, done + 1):
        with working_folder(None, "treetap-frontier-") as folder, progress_view.steps("frontier") as progress:
            if trainer == "centralised":  # a federation shows its own
                progress(number - 1, len(every), "")
            try:
                result = defence_points.trained(experiment, kept.table, plan, seed, folder, trainer)
            except BadInput as refusal:
                if plan is not other:
                    raise
                notes.append(_not_there(other, refusal))
                plans.remove(other)
                break
        kept.add_point(name, result)
        terminal.err.print(f"trained {number} of {len(every)}", soft_wrap=True)
    # the rarest class of the held-out rows is what differences of AUC hang on
    classes = kept.labels.values
    rarest = min(np.unique(classes[rows.test], return_counts=True)[1].min() for _, rows in kept.splits)
    by_plan = {plan: [kept.points[training_name(plan, seed)] for seed in experiment.data.seeds] for plan in plans}
    made = document(experiment, content_digest(kept.table), trainer, by_plan, int(rarest), notes)
    write_whole(kept.folder / DOCUMENT, made.model_dump_json(indent=1).encode(), mode=0o644)
    say(made)
    if (page := drawn(kept.folder / PAGE, lambda: html(made))) is not None:
        write_whole(kept.folder / PAGE, page.encode(), mode=0o644)


def _not_there(plan: Plan, refusal: BadInput) -> str:
    return f"Without a point of {plan.word}: {one_line(str(refusal))}."


def training_name(plan: Plan, seed: int) -> str:
    """The name of a training among those of a folder."""
    return f"{plan.word}-seed-{seed}"


def document(
    experiment: ExperimentFile,
    digest: str,
    trainer: Trainer,
    by_plan: Mapping[Plan, list[TrainingResult]],
    rarest: int = 0,
    notes: Sequence[str] = (),
) -> FrontierDocument:
    """The points of all plans. `by_plan`: plan, that without a defence first → a result for each seed, in order.

    `rarest`: held-out rows of the class with the fewest; 0: unknown. `notes`: further sentences for a reader.
    """
    holder, undefended = experiment.in_order[0], next(iter(by_plan.values()))
    first = undefended[0]
    attacks, central = attacks_of(experiment, first.records["train"]), trainer == "centralised"
    reads_cells = not central and all(party.record != "off" for party in experiment.party)
    says = [LARGEST] if len(first.v_measure) > 1 else []
    says += [CENTRALISED] if central else []
    says.append(CELLS_READ if reads_cells else CELLS_UNREAD.format(NO_SUMS if central else NO_RECORD))
    # why cells of a party were not read although they were to be, a sentence for each point
    says += sorted(
        {
            f"Cells of {party} were not read, {plan.word}: {why}."
            for plan, results in by_plan.items()
            for result in results
            for party, why in result.unread.items()
        }
    )
    says += [RANKED if first.measure == "AUC" else GROUPED]
    says += [NOISY] if any(plan.defences.label_dp for plan in by_plan) else []
    says += notes
    says += [REPAIRED] if any(plan.defences.grafting for plan in by_plan) else []
    points = [
        _point(plan, name, results, undefended, attacks, experiment.data.seeds)
        for plan, results in by_plan.items()
        for name in plan.points
    ]
    told = [max(it.guesses.values(), key=lambda guess: guess.after - guess.before) for it in undefended]
    before = measured(it.before for it in told)
    reached = MeasuredAlone(**{name: measured(it.test[ALONE][name] for it in undefended) for name in MEASURES})
    return FrontierDocument(
        version=VERSION,
        table=Path(experiment.data.title).name,
        data_digest=digest,
        protocol=experiment.job.protocol,
        label_holder=holder,
        trainer=trainer,
        job=experiment.job.params().to_dict(),
        classes=first.classes,
        records=first.records,
        seeds=experiment.data.seeds,
        attacks=attacks,
        measure=first.measure,
        before=before,
        says=says,
        points=points,
        alone=reached,
        recommended=recommend(points, reached, before.mean, holder, told_apart(points, rarest, first.records["test"])),
    )


def _point(
    plan: Plan,
    name: str,
    results: Sequence[TrainingResult],
    alone: Sequence[TrainingResult],
    attacks: Sequence[str],
    seeds: list[int],
) -> MeasuredPoint:
    parties = {
        party: {attack: measured(result.v_measure[party][attack] for result in results) for attack in attacks}
        for party in results[0].v_measure
    }
    told = [max(result.guesses.values(), key=lambda it: it.after - it.before) for result in results]
    added = measured(it.after - it.before for it in told)
    if len(told) == 1 and told[0].drawn:
        added = Measured(mean=added.mean, sd=told[0].drawn)
    return MeasuredPoint(
        defence=name,
        settings=plan.settings,
        auc=measured(result.test[name]["auc"] for result in results),
        accuracy=measured(result.test[name]["accuracy"] for result in results),
        v_measure={
            attack: measured(max(party[attack] for party in result.v_measure.values()) for result in results)
            for attack in attacks
        },
        parties=parties,
        added=added,
        gain=measured(
            _above(result.test[name]["auc"], reached.test[ALONE]["auc"])
            for result, reached in zip(results, alone, strict=True)
        ),
        cells=_cells([_most_read(result) for result in results]),
        cells_of={
            party: cells
            for party in results[0].v_measure
            if (cells := _cells([result.cells.get(party) for result in results])) is not None
        },
        seeds=seeds,
    )


def _above(value: float | None, floor: float | None) -> float | None:
    return None if value is None or floor is None else value - floor


def _most_read(result: TrainingResult) -> Cells | None:
    """The cells of the party of which most was read, with the largest variance explained of any party."""
    cells = list(result.cells.values())
    explained = max((it.explained for it in cells if it.explained is not None), default=None)
    most = max(cells, key=lambda it: it.read, default=None)
    return most and most.model_copy(update={"explained": explained})


def _cells(read: Sequence[Cells | None]) -> MeasuredCells | None:
    """Means over the seeds; None if a seed lacks them."""
    known = [it for it in read if it is not None]
    if len(known) < len(read):
        return None
    return MeasuredCells(**{name: measured(getattr(it, name) for it in known) for name in Cells.model_fields})


def measured(values: Iterable[float | None]) -> Measured:
    """Mean and standard deviation of a sample; undefined if a value is."""
    figures = spread(values)
    return Measured(mean=figures.mean, sd=figures.sd)
